/** What the recipes have in common. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as ModelInput from "effect-tinker/ModelInput"
import * as Optimizer from "effect-tinker/Optimizer"
import { InvalidInput } from "effect-tinker/TinkerError"
import * as Batches from "../Batches.ts"
import type { Table } from "../Table.ts"

export const whole = Schema.Int.pipe(Schema.positive())

/** The settings of every recipe that trains on rows. */
export const trainingFields = {
  /** The base model, e.g. `Qwen/Qwen3-8B`. */
  model: Schema.String,
  /** @default 32 */
  rank: Schema.optionalWith(whole, { default: () => 32 }),
  /**
   * Decides the order of the data, the held-out rows, and the first weights of the adapters.
   *
   * @default 0
   */
  seed: Schema.optionalWith(Schema.NonNegativeInt, { default: () => 0 }),
  /** @default 1 */
  epochs: Schema.optionalWith(whole, { default: () => 1 }),
  /** Ends the run after this many steps. */
  maxSteps: Schema.optional(whole),
  /** The most tokens of an example; the rest is cut off. */
  maxLength: Schema.optional(whole),
  /** @default linear */
  schedule: Schema.optionalWith(Schema.Literal("linear", "cosine", "constant"), { default: () => "linear" as const }),
  /** Raises the learning rate for this many steps first. */
  warmupSteps: Schema.optionalWith(Schema.NonNegativeInt, { default: () => 0 }),
  /** @default 0.9 */
  beta1: Schema.optionalWith(Schema.Number, { default: () => 0.9 }),
  /** @default 0.95 */
  beta2: Schema.optionalWith(Schema.Number, { default: () => 0.95 }),
  /** @default 1e-8 */
  eps: Schema.optionalWith(Schema.Number, { default: () => 1e-8 }),
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
export const decodeConfig = <A, I>(schema: Schema.Schema<A, I>, input: I): Effect.Effect<A, InvalidInput> =>
  Effect.mapError(
    Schema.decodeUnknown(schema, { onExcessProperty: "error", errors: "all" })(input),
    (error) => new InvalidInput({ path: "config", problem: error.message }),
  )

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

/** Returns the batches of a table, and how many of them a run uses. */
export const batchesOf = <A>(
  data: Table<A>,
  config: {
    readonly batchSize: number
    readonly epochs: number
    readonly seed: number
    readonly maxSteps?: number | undefined
  },
): Either.Either<{ readonly batches: Batches.Batches<A>; readonly steps: number }, InvalidInput> => {
  const { batchSize, epochs, maxSteps = Number.POSITIVE_INFINITY, seed } = config
  const lastBatch = data.size < batchSize ? "keep" : "drop"
  return Either.map(Batches.make(data, { size: { rows: batchSize }, epochs, seed, lastBatch }), (batches) => ({
    batches,
    steps: Math.min(batches.steps, maxSteps),
  }))
}

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
