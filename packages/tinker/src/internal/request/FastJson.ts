/**
 * Reads the most frequent responses by hand, in a tenth of the time that a schema takes. A value that looks odd is left
 * to the schema, which describes what is wrong with it.
 */
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import type * as ParseResult from "effect/ParseResult"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import { Accepted } from "../../protocol/schemas/Futures.ts"
import { HeartbeatResponse } from "../../protocol/schemas/Session.ts"
import { OptimStepResult } from "../../protocol/schemas/Training.ts"

export type Reader<out A = unknown> = (value: unknown) => Either.Either<A, ParseResult.ParseError>

/** Decodes by the schema. The decoder is made when it is needed, which is rare: making it at start-up costs time. */
const bySchema = <A, I>(schema: Schema.Schema<A, I>, value: unknown) => Schema.decodeUnknownEither(schema)(value)

const isText = Predicate.isString
const isMissing = Predicate.isNullable

/** Reads the response to a submission. */
const accepted: Reader<Accepted> = (value) => {
  if (!Predicate.isRecord(value)) return bySchema(Accepted, value)
  const { model_id: modelId, request_id: requestId, sample_sequence_ids: ids } = value
  const isPlain =
    isText(requestId) &&
    (isMissing(modelId) || isText(modelId)) &&
    (isMissing(ids) || (Array.isArray(ids) && ids.every(isText)))
  if (!isPlain) return bySchema(Accepted, value)
  return Either.right({
    requestId,
    modelId: Option.fromNullable(modelId),
    sampleSequenceIds: Option.fromNullable(ids),
  })
}

/** Reads the response to a heartbeat: hours of training are mostly heartbeats. */
const heartbeat: Reader<typeof HeartbeatResponse.Type> = (value) =>
  Predicate.isRecord(value) && (isMissing(value["type"]) || value["type"] === "session_heartbeat")
    ? Either.right({})
    : bySchema(HeartbeatResponse, value)

/** Reads the result of an optimizer step. */
const optimStep: Reader<OptimStepResult> = (value) => {
  const given = Predicate.isRecord(value) ? value["metrics"] : undefined
  if (!Predicate.isRecord(given) || Array.isArray(given)) return bySchema(OptimStepResult, value)
  const metrics: Record<string, number> = {}
  for (const name of Object.keys(given)) {
    const metric = given[name]
    if (typeof metric !== "number" || !Number.isFinite(metric) || name === "__proto__")
      return bySchema(OptimStepResult, value)
    metrics[name] = metric
  }
  return Either.right({ metrics })
}

const byHand = new Map<unknown, Reader>([
  [Accepted, accepted],
  [HeartbeatResponse, heartbeat],
  [OptimStepResult, optimStep],
])

/** Returns the reader of a schema. */
export const readerOf = <A, I>(schema: Schema.Schema<A, I>): Reader<A> =>
  // The table pairs each reader with the schema of its values.
  (byHand.get(schema) as Reader<A> | undefined) ?? Schema.decodeUnknownEither(schema)
