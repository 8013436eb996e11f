import * as Either from "effect/Either"
import * as Option from "effect/Option"
import type * as ParseResult from "effect/ParseResult"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import { Accepted } from "../api/Futures.ts"

const bySchema = (value: unknown) => Schema.decodeUnknownEither(Accepted)(value)

const isText = Predicate.isString
const isMissing = Predicate.isNullable

/**
 * Every submission is answered by this, so it is read by hand: a tenth of what the schema takes. Whatever looks odd is
 * left to the schema, which has the words for it.
 */
export const readAccepted = (value: unknown): Either.Either<Accepted, ParseResult.ParseError> => {
  if (!Predicate.isRecord(value)) return bySchema(value)
  const { model_id: modelId, request_id: requestId, sample_sequence_ids: ids } = value
  const isPlain =
    isText(requestId) &&
    (isMissing(modelId) || isText(modelId)) &&
    (isMissing(ids) || (Array.isArray(ids) && ids.every(isText)))
  return isPlain
    ? Either.right({
        requestId,
        modelId: Option.fromNullable(modelId),
        sampleSequenceIds: Option.fromNullable(ids),
      })
    : bySchema(value)
}
