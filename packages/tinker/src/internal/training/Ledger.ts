/** Reads the calls of a client from its journal: completed, waiting for a result, or possibly unsent. */
import * as Option from "effect/Option"
import * as Api from "../../protocol/Api.ts"
import { SequenceBroken } from "../../TinkerError.ts"
import type { State, Step } from "../../TrainingJournal.ts"
import type { Acknowledgement } from "../core/SequenceState.ts"
import type { Start } from "./TrainingDriver.ts"

/** A call that a previous process recorded in the journal. */
export interface JournaledCall {
  /** The endpoint's name on the wire, e.g. `optim_step`. */
  readonly operation: string
  /** One number for each of its requests. */
  readonly seqs: ReadonlyArray<number>
  readonly tag: Option.Option<string>
}

/** The records of one call: the pieces of a batch belong together. */
export interface LedgerCall {
  readonly steps: readonly [Step, ...ReadonlyArray<Step>]
  /** The server has all of its pieces or will get them. The pieces of other calls never arrive. */
  readonly isWhole: boolean
  /** `settled`: all results arrived. `unsent`: it is not known whether all pieces were sent. */
  readonly stands: "settled" | "acknowledged" | "unsent"
}

export interface Ledger {
  /** In the order of their numbers. */
  readonly calls: ReadonlyArray<LedgerCall>
  /** Numbers that were recorded and are free nevertheless. */
  readonly free: ReadonlyArray<number>
}

/** Checks whether the server certainly has a request. */
const isAccepted = ({ requestId, succeeded }: Step): boolean => Option.isSome(requestId) || Option.isSome(succeeded)

/**
 * Groups the records of a journal into calls. All pieces of a call are recorded before the first of them is sent. If
 * some are missing, the journal ended before that, or they were rejected and nothing after them was sent: in either
 * case what was not acknowledged is not on the server and must not get there alone.
 */
export const ledger = (steps: ReadonlyArray<Step>): Ledger => {
  const calls: Array<LedgerCall> = []
  const free: Array<number> = []
  for (const group of groups(steps)) {
    const [{ intent }] = group
    const isWhole = intent.chunk === 0 && group.length === intent.chunks
    const [first, ...rest] = isWhole ? group : group.filter(isAccepted)
    if (!isWhole) free.push(...group.filter((step) => !isAccepted(step)).map(({ intent }) => intent.seq))
    if (first !== undefined) calls.push({ steps: [first, ...rest], isWhole, stands: standing([first, ...rest]) })
  }
  return { calls, free }
}

const groups = (steps: ReadonlyArray<Step>): ReadonlyArray<readonly [Step, ...ReadonlyArray<Step>]> => {
  const groups: Array<[Step, ...Array<Step>]> = []
  for (const step of steps) {
    const last = groups.at(-1)
    const previous = last?.at(-1)?.intent
    const continues =
      previous !== undefined &&
      previous.chunk === step.intent.chunk - 1 &&
      previous.seq === step.intent.seq - 1 &&
      previous.chunks === step.intent.chunks &&
      previous.kind === step.intent.kind
    if (continues) last?.push(step)
    else groups.push([step])
  }
  return groups
}

const standing = (steps: ReadonlyArray<Step>): LedgerCall["stands"] => {
  if (!steps.every(isAccepted)) return "unsent"
  return steps.every(({ succeeded }) => Option.isSome(succeeded)) ? "settled" : "acknowledged"
}

export const describe = (steps: LedgerCall["steps"]): JournaledCall => ({
  operation: steps[0].intent.operation,
  seqs: steps.map(({ intent }) => intent.seq),
  tag: steps[0].intent.tag,
})

/** Returns where the numbers stand. */
export const startOf = (state: State, calls: ReadonlyArray<LedgerCall>, free: Ledger["free"]): Start => {
  const { withdrawn } = state
  const lastCheckpoint = Option.map(state.lastCheckpoint, ({ path }) => path)
  const steps = calls.flatMap(({ steps }) => steps)
  const next = (steps.at(-1)?.intent.seq ?? 0) + 1
  const newest = acknowledgement(steps.findLast(({ requestId }) => Option.isSome(requestId)))
  const proven = acknowledgement(
    steps.findLast(({ requestId, succeeded }) => Option.isSome(requestId) && Option.contains(succeeded, true)),
  )
  const lastSuccess = steps.findLastIndex(({ succeeded }) => Option.contains(succeeded, true))
  const partial = Option.filter(Option.fromNullable(calls.findLast((call) => !isUselessLoad(call))), isPartial)
  const broken = Option.map(
    partial,
    ({ steps: [{ intent }] }) => ({ operation: intent.operation, seq: next, applied: "partial", error: -1 }) as const,
  )
  return {
    sequence: {
      next,
      newest,
      proven,
      // The server may have used the numbers of rejected requests.
      withdrawn: [...new Set([...withdrawn, ...free])].filter((seq) => seq >= next).toSorted((a, b) => a - b),
      failed: steps
        .slice(lastSuccess + 1)
        .flatMap(({ intent, succeeded }) => (Option.contains(succeeded, false) ? [intent.seq] : [])),
      unsettled: steps.flatMap(({ intent, requestId, succeeded }) =>
        Option.isSome(requestId) && Option.isNone(succeeded) ? [intent.seq] : [],
      ),
      broken: Option.getOrUndefined(broken),
    },
    broken: Option.map(
      broken,
      ({ applied, operation, seq }) =>
        new SequenceBroken({
          operation,
          seq,
          applied,
          acknowledged: newest?.seq ?? 0,
          lastCheckpoint,
          detail: "before the restart",
        }),
    ),
    lastCheckpoint,
  }
}

const acknowledgement = (step: Step | undefined): Acknowledgement | undefined => {
  const requestId = step && Option.getOrUndefined(step.requestId)
  return step === undefined || requestId === undefined ? undefined : { seq: step.intent.seq, requestId }
}

/** Gradients of part of a batch remain. A call after it either wanted them or replaced them. */
const isPartial = ({ isWhole, steps: [{ intent }] }: LedgerCall): boolean => !isWhole && !intent.repeatable

/** A load that did not succeed replaced nothing. */
const isUselessLoad = (call: LedgerCall): boolean =>
  call.steps[0].intent.operation === Api.loadWeights.operation && !isLoaded(call)

/** Checks whether a call loaded weights successfully. */
export const isLoaded = (call: LedgerCall): boolean =>
  call.steps[0].intent.operation === Api.loadWeights.operation && outcome(call).succeeded === true

/** Returns what is known of a call's results; `succeeded` is undefined while nothing is. */
export const outcome = ({
  steps,
}: LedgerCall): JournaledCall & { readonly kind: string; readonly succeeded: boolean | undefined } => ({
  ...describe(steps),
  kind: steps[0].intent.kind,
  succeeded: steps.some(({ succeeded }) => Option.contains(succeeded, false))
    ? false
    : steps.every(({ succeeded }) => Option.isSome(succeeded)) || undefined,
})
