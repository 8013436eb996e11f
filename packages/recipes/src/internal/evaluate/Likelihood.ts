/** How well a model predicts conversations. */
import * as Effect from "effect/Effect"
import type * as Datums from "@effect-tinker/tokenizer/Datums"
import type * as Message from "@effect-tinker/tokenizer/Message"
import type { Renderer, TrainOn } from "@effect-tinker/tokenizer/Renderer"
import type * as Tokenizer from "@effect-tinker/tokenizer/Tokenizer"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import type { BadRow } from "../../DataError.ts"
import * as Likelihood from "../../Likelihood.ts"
import type * as Table from "../../Table.ts"
import { datumsOf, predicted, rowsOf, textOf } from "../Conversations.ts"
import { sequenceOf } from "../Recipe.ts"
import type { Evaluation, Metric } from "./Questions.ts"

/**
 * Options of {@link likelihood}.
 *
 * @since 0.1.0
 * @category models
 */
export interface LikelihoodOptions {
  /**
   * The name of the evaluation.
   *
   * @default likelihood
   */
  readonly name?: string | undefined
  readonly renderer: Renderer
  readonly data: Table.Table<Message.Conversation> | ReadonlyArray<Message.Conversation>
  /**
   * Which tokens count.
   *
   * @default all_assistant_messages
   */
  readonly trainOn?: TrainOn | undefined
  /** The most tokens of a conversation; the rest is cut off. */
  readonly maxLength?: number | undefined
  /**
   * Whether `nll` is the mean of all tokens (`sum`), or of the means of the conversations (`mean`).
   *
   * @default sum
   */
  readonly reduction?: Datums.ExampleOptions["reduction"]
  /** Adds bits per byte, which can be compared between models with different tokenizers. */
  readonly tokenizer?: Pick<Tokenizer.Service, "decode" | "specialTokens"> | undefined
}

/**
 * Measures how well a model predicts conversations: the negative log-likelihood per token (`nll`), and bits per byte
 * (`bpb`) if the tokenizer is given. Nothing is sampled.
 *
 * @since 0.1.0
 * @category evaluations
 */
export const likelihood = (
  options: LikelihoodOptions,
): Evaluation<ReadonlyArray<Likelihood.Predicted>, BadRow | Table.Failure> => {
  const { data, renderer, tokenizer } = options
  const bytes = tokenizer && Likelihood.bytesOf(tokenizer)
  return {
    name: options.name ?? "likelihood",
    metrics: [{ name: "nll", better: "lowest" }, ...(bytes === undefined ? [] : [bpb])],
    questions: Effect.flatMap(
      rowsOf(data),
      Effect.forEach((row) =>
        Effect.map(datumsOf(renderer, options, row), (datums) => ({
          name: textOf(row.value.messages),
          ask: (sampler: SamplingClient.Service) =>
            Effect.gen(function* () {
              const logprobs = yield* Effect.forEach(datums, (datum) =>
                Effect.map(sampler.computeLogprobs(sequenceOf(datum)), (all) => all.subarray(1)),
              )
              const answer = predicted(datums, logprobs)
              const totals = {
                nll: Likelihood.totalNll(answer),
                ...(bytes === undefined ? {} : { bpb: yield* Likelihood.totalBits(answer, bytes) }),
              }
              const counting = Object.entries(totals).filter(([, { size }]) => size > 0)
              return {
                scores: Object.fromEntries(counting.map(([name, { size, sum }]) => [name, sum / size])),
                weights: Object.fromEntries(counting.map(([name, { size }]) => [name, size])),
                answer,
              }
            }),
        })),
      ),
    ),
  }
}

const bpb: Metric = { name: "bpb", better: "lowest" }
