/**
 * The errors of runs.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * Reports that the files of a run can't be used:
 *
 * - `Read`: a file could not be read
 * - `Write`: a file could not be written
 * - `Corrupt`: a file has content that no run has written
 *
 * @since 0.1.0
 * @category errors
 */
export class RunStoreFailed extends Schema.TaggedError<RunStoreFailed>("@effect-tinker/recipes/RunStoreFailed")(
  "RunStoreFailed",
  {
    reason: Schema.Literal("Read", "Write", "Corrupt"),
    run: Schema.String,
    file: Schema.String,
    detail: Schema.String,
    cause: Schema.optional(Schema.Defect),
  },
) {
  /** @since 0.1.0 */
  override get message(): string {
    const verb = { Read: "could not be read", Write: "could not be written", Corrupt: "is damaged" }[this.reason]
    return `${this.file} of run ${this.run} ${verb}: ${this.detail}`
  }
}

/**
 * Reports that a run was started with another configuration. `differences` lists the settings, each with the value that
 * the run was started with and the new one.
 *
 * @since 0.1.0
 * @category errors
 */
export class ConfigurationChanged extends Schema.TaggedError<ConfigurationChanged>(
  "@effect-tinker/recipes/ConfigurationChanged",
)("ConfigurationChanged", {
  run: Schema.String,
  differences: Schema.Array(Schema.Struct({ setting: Schema.String, before: Schema.String, now: Schema.String })),
}) {
  /** @since 0.1.0 */
  override get message(): string {
    const lines = this.differences.map(({ before, now, setting }) => `  ${setting}: ${before} → ${now}`)
    return [
      `run ${this.run} was started with another configuration:`,
      ...lines,
      "Use another directory, fork the run, or allow the change explicitly.",
    ].join("\n")
  }
}
