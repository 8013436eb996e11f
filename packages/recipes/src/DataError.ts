/**
 * The errors of training data.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * Why a row was rejected:
 *
 * - `TooLarge`: the row has more bytes than `maxRowBytes`
 * - `InvalidUtf8`: the row is not valid UTF-8
 * - `InvalidJson`: the line is not valid JSON
 * - `InvalidCsv`: the quotes of the record are wrong, or it has more or fewer fields than the header
 * - `InvalidRow`: the row does not match the schema
 * - `NotMeasured`: the `length` function failed for the row
 * - `TooLong`: the row is longer than `maxLength`
 *
 * @since 0.1.0
 * @category models
 */
export const Reason = Schema.Literal(
  "TooLarge",
  "InvalidUtf8",
  "InvalidJson",
  "InvalidCsv",
  "InvalidRow",
  "NotMeasured",
  "TooLong",
)

/**
 * The type of {@link Reason}.
 *
 * @since 0.1.0
 * @category models
 */
export type Reason = typeof Reason.Type

/**
 * Reports a row that can't be used. Rows are counted from 1: lines of JSONL (blank ones count), records of CSV (the
 * header counts, as in a spreadsheet), rows of Parquet, elements of a stream or an array.
 *
 * @since 0.1.0
 * @category errors
 */
export class BadRow extends Schema.TaggedError<BadRow>("@effect-tinker/recipes/BadRow")("BadRow", {
  file: Schema.String,
  row: Schema.Number,
  /** The path of the field that is wrong, e.g. `messages.0.role`, if it is a single field. */
  field: Schema.optional(Schema.String),
  reason: Reason,
  problem: Schema.String,
}) {
  /** @since 0.1.0 */
  override get message(): string {
    const field = this.field === undefined ? "" : `, field ${this.field}`
    return `${this.file}, row ${this.row}${field}: ${this.problem}`
  }
}

/**
 * Reports a file that is not what it should be as a whole, e.g. not a Parquet file.
 *
 * @since 0.1.0
 * @category errors
 */
export class UnreadableFile extends Schema.TaggedError<UnreadableFile>("@effect-tinker/recipes/UnreadableFile")(
  "UnreadableFile",
  { file: Schema.String, problem: Schema.String, cause: Schema.optional(Schema.Defect) },
) {
  /** @since 0.1.0 */
  override get message(): string {
    return `${this.file}: ${this.problem}`
  }
}

/**
 * Reports that a file has changed since it was opened, so that its rows are no longer where the index says.
 *
 * @since 0.1.0
 * @category errors
 */
export class DataChanged extends Schema.TaggedError<DataChanged>("@effect-tinker/recipes/DataChanged")("DataChanged", {
  file: Schema.String,
  problem: Schema.String,
}) {
  /** @since 0.1.0 */
  override get message(): string {
    return `${this.file} has changed while it was in use: ${this.problem}. Restore the file, or start another run with it.`
  }
}
