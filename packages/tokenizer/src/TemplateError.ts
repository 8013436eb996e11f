/**
 * Why a chat template can't be used, or why it did not render.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * - `NoTemplate`: the tokenizer has no template of that name
 * - `Syntax`: the source is no template
 * - `Unsupported`: it uses something (`construct`) that would not be rendered exactly as Python does
 * - `Input`: what it was given has no exact meaning as data
 * - `Raised`: the template itself refused the conversation; `problem` is its own text
 * - `Failed`: Python would raise an error here, of the class `exception`
 * - `Limit`: it would take too long, too much memory, or recurse too deeply
 *
 * @since 0.1.0
 * @category models
 */
export const Reason = Schema.Literal("NoTemplate", "Syntax", "Unsupported", "Input", "Raised", "Failed", "Limit")

/**
 * @since 0.1.0
 * @category models
 */
export type Reason = typeof Reason.Type

/**
 * @since 0.1.0
 * @category errors
 */
export class TemplateError extends Schema.TaggedError<TemplateError>("@effect-tinker/tokenizer/TemplateError")(
  "TemplateError",
  {
    reason: Reason,
    problem: Schema.String,
    /** The line of the template, from 1. */
    line: Schema.optional(Schema.Number),
    /** What is not supported, by the name under which templates use it. */
    construct: Schema.optional(Schema.String),
    /** The class that Python raises, of which `problem` has the meaning, if not the words. */
    exception: Schema.optional(Schema.String),
  },
) {
  /** @since 0.1.0 */
  override get message(): string {
    return this.line === undefined ? this.problem : `line ${this.line}: ${this.problem}`
  }
}
