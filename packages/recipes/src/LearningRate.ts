/**
 * Learning rates: what to start with for a model, and how they fall during a run. Numbers and formulas are those of the
 * official cookbook.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import type * as Optimizer from "effect-tinker/Optimizer"
import * as Models from "./internal/Models.ts"

/**
 * Reports that nothing is known about a model:
 *
 * - `Uncalibrated`: nobody has published a learning rate for this family of models
 * - `UnknownSize`: the family is calibrated, but the width of this model is not known
 * - `UnknownModel`: the model is not known at all
 *
 * @since 0.1.0
 * @category errors
 */
export class ModelNotCalibrated extends Schema.TaggedError<ModelNotCalibrated>(
  "@effect-tinker/recipes/ModelNotCalibrated",
)("ModelNotCalibrated", {
  model: Schema.String,
  reason: Schema.Literal("Uncalibrated", "UnknownSize", "UnknownModel"),
}) {
  /** @since 0.1.0 */
  override get message(): string {
    const problem = {
      Uncalibrated: "no learning rate is known for this family of models; set one, e.g. 1e-4, and compare a few",
      UnknownSize: "its width is not known; pass hiddenSize, which is in its config.json, or set a learning rate",
      UnknownModel: "the model is not known; check its name, or set a learning rate",
    }[this.reason]
    return `${this.model}: ${problem}`
  }
}

/** How much the rate falls as models get wider. */
const exponents: ReadonlyArray<readonly [family: string, exponent: number]> = [
  ["llama", 0.781],
  ["qwen", 0.0775],
]

const fullRate = 5e-5
const loraFactor = 10
const referenceWidth = 2000

/**
 * Returns the recommended learning rate for a model: `5e-5 · (2000 / width)^exponent`, times 10 for LoRA. Only the Llama
 * and Qwen families are calibrated.
 *
 * @example
 * ```ts
 * import { LearningRate } from "@effect-tinker/recipes"
 * import { Console, Effect } from "effect"
 *
 * const program = Effect.gen(function* () {
 *   const rate = yield* LearningRate.recommended("Qwen/Qwen3-8B")
 *   yield* Console.log(rate.toPrecision(3)) // → 0.000473
 * })
 *
 * await Effect.runPromise(program)
 * ```
 *
 * @since 0.1.0
 * @category rates
 */
export const recommended = (
  model: string,
  options: {
    /** Whether a LoRA adapter is trained rather than all weights. Default: true. */
    readonly lora?: boolean | undefined
    /** The width of a model that is not in the table: `hidden_size` of its configuration. */
    readonly hiddenSize?: number | undefined
  } = {},
): Either.Either<number, ModelNotCalibrated> => {
  const known = Models.find(model)
  const refuse = (reason: ModelNotCalibrated["reason"]) => Either.left(new ModelNotCalibrated({ model, reason }))
  const exponent = exponents.find(([family]) => Models.baseName(model).toLowerCase().includes(family))?.[1]
  if (exponent === undefined) return refuse(known === undefined ? "UnknownModel" : "Uncalibrated")
  const width = options.hiddenSize ?? known?.hiddenSize
  if (width === undefined || !(width > 0)) return refuse("UnknownSize")
  const rate = options.lora === false ? fullRate : fullRate * loraFactor
  return Either.right(rate * (referenceWidth / width) ** exponent)
}

/**
 * The names of the models with a recommended learning rate.
 *
 * @since 0.1.0
 * @category rates
 */
export const calibrated: ReadonlyArray<string> = Models.names.filter((name) => Either.isRight(recommended(name)))

/**
 * Which layers of a model get an adapter, as in `createLoraTrainingClient`.
 *
 * @since 0.1.0
 * @category models
 */
export interface Adapter {
  /** Default: 32. */
  readonly rank?: number | undefined
  /** Default: true. */
  readonly trainMlp?: boolean | undefined
  /** Default: true. */
  readonly trainAttn?: boolean | undefined
  /** Default: true. */
  readonly trainUnembed?: boolean | undefined
}

/**
 * Returns how many parameters a LoRA adapter of a model has.
 *
 * @since 0.1.0
 * @category models
 */
export const loraParameters = (
  model: string,
  { rank = 32, trainAttn = true, trainMlp = true, trainUnembed = true }: Adapter = {},
): Either.Either<number, ModelNotCalibrated> => {
  const found = Models.find(model)
  if (found === undefined) return Either.left(new ModelNotCalibrated({ model, reason: "UnknownModel" }))
  const { attention, mlp, unembed } = found
  return Either.right(rank * ((trainMlp ? mlp : 0) + (trainAttn ? attention : 0) + (trainUnembed ? unembed : 0)))
}

/**
 * How a learning rate falls during a run: in a line or along a half cosine to 0, or not at all.
 *
 * @since 0.1.0
 * @category schedules
 */
export const Schedule = Schema.Literal("linear", "cosine", "constant")

/**
 * The type of {@link Schedule}.
 *
 * @since 0.1.0
 * @category schedules
 */
export type Schedule = typeof Schedule.Type

/**
 * Returns the factor of the learning rate at a step, counted from 0. NaN, which no optimizer accepts, if the number of
 * steps is not positive.
 *
 * @since 0.1.0
 * @category schedules
 */
export const multiplier = (schedule: Schedule, step: number, steps: number): number => {
  if (!(steps > 0)) return Number.NaN
  if (schedule === "linear") return 1 - step / steps
  return schedule === "cosine" ? 0.5 * (1 + Math.cos((Math.PI * step) / steps)) : 1
}

/**
 * Returns the optimizer for each step of a run.
 *
 * @since 0.1.0
 * @category schedules
 */
export const scheduled =
  <O extends Optimizer.Optimizer>(optimizer: O, schedule: Schedule, steps: number): Optimizer.Schedule<O> =>
  (step) => ({ ...optimizer, learningRate: optimizer.learningRate * multiplier(schedule, step, steps) })
