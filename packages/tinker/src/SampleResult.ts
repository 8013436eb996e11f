/**
 * What sampling gives back. Protobuf and JSON answers become the same value.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import { describe } from "./internal/Numbers.ts"
import { decoded, sampleResult } from "./internal/ResultProto.ts"
import * as Wire from "./internal/Wire.ts"
import { Tokens } from "./ModelInput.ts"
import { TensorData } from "./TensorData.ts"

const isNumberOrNull = (value: unknown): value is number | null => typeof value === "number" || value === null

/** Checked in one loop. NaN is what the wire's null is: not computed. */
const Logprobs: Schema.Schema<Float32Array, ReadonlyArray<number | null>> = Schema.transformOrFail(
  Schema.declare((value): value is ReadonlyArray<number | null> => Array.isArray(value)),
  Schema.declare((value): value is Float32Array => value instanceof Float32Array),
  {
    strict: true,
    decode: (values, _, ast) => {
      const bad = values.findIndex((value) => !isNumberOrNull(value))
      return bad < 0
        ? Either.right(Float32Array.from(values, (value) => value ?? Number.NaN))
        : Either.left(new ParseResult.Type(ast, values, `[${bad}]: expected a number, got ${describe(values[bad])}`))
    },
    encode: (values) => Either.right(toNullable(values)),
  },
)

/**
 * The likeliest tokens of each position, likeliest first; null where they were not computed.
 *
 * @since 0.1.0
 * @category models
 */
export const TopkLogprobs = Schema.Array(Schema.NullOr(Schema.Array(Schema.Tuple(Schema.Int, Schema.Number))))

/**
 * @since 0.1.0
 * @category models
 */
export type TopkLogprobs = typeof TopkLogprobs.Type

/**
 * @since 0.1.0
 * @category models
 */
export const Sequence = Wire.struct({
  tokens: Tokens,
  logprobs: Wire.maybe(Logprobs),
  stopReason: Schema.Literal("stop", "length"),
  topkLogprobs: Wire.maybe(TopkLogprobs),
  /** By which provenance spans refer to it. Not part of the answer: see {@link withSequenceIds}. */
  sequenceId: Wire.maybe(Schema.String),
})

/**
 * @since 0.1.0
 * @category models
 */
export type Sequence = typeof Sequence.Type

/**
 * @since 0.1.0
 * @category models
 */
export const SampleResult = Wire.struct({
  sequences: Schema.Array(Sequence),
  /** One for each token of the prompt; NaN where none was computed (see {@link toNullable}). */
  promptLogprobs: Wire.maybe(Logprobs),
  topkPromptLogprobs: Wire.maybe(TopkLogprobs),
  promptCacheHitTokens: Wire.orElse(Schema.Int, 0),
  targetPromptLogprobs: Wire.maybe(TensorData),
  promptAltTokens: Wire.maybe(Schema.Struct({ tokens: TensorData, logprobs: TensorData })),
})

/**
 * @since 0.1.0
 * @category models
 */
export type SampleResult = typeof SampleResult.Type

/**
 * From the bytes of a `SampleResponse`. Arrays are views of these bytes wherever they lie aligned.
 *
 * @since 0.1.0
 * @category decoding
 */
export const fromProtobuf = (bytes: Uint8Array): Either.Either<SampleResult, ParseResult.ParseError> =>
  decoded("SampleResponse", () => sampleResult(bytes))

/**
 * From parsed JSON.
 *
 * @since 0.1.0
 * @category decoding
 */
export const fromJson: (json: unknown) => Either.Either<SampleResult, ParseResult.ParseError> =
  Schema.decodeUnknownEither(SampleResult)

/**
 * Log probabilities as numbers, and null where none was computed.
 *
 * @since 0.1.0
 * @category getters
 */
export const toNullable = (logprobs: Float32Array): Array<number | null> =>
  Array.from(logprobs, (value) => (Number.isNaN(value) ? null : value))

/**
 * Some servers leave out the first token of the prompt, which has no log probability. This puts it back, so that
 * positions are those of the prompt.
 *
 * @since 0.1.0
 * @category combinators
 */
export const alignPromptLogprobs = (self: SampleResult, promptLength: number): SampleResult => ({
  ...self,
  promptLogprobs: Option.map(self.promptLogprobs, (logprobs) => {
    if (logprobs.length !== promptLength - 1) return logprobs
    const aligned = new Float32Array(promptLength).fill(Number.NaN, 0, 1)
    aligned.set(logprobs, 1)
    return aligned
  }),
})

/**
 * The ids that a server gave the sequences when it accepted the request, in their order.
 *
 * @since 0.1.0
 * @category combinators
 */
export const withSequenceIds = (self: SampleResult, ids: ReadonlyArray<string>): SampleResult => ({
  ...self,
  sequences: self.sequences.map((sequence, index) => ({ ...sequence, sequenceId: Option.fromNullable(ids[index]) })),
})
