/**
 * Why there is no renderer, or why it could not do what it was asked.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import type { InvalidInput } from "effect-tinker/TinkerError"
import type { TemplateError } from "./TemplateError.ts"
import type { TokenizerError } from "./TokenizerError.ts"

/**
 * - `Unknown`: no renderer or model of this name
 * - `NotYet`: the family is known, and not written yet
 * - `WrongTokenizer`: the tokenizer has not the special tokens of this format
 * - `Unsupported`: this format can't say it
 * - `Contradiction`: the conversation contradicts the prompt that the model would be given
 * - `NoPrefix`: the prompt that the model would be given is no prefix of the example, so the weights would be wrong
 * - `WrongStop`: the tokens go on after a stop; they were sampled with other stop sequences
 *
 * @since 0.1.0
 * @category models
 */
export const Reason = Schema.Literal(
  "Unknown",
  "NotYet",
  "WrongTokenizer",
  "Unsupported",
  "Contradiction",
  "NoPrefix",
  "WrongStop",
)

/**
 * @since 0.1.0
 * @category models
 */
export type Reason = typeof Reason.Type

/**
 * @since 0.1.0
 * @category errors
 */
export class RendererError extends Schema.TaggedError<RendererError>("@effect-tinker/tokenizer/RendererError")(
  "RendererError",
  { reason: Reason, renderer: Schema.String, problem: Schema.String },
) {
  /** @since 0.1.0 */
  override get message(): string {
    return `${this.renderer}: ${this.problem}`
  }
}

/**
 * What can go wrong with a renderer: it, a message that is wrong in itself, the tokenizer, or the chat template of a
 * renderer that is made of one.
 *
 * @since 0.1.0
 * @category models
 */
export type Failure = RendererError | InvalidInput | TokenizerError | TemplateError
