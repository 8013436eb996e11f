import * as Either from "effect/Either"
import type * as ParseResult from "effect/ParseResult"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import { OptimStepResult } from "../api/Training.ts"

const bySchema = Schema.decodeUnknownEither(OptimStepResult)

/** The result of every update, read by hand for the same reason as {@link readAccepted}. */
export const readOptimStep = (value: unknown): Either.Either<OptimStepResult, ParseResult.ParseError> => {
  if (!Predicate.isRecord(value)) return bySchema(value)
  const given = value["metrics"]
  if (!Predicate.isRecord(given) || Array.isArray(given)) return bySchema(value)
  const metrics: Record<string, number> = {}
  for (const name of Object.keys(given)) {
    const metric = given[name]
    if (typeof metric !== "number" || !Number.isFinite(metric) || name === "__proto__") return bySchema(value)
    metrics[name] = metric
  }
  return Either.right({ metrics })
}
