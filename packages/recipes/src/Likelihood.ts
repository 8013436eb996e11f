/**
 * How well a model predicts text: the mean negative log-likelihood per token, and bits per byte, which can be compared
 * between models with different tokenizers.
 *
 * @since 0.1.0
 */
import type { InvalidInput } from "effect-tinker/TinkerError"
import type * as Tokenizer from "@effect-tinker/tokenizer/Tokenizer"
import type { TokenizerError } from "@effect-tinker/tokenizer/TokenizerError"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"

/**
 * The log probabilities of the targets of a datum, and how much each target counts.
 *
 * @since 0.1.0
 * @category models
 */
export interface Weighted {
  readonly logprobs: ArrayLike<number>
  readonly weights: ArrayLike<number>
}

/**
 * A sum and what it is divided by for a mean: the weight of the targets, or the bytes of their text.
 *
 * @since 0.1.0
 * @category models
 */
export interface Total {
  readonly sum: number
  readonly size: number
}

const meanOf = ({ size, sum }: Total): Option.Option<number> => (size === 0 ? Option.none() : Option.some(sum / size))

/**
 * Returns the negative log-likelihood of all targets, by weight, in nats, and their weight.
 *
 * @since 0.1.0
 * @category computing
 */
export const totalNll = (data: ReadonlyArray<Weighted>): Total => {
  let sum = 0
  let total = 0
  for (const { logprobs, weights } of data) {
    for (let at = 0; at < weights.length; at++) {
      const weight = weights[at] ?? 0
      // A weight of 0 leaves a token out even if it is impossible.
      if (weight === 0) continue
      sum += weight * (logprobs[at] ?? 0)
      total += weight
    }
  }
  return { sum: -sum, size: total }
}

/**
 * Returns the mean negative log-likelihood of all targets, by weight, in nats. None if all weights are 0.
 *
 * @since 0.1.0
 * @category computing
 */
export const meanNll = (data: ReadonlyArray<Weighted>): Option.Option<number> => meanOf(totalNll(data))

/**
 * A datum with its targets.
 *
 * @since 0.1.0
 * @category models
 */
export interface Predicted extends Weighted {
  readonly targetTokens: ArrayLike<number>
}

/**
 * The part of a tokenizer that bits per byte need.
 *
 * @since 0.1.0
 * @category models
 */
export interface Bytes<out E = never, out R = never> {
  /** Returns whether a token is special. Special tokens stand for no text, so they are left out. */
  readonly isSpecial: (token: number) => boolean
  /** Returns the number of UTF-8 bytes of the text of consecutive tokens. */
  readonly count: (tokens: ReadonlyArray<number>) => Effect.Effect<number, E, R>
}

const encoder = new TextEncoder()

/**
 * Counts bytes with a tokenizer.
 *
 * @since 0.1.0
 * @category constructors
 */
export const bytesOf = (
  tokenizer: Pick<Tokenizer.Service, "decode" | "specialTokens">,
): Bytes<InvalidInput | TokenizerError> => {
  const special = new Set(tokenizer.specialTokens.all.map(({ id }) => id))
  return {
    isSpecial: (token) => special.has(token),
    count: (tokens) => Effect.map(tokenizer.decode(tokens), (text) => encoder.encode(text).length),
  }
}

/**
 * Returns the bits that the model needs for the text, and its bytes. Targets with a weight above 0 count, whatever the
 * weight is; special tokens don't.
 *
 * @since 0.1.0
 * @category computing
 */
export const totalBits = <E, R>(data: ReadonlyArray<Predicted>, bytes: Bytes<E, R>): Effect.Effect<Total, E, R> =>
  Effect.gen(function* () {
    let nats = 0
    let total = 0
    for (const { logprobs, targetTokens, weights } of data) {
      // Consecutive targets are decoded together: a character may consist of several tokens.
      let run: Array<number> = []
      for (let at = 0; at <= targetTokens.length; at++) {
        const token = targetTokens[at]
        if (token !== undefined && (weights[at] ?? 0) > 0 && !bytes.isSpecial(token)) {
          nats -= logprobs[at] ?? 0
          run.push(token)
        } else if (run.length > 0) {
          total += yield* bytes.count(run)
          run = []
        }
      }
    }
    return { sum: nats / Math.LN2, size: total }
  })

/**
 * Returns the bits that the model needs per byte of text, counted as in {@link totalBits}. None if no byte counts.
 *
 * @since 0.1.0
 * @category computing
 */
export const bitsPerByte = <E, R>(
  data: ReadonlyArray<Predicted>,
  bytes: Bytes<E, R>,
): Effect.Effect<Option.Option<number>, E, R> => Effect.map(totalBits(data, bytes), meanOf)

/**
 * Returns the metrics of a training step: `train_mean_nll`, and `train_mean_bpb` if the tokenizer is known. A metric to
 * which no token contributes is left out.
 *
 * @since 0.1.0
 * @category metrics
 */
export const trainMetrics = <E = never, R = never>(
  data: ReadonlyArray<Predicted>,
  bytes?: Bytes<E, R>,
): Effect.Effect<Readonly<Record<string, number>>, E, R> =>
  metrics(data, { nll: "train_mean_nll", bpb: "train_mean_bpb" }, bytes)

/**
 * Returns the metrics of an evaluation: `<name>/nll`, and `<name>/bpb` if the tokenizer is known. A metric to which no
 * token contributes is left out.
 *
 * @since 0.1.0
 * @category metrics
 */
export const evaluationMetrics = <E = never, R = never>(
  name: string,
  data: ReadonlyArray<Predicted>,
  bytes?: Bytes<E, R>,
): Effect.Effect<Readonly<Record<string, number>>, E, R> =>
  metrics(data, { nll: `${name}/nll`, bpb: `${name}/bpb` }, bytes)

const metrics = <E, R>(
  data: ReadonlyArray<Predicted>,
  names: { readonly nll: string; readonly bpb: string },
  bytes: Bytes<E, R> | undefined,
): Effect.Effect<Readonly<Record<string, number>>, E, R> =>
  Effect.gen(function* () {
    const nll = meanNll(data)
    const bpb = bytes === undefined ? Option.none<number>() : yield* bitsPerByte(data, bytes)
    return {
      ...(Option.isSome(nll) ? { [names.nll]: nll.value } : {}),
      ...(Option.isSome(bpb) ? { [names.bpb]: bpb.value } : {}),
    }
  })
