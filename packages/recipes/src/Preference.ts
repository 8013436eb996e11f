/**
 * Preference tuning: trains a model on pairs of a better and a worse answer (direct preference optimization). The log
 * probabilities of the reference model are computed once and kept with the run.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Datums from "@effect-tinker/tokenizer/Datums"
import * as Message from "@effect-tinker/tokenizer/Message"
import type { Renderer } from "@effect-tinker/tokenizer/Renderer"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import { ServiceClient } from "effect-tinker/ServiceClient"
import type { FutureError, InvalidInput, TinkerError } from "effect-tinker/TinkerError"
import { CheckpointPolicy } from "./CheckpointPolicy.ts"
import { BadRow } from "./DataError.ts"
import {
  batchesOf,
  batchingOf,
  batchOf,
  decodeConfig,
  lengthOf,
  openRun,
  optimizerOf,
  sequenceOf,
  trainingFields,
  whole,
} from "./internal/Recipe.ts"
import * as Stored from "./internal/Stored.ts"
import * as Usable from "./internal/Usable.ts"
import * as Preferences from "./Preferences.ts"
import type { Row } from "./Rows.ts"
import type { ConfigurationChanged, RunStoreFailed } from "./RunError.ts"
import type { RunEvent } from "./RunEvent.ts"
import type { RunStore, Service as Store } from "./RunStore.ts"
import type * as Table from "./Table.ts"
import * as TrainingLoop from "./TrainingLoop.ts"

const messages = Schema.Array(Message.FromJson)

/**
 * A row of a file of preferences: two continuations of the same prompt.
 *
 * @since 0.1.0
 * @category models
 */
export const Pair = Schema.Struct({ prompt: messages, chosen: messages, rejected: messages })

/**
 * The type of {@link Pair}.
 *
 * @since 0.1.0
 * @category models
 */
export type Pair = typeof Pair.Type

/**
 * The configuration of preference tuning. It can be read from JSON.
 *
 * @since 0.1.0
 * @category models
 */
export const Config = Schema.Struct({
  ...trainingFields,
  /**
   * How many pairs a pass has.
   *
   * @default 64
   */
  batchSize: Schema.optional(whole).annotations({ description: "How many pairs a pass has.", default: 64 }),
  /** @default 0.00001 */
  learningRate: Schema.optionalWith(Schema.Positive, { default: () => 1e-5 }).annotations({
    description: "The learning rate of the first step.",
  }),
  /**
   * How strongly the model is held to the reference.
   *
   * @default 0.1
   */
  beta: Schema.optionalWith(Schema.Positive, { default: () => 0.1 }).annotations({
    description: "How strongly the model is held to the reference.",
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
  readonly data: Table.Table<Pair>
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
  | InvalidInput
  | FutureError
  | TinkerError
  | BadRow
  | Table.Failure

/**
 * Starts the run in the current store, or continues it, and emits its new events. The reference is the base model.
 *
 * @since 0.1.0
 * @category running
 */
export const train = <E = never, R = never>(
  options: Options<E, R>,
): Stream.Stream<RunEvent, TrainError | E, RunStore | ServiceClient | R> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const config = yield* batchingOf(yield* decodeConfig(Config, options.config), 64)
      const { renderer, stop } = options
      const { beta, maxLength } = config
      const { notes, table } = yield* Usable.choose(options.data, config, (row) => sequencesOf(renderer, row))
      const { batches, steps } = yield* batchesOf(table, config)
      const run = yield* openRun("preference", config, Schema.encodeSync(Config)(config), options)
      if (run._tag === "Completed") return Stream.empty
      const service = yield* ServiceClient
      const sampler = yield* service.createSamplingClient({ baseModel: config.model })
      const counted = Option.map(run.spending, ({ sampling }) => sampling(sampler))
      const reference = yield* referenceOf(run.store, yield* Option.getOrElse(counted, () => Effect.succeed(sampler)))
      const optimizer = optimizerOf(config, steps)
      const pairOf = (row: Row<Pair>) =>
        Effect.gen(function* () {
          const { chosen, rejected } = yield* datumsOf(renderer, row, maxLength)
          const key = `${row.file}:${row.row}`
          return [yield* reference(`${key}:chosen`, chosen), yield* reference(`${key}:rejected`, rejected)]
        })
      return TrainingLoop.events(run, {
        batches: (from) =>
          Stream.mapEffect(batches.from(from), (batch) =>
            Effect.map(Effect.forEach(batch.rows, pairOf, { concurrency: 16 }), (pairs) =>
              batchOf(batch, pairs.flat(), notes),
            ),
          ),
        steps,
        passes: config.accumulate,
        loss: Preferences.dpo({ beta }),
        optimizer,
        metrics: ({ batch, pass, step }) =>
          Effect.succeed({
            ...pass.metrics,
            num_pairs: batch.data.length / 2,
            learning_rate: optimizer(step).learningRate,
            progress: (step + 1) / steps,
          }),
        checkpoints: config.checkpoints,
        evaluations: options.evaluations,
        stop,
      })
    }),
  )

const datumsOf = (renderer: Renderer, { file, row, value }: Row<Pair>, maxLength: number | undefined) =>
  Effect.mapError(
    Datums.fromPreference(renderer, value, { maxLength }),
    ({ message }) => new BadRow({ file, row, reason: "InvalidRow", problem: message }),
  )

/** Renders a pair to measure it. The last token of a sequence is only a target. */
const sequencesOf = (renderer: Renderer, row: Row<Pair>) =>
  Effect.map(datumsOf(renderer, row, undefined), ({ chosen, rejected }) => [
    { field: "chosen", length: lengthOf(chosen) + 1 },
    { field: "rejected", length: lengthOf(rejected) + 1 },
  ])

const file = "reference.jsonl"
const Line = Schema.parseJson(Schema.Tuple(Schema.String, Schema.Number))

/** Returns a function that adds the reference's log probability to a datum: from the run's store, or computed once. */
const referenceOf = (store: Store, sampler: SamplingClient.Service) =>
  Effect.gen(function* () {
    const known = new Map<string, number>(yield* Stored.lines(store, file, Line))
    return (key: string, datum: Datums.SupervisedDatum) =>
      Effect.gen(function* () {
        const found = known.get(key)
        if (found !== undefined) return { ...datum, inputs: { ...datum.inputs, reference: found } }
        const logprobs = (yield* sampler.computeLogprobs(sequenceOf(datum))).subarray(1)
        const scored = yield* Preferences.withReference(datum, logprobs)
        known.set(key, scored.inputs.reference)
        yield* store.append(file, [Schema.encodeSync(Line)([key, scored.inputs.reference])])
        return scored
      })
  })
