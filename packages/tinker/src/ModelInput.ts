/**
 * Represents model input: an immutable sequence of token, image and audio chunks. Where only tokens are needed, a plain
 * array or an `Int32Array` is accepted (see {@link Input}).
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import { dual } from "effect/Function"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import { Bytes } from "./internal/util/Base64.ts"
import { describe, fromIssue, invalid, type Result } from "./internal/codec/Invalid.ts"
import { integersToJson } from "./internal/util/Digits.ts"
import { aToken, firstNonToken, isFlat, type SmallIntegers } from "./internal/util/TokenChecks.ts"
import * as Wire from "./internal/codec/Wire.ts"

/**
 * The accepted forms of token ids. An `Int32Array` is used unchanged and unchecked; everything else is validated and
 * converted.
 *
 * @since 0.1.0
 * @category models
 */
export type TokenIds = ReadonlyArray<number> | SmallIntegers

/**
 * Token ids, validated in one loop instead of one schema check per element.
 *
 * @since 0.1.0
 * @category schemas
 */
export const Tokens: Schema.Schema<Int32Array, ReadonlyArray<number>> = Schema.transformOrFail(
  Schema.declare((value): value is ReadonlyArray<number> => Array.isArray(value), {
    identifier: "an array of token ids",
  }),
  Schema.declare((value): value is Int32Array => value instanceof Int32Array, {
    identifier: "an Int32Array of token ids",
    arbitrary: () => (fc) => fc.int32Array({ min: 0 }),
  }),
  {
    strict: true,
    decode: (ids, _, ast) =>
      Either.mapLeft(toTokens(ids, "tokens"), (error) => new ParseResult.Type(ast, ids, error.message)),
    encode: (tokens) => Either.right(Array.from(tokens)),
  },
)

const Count = Schema.Int.pipe(Schema.between(0, 2 ** 31 - 1))
const Format = Schema.Literal("png", "jpeg")

/**
 * A chunk of tokens.
 *
 * @since 0.1.0
 * @category models
 */
export const Text = Schema.Struct({ type: Schema.Literal("encoded_text"), tokens: Tokens })

/**
 * The type of {@link Text}.
 *
 * @since 0.1.0
 * @category models
 */
export type Text = typeof Text.Type

/**
 * An image with its bytes in memory. `height`, `width` and `tokens` exist for older servers and are sent only when
 * given; the first two are sent only to servers that read JSON.
 *
 * @since 0.1.0
 * @category models
 */
export const Image = Wire.struct({
  type: Schema.Literal("image"),
  data: Bytes,
  format: Format,
  expectedTokens: Wire.omitted(Count),
  height: Wire.omitted(Count),
  width: Wire.omitted(Count),
  tokens: Wire.omitted(Count),
})

/**
 * The type of {@link Image}.
 *
 * @since 0.1.0
 * @category models
 */
export type Image = typeof Image.Type

/**
 * An image that the server fetches. It can be used for sampling, not for training.
 *
 * @since 0.1.0
 * @category models
 */
export const ImageAsset = Wire.struct({
  type: Schema.Literal("image_asset_pointer"),
  format: Format,
  location: Schema.String,
  expectedTokens: Wire.omitted(Count),
})

/**
 * The type of {@link ImageAsset}.
 *
 * @since 0.1.0
 * @category models
 */
export type ImageAsset = typeof ImageAsset.Type

/**
 * Audio in an opaque container. Its number of tokens is the first dimension, known only to its creator: `length`
 * supplies it locally and is not sent.
 *
 * @since 0.1.0
 * @category models
 */
export const Dmel = Schema.Struct({ type: Schema.Literal("dmel"), dmel: Bytes, length: Wire.local(Count) })

/**
 * The type of {@link Dmel}.
 *
 * @since 0.1.0
 * @category models
 */
export type Dmel = typeof Dmel.Type

/**
 * One chunk of input; `type` is the wire discriminator.
 *
 * @since 0.1.0
 * @category models
 */
export const Chunk = Schema.Union(Text, Image, ImageAsset, Dmel)

/**
 * The type of {@link Chunk}.
 *
 * @since 0.1.0
 * @category models
 */
export type Chunk = typeof Chunk.Type

/**
 * A sequence of chunks.
 *
 * @example
 * ```ts
 * import { Either, Option } from "effect"
 * import { ModelInput } from "effect-tinker"
 *
 * const prompt = Either.gen(function* () {
 *   const question = yield* ModelInput.text([10, 20, 30])
 *   const image = yield* ModelInput.image({ data: new Uint8Array([1, 2, 3]), format: "png", expectedTokens: 64 })
 *   return ModelInput.make(question, image)
 * })
 *
 * console.log(Either.map(prompt, ModelInput.length).pipe(Either.getOrElse(Option.none), Option.getOrNull)) // → 67
 *
 * const invalid = ModelInput.fromTokens([1, -2])
 * console.log(Either.isLeft(invalid) && invalid.left.message)
 * // → tokens[1]: expected a token id, an integer from 0 to 2^31 - 1, got -2
 * ```
 *
 * @since 0.1.0
 * @category models
 */
export class ModelInput extends Schema.Class<ModelInput>("effect-tinker/ModelInput")({
  chunks: Schema.Array(Chunk),
}) {}

/**
 * The accepted forms of a prompt or of a datum's model input.
 *
 * @since 0.1.0
 * @category models
 */
export type Input = ModelInput | TokenIds

/**
 * Creates an input from chunks without validating them; {@link from} validates them before they are sent.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromChunks = (chunks: ReadonlyArray<Chunk>): ModelInput => {
  // Equivalent to the constructor with validation disabled, but skips its search for defaults, of which there are none.
  const input: { -readonly [K in keyof ModelInput]: ModelInput[K] } = Object.create(ModelInput.prototype)
  input.chunks = chunks
  return input
}

/**
 * Creates an input from chunks.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (...chunks: ReadonlyArray<Chunk>): ModelInput => fromChunks(chunks)

/**
 * An input without chunks.
 *
 * @since 0.1.0
 * @category constructors
 */
export const empty: ModelInput = make()

/**
 * Creates a chunk of tokens. An `Int32Array` is used unchanged; in any other array each element must be an integer from
 * 0 to 2^31 - 1.
 *
 * @since 0.1.0
 * @category constructors
 */
export const text = (tokens: TokenIds, path = "tokens"): Result<Text> =>
  Either.map(toTokens(tokens, path), (tokens) => ({ type: "encoded_text", tokens }))

/**
 * Creates an image chunk.
 *
 * @since 0.1.0
 * @category constructors
 */
export const image = (options: Omit<Image, "type">): Result<Image> =>
  validate(Image, { type: "image", ...options }, "image")

/**
 * Creates a chunk for an image that the server fetches.
 *
 * @since 0.1.0
 * @category constructors
 */
export const imageAsset = (options: Omit<ImageAsset, "type">): Result<ImageAsset> =>
  validate(ImageAsset, { type: "image_asset_pointer", ...options }, "imageAsset")

/**
 * Creates an audio chunk.
 *
 * @since 0.1.0
 * @category constructors
 */
export const dmel = (bytes: Uint8Array, options?: { readonly length?: number | undefined }): Dmel => ({
  type: "dmel",
  dmel: bytes,
  ...(options?.length !== undefined && { length: options.length }),
})

const validate = <A, I>(schema: Schema.Schema<A, I>, value: unknown, path: string): Result<A> =>
  Either.mapLeft(ParseResult.validateEither(schema)(value), (issue) => fromIssue(path, value, issue))

/**
 * Creates an input from token ids.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromTokens = (tokens: TokenIds, path = "tokens"): Result<ModelInput> =>
  Either.map(text(tokens, path), (chunk) => make(chunk))

/**
 * Converts a prompt to a `ModelInput` with validated chunks. `path` names it in errors.
 *
 * @since 0.1.0
 * @category constructors
 */
export const from = (input: Input, path = "modelInput"): Result<ModelInput> => {
  if (!(input instanceof ModelInput)) return fromTokens(input, path)
  for (const [index, chunk] of input.chunks.entries()) {
    const checked = check(chunk, `${path}.chunks[${index}]`)
    if (Either.isLeft(checked)) return Either.left(checked.left)
  }
  return Either.right(input)
}

const check = (chunk: unknown, path: string): Result<unknown> => {
  if (!Predicate.isRecord(chunk)) return invalid(path, `expected a chunk, got ${describe(chunk)}`)
  switch (chunk["type"]) {
    case "encoded_text":
      return toTokens(chunk["tokens"], `${path}.tokens`)
    case "image":
      return validate(Image, chunk, path)
    case "image_asset_pointer":
      return validate(ImageAsset, chunk, path)
    case "dmel":
      return validate(Dmel, chunk, path)
    default:
      return invalid(`${path}.type`, "expected encoded_text, image, image_asset_pointer or dmel")
  }
}

const toTokens = (ids: unknown, path: string): Result<Int32Array> => {
  if (!isFlat(ids)) return invalid(path, `expected a ModelInput or an array of token ids, got ${describe(ids)}`)
  if (ids instanceof Int32Array) return Either.right(ids)
  const bad = firstNonToken(ids)
  return bad < 0
    ? // All elements were checked to be numbers.
      Either.right(new Int32Array(ids as ArrayLike<number>))
    : invalid(`${path}[${bad}]`, `expected ${aToken}, got ${describe(ids[bad])}`)
}

/**
 * Returns the JSON of an input with a single token chunk, or undefined for any other input, which the schema encodes.
 *
 * @internal
 */
export const textToJson = (self: ModelInput): string | undefined => {
  if (!(self instanceof ModelInput)) return undefined
  const [chunk] = self.chunks
  return self.chunks.length === 1 && chunk?.type === "encoded_text" && chunk.tokens instanceof Int32Array
    ? `{"chunks":[{"type":"encoded_text","tokens":[${integersToJson(chunk.tokens)}]}]}`
    : undefined
}

/**
 * Appends another input or a chunk.
 *
 * @since 0.1.0
 * @category combinators
 */
export const append: {
  (that: ModelInput | Chunk): (self: ModelInput) => ModelInput
  (self: ModelInput, that: ModelInput | Chunk): ModelInput
} = dual(2, (self: ModelInput, that: ModelInput | Chunk) =>
  fromChunks([...self.chunks, ...(that instanceof ModelInput ? that.chunks : [that])]),
)

/**
 * Chunks whose token ids may be in any array: a `ModelInput`, or data prepared from one.
 *
 * @since 0.1.0
 * @category models
 */
export interface Pieces {
  readonly chunks: ReadonlyArray<Chunk | { readonly type: "encoded_text"; readonly tokens: ReadonlyArray<number> }>
}

/**
 * Returns the number of tokens that the model sees, or none if it is unknown: an image without `expectedTokens` or
 * audio without `length`.
 *
 * @since 0.1.0
 * @category getters
 */
export const length = (self: Pieces): Option.Option<number> => {
  let sum = 0
  for (const chunk of self.chunks) {
    const tokens = chunkLength(chunk)
    if (tokens === undefined) return Option.none()
    sum += tokens
  }
  return Option.some(sum)
}

const chunkLength = (chunk: Pieces["chunks"][number]): number | undefined => {
  switch (chunk.type) {
    case "encoded_text":
      return chunk.tokens.length
    case "image":
      return chunk.expectedTokens ?? chunk.tokens
    case "image_asset_pointer":
      return chunk.expectedTokens
    case "dmel":
      return chunk.length
  }
}

const bytes = (self: Pieces, perToken: number): number =>
  self.chunks.reduce((sum, chunk) => {
    switch (chunk.type) {
      case "encoded_text":
        return sum + perToken * chunk.tokens.length
      case "image":
        return sum + chunk.data.length
      case "image_asset_pointer":
        return sum + chunk.location.length
      case "dmel":
        return sum + chunk.dmel.length
    }
  }, 0)

/**
 * Returns the size of the input in a training request: 4 bytes per token plus images and audio. The service uses the
 * same size to split batches into requests.
 *
 * @since 0.1.0
 * @category getters
 */
export const trainingBytes = (self: Pieces): number => bytes(self, 4)

/**
 * Returns the size of the prompt in a sampling request: 10 bytes per token plus images and audio.
 *
 * @since 0.1.0
 * @category getters
 */
export const samplingBytes = (self: Pieces): number => bytes(self, 10)
