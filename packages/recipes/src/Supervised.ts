/**
 * Supervised fine-tuning: trains a model on conversations, with held-out evaluation, checkpoints and resume.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type { Conversation } from "@effect-tinker/tokenizer/Message"
import type { Renderer } from "@effect-tinker/tokenizer/Renderer"
import type * as Tokenizer from "@effect-tinker/tokenizer/Tokenizer"
import type { Failure as RendererFailure } from "@effect-tinker/tokenizer/RendererError"
import type { ServiceClient } from "effect-tinker/ServiceClient"
import type { FutureError, InvalidInput, UnexpectedResponse } from "effect-tinker/TinkerError"
import { CheckpointPolicy } from "./CheckpointPolicy.ts"
import type { BadRow } from "./DataError.ts"
import * as Evaluate from "./Evaluate.ts"
import { datumsOf, sequencesOf } from "./internal/Conversations.ts"
import * as Examples from "./internal/Examples.ts"
import { batchingOf, decodeConfig, trainingFields, whole } from "./internal/Recipe.ts"
import type * as LearningRate from "./LearningRate.ts"
import type { ConfigurationChanged, RunStoreFailed } from "./RunError.ts"
import type { RunEvent } from "./RunEvent.ts"
import type { RunStore } from "./RunStore.ts"
import type * as Table from "./Table.ts"
import type * as TrainingLoop from "./TrainingLoop.ts"

/**
 * The configuration of supervised fine-tuning. It can be read from JSON; settings that are not given have the defaults
 * of the official cookbook.
 *
 * @since 0.1.0
 * @category models
 */
export const Config = Schema.Struct({
  ...trainingFields,
  /**
   * How many conversations a pass has.
   *
   * @default 128
   */
  batchSize: Schema.optional(whole).annotations({ description: "How many conversations a pass has.", default: 128 }),
  /** @default all_assistant_messages */
  trainOn: Schema.optionalWith(
    Schema.Literal("last_assistant_message", "last_assistant_turn", "all_assistant_messages"),
    { default: () => "all_assistant_messages" as const },
  ).annotations({ description: "Which messages of a conversation are learnt." }),
  /**
   * `mean` scales the weights of a conversation to a sum of 1, so that long answers do not dominate; `sum` lets every
   * token count the same. Losses are weighted means accordingly.
   *
   * @default mean
   */
  reduction: Schema.optionalWith(Schema.Literal("mean", "sum"), { default: () => "mean" as const }).annotations({
    description: "Whether every conversation counts the same (mean) or every token does (sum).",
  }),
  /**
   * Not given: the recommended one for the model ({@link LearningRate.recommended}).
   */
  learningRate: Schema.optional(Schema.Positive).annotations({
    description: "The learning rate of the first step. Not given: the recommended one for the model.",
  }),
  /** How many conversations are held out for evaluation. */
  heldOut: Schema.optional(whole).annotations({ description: "How many conversations are held out for evaluation." }),
  /**
   * Evaluates on the held-out conversations after this many steps.
   *
   * @default 10
   */
  evaluateEverySteps: Schema.optionalWith(whole, { default: () => 10 }).annotations({
    description: "Evaluates on the held-out conversations after this many steps.",
  }),
  checkpoints: Schema.optionalWith(CheckpointPolicy, { default: () => Schema.decodeSync(CheckpointPolicy)({}) }),
})

/**
 * The type of {@link Config}.
 *
 * @since 0.1.0
 * @category models
 */
export type Config = typeof Config.Type

/**
 * A configuration in which settings with a default may be missing.
 *
 * @since 0.1.0
 * @category models
 */
export type Input = typeof Config.Encoded

/**
 * Options of {@link train}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options<out E = never, out R = never> extends TrainingLoop.Control {
  readonly config: Input
  readonly renderer: Renderer
  /** Adds bits per byte to the metrics, which can be compared between models with different tokenizers. */
  readonly tokenizer?: Tokenizer.Service | undefined
  /** The conversations to train on. */
  readonly data: Table.Table<Conversation>
  /** Evaluations beside that of the held-out conversations. */
  readonly evaluations?: ReadonlyArray<TrainingLoop.Evaluation<E, R>> | undefined
}

/**
 * The errors of {@link train}, apart from those of evaluations.
 *
 * @since 0.1.0
 * @category errors
 */
export type TrainError =
  | TrainingLoop.LoopError
  | RunStoreFailed
  | ConfigurationChanged
  | RendererFailure
  | LearningRate.ModelNotCalibrated
  | InvalidInput
  | UnexpectedResponse
  | FutureError
  | BadRow
  | Table.Failure
  | Evaluate.QuestionFailed

/**
 * Starts the run in the current store, or continues it, and emits its new events. The same command with the same data
 * can be killed and run again at any time, and ends with the same weights. A run that is complete emits nothing.
 *
 * @since 0.1.0
 * @category running
 */
export const train = <E = never, R = never>(
  options: Options<E, R>,
): Stream.Stream<RunEvent, TrainError | E, RunStore | ServiceClient | R> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const config = yield* batchingOf(yield* decodeConfig(Config, options.config), 128)
      const { renderer, tokenizer } = options
      const { maxLength, reduction, trainOn } = config
      return yield* Examples.train({
        ...options,
        recipe: "supervised",
        config,
        configuration: (learningRate) => Schema.encodeSync(Config)({ ...config, learningRate }),
        datums: (row) => datumsOf(renderer, config, row),
        sequences: (row) => sequencesOf(renderer, config, row),
        heldOut: (test) =>
          Evaluate.likelihood({ name: "test", renderer, data: test, trainOn, maxLength, reduction, tokenizer }),
      })
    }),
  )
