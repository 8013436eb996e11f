/**
 * Confidence intervals by resampling: how far a mean could be off because the data are a sample. The same seed always
 * gives the same interval.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import { InvalidInput } from "effect-tinker/TinkerError"
import { Generator, purposes } from "./internal/Generator.ts"

/**
 * Options of the intervals.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** The probability with which the interval contains the true value. Default: 0.95. */
  readonly confidence?: number | undefined
  /** How often to resample. Default: 10 000. */
  readonly resamples?: number | undefined
  /** Default: 0. */
  readonly seed?: number | undefined
  /** How much each value counts, e.g. the number of tokens behind it. Default: all the same. */
  readonly weights?: ArrayLike<number> | undefined
}

/**
 * An estimate and its confidence interval.
 *
 * @since 0.1.0
 * @category models
 */
export interface Interval {
  readonly estimate: number
  readonly low: number
  readonly high: number
  readonly confidence: number
  /** The number of values. */
  readonly count: number
}

/**
 * The difference of two means, and how sure it is that the second one is larger.
 *
 * @since 0.1.0
 * @category models
 */
export interface Difference extends Interval {
  /** The share of resamples in which the second mean is larger; ties count half. */
  readonly probabilityLarger: number
}

const invalid = (path: string, problem: string) => Either.left(new InvalidInput({ path, problem }))

interface Checked {
  readonly confidence: number
  readonly resamples: number
  readonly seed: number
  readonly weights: ArrayLike<number>
}

const checked = (
  values: ArrayLike<number>,
  path: string,
  { confidence = 0.95, resamples = 10_000, seed = 0, weights = new Uint8Array(values.length).fill(1) }: Options,
): Either.Either<Checked, InvalidInput> => {
  if (values.length === 0) return invalid(path, "expected at least one value")
  for (let at = 0; at < values.length; at++) {
    if (!Number.isFinite(values[at])) return invalid(`${path}[${at}]`, `expected a finite number, got ${values[at]}`)
  }
  if (!(confidence > 0 && confidence < 1)) {
    return invalid("confidence", `expected a number between 0 and 1, got ${confidence}`)
  }
  if (!Number.isSafeInteger(resamples) || resamples < 1) {
    return invalid("resamples", `expected a positive integer, got ${resamples}`)
  }
  if (weights.length !== values.length) {
    return invalid("weights", `expected one weight per value (${values.length}), got ${weights.length}`)
  }
  for (let at = 0; at < weights.length; at++) {
    if (!((weights[at] ?? 0) > 0 && Number.isFinite(weights[at])))
      return invalid(`weights[${at}]`, `expected a positive number, got ${weights[at]}`)
  }
  return Number.isSafeInteger(seed)
    ? Either.right({ confidence, resamples, seed, weights })
    : invalid("seed", `expected an integer, got ${seed}`)
}

const meanOf = (values: ArrayLike<number>, weights: ArrayLike<number>): number => {
  let sum = 0
  let total = 0
  for (let at = 0; at < values.length; at++) {
    sum += (values[at] ?? 0) * (weights[at] ?? 0)
    total += weights[at] ?? 0
  }
  return sum / total
}

/** Returns the means of resamples, sorted. */
const resample = (values: ArrayLike<number>, { resamples, seed, weights }: Checked): Float64Array => {
  const generator = new Generator(seed, purposes.bootstrap)
  const means = new Float64Array(resamples)
  for (let at = 0; at < resamples; at++) {
    let sum = 0
    let total = 0
    for (let drawn = 0; drawn < values.length; drawn++) {
      const index = generator.below(values.length)
      sum += (values[index] ?? 0) * (weights[index] ?? 0)
      total += weights[index] ?? 0
    }
    means[at] = sum / total
  }
  return means.toSorted()
}

/** Returns the value below which a share of sorted values lies, interpolated. */
const quantile = (sorted: Float64Array, share: number): number => {
  const at = share * (sorted.length - 1)
  const below = Math.floor(at)
  const low = sorted[below] ?? 0
  return low + (at - below) * ((sorted[below + 1] ?? low) - low)
}

/**
 * Returns the mean of values, by weight, with its confidence interval.
 *
 * @since 0.1.0
 * @category computing
 */
export const mean = (values: ArrayLike<number>, options: Options = {}): Either.Either<Interval, InvalidInput> =>
  Either.map(checked(values, "values", options), (settings) => {
    const { confidence, weights } = settings
    const means = resample(values, settings)
    return {
      estimate: meanOf(values, weights),
      low: quantile(means, (1 - confidence) / 2),
      high: quantile(means, (1 + confidence) / 2),
      confidence,
      count: values.length,
    }
  })

/**
 * Returns by how much the mean of `after` is larger than that of `before`, where the values at the same place belong
 * together, e.g. the scores of two models for the same question. Comparing pairs needs far fewer values than comparing
 * two separate intervals.
 *
 * @since 0.1.0
 * @category computing
 */
export const difference = (
  before: ArrayLike<number>,
  after: ArrayLike<number>,
  options: Options = {},
): Either.Either<Difference, InvalidInput> =>
  Either.gen(function* () {
    yield* checked(before, "before", options)
    if (before.length !== after.length) {
      return yield* invalid("after", `expected one value per value of before (${before.length}), got ${after.length}`)
    }
    const settings = yield* checked(after, "after", options)
    const { confidence, resamples, weights } = settings
    const differences = Float64Array.from(after, (value, at) => value - (before[at] ?? 0))
    const means = resample(differences, settings)
    let larger = 0
    for (const one of means) larger += one > 0 ? 1 : one === 0 ? 0.5 : 0
    return {
      estimate: meanOf(differences, weights),
      low: quantile(means, (1 - confidence) / 2),
      high: quantile(means, (1 + confidence) / 2),
      confidence,
      count: differences.length,
      probabilityLarger: larger / resamples,
    }
  })
