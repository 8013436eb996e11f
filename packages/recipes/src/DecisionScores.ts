/**
 * How good the probabilities of a decision are.
 *
 * @since 0.1.0
 */
import type { Metrics } from "./RunEvent.ts"

/**
 * The probability of a label among all labels of its decision.
 *
 * @since 0.1.0
 * @category models
 */
export interface Probability {
  readonly label: string
  readonly probability: number
}

/**
 * Returns probabilities that are proportional to the given ones and add up to 1.
 *
 * @since 0.1.0
 * @category computing
 */
export const softmax = (logprobs: ReadonlyArray<number>): ReadonlyArray<number> => {
  const largest = Math.max(...logprobs)
  const weights = logprobs.map((logprob) => Math.exp(logprob - largest))
  const total = weights.reduce((sum, weight) => sum + weight, 0)
  return weights.map((weight) => weight / total)
}

/**
 * The decision of a model.
 *
 * @since 0.1.0
 * @category models
 */
export interface Decided {
  readonly probabilities: ReadonlyArray<Probability>
  /** The right label. */
  readonly label: string
}

/** Returns the likeliest label, the first one of several. */
const best = (all: ReadonlyArray<Probability>): Probability =>
  all.reduce((best, one) => (one.probability > best.probability ? one : best), all[0] ?? { label: "", probability: 0 })

/**
 * Returns the scores of a decision: `accuracy`, 1 if the likeliest label is right; `log_loss`, the negative logarithm of
 * the probability of the right label; and `brier`, the sum of the squared errors of all probabilities.
 *
 * @since 0.1.0
 * @category metrics
 */
export const scores = ({ label, probabilities }: Decided): Metrics => {
  const right = probabilities.find((one) => one.label === label)?.probability ?? 0
  return {
    accuracy: best(probabilities).label === label ? 1 : 0,
    log_loss: -Math.log(right),
    brier: probabilities.reduce((sum, one) => sum + (one.probability - (one.label === label ? 1 : 0)) ** 2, 0),
  }
}

/**
 * Returns the expected calibration error: decisions are put into bins by the probability of their likeliest label, and the
 * distance between the mean probability and the share of right decisions is averaged over the bins by size. 0 if a label
 * with a probability of p is right in a share p of all cases.
 *
 * @since 0.1.0
 * @category metrics
 */
export const calibrationError = (decided: ReadonlyArray<Decided>, bins = 10): number => {
  const sums = Array.from({ length: bins }, () => ({ probability: 0, right: 0 }))
  for (const { label, probabilities } of decided) {
    const { label: chosen, probability } = best(probabilities)
    const bin = sums[Math.min(bins - 1, Math.floor(probability * bins))]
    if (bin === undefined) continue
    bin.probability += probability
    bin.right += chosen === label ? 1 : 0
  }
  return sums.reduce((sum, { probability, right }) => sum + Math.abs(probability - right), 0) / decided.length
}
