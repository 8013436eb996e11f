/**
 * The probability that at least one of k attempts solves a problem, estimated without bias from n ≥ k attempts.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import { InvalidInput } from "effect-tinker/TinkerError"

/**
 * The attempts at one problem.
 *
 * @since 0.1.0
 * @category models
 */
export interface Attempts {
  readonly attempts: number
  readonly solved: number
}

const isCount = (value: number) => Number.isSafeInteger(value) && value >= 0

/**
 * Estimates pass@k of one problem: `1 − C(n − c, k) / C(n, k)` for c of n attempts that solved it.
 *
 * @since 0.1.0
 * @category computing
 */
export const estimate = ({ attempts, solved }: Attempts, k: number): Either.Either<number, InvalidInput> => {
  const invalid = (path: string, problem: string) => Either.left(new InvalidInput({ path, problem }))
  if (!isCount(attempts)) return invalid("attempts", `expected a number of attempts, got ${attempts}`)
  if (!isCount(solved) || solved > attempts) {
    return invalid("solved", `expected an integer from 0 to ${attempts}, got ${solved}`)
  }
  if (!isCount(k) || k < 1 || k > attempts) return invalid("k", `expected an integer from 1 to ${attempts}, got ${k}`)
  if (attempts - solved < k) return Either.right(1)
  // The quotient of the binomials, factor by factor: neither of them fits into a number for many attempts.
  let failing = 1
  for (let at = 0; at < k; at++) failing *= (attempts - solved - at) / (attempts - at)
  return Either.right(1 - failing)
}

/**
 * Returns the mean of pass@k over problems. Problems with fewer than k attempts are left out; none if that leaves none.
 *
 * @since 0.1.0
 * @category computing
 */
export const mean = (
  problems: ReadonlyArray<Attempts>,
  k: number,
): Either.Either<Option.Option<number>, InvalidInput> =>
  Either.map(
    Either.all(problems.filter(({ attempts }) => !(attempts < k)).map((problem) => estimate(problem, k))),
    (estimates) =>
      estimates.length === 0
        ? Option.none()
        : Option.some(estimates.reduce((sum, one) => sum + one, 0) / estimates.length),
  )
