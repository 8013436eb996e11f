/** Trains on examples with cross-entropy: what the recipes have in common that turn rows into tokens and weights. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Stream from "effect/Stream"
import type * as Datums from "@effect-tinker/tokenizer/Datums"
import type { Renderer } from "@effect-tinker/tokenizer/Renderer"
import type * as Tokenizer from "@effect-tinker/tokenizer/Tokenizer"
import * as Loss from "effect-tinker/Loss"
import type * as Optimizer from "effect-tinker/Optimizer"
import type { InvalidInput } from "effect-tinker/TinkerError"
import * as TrainingResult from "effect-tinker/TrainingResult"
import type { CheckpointPolicy } from "../CheckpointPolicy.ts"
import type { BadRow } from "../DataError.ts"
import * as Evaluate from "../Evaluate.ts"
import * as LearningRate from "../LearningRate.ts"
import * as Likelihood from "../Likelihood.ts"
import type { Row } from "../Rows.ts"
import type { Run } from "../Run.ts"
import type { Metrics } from "../RunEvent.ts"
import * as Table from "../Table.ts"
import * as TrainingLoop from "../TrainingLoop.ts"
import { predicted } from "./Conversations.ts"
import { type Batching, batchesOf, batchOf, openRun, type Optimization, optimizerOf } from "./Recipe.ts"
import * as Usable from "./Usable.ts"

type Inputs = Datums.SupervisedDatum["inputs"]

interface Config extends Omit<Optimization, "learningRate">, Batching, Usable.Policy {
  readonly model: string
  readonly rank: number
  readonly learningRate?: number | undefined
  readonly heldOut?: number | undefined
  readonly evaluateEverySteps: number
  readonly checkpoints: CheckpointPolicy
}

export interface Options<A, B, E, R, E2, R2> extends TrainingLoop.Control {
  readonly recipe: string
  readonly config: Config
  /** Returns the settings that the run keeps, with the learning rate that was chosen. */
  readonly configuration: (learningRate: number) => Readonly<Record<string, unknown>>
  readonly renderer: Renderer
  readonly tokenizer?: Tokenizer.Service | undefined
  readonly data: Table.Table<A>
  readonly datums: (row: Row<A>) => Effect.Effect<ReadonlyArray<Datums.SupervisedDatum>, BadRow>
  /** Measures the sequences of a row. */
  readonly sequences: (row: Row<A>) => Effect.Effect<ReadonlyArray<Usable.Sequence>, BadRow>
  /** Evaluates the rows that are held out. */
  readonly heldOut: (test: Table.Table<A>) => Evaluate.Evaluation<B, E, R>
  readonly evaluations?: ReadonlyArray<TrainingLoop.Evaluation<E2, R2>> | undefined
}

/** Opens the run and returns its new events. */
export const train = <A, B, E, R, E2, R2>(options: Options<A, B, E, R, E2, R2>) =>
  Effect.gen(function* () {
    const { config } = options
    const learningRate = yield* learningRateOf(config)
    const prepared = yield* prepare(options)
    const run = yield* openRun(options.recipe, config, options.configuration(learningRate), options)
    return run._tag === "Completed" ? Stream.empty : events(run, learningRate, prepared, options)
  })

/** Returns the learning rate of the configuration, or the recommended one. */
export const learningRateOf = ({ learningRate, model }: Pick<Config, "learningRate" | "model">) =>
  learningRate === undefined ? LearningRate.recommended(model) : Either.right(learningRate)

/** Chooses the rows of a run, and plans its batches. */
export const prepare = <A>({
  config,
  data,
  sequences,
}: Pick<Options<A, never, never, never, never, never>, "config" | "data" | "sequences">) =>
  Effect.gen(function* () {
    const { heldOut, seed } = config
    const { notes, table } = yield* Usable.choose(data, config, sequences)
    const { heldOut: test, train } =
      heldOut === undefined
        ? { train: table, heldOut: undefined }
        : yield* Table.split(table, { heldOut: { count: heldOut }, seed })
    return { notes, test, ...(yield* batchesOf(train, config)) }
  })

/** Makes the steps of an open run. */
export const events = <A, B, E, R, E2, R2>(
  run: Run,
  learningRate: number,
  { batches, notes, steps, test }: Effect.Effect.Success<ReturnType<typeof prepare<A>>>,
  options: Pick<Options<A, B, E, R, E2, R2>, "config" | "datums" | "evaluations" | "heldOut" | "stop" | "tokenizer">,
) => {
  const { accumulate, checkpoints, evaluateEverySteps: everySteps } = options.config
  const optimizer = optimizerOf({ ...options.config, learningRate }, steps)
  const bytes = options.tokenizer && Likelihood.bytesOf(options.tokenizer)
  const evaluations: ReadonlyArray<TrainingLoop.Evaluation<E | E2 | Evaluate.QuestionFailed | InvalidInput, R | R2>> = [
    ...(test === undefined ? [] : [Evaluate.inRun(options.heldOut(test), { everySteps })]),
    ...(options.evaluations ?? []),
  ]
  return TrainingLoop.events(run, {
    batches: (from) =>
      Stream.mapEffect(batches.from(from), (batch) =>
        Effect.map(Effect.forEach(batch.rows, options.datums), (data) => batchOf(batch, data.flat(), notes)),
      ),
    steps,
    passes: accumulate,
    loss: Loss.crossEntropy,
    optimizer,
    metrics: (made) => metricsOf(made, optimizer, steps, bytes),
    checkpoints,
    evaluations,
    stop: options.stop,
  })
}

const metricsOf = <E>(
  { batch: { data }, pass, step }: TrainingLoop.MadeStep<Inputs>,
  optimizer: Optimizer.Schedule<Optimizer.Adam>,
  steps: number,
  bytes: Likelihood.Bytes<E> | undefined,
) =>
  Effect.gen(function* () {
    const logprobs = yield* TrainingResult.logprobs(pass)
    const metrics: Metrics = {
      progress: (step + 1) / steps,
      learning_rate: optimizer(step).learningRate,
      num_sequences: data.length,
      num_loss_tokens: data.reduce(
        (sum, { inputs }) => sum + inputs.weights.reduce((sum, weight) => sum + weight, 0),
        0,
      ),
      ...(yield* Likelihood.trainMetrics(predicted(data, logprobs), bytes)),
    }
    return metrics
  })
