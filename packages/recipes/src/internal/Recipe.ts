/** The parts that the recipes share. */
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { Datum } from "effect-tinker/Datum"
import * as ModelInput from "effect-tinker/ModelInput"
import * as Optimizer from "effect-tinker/Optimizer"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import { InvalidInput } from "effect-tinker/TinkerError"
import type { Renderer } from "@effect-tinker/tokenizer/Renderer"
import * as Batches from "../Batches.ts"
import * as Run from "../Run.ts"
import type { Table } from "../Table.ts"
import type { Batch, Note } from "../TrainingLoop.ts"
import * as Settings from "./Settings.ts"

export const whole = Schema.Int.pipe(Schema.positive())

/**
 * A setting that was added later. Its default is not written to the configuration of a run, so that older runs, which
 * don't have it, can be continued.
 */
export const added = <A extends number | string, I>(schema: Schema.Schema<A, I>, fallback: A) =>
  Schema.optionalToRequired(schema, Schema.typeSchema(schema), {
    decode: Option.getOrElse(() => fallback),
    encode: (value) => (value === fallback ? Option.none() : Option.some(value)),
  })

/** Returns what a sampling client is created for: a checkpoint, if it is a path, or a base model. */
export const targetOf = (nameOrPath: string): SamplingClient.Target =>
  nameOrPath.startsWith("tinker://") ? { modelPath: nameOrPath } : { baseModel: nameOrPath }

/** The settings of every recipe that trains on rows. */
export const trainingFields = {
  /** The base model, e.g. `Qwen/Qwen3-8B`. */
  model: Schema.propertySignature(Schema.String).annotations({ description: "The base model, e.g. Qwen/Qwen3-8B." }),
  /** @default 32 */
  rank: Schema.optionalWith(whole, { default: () => 32 }).annotations({ description: "The rank of the adapters." }),
  /**
   * Decides the order of the data, the held-out rows, and the first weights of the adapters.
   *
   * @default 0
   */
  seed: Schema.optionalWith(Schema.NonNegativeInt, { default: () => 0 }).annotations({
    description: "Decides the order of the data, the held-out rows, and the first weights of the adapters.",
  }),
  /** @default 1 */
  epochs: Schema.optionalWith(whole, { default: () => 1 }).annotations({ description: "How often each row is used." }),
  /** Ends the run after this many steps. */
  maxSteps: Schema.optional(whole).annotations({ description: "Ends the run after this many steps." }),
  /**
   * The most tokens of a step (with `accumulate`, of each of its passes on average), instead of `batchSize`. A longer row is
   * a step of its own.
   */
  batchTokens: Schema.optional(whole).annotations({
    description:
      "The most tokens of a step (with accumulate, of each of its passes on average), instead of batchSize. A longer row is a step of its own.",
  }),
  /**
   * Makes this many passes for each update, each with `batchSize` rows or about `batchTokens` tokens. The update is that
   * of one pass over all of them.
   *
   * @default 1
   */
  accumulate: Schema.optional(whole).annotations({
    description:
      "Makes this many passes for each update, each with batchSize rows or about batchTokens tokens. The update is that of one pass over all of them.",
    default: 1,
  }),
  /** The most tokens of an example. */
  maxLength: Schema.optional(whole).annotations({ description: "The most tokens of an example." }),
  /**
   * Decides about a row with more than `maxLength` tokens: the rest is cut off, the row is counted and left out, or it
   * ends the run before the first step.
   *
   * @default truncate
   */
  onLongRow: Schema.optional(Schema.Literal("truncate", "skip", "fail")).annotations({
    description:
      "What happens to a row with more than maxLength tokens: the rest is cut off, the row is counted and left out, or it ends the run before the first step.",
    default: "truncate",
  }),
  /**
   * Decides about a row that can't be rendered or has nothing to learn: it ends the run, or is counted and left out.
   *
   * @default fail
   */
  onBadRow: Schema.optional(Schema.Literal("fail", "skip")).annotations({
    description:
      "What happens to a row that can't be rendered or has nothing to learn: it ends the run, or is counted and left out.",
    default: "fail",
  }),
  /** @default linear */
  schedule: Schema.optionalWith(Schema.Literal("linear", "cosine", "constant"), {
    default: () => "linear" as const,
  }).annotations({ description: "How the learning rate changes over the run." }),
  /** Raises the learning rate for this many steps first. */
  warmupSteps: Schema.optionalWith(Schema.NonNegativeInt, { default: () => 0 }).annotations({
    description: "Raises the learning rate for this many steps first.",
  }),
  /** @default 0.9 */
  beta1: Schema.optionalWith(Schema.Number, { default: () => 0.9 }).annotations({
    description: "Adam's decay of the mean of gradients.",
  }),
  /** @default 0.95 */
  beta2: Schema.optionalWith(Schema.Number, { default: () => 0.95 }).annotations({
    description: "Adam's decay of their variance.",
  }),
  /** @default 1e-8 */
  eps: Schema.optionalWith(Schema.Number, { default: () => 1e-8 }).annotations({ description: "Adam's epsilon." }),
} as const

export interface Optimization {
  readonly learningRate: number
  readonly schedule: "linear" | "cosine" | "constant"
  readonly warmupSteps: number
  readonly beta1: number
  readonly beta2: number
  readonly eps: number
}

/** Reads a configuration; what is wrong with it is an `InvalidInput` before anything is sent. */
export const decodeConfig = <A, I>(schema: Schema.Schema<A, I>, input: I): Either.Either<A, InvalidInput> =>
  Settings.decode(schema, input, "config")

export const optimizerOf = (config: Optimization, steps: number): Optimizer.Schedule<Optimizer.Adam> => {
  const { beta1, beta2, eps, learningRate, schedule, warmupSteps: warmup } = config
  const adam = Optimizer.adam({ learningRate, beta1, beta2, eps })
  switch (schedule) {
    case "linear":
      return Optimizer.linear(adam, { steps, warmup })
    case "cosine":
      return Optimizer.cosine(adam, { steps, warmup })
    case "constant":
      return Optimizer.warmup(Optimizer.constant(adam), warmup)
  }
}

/** How many rows or tokens a step has. */
export interface Batching {
  readonly batchSize?: number | undefined
  readonly batchTokens?: number | undefined
  readonly accumulate?: number | undefined
  readonly epochs: number
  readonly seed: number
  readonly maxSteps?: number | undefined
}

/** Returns the settings of the batches as the run keeps them: those that decide, with the default size. */
export const batchingOf = <C extends Batching>(config: C, defaultSize: number): Either.Either<C, InvalidInput> => {
  const { batchSize, batchTokens } = config
  if (batchTokens === undefined) return Either.right({ ...config, batchSize: batchSize ?? defaultSize })
  return batchSize === undefined
    ? Either.right(config)
    : Either.left(new InvalidInput({ path: "config.batchTokens", problem: "can't be given together with batchSize" }))
}

/** Returns the batches of a table, and how many of them a run uses. */
export const batchesOf = <A>(
  data: Table<A>,
  config: Batching,
): Either.Either<{ readonly batches: Batches.Batches<A>; readonly steps: number }, InvalidInput> => {
  const { accumulate = 1, batchSize = 1, batchTokens, epochs, maxSteps = Number.POSITIVE_INFINITY, seed } = config
  const rows = batchSize * accumulate
  const size = batchTokens === undefined ? { rows } : { tokens: batchTokens * accumulate }
  // Batches by tokens differ in size anyway.
  const lastBatch = batchTokens !== undefined || data.size < rows ? "keep" : "drop"
  return Either.map(Batches.make(data, { size, epochs, seed, lastBatch }), (batches) => ({
    batches,
    steps: Math.min(batches.steps, maxSteps),
  }))
}

/** Opens the run of a recipe that trains on rows. */
export const openRun = (
  recipe: string,
  config: { readonly model: string; readonly rank: number; readonly seed: number },
  encoded: object,
  {
    allowChanges,
    cost,
    data,
    renderer,
  }: {
    readonly allowChanges?: boolean | undefined
    readonly data: Pick<Table<unknown>, "fingerprint">
    readonly renderer: Pick<Renderer, "name">
    readonly cost?: Run.CostOptions | undefined
  },
) =>
  Run.open({
    model: {
      baseModel: config.model,
      rank: config.rank,
      seed: config.seed,
      userMetadata: { renderer_name: renderer.name },
    },
    configuration: { recipe, ...encoded, renderer: renderer.name, data: data.fingerprint },
    allowChanges,
    cost,
  })

interface Shifted {
  readonly modelInput: ModelInput.ModelInput
  readonly inputs: { readonly targetTokens: Int32Array }
}

/** Returns the number of tokens of a datum. */
export const lengthOf = ({ modelInput }: Shifted): number => Option.getOrElse(ModelInput.length(modelInput), () => 0)

/** Returns the whole sequence of a datum, before its targets were shifted. */
export const sequenceOf = ({ inputs: { targetTokens }, modelInput }: Shifted): ModelInput.ModelInput =>
  ModelInput.fromChunks([
    ...modelInput.chunks,
    { type: "encoded_text", tokens: targetTokens.subarray(targetTokens.length - 1) },
  ])

/** Returns the batch of a step from its data. The first one has the notes of the run. */
export const batchOf = <I extends Shifted["inputs"]>(
  { epoch, step }: { readonly epoch: number; readonly step: number },
  data: ReadonlyArray<Datum<I> & Shifted>,
  notes: ReadonlyArray<Note>,
): Batch<I> => ({
  data,
  tokens: data.reduce((sum, datum) => sum + lengthOf(datum), 0),
  metrics: { epoch },
  ...(step === 0 && notes.length > 0 ? { notes } : {}),
})
