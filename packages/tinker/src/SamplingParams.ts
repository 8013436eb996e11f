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
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { type SamplingParams, ServiceClient } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const greedy: SamplingParams.SamplingParams = { maxTokens: 3, temperature: 0, stop: [] }
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const sampler = yield* service.createSamplingClient({ baseModel: "effect-tinker/valley-1.5m" })
 *   const { sequences } = yield* sampler.sample({ prompt: [10, 20, 30], params: greedy, numSamples: 2 })
 *   yield* Console.log(sequences.map(({ stopReason }) => stopReason)) // → [ 'length', 'length' ]
 * })
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(NodeTinker.layerConfig())))
 * ```
 *
 * @since 0.1.0
 * @category models
 */
export const SamplingParams = lazy(() =>
  Wire.struct({
    /** 0 only scores the prompt. */
    maxTokens: Wire.omitted(Schema.NonNegativeInt),
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
