/**
 * Why the engine did not do what it was asked. Whatever is refused is refused before anything changes.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * - `InvalidModel`: the files do not describe a model that can be run: a field, a tensor, a shape, a type
 * - `InvalidInput`: the request can't be done: a token outside the vocabulary, a length, a number that is none
 * - `Unsupported`: it is known what is meant, and it isn't done here
 * - `NotFound`: no such adapter, file or directory
 * - `NotFinite`: the numbers ran away; the weights are as they were before, the gradients are gone
 * - `OutOfMemory`: there is no room; what was there before is untouched
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
 * @since 0.1.0
 * @category models
 */
export type Reason = typeof Reason.Type

/**
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
