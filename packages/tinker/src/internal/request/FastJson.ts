/**
 * What comes thousands of times is read by hand: a tenth of what a schema takes. Whatever looks odd is left to the
 * schema, which has the words for it.
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

/** Not prepared beforehand: at start-up that would cost, and it is hardly ever needed. */
const bySchema = <A, I>(schema: Schema.Schema<A, I>, value: unknown) => Schema.decodeUnknownEither(schema)(value)

const isText = Predicate.isString
const isMissing = Predicate.isNullable

/** The answer to every submission. */
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

/** Hours of training are mostly heartbeats. */
const heartbeat: Reader<typeof HeartbeatResponse.Type> = (value) =>
  Predicate.isRecord(value) && (isMissing(value["type"]) || value["type"] === "session_heartbeat")
    ? Either.right({})
    : bySchema(HeartbeatResponse, value)

/** The result of every update. */
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

/** What reads the values of this schema. */
export const readerOf = <A, I>(schema: Schema.Schema<A, I>): Reader<A> =>
  // Each stands beside the schema whose values it reads.
  (byHand.get(schema) as Reader<A> | undefined) ?? Schema.decodeUnknownEither(schema)
