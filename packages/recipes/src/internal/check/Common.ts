/** The parts that the checks share: their verdict, and the checks of their options. */
import * as Either from "effect/Either"
import { InvalidInput, UnexpectedResponse } from "effect-tinker/TinkerError"

/** The fields of every report. */
export interface Verdict {
  /** Whether no problem was found. */
  readonly passed: boolean
  /** The problems, one sentence each. */
  readonly problems: ReadonlyArray<string>
}

export const verdictOf = (problems: ReadonlyArray<string>): Verdict => ({ passed: problems.length === 0, problems })

export const positive = (values: Readonly<Record<string, number>>): Either.Either<void, InvalidInput> => {
  const bad = Object.entries(values).find(([, value]) => !(value > 0 && Number.isFinite(value)))
  return bad === undefined
    ? Either.void
    : Either.left(new InvalidInput({ path: bad[0], problem: `expected a positive number, got ${bad[1]}` }))
}

export const whole = (values: Readonly<Record<string, number>>): Either.Either<void, InvalidInput> => {
  const bad = Object.entries(values).find(([, value]) => !(Number.isSafeInteger(value) && value > 0))
  return bad === undefined
    ? Either.void
    : Either.left(new InvalidInput({ path: bad[0], problem: `expected a positive integer, got ${bad[1]}` }))
}

export const withoutLogprobs = new UnexpectedResponse({
  operation: "asample",
  reason: "Schema",
  detail: "the server returned no log probabilities",
})

/** A value that is no number is worse than any other. */
export const sizeOf = (difference: number): number =>
  Number.isNaN(difference) ? Number.POSITIVE_INFINITY : Math.abs(difference)
