/** Converts a session's knowledge about its server to the terms of the sequence core. */
import * as Option from "effect/Option"
import type { Learnt } from "../../Session.ts"
import type { ServerTraits } from "../core/SequenceState.ts"

export const fromLearnt = ({ guardsNumbers, refusedUsesNumber, wire }: Learnt): ServerTraits => ({
  encoding: Option.getOrUndefined(wire),
  rejectionConsumesSeq: refusedUsesNumber,
  deduplicates: Option.getOrUndefined(guardsNumbers),
})

export const toLearnt = ({ deduplicates, encoding, rejectionConsumesSeq }: Readonly<ServerTraits>): Learnt => ({
  wire: Option.fromNullable(encoding),
  refusedUsesNumber: rejectionConsumesSeq,
  guardsNumbers: Option.fromNullable(deduplicates),
})
