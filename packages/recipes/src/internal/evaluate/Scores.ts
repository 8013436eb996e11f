/** The scores of answers: their means, with confidence intervals. */
import * as Either from "effect/Either"
import type { InvalidInput } from "effect-tinker/TinkerError"
import * as Bootstrap from "../../Bootstrap.ts"
import type { Metrics } from "../../RunEvent.ts"
import type { Evaluation, Metric, Outcome } from "./Questions.ts"

/**
 * The result of an evaluation.
 *
 * @since 0.1.0
 * @category models
 */
export interface Result<out A> {
  readonly name: string
  /** The metric that decides comparisons. */
  readonly main: Metric
  /** All numbers, by metric. */
  readonly metrics: Metrics
  /** The confidence intervals of the metrics that are means of scores. */
  readonly intervals: Readonly<Record<string, Bootstrap.Interval>>
  /** One for each question, in order. */
  readonly outcomes: ReadonlyArray<Outcome<A>>
  /** How many questions failed. */
  readonly failed: number
}

export interface Scored {
  readonly value: number
  readonly weight: number
}

export const answersOf = <A>(outcomes: ReadonlyArray<Outcome<A>>) =>
  outcomes.flatMap((outcome) => (outcome._tag === "Answered" ? [outcome] : []))

export const scoreOf = <A>(outcome: Outcome<A> | undefined, metric: string): Scored | undefined => {
  const value = outcome?._tag === "Answered" ? outcome.scores[metric] : undefined
  if (outcome?._tag !== "Answered" || value === undefined) return undefined
  return { value, weight: outcome.weights?.[metric] ?? 1 }
}

export const scoresOf = <A>(outcomes: ReadonlyArray<Outcome<A>>, metric: string): ReadonlyArray<Scored> =>
  outcomes.flatMap((outcome) => scoreOf(outcome, metric) ?? [])

export const meanOf = (scores: ReadonlyArray<Scored>): number => {
  const total = scores.reduce((sum, { weight }) => sum + weight, 0)
  return scores.reduce((sum, { value, weight }) => sum + value * weight, 0) / total
}

export const metricsOf = <A, E, R>(
  { metrics, summarize }: Pick<Evaluation<A, E, R>, "metrics" | "summarize">,
  outcomes: ReadonlyArray<Outcome<A>>,
): Metrics => {
  const means = metrics.flatMap(({ name }) => {
    const scores = scoresOf(outcomes, name)
    return scores.length === 0 ? [] : [[name, meanOf(scores)] as const]
  })
  const answers = answersOf(outcomes)
  const failed = outcomes.length - answers.length
  return { ...Object.fromEntries(means), ...summarize?.(answers), ...(failed === 0 ? {} : { failed }) }
}

/** Nothing is known about a mean of which one value is infinite. */
export const unknown = { low: Number.NEGATIVE_INFINITY, high: Number.POSITIVE_INFINITY }

export const isFinite = (scores: ReadonlyArray<Scored>): boolean => scores.every(({ value }) => Number.isFinite(value))

const intervalOf = (
  scores: ReadonlyArray<Scored>,
  options: Bootstrap.Options,
): Either.Either<Bootstrap.Interval, InvalidInput> =>
  isFinite(scores)
    ? Bootstrap.mean(
        scores.map(({ value }) => value),
        { ...options, weights: scores.map(({ weight }) => weight) },
      )
    : Either.right({
        ...unknown,
        estimate: meanOf(scores),
        confidence: options.confidence ?? 0.95,
        count: scores.length,
      })

export const resultOf = <A, E, R>(
  evaluation: Evaluation<A, E, R>,
  outcomes: ReadonlyArray<Outcome<A>>,
  { confidence, resamples, seed }: Pick<Bootstrap.Options, "confidence" | "resamples" | "seed">,
): Either.Either<Result<A>, InvalidInput> =>
  Either.gen(function* () {
    const intervals: Record<string, Bootstrap.Interval> = {}
    for (const { name } of evaluation.metrics) {
      const scores = scoresOf(outcomes, name)
      if (scores.length > 0) intervals[name] = yield* intervalOf(scores, { confidence, resamples, seed })
    }
    return {
      name: evaluation.name,
      main: evaluation.metrics[0],
      metrics: metricsOf(evaluation, outcomes),
      intervals,
      outcomes,
      failed: outcomes.filter(({ _tag }) => _tag === "Failed").length,
    }
  })
