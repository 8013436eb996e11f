/**
 * The errors of the engine. Input is checked before anything changes.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * Why a call failed:
 *
 * - `InvalidModel`: the files do not describe a model that can be run: a bad field, tensor, shape or type
 * - `InvalidInput`: the request is invalid: a token outside the vocabulary, a bad length, a value that is not a number
 * - `Unsupported`: the request is valid, but not supported here
 * - `NotFound`: the adapter, file or directory does not exist
 * - `NotFinite`: the loss, the gradients or the updated weights are not finite; the weights are unchanged
 * - `OutOfMemory`: there is not enough memory; nothing has changed
 *
 * @since 0.1.0
 * @category models
 */
export const Reason = Schema.Literal(
  "InvalidModel",
  "InvalidInput",
  "Unsupported",
  "NotFound",
  "NotFinite",
  "OutOfMemory",
)

/**
 * Why a call failed.
 *
 * @since 0.1.0
 * @category models
 */
export type Reason = typeof Reason.Type

/**
 * A call of the engine failed.
 *
 * @since 0.1.0
 * @category errors
 */
export class EngineError extends Schema.TaggedError<EngineError>("@effect-tinker/engine/EngineError")("EngineError", {
  reason: Reason,
  problem: Schema.String,
  cause: Schema.optional(Schema.Defect),
}) {
  /** @since 0.1.0 */
  override get message(): string {
    return this.problem
  }
}
