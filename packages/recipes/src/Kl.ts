/**
 * Estimates how far two policies are apart from the log probabilities that both give to sampled tokens, and turns the
 * distance to a reference policy into a penalty. Only tokens with a mask above 0 count: those that the model sampled and
 * is trained on.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import { InvalidInput } from "effect-tinker/TinkerError"

/**
 * The log probabilities of the targets of one datum under two policies: when they were sampled, and under another one.
 *
 * @since 0.1.0
 * @category models
 */
export interface Compared {
  /** The log probabilities at the time of sampling. */
  readonly sampled: ArrayLike<number>
  /** The log probabilities under the other policy: of training, after an update, or of a reference. */
  readonly other: ArrayLike<number>
  readonly mask: ArrayLike<number>
}

/**
 * Numbers by name, with the names of the official cookbook. Empty if no token counts.
 *
 * @since 0.1.0
 * @category models
 */
export type Metrics = Readonly<Record<string, number>>

type Result<A> = Either.Either<A, InvalidInput>

const checked = (data: ReadonlyArray<Readonly<Record<string, ArrayLike<number>>>>): Result<void> => {
  for (const [index, datum] of data.entries()) {
    const length = datum["sampled"]?.length ?? 0
    for (const [name, values] of Object.entries(datum)) {
      if (values.length !== length) {
        const problem = `expected one number per sampled log probability (${length}), got ${values.length}`
        return Either.left(new InvalidInput({ path: `data[${index}].${name}`, problem }))
      }
    }
  }
  return Either.void
}

interface Estimates {
  /** The mean difference of the log probabilities. */
  readonly v1: number
  /** Half of the mean squared difference, which is never negative and varies less. */
  readonly v2: number
  /** The mean of the negative log probabilities at the time of sampling. */
  readonly entropy: number
}

const estimates = (data: ReadonlyArray<Compared>): Result<Estimates | undefined> =>
  Either.map(checked(data.map(({ mask, other, sampled }) => ({ sampled, other, mask }))), () => {
    let count = 0
    let sum = 0
    let squares = 0
    let logprobs = 0
    for (const { mask, other, sampled } of data) {
      for (let at = 0; at < mask.length; at++) {
        if (!((mask[at] ?? 0) > 0)) continue
        const difference = (sampled[at] ?? 0) - (other[at] ?? 0)
        count++
        sum += difference
        squares += difference * difference
        logprobs += sampled[at] ?? 0
      }
    }
    return count === 0 ? undefined : { v1: sum / count, v2: squares / count / 2, entropy: -logprobs / count }
  })

/**
 * Compares the policy that sampled with the policy in training: `optim/kl_sample_train_v1`, `optim/kl_sample_train_v2`
 * and `optim/entropy`. Right after sampling the two should be the same.
 *
 * @since 0.1.0
 * @category metrics
 */
export const sampleTrain = (data: ReadonlyArray<Compared>): Either.Either<Metrics, InvalidInput> =>
  Either.map(estimates(data), (found): Metrics =>
    found === undefined
      ? {}
      : {
          "optim/kl_sample_train_v1": found.v1,
          "optim/kl_sample_train_v2": found.v2,
          "optim/entropy": found.entropy,
        },
  )

/**
 * Compares the policy before and after an update: `kl_pre_post_v1` and `kl_pre_post_v2`.
 *
 * @since 0.1.0
 * @category metrics
 */
export const prePost = (data: ReadonlyArray<Compared>): Either.Either<Metrics, InvalidInput> =>
  Either.map(estimates(data), (found): Metrics =>
    found === undefined ? {} : { kl_pre_post_v1: found.v1, kl_pre_post_v2: found.v2 },
  )

/**
 * A datum whose advantages get a penalty; `other` has the log probabilities of the reference.
 *
 * @since 0.1.0
 * @category models
 */
export interface Penalized extends Compared {
  readonly advantages: ArrayLike<number>
}

/**
 * Options of {@link penalty} and {@link teacher}.
 *
 * @since 0.1.0
 * @category models
 */
export interface PenaltyOptions {
  /** How much the distance counts. */
  readonly coefficient: number
  /** If above 0, a token also gets the penalties of those after it, each weighted by this factor once more. Default: 0. */
  readonly discount?: number | undefined
}

/**
 * New advantages, and the mean distance to the reference: `kl_policy_base`, or `teacher_kl` if it is a teacher.
 *
 * @since 0.1.0
 * @category models
 */
export interface Penalty {
  readonly advantages: ReadonlyArray<Float32Array>
  readonly metrics: Metrics
}

/**
 * Adds a penalty for the distance to a reference policy to the advantages: for each token, the coefficient times the
 * mean distance of all tokens minus its own. Tokens that are closer to the reference than the mean are favoured, and the
 * sum of all penalties is 0.
 *
 * @since 0.1.0
 * @category computing
 */
export const penalty = (
  data: ReadonlyArray<Penalized>,
  options: PenaltyOptions,
): Either.Either<Penalty, InvalidInput> => penalized(data, options, "kl_policy_base", (mean) => mean)

/**
 * Adds the distance to a teacher to the advantages, with a negative sign, as on-policy distillation needs it: a token is
 * favoured by as much as the teacher finds it likelier than the student. The metric is `teacher_kl`, the mean distance.
 *
 * @since 0.1.0
 * @category computing
 */
export const teacher = (
  data: ReadonlyArray<Penalized>,
  options: PenaltyOptions,
): Either.Either<Penalty, InvalidInput> => penalized(data, options, "teacher_kl", () => 0)

const penalized = (
  data: ReadonlyArray<Penalized>,
  { coefficient, discount = 0 }: PenaltyOptions,
  metric: string,
  /** Returns the distance that costs nothing. */
  baselineOf: (mean: number) => number,
): Either.Either<Penalty, InvalidInput> =>
  Either.gen(function* () {
    for (const [path, value] of Object.entries({ coefficient, discount })) {
      if (!Number.isFinite(value) || value < 0) {
        const problem = `expected a finite non-negative number, got ${value}`
        return yield* Either.left(new InvalidInput({ path, problem }))
      }
    }
    yield* checked(data.map(({ advantages, mask, other, sampled }) => ({ sampled, other, mask, advantages })))
    let sum = 0
    let count = 0
    const distances = data.map(({ mask, other, sampled }) =>
      Float64Array.from(mask, (weight, at) => {
        // A token that does not count may be impossible under the reference.
        const distance = weight === 0 ? 0 : ((sampled[at] ?? 0) - (other[at] ?? 0)) * weight
        sum += distance
        count += weight
        return distance
      }),
    )
    if (count === 0) {
      return { advantages: data.map(({ advantages }) => Float32Array.from(advantages)), metrics: {} }
    }
    const mean = sum / count
    const baseline = baselineOf(mean)
    return {
      advantages: data.map(({ advantages, mask }, index) => {
        const own = distances[index] ?? new Float64Array()
        const penalties = own.map((distance, at) => coefficient * (mask[at] ?? 0) * (baseline - distance))
        const added = discount > 0 ? discountedSums(penalties, discount) : penalties
        return Float32Array.from(advantages, (advantage, at) => advantage + (added[at] ?? 0))
      }),
      metrics: { [metric]: mean },
    }
  })

/**
 * Returns for each position the sum of its value and all later ones, the k-th after it multiplied by `discount` to the
 * power of k.
 *
 * @since 0.1.0
 * @category computing
 */
export const discountedSums = (values: ArrayLike<number>, discount: number): Float64Array => {
  const sums = new Float64Array(values.length)
  let running = 0
  for (let at = values.length - 1; at >= 0; at--) {
    running = (values[at] ?? 0) + discount * running
    sums[at] = running
  }
  return sums
}
