/**
 * The errors of chat templates.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * Why a template failed:
 *
 * - `NoTemplate`: the tokenizer has no template with this name
 * - `Syntax`: the source is not a valid template
 * - `Unsupported`: the template uses a `construct` that could not be rendered exactly as Python does
 * - `Input`: the input has no exact equivalent in Python
 * - `Raised`: the template itself rejected the conversation; `problem` is its message
 * - `Failed`: Python would raise an error of the class `exception`
 * - `Limit`: rendering would take too many steps, too much memory or too deep a recursion
 *
 * @since 0.1.0
 * @category models
 */
export const Reason = Schema.Literal("NoTemplate", "Syntax", "Unsupported", "Input", "Raised", "Failed", "Limit")

/**
 * Why a template failed.
 *
 * @since 0.1.0
 * @category models
 */
export type Reason = typeof Reason.Type

/**
 * A chat template can't be used, or failed to render.
 *
 * @since 0.1.0
 * @category errors
 */
export class TemplateError extends Schema.TaggedError<TemplateError>("@effect-tinker/tokenizer/TemplateError")(
  "TemplateError",
  {
    reason: Reason,
    problem: Schema.String,
    /** The line of the template, counted from 1. */
    line: Schema.optional(Schema.Number),
    /** The unsupported construct, by the name that templates use. */
    construct: Schema.optional(Schema.String),
    /** The class of the Python exception. `problem` says the same as its message, but not always in the same words. */
    exception: Schema.optional(Schema.String),
  },
) {
  /** @since 0.1.0 */
  override get message(): string {
    return this.line === undefined ? this.problem : `line ${this.line}: ${this.problem}`
  }
}
