/** Whether sampler and trainer compute the same numbers. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Datums from "@effect-tinker/tokenizer/Datums"
import type * as Tokenizer from "@effect-tinker/tokenizer/Tokenizer"
import type { TokenizerError } from "@effect-tinker/tokenizer/TokenizerError"
import * as Loss from "effect-tinker/Loss"
import { InvalidInput, type TrainingError, type UnexpectedResponse } from "effect-tinker/TinkerError"
import type * as TrainingClient from "effect-tinker/TrainingClient"
import * as TrainingResult from "effect-tinker/TrainingResult"
import * as Kl from "../../Kl.ts"
import type { Metrics } from "../../RunEvent.ts"
import { shortNumber } from "../Lines.ts"
import { seedOf } from "../Rollouts.ts"
import { positive, sizeOf, type Verdict, verdictOf, whole, withoutLogprobs } from "./Common.ts"

/**
 * Options of {@link numerics}.
 *
 * @since 0.1.0
 * @category models
 */
export interface NumericsOptions {
  /** The client whose current weights are sampled from and whose forward pass is compared. */
  readonly client: Pick<TrainingClient.Service, "forward" | "saveWeightsAndGetSamplingClient">
  /** The prompts to sample from. Long prompts find more: errors tend to grow with the length of the context. */
  readonly prompts: ReadonlyArray<Datums.Transition["observation"]>
  /**
   * How many sequences are sampled for each prompt.
   *
   * @default 4
   */
  readonly samplesPerPrompt?: number | undefined
  /**
   * The most tokens of a sequence.
   *
   * @default 128
   */
  readonly maxTokens?: number | undefined
  /**
   * The largest distance between sampler and trainer that passes. Healthy servers stay below 0.002 for most models; a
   * known bug caused 0.02 to 0.16.
   *
   * @default 0.01
   */
  readonly threshold?: number | undefined
  /**
   * How many of the tokens that differ most are reported.
   *
   * @default 10
   */
  readonly worst?: number | undefined
  /** Shows the texts of the worst tokens. */
  readonly tokenizer?: Pick<Tokenizer.Service, "decode"> | undefined
  /**
   * Decides what is sampled.
   *
   * @default 0
   */
  readonly seed?: number | undefined
}

/**
 * A token to which sampler and trainer give different log probabilities.
 *
 * @since 0.1.0
 * @category models
 */
export interface WorstToken {
  /** The number of the prompt, and of the sequence that was sampled for it, from 0. */
  readonly prompt: number
  readonly sample: number
  /** The place of the token in prompt and sequence together, from 0. */
  readonly position: number
  readonly token: number
  /** Its text, if a tokenizer was given. */
  readonly text: string | undefined
  readonly sampled: number
  readonly trained: number
  /** `sampled - trained`. */
  readonly difference: number
}

/**
 * The distances of the tokens at some positions.
 *
 * @since 0.1.0
 * @category models
 */
export interface Depth {
  /** The first position. */
  readonly from: number
  /** The position after the last one. */
  readonly to: number
  readonly tokens: number
  readonly metrics: Metrics
}

/**
 * The report of {@link numerics}.
 *
 * @since 0.1.0
 * @category models
 */
export interface NumericsReport extends Verdict {
  readonly _tag: "Numerics"
  readonly threshold: number
  readonly sequences: number
  readonly tokens: number
  /** `optim/kl_sample_train_v1`, `optim/kl_sample_train_v2` and `optim/entropy` over all tokens. */
  readonly metrics: Metrics
  /** The same by position in the context: errors of long contexts appear at the end. */
  readonly depths: ReadonlyArray<Depth>
  /** The tokens that differ most, worst first. */
  readonly worst: ReadonlyArray<WorstToken>
}

interface Compared extends Kl.Compared {
  readonly prompt: number
  readonly sample: number
  readonly targets: Int32Array
}

/** The distance of both estimates, of which the first one may cancel out and the second one is never negative. */
const klOf = (metrics: Metrics): number =>
  Math.max(
    Math.abs(metrics["optim/kl_sample_train_v1"] ?? Number.NaN),
    metrics["optim/kl_sample_train_v2"] ?? Number.NaN,
  )

/** The first range of positions ends here; each of the others ends at twice the position. */
const firstDepth = 64

const depthsOf = (compared: ReadonlyArray<Compared>): Either.Either<ReadonlyArray<Depth>, InvalidInput> =>
  Either.gen(function* () {
    const longest = compared.reduce((most, { targets }) => Math.max(most, targets.length + 1), 0)
    const depths: Array<Depth> = []
    for (let [from, to] = [0, firstDepth]; from < longest; [from, to] = [to, 2 * to]) {
      let tokens = 0
      const within = compared.map(({ mask, other, sampled }) => ({
        sampled,
        other,
        mask: Float32Array.from(mask, (weight, at) => {
          const isInside = weight > 0 && at + 1 >= from && at + 1 < to
          if (isInside) tokens++
          return isInside ? 1 : 0
        }),
      }))
      if (tokens > 0) depths.push({ from, to, tokens, metrics: yield* Kl.sampleTrain(within) })
    }
    return depths
  })

const worstOf = (compared: ReadonlyArray<Compared>, count: number): ReadonlyArray<Omit<WorstToken, "text">> =>
  compared
    .flatMap(({ mask, other, prompt, sample, sampled, targets }) =>
      Array.from(targets, (token, at) => ({
        prompt,
        sample,
        position: at + 1,
        token,
        sampled: sampled[at] ?? Number.NaN,
        trained: other[at] ?? Number.NaN,
        difference: (sampled[at] ?? Number.NaN) - (other[at] ?? Number.NaN),
      })).filter((_, at) => (mask[at] ?? 0) > 0),
    )
    .toSorted((a, b) => sizeOf(b.difference) - sizeOf(a.difference))
    .slice(0, count)

/**
 * Samples from the current weights and compares the log probabilities of the sampler with those of a forward pass over
 * the same tokens. Reinforcement learning assumes that they are the same: if not, every update goes in a wrong direction.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { ServiceClient } from "effect-tinker"
 * import { Check } from "@effect-tinker/recipes"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const client = yield* service.createLoraTrainingClient({ baseModel: "effect-tinker/valley-1.5m", rank: 8 })
 *   const report = yield* Check.numerics({ client, prompts: [[10, 20, 30], [40, 50]], maxTokens: 16 })
 *   yield* Console.log(report.passed, report.sequences) // → true 8
 *   yield* Check.orFail(report)
 * })
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(NodeTinker.layerConfig())))
 * ```
 *
 * @since 0.1.0
 * @category checks
 */
export const numerics = (
  options: NumericsOptions,
): Effect.Effect<NumericsReport, TrainingError | InvalidInput | UnexpectedResponse | TokenizerError> =>
  Effect.scoped(
    Effect.gen(function* () {
      const { client, prompts, tokenizer } = options
      const { maxTokens = 128, samplesPerPrompt = 4, seed = 0, threshold = 0.01, worst: count = 10 } = options
      yield* whole({ maxTokens, samplesPerPrompt })
      yield* positive({ threshold })
      if (prompts.length === 0) return yield* new InvalidInput({ path: "prompts", problem: "expected at least one" })
      const sampler = yield* client.saveWeightsAndGetSamplingClient()
      const sampled = yield* Effect.forEach(
        prompts,
        (prompt, index) =>
          Effect.gen(function* () {
            const params = { maxTokens, temperature: 1, seed: seedOf(seed, index) }
            const { sequences } = yield* sampler.sample({ prompt, params, numSamples: samplesPerPrompt })
            return yield* Effect.forEach(sequences, ({ logprobs, tokens }, sample) =>
              Effect.gen(function* () {
                const given = yield* Option.match(logprobs, { onNone: () => withoutLogprobs, onSome: Effect.succeed })
                const [first] = yield* Datums.fromTrajectory([{ observation: prompt, tokens, logprobs: given }], 0)
                return first === undefined ? [] : [{ ...first, prompt: index, sample }]
              }),
            )
          }),
        { concurrency: 64 },
      )
      const data = sampled.flat(2)
      const result = yield* client.forward(
        data.map(({ datum }) => datum),
        Loss.importanceSampling,
      )
      const trained = yield* TrainingResult.logprobs(result)
      const compared = data.map(({ datum: { inputs }, mask, prompt, sample }, at): Compared => ({
        prompt,
        sample,
        targets: inputs.targetTokens,
        sampled: inputs.logprobs,
        other: trained[at] ?? new Float32Array(),
        mask,
      }))
      const metrics = yield* Kl.sampleTrain(compared)
      const worst = yield* Effect.forEach(worstOf(compared, count), (token) =>
        Effect.map(
          tokenizer === undefined ? Effect.succeed(undefined) : tokenizer.decode([token.token]),
          (text): WorstToken => ({ ...token, text }),
        ),
      )
      const kl = klOf(metrics)
      const problems =
        kl <= threshold
          ? []
          : [`sampler and trainer are ${shortNumber(kl)} apart, more than ${threshold}: updates would be wrong`]
      return {
        _tag: "Numerics",
        threshold,
        sequences: data.length,
        tokens: compared.reduce((sum, { mask }) => sum + Array.from(mask).filter((weight) => weight > 0).length, 0),
        metrics,
        depths: yield* depthsOf(compared),
        worst,
        ...verdictOf(problems),
      }
    }),
  )

const metricsText = (metrics: Metrics): string =>
  ["v1", "v2"]
    .map((name) => `${name} ${shortNumber(metrics[`optim/kl_sample_train_${name}`] ?? Number.NaN)}`)
    .join("  ")

export const numericsText = ({ depths, metrics, sequences, tokens, worst }: NumericsReport): ReadonlyArray<string> => [
  `numerics of ${tokens} tokens in ${sequences} sequences`,
  `  KL of sampler and trainer  ${metricsText(metrics)}  entropy ${shortNumber(metrics["optim/entropy"] ?? Number.NaN)}`,
  ...(depths.length < 2
    ? []
    : depths.map(
        ({ from, metrics, to, tokens }) =>
          `  positions ${from} to ${to - 1}  ${metricsText(metrics)}  ${tokens} tokens`,
      )),
  ...worst.map(
    ({ difference, position, prompt, sample, sampled, text, token, trained }) =>
      `  prompt ${prompt}, sample ${sample}, position ${position}: ${text === undefined ? token : JSON.stringify(text)}  sampler ${shortNumber(sampled)}  trainer ${shortNumber(trained)}  difference ${shortNumber(difference)}`,
  ),
]
