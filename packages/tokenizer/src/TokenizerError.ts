/**
 * Why there is no tokenizer, or why it could not do what it was asked.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * - `NotFound`: no such repository, revision, directory or file
 * - `Unauthorized`: the hub wants a token, or this one may not read it
 * - `Unavailable`: the hub could not be reached or could not answer; later it may
 * - `Offline`: not in the cache, and downloads are turned off
 * - `Damaged`: what came is not what was announced: cut off, too large, or of another hash
 * - `Storage`: a file could not be read or written
 * - `Invalid`: the files do not describe a tokenizer
 * - `Unsupported`: this backend can't do it; the other one may
 * - `NeedsCode`: the tokenizer is a program of its own, which is not run here
 * - `Failed`: the tokenizer could not encode or decode this
 * - `Closed`: whoever owned the tokenizers is gone
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
 * @since 0.1.0
 * @category models
 */
export type Reason = typeof Reason.Type

/**
 * `tokenizer` is the name under which it was asked for: a repository, a directory, or what the caller called it.
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
