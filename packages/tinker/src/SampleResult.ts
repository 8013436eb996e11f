/**
 * Represents sampling results. Protobuf and JSON responses decode to the same value.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import { describe, invalid, type Result } from "./internal/codec/Invalid.ts"
import { lazy } from "./internal/util/Lazy.ts"
import { denseAtMost } from "./internal/util/TokenChecks.ts"
import { decoded, sampleResult } from "./internal/codec/ResultProto.ts"
import * as Wire from "./internal/codec/Wire.ts"
import { Tokens } from "./ModelInput.ts"
import { TensorData } from "./TensorData.ts"

const isNumberOrNull = (value: unknown): value is number | null => typeof value === "number" || value === null

/** Log probabilities, validated in one loop. The wire's null (not computed) becomes NaN. */
const Logprobs: Schema.Schema<Float32Array, ReadonlyArray<number | null>> = lazy(() =>
  Schema.transformOrFail(
    Schema.declare((value): value is ReadonlyArray<number | null> => Array.isArray(value), {
      identifier: "an array of log probabilities",
    }),
    Schema.declare((value): value is Float32Array => value instanceof Float32Array, {
      identifier: "a Float32Array of log probabilities",
      arbitrary: () => (fc) => fc.float32Array({ noDefaultInfinity: true }),
    }),
    {
      strict: true,
      decode: (values, _, ast) => {
        const bad = values.findIndex((value: unknown) => !isNumberOrNull(value))
        return bad < 0
          ? Either.right(Float32Array.from(values, (value) => value ?? Number.NaN))
          : Either.left(new ParseResult.Type(ast, values, `[${bad}]: expected a number, got ${describe(values[bad])}`))
      },
      encode: (values) => Either.right(toNullable(values)),
    },
  ),
)

/**
 * The most likely tokens of each position in the wire layout: `length` rows of `k` cells. Use {@link topkRow} to read a
 * row.
 *
 * @since 0.1.0
 * @category models
 */
export interface TopkLogprobs {
  readonly k: number
  readonly length: number
  readonly tokenIds: Int32Array
  /** NaN where no value was computed. */
  readonly logprobs: Float32Array
}

/** An empty cell has token 0 and this log probability. */
const emptyCell = -99999

/**
 * Returns the most likely tokens of a position with their log probabilities in descending order, or null if none were
 * computed.
 *
 * @since 0.1.0
 * @category getters
 */
export const topkRow = (
  { k, length, tokenIds, logprobs }: TopkLogprobs,
  position: number,
): ReadonlyArray<readonly [token: number, logprob: number]> | null => {
  const isEmpty = (cell: number) => tokenIds[cell] === 0 && logprobs[cell] === emptyCell
  const first = position * k
  if (k === 0 || position < 0 || position >= length || isEmpty(first)) return null
  let end = first + k
  while (isEmpty(end - 1)) end--
  return Array.from({ length: end - first }, (_, i) => [tokenIds[first + i] ?? 0, logprobs[first + i] ?? 0])
}

type TopkJson = ReadonlyArray<ReadonlyArray<readonly [number, number | null]> | null>

const topkFromJson = (rows: ReadonlyArray<unknown>): Result<TopkLogprobs> => {
  const k = rows.reduce<number>((most, row) => (Array.isArray(row) ? Math.max(most, row.length) : most), 0)
  const { length } = rows
  if (k * length > denseAtMost) return invalid("", `${length} rows of up to ${k} cells exceed the size limit`)
  const tokenIds = new Int32Array(k * length)
  const logprobs = new Float32Array(k * length).fill(emptyCell)
  for (const [position, row] of rows.entries()) {
    if (row === null) continue
    if (!Array.isArray(row)) return invalid(`[${position}]`, `expected an array, got ${describe(row)}`)
    for (const [i, cell] of row.entries()) {
      const [token, logprob]: ReadonlyArray<unknown> = Array.isArray(cell) ? cell : []
      if (typeof token !== "number" || (token | 0) !== token || !isNumberOrNull(logprob))
        return invalid(`[${position}][${i}]`, "expected a token id and its log probability")
      tokenIds[position * k + i] = token
      logprobs[position * k + i] = logprob ?? Number.NaN
    }
  }
  return Either.right({ k, length, tokenIds, logprobs })
}

/**
 * The schema of {@link TopkLogprobs}. In JSON, each position is a list of pairs. Validated in one loop; a null log
 * probability becomes NaN.
 *
 * @since 0.1.0
 * @category models
 */
export const TopkLogprobs: Schema.Schema<TopkLogprobs, TopkJson> = lazy(() =>
  Schema.transformOrFail(
    Schema.declare((value): value is TopkJson => Array.isArray(value), { identifier: "an array of rows" }),
    Schema.declare(
      (value): value is TopkLogprobs =>
        Predicate.isRecord(value) &&
        value["tokenIds"] instanceof Int32Array &&
        value["logprobs"] instanceof Float32Array &&
        value["tokenIds"].length === value["logprobs"].length &&
        value["tokenIds"].length === Number(value["k"]) * Number(value["length"]),
      {
        identifier: "TopkLogprobs",
        arbitrary: () => (fc) =>
          fc
            .array(fc.option(fc.array(fc.tuple(fc.nat(), fc.float({ noDefaultInfinity: true })), { minLength: 1 })))
            .map((rows) => Either.getOrThrow(topkFromJson(rows))),
      },
    ),
    {
      strict: true,
      decode: (rows, _, ast) =>
        Either.mapLeft(topkFromJson(rows), ({ message }) => new ParseResult.Type(ast, rows, message)),
      encode: (topk) =>
        Either.right(
          Array.from(
            { length: topk.length },
            (_, position) =>
              topkRow(topk, position)?.map(
                ([token, logprob]) => [token, Number.isNaN(logprob) ? null : logprob] as const,
              ) ?? null,
          ),
        ),
    },
  ),
)

/**
 * A sampled sequence.
 *
 * @since 0.1.0
 * @category models
 */
export const Sequence = lazy(() =>
  Wire.struct({
    tokens: Tokens,
    logprobs: Wire.maybe(Logprobs),
    stopReason: Schema.Literal("stop", "length"),
    topkLogprobs: Wire.maybe(TopkLogprobs),
    /** The id used in provenance spans. Not part of the response: see {@link withSequenceIds}. */
    sequenceId: Wire.maybe(Schema.String),
  }),
)

/**
 * The type of {@link Sequence}.
 *
 * @since 0.1.0
 * @category models
 */
export type Sequence = typeof Sequence.Type

/**
 * The result of a sampling request.
 *
 * @since 0.1.0
 * @category models
 */
export const SampleResult = lazy(() =>
  Wire.struct({
    sequences: Schema.Array(Sequence),
    /** One value for each token of the prompt; NaN where none was computed (see {@link toNullable}). */
    promptLogprobs: Wire.maybe(Logprobs),
    topkPromptLogprobs: Wire.maybe(TopkLogprobs),
    promptCacheHitTokens: Wire.orElse(Schema.Int, 0),
    targetPromptLogprobs: Wire.maybe(TensorData),
    promptAltTokens: Wire.maybe(Schema.Struct({ tokens: TensorData, logprobs: TensorData })),
  }),
)

/**
 * The type of {@link SampleResult}.
 *
 * @since 0.1.0
 * @category models
 */
export type SampleResult = typeof SampleResult.Type

/**
 * Decodes the bytes of a `SampleResponse`. Arrays are views of these bytes where the alignment permits.
 *
 * @since 0.1.0
 * @category decoding
 */
export const fromProtobuf = (bytes: Uint8Array): Either.Either<SampleResult, ParseResult.ParseError> =>
  decoded("SampleResponse", () => sampleResult(bytes))

/**
 * Decodes parsed JSON.
 *
 * @since 0.1.0
 * @category decoding
 */
export const fromJson = (json: unknown): Either.Either<SampleResult, ParseResult.ParseError> =>
  Schema.decodeUnknownEither(SampleResult)(json)

/**
 * Converts log probabilities to numbers, with null where none was computed.
 *
 * @since 0.1.0
 * @category getters
 */
export const toNullable = (logprobs: Float32Array): Array<number | null> =>
  Array.from(logprobs, (value) => (Number.isNaN(value) ? null : value))

/**
 * Aligns prompt log probabilities with the prompt. Some servers omit the first token, which has no log probability;
 * this inserts NaN for it.
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
 * Adds the ids that the server assigned to the sequences when it accepted the request.
 *
 * @since 0.1.0
 * @category combinators
 */
export const withSequenceIds = (self: SampleResult, ids: ReadonlyArray<string>): SampleResult => ({
  ...self,
  sequences: self.sequences.map((sequence, index) => ({ ...sequence, sequenceId: Option.fromNullable(ids[index]) })),
})
