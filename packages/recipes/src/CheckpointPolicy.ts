/**
 * Decides when a run saves checkpoints and which of them it keeps.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * When checkpoints are saved. All parts are optional; a final checkpoint is always saved.
 *
 * @since 0.1.0
 * @category models
 */
export const CheckpointPolicy = Schema.Struct({
  /**
   * Saves a periodic checkpoint after this many steps.
   *
   * @default 20
   */
  everySteps: Schema.optionalWith(Schema.NonNegativeInt, { default: () => 20 }).annotations({
    description: "Saves a periodic checkpoint after this many steps.",
  }),
  /** Saves a periodic checkpoint after this many trained tokens. */
  everyTokens: Schema.optional(Schema.Positive).annotations({
    description: "Saves a periodic checkpoint after this many trained tokens.",
  }),
  /** Saves a periodic checkpoint when the last one is this many minutes old, also if the run was interrupted since. */
  everyMinutes: Schema.optional(Schema.Positive).annotations({
    description:
      "Saves a periodic checkpoint when the last one is this many minutes old, also if the run was interrupted since.",
  }),
  /**
   * How long the server keeps a periodic checkpoint, in seconds. The final one is kept for good.
   *
   * @default 604800
   */
  ttlSeconds: Schema.optionalWith(Schema.NullOr(Schema.Positive), { default: () => 604_800 }).annotations({
    description: "How long the server keeps a periodic checkpoint, in seconds. The final one is kept for good.",
  }),
  /** Saves a checkpoint to continue from after this many steps, and deletes the one before it. */
  rollingEverySteps: Schema.optional(Schema.Int.pipe(Schema.positive())).annotations({
    description: "Saves a checkpoint to continue from after this many steps, and deletes the one before it.",
  }),
  /**
   * How long the server keeps a rolling checkpoint that was not deleted, in seconds.
   *
   * @default 7200
   */
  rollingTtlSeconds: Schema.optionalWith(Schema.Positive, { default: () => 7_200 }).annotations({
    description: "How long the server keeps a rolling checkpoint that was not deleted, in seconds.",
  }),
  /** Keeps the weights with the best result of an evaluation for good. */
  best: Schema.optional(
    Schema.Struct({
      /** The metric of an evaluation, e.g. `test/nll`. */
      metric: Schema.propertySignature(Schema.String).annotations({
        description: "The metric of an evaluation, e.g. test/nll, whose best weights are kept for good.",
      }),
      direction: Schema.propertySignature(Schema.Literal("lowest", "highest")).annotations({
        description: "Whether the lowest or the highest value is the best.",
      }),
    }),
  ),
})

/**
 * The type of {@link CheckpointPolicy}.
 *
 * @since 0.1.0
 * @category models
 */
export type CheckpointPolicy = typeof CheckpointPolicy.Type

/**
 * The policy without any settings.
 *
 * @since 0.1.0
 * @category models
 */
export const defaults: CheckpointPolicy = Schema.decodeSync(CheckpointPolicy)({})

/**
 * How far a run is.
 *
 * @since 0.1.0
 * @category models
 */
export interface Progress {
  /** The number of updates. */
  readonly step: number
  /** The number of tokens that were trained on. */
  readonly tokens: number
  /** In milliseconds since 1970. */
  readonly at: number
}

/**
 * Returns which checkpoints to save after an update. `last` is the progress at the last periodic checkpoint, or at the
 * start of the run, in this process or an earlier one. A periodic checkpoint makes another one at the same step
 * unnecessary.
 *
 * @since 0.1.0
 * @category deciding
 */
export const due = (policy: CheckpointPolicy, last: Progress, now: Progress): "periodic" | "rolling" | undefined => {
  const { everyMinutes, everySteps, everyTokens, rollingEverySteps } = policy
  if (now.step === last.step) return undefined
  const isPeriodic =
    (everySteps > 0 && now.step % everySteps === 0) ||
    (everyTokens !== undefined && now.tokens - last.tokens >= everyTokens) ||
    (everyMinutes !== undefined && now.at - last.at >= everyMinutes * 60_000)
  if (isPeriodic) return "periodic"
  return rollingEverySteps !== undefined && now.step % rollingEverySteps === 0 ? "rolling" : undefined
}

/**
 * Checks whether a result is better than the best one so far.
 *
 * @since 0.1.0
 * @category deciding
 */
export const isBetter = (
  { direction }: NonNullable<CheckpointPolicy["best"]>,
  best: number | undefined,
  value: number,
): boolean => Number.isFinite(value) && (best === undefined || (direction === "lowest" ? value < best : value > best))
