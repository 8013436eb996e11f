/** The kinds of results of passes, which check that a result belongs to its batch. */
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import { type Kind, kinds } from "../../ApiFuture.ts"
import type { TrainingResult } from "../../TrainingResult.ts"

const checked = new Map<string, Kind<TrainingResult>>()

/** Returns the kind of the result of a pass over this many datums. */
export const passKind = (forwardOnly: boolean, datums: number): Kind<TrainingResult> => {
  const key = `${forwardOnly} ${datums}`
  let kind = checked.get(key)
  if (kind === undefined) {
    kind = checking(forwardOnly ? kinds.forward : kinds.forwardBackward, datums)
    checked.set(key, kind)
  }
  return kind
}

const checking = ({ fromJson, fromProtobuf, type }: Kind<TrainingResult>, datums: number): Kind<TrainingResult> => ({
  type,
  fromJson: (json) => Either.flatMap(fromJson(json), (result) => check(result, datums)),
  fromProtobuf: Option.map(
    fromProtobuf,
    (read) => (bytes) => Either.flatMap(read(bytes), (result) => check(result, datums)),
  ),
})

/**
 * All fields of a result are optional, so that anything could be read as one. A server may leave the outputs out, but
 * not some of them, and then it has metrics.
 */
const check = (result: TrainingResult, datums: number): Either.Either<TrainingResult, ParseResult.ParseError> => {
  const { length } = result.outputs
  if (length === datums) return Either.right(result)
  if (length === 0 && Object.keys(result.metrics).length > 0) return Either.right(result)
  const problem = length === 0 ? "neither outputs nor metrics" : `outputs for ${length} of ${datums} datums`
  return Either.left(ParseResult.parseError(new ParseResult.Type(Schema.Unknown.ast, undefined, problem)))
}
