/** Whether one model is better than another one on the same questions. */
import * as Either from "effect/Either"
import { InvalidInput } from "effect-tinker/TinkerError"
import * as Bootstrap from "../../Bootstrap.ts"
import type { Metric } from "./Questions.ts"
import { isFinite, meanOf, type Result, scoreOf, unknown } from "./Scores.ts"

/**
 * A comparison of two models on the same questions.
 *
 * @since 0.1.0
 * @category models
 */
export interface Comparison<out A> {
  readonly name: string
  readonly metric: Metric
  /** `undecided`: the questions do not tell the two models apart. */
  readonly verdict: "improved" | "worse" | "undecided"
  /** By how much the mean of the second model is larger, with the confidence interval of the pairs. */
  readonly difference: Bootstrap.Interval
  /** The probability that the second model is better. */
  readonly probability: number
  /** How many pairs were compared, and in how many of them the scores differ. */
  readonly pairs: number
  readonly changed: number
  readonly base: Result<A>
  readonly tuned: Result<A>
}

/**
 * Options of {@link compareResults}.
 *
 * @since 0.1.0
 * @category models
 */
export interface CompareOptions extends Pick<Bootstrap.Options, "confidence" | "resamples" | "seed"> {
  /**
   * The metric that decides.
   *
   * @default the first one of the evaluation
   */
  readonly metric?: Metric | undefined
}

/**
 * Compares two results of the same evaluation. Questions that failed in one of them are left out.
 *
 * The verdict is `improved` or `worse` if the confidence interval of the differences excludes 0 and enough pairs differ:
 * with 95% confidence at least 6, because fewer would all point in one direction by chance too often.
 *
 * @since 0.1.0
 * @category comparing
 */
export const compareResults = <A>(
  base: Result<A>,
  tuned: Result<A>,
  options: CompareOptions = {},
): Either.Either<Comparison<A>, InvalidInput> =>
  Either.gen(function* () {
    const { metric = base.main, ...bootstrap } = options
    const { confidence = 0.95 } = bootstrap
    const refuse = (problem: string) => Either.left(new InvalidInput({ path: "tuned", problem }))
    if (base.outcomes.length !== tuned.outcomes.length)
      return yield* refuse(`expected ${base.outcomes.length} outcomes, as in base, got ${tuned.outcomes.length}`)
    const odd = base.outcomes.findIndex(({ question }, at) => question !== tuned.outcomes[at]?.question)
    if (odd >= 0) return yield* refuse(`question ${odd} is not the one in base`)
    const pairs = base.outcomes.flatMap((outcome, at) => {
      const [before, after] = [scoreOf(outcome, metric.name), scoreOf(tuned.outcomes[at], metric.name)]
      return before === undefined || after === undefined ? [] : [{ before, after }]
    })
    if (pairs.length === 0) return yield* refuse(`no question has a ${metric.name} in both results`)
    const [before, after] = [pairs.map(({ before }) => before), pairs.map(({ after }) => after)]
    const difference: Bootstrap.Difference =
      isFinite(before) && isFinite(after)
        ? yield* Bootstrap.difference(
            before.map(({ value }) => value),
            after.map(({ value }) => value),
            { ...bootstrap, weights: before.map(({ weight }) => weight) },
          )
        : {
            ...unknown,
            estimate: meanOf(after) - meanOf(before),
            confidence,
            count: pairs.length,
            probabilityLarger: 0.5,
          }
    const changed = pairs.filter(({ after, before }) => after.value !== before.value).length
    const { probabilityLarger, ...interval } = difference
    const isHigher = metric.better === "highest"
    return {
      name: base.name,
      metric,
      verdict: verdictOf(interval, metric, changed),
      difference: interval,
      probability: isHigher ? probabilityLarger : 1 - probabilityLarger,
      pairs: pairs.length,
      changed,
      base,
      tuned,
    }
  })

/** The sign test: so many pairs that differ in the same direction by chance are rarer than the interval may be wrong. */
const verdictOf = (
  { confidence, high, low }: Bootstrap.Interval,
  { better }: Metric,
  changed: number,
): Comparison<never>["verdict"] => {
  if (2 * 0.5 ** changed > 1 - confidence || (low <= 0 && high >= 0)) return "undecided"
  return low > 0 === (better === "highest") ? "improved" : "worse"
}
