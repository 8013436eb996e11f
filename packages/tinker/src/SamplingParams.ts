/**
 * How tokens are drawn.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { lazy } from "./internal/util/Lazy.ts"
import * as Wire from "./internal/codec/Wire.ts"

/**
 * Nothing is required. `maxTokens`, `seed` and `stop` are left out of the request when they are not given; the other
 * three are sent always. An empty `stop` is sent too: it means that nothing stops the sampling, not even the end of a
 * turn.
 *
 * @since 0.1.0
 * @category models
 */
export const SamplingParams = lazy(() =>
  Wire.struct({
    maxTokens: Wire.omitted(Schema.Int.pipe(Schema.positive())),
    seed: Wire.omitted(Schema.Int),
    /** Texts, or token ids. */
    stop: Wire.omitted(Schema.Union(Schema.String, Schema.Array(Schema.String), Schema.Array(Schema.Int))),
    /** 0 is greedy. */
    temperature: Wire.withDefault(Schema.Finite.pipe(Schema.nonNegative()), 1),
    /** -1 is all of them. */
    topK: Wire.withDefault(
      Schema.Int.pipe(Schema.filter((value) => value === -1 || value >= 1 || "Expected -1 or a positive integer")),
      -1,
    ),
    topP: Wire.withDefault(Schema.Number.pipe(Schema.between(0, 1)), 1),
  }),
)

/**
 * @since 0.1.0
 * @category models
 */
export type SamplingParams = typeof SamplingParams.Type
