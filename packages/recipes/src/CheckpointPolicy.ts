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
  everySteps: Schema.optionalWith(Schema.NonNegativeInt, { default: () => 20 }),
  /** Saves a periodic checkpoint after this many trained tokens. */
  everyTokens: Schema.optional(Schema.Positive),
  /** Saves a periodic checkpoint after this many minutes. */
  everyMinutes: Schema.optional(Schema.Positive),
  /**
   * How long the server keeps a periodic checkpoint, in seconds. The final one is kept for good.
   *
   * @default 604800
   */
  ttlSeconds: Schema.optionalWith(Schema.NullOr(Schema.Positive), { default: () => 604_800 }),
  /** Saves a checkpoint to continue from after this many steps, and deletes the one before it. */
  rollingEverySteps: Schema.optional(Schema.Int.pipe(Schema.positive())),
  /**
   * How long the server keeps a rolling checkpoint that was not deleted, in seconds.
   *
   * @default 7200
   */
  rollingTtlSeconds: Schema.optionalWith(Schema.Positive, { default: () => 7_200 }),
  /** Keeps the weights with the best result of an evaluation for good. */
  best: Schema.optional(
    Schema.Struct({
      /** The metric of an evaluation, e.g. `test/nll`. */
      metric: Schema.String,
      direction: Schema.Literal("lowest", "highest"),
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
 * start of the run. A periodic checkpoint makes a rolling one at the same step unnecessary.
 *
 * @since 0.1.0
 * @category deciding
 */
export const due = (policy: CheckpointPolicy, last: Progress, now: Progress): "periodic" | "rolling" | undefined => {
  const { everyMinutes, everySteps, everyTokens, rollingEverySteps } = policy
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
