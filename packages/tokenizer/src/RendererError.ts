/**
 * The errors of renderers.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import type { InvalidInput } from "effect-tinker/TinkerError"
import type { TemplateError } from "./TemplateError.ts"
import type { TokenizerError } from "./TokenizerError.ts"

/**
 * Why a renderer failed:
 *
 * - `Unknown`: there is no renderer or model with this name
 * - `NotYet`: the model family is known but its renderer is not implemented yet
 * - `WrongTokenizer`: the tokenizer lacks the special tokens of this format
 * - `Unsupported`: the format has no way to express this
 * - `Contradiction`: the conversation contradicts the prompt that the model would get
 * - `NoPrefix`: the prompt that the model would get is not a prefix of the example, so the weights would be wrong
 * - `WrongStop`: tokens follow a stop sequence, so they were sampled with other stop sequences
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
 * Why a renderer failed.
 *
 * @since 0.1.0
 * @category models
 */
export type Reason = typeof Reason.Type

/**
 * A renderer is not available or can't render or parse something.
 *
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
 * Every error of a renderer: its own, an invalid message, an error of the tokenizer, or one of the chat template that
 * the renderer is built from.
 *
 * @since 0.1.0
 * @category models
 */
export type Failure = RendererError | InvalidInput | TokenizerError | TemplateError
