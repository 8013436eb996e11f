/**
 * Optimizers, as what one step of them takes, and schedules: pure functions from the step to an optimizer.
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
 * On the wire all six fields are there always, and there is no `type`.
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
 * @since 0.1.0
 * @category models
 */
export type Adam = typeof Adam.Type

/**
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
 * @since 0.1.0
 * @category models
 */
export type Dimuon = typeof Dimuon.Type

/**
 * @since 0.1.0
 * @category models
 */
export type Optimizer = Adam | Dimuon

/**
 * The part of an `optim_step` request that says which optimizer: Adam has a key of its own, every other uses another.
 *
 * @since 0.1.0
 * @category models
 */
export type Params = { readonly adamParams: Adam } | { readonly optimizerParams: Dimuon }

/**
 * @since 0.1.0
 * @category conversions
 */
export const toParams = (self: Optimizer): Params =>
  self._tag === "Adam" ? { adamParams: self } : { optimizerParams: self }

/**
 * What a model is created with, so that it can be trained by an optimizer. Fields other than `type` travel under the
 * names that they have here.
 *
 * @since 0.1.0
 * @category models
 */
export const OptimizerConfig = lazy(() =>
  Schema.Struct({ type: Wire.open("adamw", "dimuon") }, { key: Schema.String, value: Schema.UndefinedOr(Wire.Json) }),
)

/**
 * @since 0.1.0
 * @category models
 */
export type OptimizerConfig = typeof OptimizerConfig.Type

/**
 * What a model has when nothing else is said.
 *
 * @since 0.1.0
 * @category constants
 */
export const adamw: OptimizerConfig = { type: "adamw" }

/**
 * The configuration that goes with an optimizer.
 *
 * @since 0.1.0
 * @category conversions
 */
export const toConfig = (self: Optimizer): OptimizerConfig =>
  self._tag === "Adam" ? adamw : { type: "dimuon", version: 1 }

/**
 * Adam. What is not given is the reference's default: learning rate 1e-4, betas 0.9 and 0.95, eps 1e-12, no weight
 * decay, no clipping (0).
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
 * Holds an optimizer to what makes sense, before a step is sent: no negative rate, betas from 0 up to but not
 * including 1, a positive eps.
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
  expected: "a finite number that is not negative",
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
 * The optimizer of each step, counted from 0. A schedule that was given no number where it needs one has no rate
 * (NaN), which {@link validate} and `optim_step` refuse.
 *
 * @since 0.1.0
 * @category schedules
 */
export type Schedule<O extends Optimizer = Optimizer> = (step: number) => O

/**
 * @since 0.1.0
 * @category schedules
 */
export interface Decay {
  /** After how many steps, the warm-up included, the floor is reached. */
  readonly steps: number
  /** For how many steps the rate rises to the optimizer's own: 1/warmup of it at step 0, all of it at `warmup - 1`. */
  readonly warmup?: number
  /** The part of the rate that is left in the end: from 0, the default, to 1. */
  readonly floor?: number
}

/**
 * @since 0.1.0
 * @category schedules
 */
export const constant =
  <O extends Optimizer>(optimizer: O): Schedule<O> =>
  () =>
    optimizer

/**
 * The rate rises for `steps` steps, and what another schedule says goes on from there.
 *
 * @since 0.1.0
 * @category schedules
 */
export const warmup =
  <O extends Optimizer>(schedule: Schedule<O>, steps: number): Schedule<O> =>
  (step) =>
    // In this order a number of steps that is none leads to a rate that is none.
    step >= steps ? schedule(step - steps) : scaled(schedule(0), Math.min(1, (step + 1) / steps))

/**
 * The rate falls in a straight line.
 *
 * @since 0.1.0
 * @category schedules
 */
export const linear = <O extends Optimizer>(optimizer: O, decay: Decay): Schedule<O> =>
  falling(optimizer, decay, (progress) => 1 - progress)

/**
 * The rate falls along half a cosine: slowly, fast, slowly.
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
