/**
 * Defines how tokens are sampled.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { lazy } from "./internal/util/Lazy.ts"
import * as Wire from "./internal/codec/Wire.ts"

/**
 * The sampling parameters, all optional. `maxTokens`, `seed` and `stop` are omitted from the request when they are not
 * given; the other three are always sent. An empty `stop` is sent, too: it disables all stop sequences, including the
 * end of a turn.
 *
 * @since 0.1.0
 * @category models
 */
export const SamplingParams = lazy(() =>
  Wire.struct({
    maxTokens: Wire.omitted(Schema.Int.pipe(Schema.positive())),
    seed: Wire.omitted(Schema.Int),
    /** Strings or token ids. */
    stop: Wire.omitted(Schema.Union(Schema.String, Schema.Array(Schema.String), Schema.Array(Schema.Int))),
    /**
     * 0 selects the most likely token.
     *
     * @default 1
     */
    temperature: Wire.withDefault(Schema.Finite.pipe(Schema.nonNegative()), 1),
    /**
     * -1 includes all tokens.
     *
     * @default -1
     */
    topK: Wire.withDefault(
      Schema.Int.pipe(Schema.filter((value) => value === -1 || value >= 1 || "Expected -1 or a positive integer")),
      -1,
    ),
    topP: Wire.withDefault(Schema.Number.pipe(Schema.between(0, 1)), 1),
  }),
)

/**
 * The type of {@link SamplingParams}.
 *
 * @since 0.1.0
 * @category models
 */
export type SamplingParams = typeof SamplingParams.Type
