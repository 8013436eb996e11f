/**
 * Supervised fine-tuning: trains a model on conversations, with held-out evaluation, checkpoints and resume.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Datums from "@effect-tinker/tokenizer/Datums"
import type { Conversation } from "@effect-tinker/tokenizer/Message"
import type { Renderer } from "@effect-tinker/tokenizer/Renderer"
import type * as Tokenizer from "@effect-tinker/tokenizer/Tokenizer"
import type { Failure as RendererFailure } from "@effect-tinker/tokenizer/RendererError"
import * as Loss from "effect-tinker/Loss"
import type * as Optimizer from "effect-tinker/Optimizer"
import type { ServiceClient } from "effect-tinker/ServiceClient"
import type { FutureError, InvalidInput, UnexpectedResponse } from "effect-tinker/TinkerError"
import * as TrainingResult from "effect-tinker/TrainingResult"
import type * as Batches from "./Batches.ts"
import { CheckpointPolicy } from "./CheckpointPolicy.ts"
import { BadRow } from "./DataError.ts"
import { batchesOf, decodeConfig, lengthOf, optimizerOf, sequenceOf, trainingFields, whole } from "./internal/Recipe.ts"
import * as LearningRate from "./LearningRate.ts"
import * as Likelihood from "./Likelihood.ts"
import * as Run from "./Run.ts"
import type { ConfigurationChanged, RunStoreFailed } from "./RunError.ts"
import type { Metrics, RunEvent } from "./RunEvent.ts"
import type { RunStore } from "./RunStore.ts"
import * as Table from "./Table.ts"
import * as TrainingLoop from "./TrainingLoop.ts"

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
   * How many conversations a step has.
   *
   * @default 128
   */
  batchSize: Schema.optionalWith(whole, { default: () => 128 }),
  /** @default all_assistant_messages */
  trainOn: Schema.optionalWith(
    Schema.Literal("last_assistant_message", "last_assistant_turn", "all_assistant_messages"),
    { default: () => "all_assistant_messages" as const },
  ),
  /**
   * Not given: the recommended one for the model ({@link LearningRate.recommended}).
   */
  learningRate: Schema.optional(Schema.Positive),
  /** How many conversations are held out for evaluation. */
  heldOut: Schema.optional(whole),
  /**
   * Evaluates on the held-out conversations after this many steps.
   *
   * @default 10
   */
  evaluateEverySteps: Schema.optionalWith(whole, { default: () => 10 }),
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
export interface Options extends TrainingLoop.Control {
  readonly config: Input
  readonly renderer: Renderer
  /** Adds bits per byte to the metrics, which can be compared between models with different tokenizers. */
  readonly tokenizer?: Tokenizer.Service | undefined
  /** The conversations to train on. */
  readonly data: Table.Table<Conversation>
}

/**
 * The errors of {@link train}.
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

/**
 * Starts the run in the current store, or continues it, and emits its new events. The same command with the same data
 * can be killed and run again at any time, and ends with the same weights. A run that is complete emits nothing.
 *
 * @since 0.1.0
 * @category running
 */
export const train = (options: Options): Stream.Stream<RunEvent, TrainError, RunStore | ServiceClient> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const config = yield* decodeConfig(Config, options.config)
      const learningRate = config.learningRate ?? (yield* LearningRate.recommended(config.model))
      const { data, renderer, stop } = options
      const { heldOut, seed } = config
      const { heldOut: test, train } =
        heldOut === undefined
          ? { train: data, heldOut: undefined }
          : yield* Table.split(data, { heldOut: { count: heldOut }, seed })
      const { batches, steps } = yield* batchesOf(train, config)
      const run = yield* Run.open({
        model: { baseModel: config.model, rank: config.rank, seed, userMetadata: { renderer_name: renderer.name } },
        configuration: {
          recipe: "supervised",
          ...Schema.encodeSync(Config)({ ...config, learningRate }),
          renderer: renderer.name,
          data: data.fingerprint,
        },
        allowChanges: options.allowChanges,
      })
      if (run._tag === "Completed") return Stream.empty
      const optimizer = optimizerOf({ ...config, learningRate }, steps)
      const bytes = options.tokenizer && Likelihood.bytesOf(options.tokenizer)
      return TrainingLoop.events(run, {
        batches: (from) => Stream.mapEffect(batches.from(from), (batch) => rendered(renderer, config, batch)),
        steps,
        loss: Loss.crossEntropy,
        optimizer,
        metrics: (made) => metricsOf(made, optimizer, steps, bytes),
        checkpoints: config.checkpoints,
        evaluations:
          test === undefined
            ? []
            : [
                {
                  name: "test",
                  everySteps: config.evaluateEverySteps,
                  evaluate: (sampler) =>
                    Effect.gen(function* () {
                      const rows = yield* test.read(Uint32Array.from({ length: test.size }, (_, index) => index))
                      const data = (yield* Effect.forEach(rows, (row) => datumsOf(renderer, config, row))).flat()
                      const logprobs = yield* Effect.forEach(
                        data,
                        (datum) => Effect.map(sampler.computeLogprobs(sequenceOf(datum)), (all) => all.subarray(1)),
                        { concurrency: 32 },
                      )
                      return { metrics: yield* Likelihood.evaluationMetrics("test", predicted(data, logprobs), bytes) }
                    }),
                },
              ],
        stop,
      })
    }),
  )

const datumsOf = (
  renderer: Renderer,
  { maxLength, trainOn }: Config,
  { file, row, value }: { readonly file: string; readonly row: number; readonly value: Conversation },
): Effect.Effect<ReadonlyArray<Datums.SupervisedDatum>, BadRow> => {
  const bad = (problem: string) => new BadRow({ file, row, reason: "InvalidRow", problem })
  return Datums.fromConversation(renderer, value.messages, { maxLength, trainOn }).pipe(
    Effect.mapError((error) => bad(error.message)),
    Effect.filterOrFail(
      (data) => data.some(({ inputs }) => inputs.weights.some((weight) => weight > 0)),
      () => bad("nothing to learn: it has no message of the assistant within the length limit"),
    ),
  )
}

const rendered = (
  renderer: Renderer,
  config: Config,
  { epoch, rows }: Batches.Batch<Conversation>,
): Effect.Effect<TrainingLoop.Batch<Datums.SupervisedDatum["inputs"]>, BadRow> =>
  Effect.map(
    Effect.forEach(rows, (row) => datumsOf(renderer, config, row)),
    (all) => {
      const data = all.flat()
      return { data, tokens: data.reduce((sum, datum) => sum + lengthOf(datum), 0), metrics: { epoch } }
    },
  )

const predicted = (
  data: ReadonlyArray<Pick<Datums.SupervisedDatum, "inputs">>,
  logprobs: ReadonlyArray<Float32Array>,
): ReadonlyArray<Likelihood.Predicted> =>
  data.map(({ inputs }, index) => ({ ...inputs, logprobs: logprobs[index] ?? new Float32Array() }))

const metricsOf = (
  { batch: { data }, pass, step }: TrainingLoop.MadeStep<Datums.SupervisedDatum["inputs"]>,
  optimizer: Optimizer.Schedule<Optimizer.Adam>,
  steps: number,
  bytes: Likelihood.Bytes<TrainError> | undefined,
): Effect.Effect<Metrics, TrainError> =>
  Effect.gen(function* () {
    const logprobs = yield* TrainingResult.logprobs(pass)
    return {
      progress: (step + 1) / steps,
      learning_rate: optimizer(step).learningRate,
      num_sequences: data.length,
      num_loss_tokens: data.reduce(
        (sum, { inputs }) => sum + inputs.weights.reduce((sum, weight) => sum + weight, 0),
        0,
      ),
      ...(yield* Likelihood.trainMetrics(predicted(data, logprobs), bytes)),
    }
  })
