/**
 * The errors of tokenizers.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * Why a tokenizer failed:
 *
 * - `NotFound`: the repository, revision, directory or file does not exist
 * - `Unauthorized`: the hub requires a token, or this token has no access
 * - `Unavailable`: the hub could not be reached or did not answer properly; try again later
 * - `Offline`: the files are not in the cache and downloads are turned off
 * - `Damaged`: a download does not match what the hub announced: incomplete, too large, or with another hash
 * - `Storage`: a file could not be read or written
 * - `Invalid`: the files do not describe a tokenizer
 * - `Unsupported`: this backend can't do it; the other one may
 * - `NeedsCode`: the tokenizer is a program, which this package does not run
 * - `Failed`: the input could not be encoded or decoded
 * - `Closed`: the scope that holds the tokenizers is closed
 *
 * @since 0.1.0
 * @category models
 */
export const Reason = Schema.Literal(
  "NotFound",
  "Unauthorized",
  "Unavailable",
  "Offline",
  "Damaged",
  "Storage",
  "Invalid",
  "Unsupported",
  "NeedsCode",
  "Failed",
  "Closed",
)

/**
 * Why a tokenizer failed.
 *
 * @since 0.1.0
 * @category models
 */
export type Reason = typeof Reason.Type

/**
 * A tokenizer can't be loaded or failed to work. `tokenizer` is the name it was requested by: a repository, a
 * directory, or the name given by the caller.
 *
 * @since 0.1.0
 * @category errors
 */
export class TokenizerError extends Schema.TaggedError<TokenizerError>("@effect-tinker/tokenizer/TokenizerError")(
  "TokenizerError",
  { reason: Reason, tokenizer: Schema.String, problem: Schema.String, cause: Schema.optional(Schema.Defect) },
) {
  /** @since 0.1.0 */
  override get message(): string {
    return `${this.tokenizer}: ${this.problem}`
  }
}
