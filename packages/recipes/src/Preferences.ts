/**
 * Direct preference optimization (DPO): trains on pairs of answers, of which one is preferred, without a reward model.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as CustomLoss from "effect-tinker/CustomLoss"
import { InvalidInput } from "effect-tinker/TinkerError"

/**
 * The log probabilities of the answers of pairs, each the sum over its tokens: under the model in training, and under the
 * reference model.
 *
 * @since 0.1.0
 * @category models
 */
export interface Pairs {
  readonly chosen: ArrayLike<number>
  readonly rejected: ArrayLike<number>
  readonly chosenReference: ArrayLike<number>
  readonly rejectedReference: ArrayLike<number>
}

/**
 * The loss of a batch of pairs.
 *
 * @since 0.1.0
 * @category models
 */
export interface Evaluated {
  readonly loss: number
  /** The derivative with respect to the log probability of each chosen answer; for the rejected one it is its negative. */
  readonly gradient: Float64Array
  /** With the names of the official cookbook: `dpo_loss`, `accuracy`, `margin`, `chosen_reward`, `rejected_reward`. */
  readonly metrics: Readonly<Record<string, number>>
}

/** log(1 + exp(x)) without overflow. */
const softplus = (x: number) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)))

/** 1 / (1 + exp(-x)) without overflow. */
const sigmoid = (x: number) => (x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x)))

const invalid = (path: string, problem: string) => Either.left(new InvalidInput({ path, problem }))

/**
 * Computes the loss `-log σ(β (log-ratio of the chosen − log-ratio of the rejected answer))`, its mean over the pairs, and
 * its gradient.
 *
 * @since 0.1.0
 * @category computing
 */
export const evaluate = (pairs: Pairs, beta: number): Either.Either<Evaluated, InvalidInput> => {
  const count = pairs.chosen.length
  if (!Number.isFinite(beta) || beta <= 0) return invalid("beta", `expected a positive number, got ${beta}`)
  if (count === 0) return invalid("chosen", "expected at least one pair")
  for (const [path, values] of Object.entries<ArrayLike<number>>({ ...pairs })) {
    if (values.length !== count) return invalid(path, `expected one number per pair (${count}), got ${values.length}`)
  }
  const gradient = new Float64Array(count)
  let loss = 0
  let preferred = 0
  let chosen = 0
  let rejected = 0
  for (let at = 0; at < count; at++) {
    const ofChosen = (pairs.chosen[at] ?? 0) - (pairs.chosenReference[at] ?? 0)
    const ofRejected = (pairs.rejected[at] ?? 0) - (pairs.rejectedReference[at] ?? 0)
    const margin = beta * (ofChosen - ofRejected)
    loss += softplus(-margin)
    gradient[at] = (-beta * sigmoid(-margin)) / count
    if (ofChosen > ofRejected) preferred++
    chosen += beta * ofChosen
    rejected += beta * ofRejected
  }
  return Either.right({
    loss: loss / count,
    gradient,
    metrics: {
      dpo_loss: loss / count,
      accuracy: preferred / count,
      margin: (chosen - rejected) / count,
      chosen_reward: chosen / count,
      rejected_reward: rejected / count,
    },
  })
}

/**
 * The inputs of a datum for {@link dpo}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Inputs extends CustomLoss.Inputs {
  readonly weights: Float32Array
  /** The log probability of the answer under the reference model: {@link logprob} of its tokens. */
  readonly reference: number
}

/**
 * Returns the log probability of an answer: the sum over its tokens, each multiplied by its weight.
 *
 * @since 0.1.0
 * @category computing
 */
export const logprob = (logprobs: ArrayLike<number>, weights: ArrayLike<number>): number => {
  let sum = 0
  for (let at = 0; at < weights.length; at++) {
    const weight = weights[at] ?? 0
    // A weight of 0 leaves a token out even if it is impossible.
    if (weight !== 0) sum += weight * (logprobs[at] ?? 0)
  }
  return sum
}

/**
 * Adds the reference to a datum. `logprobs` are those of its targets under the reference model.
 *
 * @since 0.1.0
 * @category constructors
 */
export const withReference = <
  D extends { readonly inputs: { readonly targetTokens: Inputs["targetTokens"]; readonly weights: Float32Array } },
>(
  datum: D,
  logprobs: ArrayLike<number>,
): Either.Either<D & { readonly inputs: Inputs }, InvalidInput> => {
  const { weights } = datum.inputs
  return logprobs.length === weights.length
    ? Either.right({ ...datum, inputs: { ...datum.inputs, reference: logprob(logprobs, weights) } })
    : invalid("logprobs", `expected one log probability per target (${weights.length}), got ${logprobs.length}`)
}

/**
 * Creates the DPO loss for data that alternate: `[chosen, rejected, chosen, rejected, …]`. Its gradient is computed by
 * formula.
 *
 * @since 0.1.0
 * @category constructors
 */
export const dpo = ({ beta = 0.1 }: { readonly beta?: number | undefined } = {}): CustomLoss.CustomLoss<
  Inputs,
  InvalidInput
> =>
  CustomLoss.effect((data) =>
    Effect.gen(function* () {
      if (data.length % 2 !== 0) {
        const problem = `expected pairs of a chosen and a rejected answer, got ${data.length} data`
        return yield* new InvalidInput({ path: "data", problem })
      }
      const count = data.length / 2
      const pairs = {
        chosen: new Float64Array(count),
        rejected: new Float64Array(count),
        chosenReference: new Float64Array(count),
        rejectedReference: new Float64Array(count),
      }
      for (const [index, { datum, logprobs }] of data.entries()) {
        const { reference, weights } = datum.inputs
        const at = Math.floor(index / 2)
        const isChosen = index % 2 === 0
        pairs[isChosen ? "chosen" : "rejected"][at] = logprob(logprobs, weights)
        pairs[isChosen ? "chosenReference" : "rejectedReference"][at] = reference
      }
      const { gradient, loss, metrics } = yield* evaluate(pairs, beta)
      const gradients = data.map(({ datum }, index) => {
        const slope = (gradient[Math.floor(index / 2)] ?? 0) * (index % 2 === 0 ? 1 : -1)
        return Float64Array.from(datum.inputs.weights, (weight) => slope * weight)
      })
      return { loss, gradients, metrics }
    }),
  )
