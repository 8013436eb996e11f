/**
 * Defines optimizers, as the parameters of one step, and learning rate schedules, as pure functions from the step to an
 * optimizer.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import { describe, invalid } from "./internal/codec/Invalid.ts"
import { lazy } from "./internal/util/Lazy.ts"
import * as Wire from "./internal/codec/Wire.ts"
import type { InvalidInput } from "./TinkerError.ts"

/**
 * The Adam optimizer. On the wire, all six fields are always present and there is no `type`.
 *
 * @since 0.1.0
 * @category models
 */
export const Adam = lazy(() =>
  Wire.struct({
    learningRate: Wire.orElse(Schema.Number, 1e-4),
    beta1: Wire.orElse(Schema.Number, 0.9),
    beta2: Wire.orElse(Schema.Number, 0.95),
    eps: Wire.orElse(Schema.Number, 1e-12),
    weightDecay: Wire.orElse(Schema.Number, 0),
    gradClipNorm: Wire.orElse(Schema.Number, 0),
  }).pipe(Schema.attachPropertySignature("_tag", "Adam")),
)

/**
 * The type of {@link Adam}.
 *
 * @since 0.1.0
 * @category models
 */
export type Adam = typeof Adam.Type

/**
 * The Dimuon optimizer.
 *
 * @since 0.1.0
 * @category models
 */
export const Dimuon = lazy(() =>
  Wire.struct({
    type: Schema.Literal("dimuon"),
    learningRate: Schema.Number,
    gradClipNorm: Wire.orElse(Schema.Number, 0),
    beta1: Wire.orElse(Schema.Number, 0.9),
  }).pipe(Schema.attachPropertySignature("_tag", "Dimuon")),
)

/**
 * The type of {@link Dimuon}.
 *
 * @since 0.1.0
 * @category models
 */
export type Dimuon = typeof Dimuon.Type

/**
 * A supported optimizer.
 *
 * @since 0.1.0
 * @category models
 */
export type Optimizer = Adam | Dimuon

/**
 * The optimizer part of an `optim_step` request: Adam uses its own key, all other optimizers share another one.
 *
 * @since 0.1.0
 * @category models
 */
export type Params = { readonly adamParams: Adam } | { readonly optimizerParams: Dimuon }

/**
 * Converts an optimizer to request parameters.
 *
 * @since 0.1.0
 * @category conversions
 */
export const toParams = (self: Optimizer): Params =>
  self._tag === "Adam" ? { adamParams: self } : { optimizerParams: self }

/**
 * The optimizer configuration with which a model is created. Fields other than `type` are sent under the names given
 * here.
 *
 * @since 0.1.0
 * @category models
 */
export const OptimizerConfig = lazy(() =>
  Schema.Struct({ type: Wire.open("adamw", "dimuon") }, { key: Schema.String, value: Schema.UndefinedOr(Wire.Json) }),
)

/**
 * The type of {@link OptimizerConfig}.
 *
 * @since 0.1.0
 * @category models
 */
export type OptimizerConfig = typeof OptimizerConfig.Type

/**
 * The default optimizer configuration of a model.
 *
 * @since 0.1.0
 * @category constants
 */
export const adamw: OptimizerConfig = { type: "adamw" }

/**
 * Returns the model configuration that an optimizer requires.
 *
 * @since 0.1.0
 * @category conversions
 */
export const toConfig = (self: Optimizer): OptimizerConfig =>
  self._tag === "Adam" ? adamw : { type: "dimuon", version: 1 }

/**
 * Creates an Adam optimizer with the defaults of the reference: learning rate 1e-4, betas 0.9 and 0.95, eps 1e-12, no
 * weight decay, no clipping (0).
 *
 * @example
 * ```ts
 * import { Optimizer } from "effect-tinker"
 *
 * const optimizer = Optimizer.adam({ learningRate: 2e-5, gradClipNorm: 1 })
 *
 * console.log(optimizer.learningRate, optimizer.beta1, optimizer.gradClipNorm) // → 0.00002 0.9 1
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const adam = (options: Partial<Omit<Adam, "_tag">> = {}): Adam => ({
  _tag: "Adam",
  learningRate: options.learningRate ?? 1e-4,
  beta1: options.beta1 ?? 0.9,
  beta2: options.beta2 ?? 0.95,
  eps: options.eps ?? 1e-12,
  weightDecay: options.weightDecay ?? 0,
  gradClipNorm: options.gradClipNorm ?? 0,
})

/**
 * Creates a Dimuon optimizer.
 *
 * @since 0.1.0
 * @category constructors
 */
export const dimuon = (options: {
  readonly learningRate: number
  readonly gradClipNorm?: number
  readonly beta1?: number
}): Dimuon => ({
  _tag: "Dimuon",
  type: "dimuon",
  learningRate: options.learningRate,
  gradClipNorm: options.gradClipNorm ?? 0,
  beta1: options.beta1 ?? 0.9,
})

/**
 * Validates an optimizer before a step is sent: non-negative rates, betas in [0, 1), and a positive eps.
 *
 * @since 0.1.0
 * @category validation
 */
export const validate = (self: Optimizer): Either.Either<Optimizer, InvalidInput> => {
  for (const [name, value] of Object.entries<unknown>(self)) {
    const rule = rules[name]
    if (rule !== undefined && !(typeof value === "number" && rule.holds(value)))
      return invalid(`optimizer.${name}`, `expected ${rule.expected}, got ${describe(value)}`)
  }
  return Either.right(self)
}

interface Rule {
  readonly expected: string
  readonly holds: (value: number) => boolean
}

const notNegative: Rule = {
  expected: "a finite non-negative number",
  holds: (value) => value >= 0 && value < Infinity,
}
const decay: Rule = { expected: "0 <= beta < 1", holds: (value) => value >= 0 && value < 1 }

const rules: Readonly<Record<string, Rule>> = {
  learningRate: notNegative,
  beta1: decay,
  beta2: decay,
  eps: { expected: "a positive number", holds: (value) => value > 0 && value < Infinity },
  weightDecay: notNegative,
  gradClipNorm: notNegative,
}

/**
 * Returns the optimizer for each step, counted from 0. A schedule with a missing number produces a rate of NaN, which
 * {@link validate} and `optim_step` reject.
 *
 * @since 0.1.0
 * @category schedules
 */
export type Schedule<O extends Optimizer = Optimizer> = (step: number) => O

/**
 * Options of the decaying schedules.
 *
 * @since 0.1.0
 * @category schedules
 */
export interface Decay {
  /** The number of steps, including warm-up, after which the floor is reached. */
  readonly steps: number
  /**
   * The number of steps in which the rate rises to its full value: 1/warmup at step 0, the full rate at `warmup - 1`.
   *
   * @default 0
   */
  readonly warmup?: number
  /**
   * The fraction of the rate that remains at the end, from 0 to 1.
   *
   * @default 0
   */
  readonly floor?: number
}

/**
 * Uses the same optimizer for every step.
 *
 * @since 0.1.0
 * @category schedules
 */
export const constant =
  <O extends Optimizer>(optimizer: O): Schedule<O> =>
  () =>
    optimizer

/**
 * Raises the rate for `steps` steps, then continues with another schedule.
 *
 * @since 0.1.0
 * @category schedules
 */
export const warmup =
  <O extends Optimizer>(schedule: Schedule<O>, steps: number): Schedule<O> =>
  (step) =>
    // With this order, an invalid number of steps (NaN) produces an invalid rate.
    step >= steps ? schedule(step - steps) : scaled(schedule(0), Math.min(1, (step + 1) / steps))

/**
 * Decreases the rate linearly.
 *
 * @since 0.1.0
 * @category schedules
 */
export const linear = <O extends Optimizer>(optimizer: O, decay: Decay): Schedule<O> =>
  falling(optimizer, decay, (progress) => 1 - progress)

/**
 * Decreases the rate along a half cosine.
 *
 * @example
 * ```ts
 * import { Optimizer } from "effect-tinker"
 *
 * // Rises to 0.001 in 2 steps, then falls to a tenth of it by step 10. `trainSteps` accepts a schedule.
 * const schedule = Optimizer.cosine(Optimizer.adam({ learningRate: 1e-3 }), { steps: 10, warmup: 2, floor: 0.1 })
 *
 * console.log(schedule(0).learningRate) // → 0.0005
 * console.log(schedule(2).learningRate) // → 0.001
 * console.log(schedule(10).learningRate) // → 0.0001
 * ```
 *
 * @since 0.1.0
 * @category schedules
 */
export const cosine = <O extends Optimizer>(optimizer: O, decay: Decay): Schedule<O> =>
  falling(optimizer, decay, (progress) => (1 + Math.cos(Math.PI * progress)) / 2)

const falling = <O extends Optimizer>(
  optimizer: O,
  { steps, warmup: rise = 0, floor = 0 }: Decay,
  curve: (progress: number) => number,
): Schedule<O> =>
  warmup((step) => {
    const progress = Math.min(1, step / Math.max(1, steps - rise))
    return scaled(optimizer, floor + (1 - floor) * curve(progress))
  }, rise)

const scaled = <O extends Optimizer>(optimizer: O, factor: number): O => ({
  ...optimizer,
  learningRate: optimizer.learningRate * factor,
})
