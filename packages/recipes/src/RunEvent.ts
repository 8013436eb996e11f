/**
 * The events of a training run, as plain data: loops emit these events as a `Stream`, the run keeps them, and
 * logs, progress, report and dashboard are made from them.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * A number that JSON can keep even if it is not finite: a loss that diverged is `"NaN"`.
 *
 * @since 0.1.0
 * @category models
 */
export const AnyNumber: Schema.Schema<number, number | null | "NaN" | "Infinity" | "-Infinity"> = Schema.transform(
  Schema.Union(Schema.JsonNumber, Schema.Literal("NaN", "Infinity", "-Infinity"), Schema.Null),
  Schema.Number,
  {
    strict: true,
    decode: (value) => (value === null ? Number.NaN : Number(value)),
    encode: (value) => (Number.isFinite(value) ? value : (String(value) as "NaN" | "Infinity" | "-Infinity")),
  },
)

/**
 * Numbers by name. The names are those of the official cookbook where it has one, e.g. `train_mean_nll`.
 *
 * @since 0.1.0
 * @category models
 */
export const Metrics = Schema.Record({ key: Schema.String, value: AnyNumber })

/**
 * The type of {@link Metrics}.
 *
 * @since 0.1.0
 * @category models
 */
export type Metrics = typeof Metrics.Type

/** The time of an event, in milliseconds since 1970. */
const at = Schema.Number

/**
 * A training step whose results have arrived.
 *
 * @since 0.1.0
 * @category events
 */
export const Step = Schema.TaggedStruct("Step", {
  /** The number of the step, from 0: the weights contain `step + 1` updates. */
  step: Schema.Number,
  /** The number of steps of the whole run, if it is known. */
  steps: Schema.optional(Schema.Number),
  metrics: Metrics,
  at,
})

/**
 * The result of an evaluation of the weights after `step` updates.
 *
 * @since 0.1.0
 * @category events
 */
export const Evaluation = Schema.TaggedStruct("Evaluation", {
  step: Schema.Number,
  name: Schema.String,
  metrics: Metrics,
  at,
})

/**
 * A token of a sample, and how the training treats it.
 *
 * @since 0.1.0
 * @category models
 */
export const SampleToken = Schema.Struct({
  text: Schema.String,
  logprob: Schema.optional(AnyNumber),
  advantage: Schema.optional(AnyNumber),
})

/**
 * Something the model said: a rollout, or an answer of an evaluation.
 *
 * @since 0.1.0
 * @category events
 */
export const Sample = Schema.TaggedStruct("Sample", {
  /** How many updates the weights had that produced it: the policy version. */
  step: Schema.Number,
  /** The step that trains on it, if the weights have had more updates by then than when it was produced. */
  trainingStep: Schema.optional(Schema.Number),
  /** Where it comes from: `rollout`, or the name of an evaluation. */
  source: Schema.String,
  /** Samples of the same task, which are compared with each other, have the same group. */
  group: Schema.optional(Schema.String),
  prompt: Schema.String,
  tokens: Schema.Array(SampleToken),
  reward: Schema.optional(AnyNumber),
  at,
})

/**
 * A saved checkpoint.
 *
 * @since 0.1.0
 * @category events
 */
export const Checkpoint = Schema.TaggedStruct("Checkpoint", {
  /** How many updates it contains. */
  step: Schema.Number,
  name: Schema.String,
  kind: Schema.Literal("periodic", "rolling", "best", "final"),
  /** Where training can continue from. */
  statePath: Schema.optional(Schema.String),
  /** Where samples can be made from. */
  samplerPath: Schema.optional(Schema.String),
  at,
})

/**
 * Something that did not stop the run and that its owner should know: skipped rows, a failed rollout, lost metrics.
 *
 * @since 0.1.0
 * @category events
 */
export const Warning = Schema.TaggedStruct("Warning", {
  step: Schema.Number,
  /** A short name for this kind of warning, e.g. `rows_skipped`. */
  reason: Schema.String,
  message: Schema.String,
  at,
})

/**
 * The end of a run.
 *
 * @since 0.1.0
 * @category events
 */
export const Done = Schema.TaggedStruct("Done", {
  /** How many updates the weights have. */
  step: Schema.Number,
  /** `complete`: everything was done. `stopped`: the run ended early on purpose, e.g. because of its budget. */
  outcome: Schema.Literal("complete", "stopped"),
  message: Schema.optional(Schema.String),
  at,
})

/**
 * An event of a training run.
 *
 * @since 0.1.0
 * @category events
 */
export const RunEvent = Schema.Union(Step, Evaluation, Sample, Checkpoint, Warning, Done)

/**
 * The type of {@link RunEvent}.
 *
 * @since 0.1.0
 * @category events
 */
export type RunEvent = typeof RunEvent.Type
