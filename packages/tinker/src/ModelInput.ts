/**
 * What a model reads: pieces of tokens, images and audio, in order. An immutable value; where only tokens are meant,
 * a plain array or an `Int32Array` will do (see {@link Input}).
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import { dual } from "effect/Function"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import { aToken, describe, firstNonToken } from "./internal/Numbers.ts"
import * as Wire from "./internal/Wire.ts"
import { InvalidInput } from "./TinkerError.ts"

type Result<A> = Either.Either<A, InvalidInput>

const invalid = (path: string, problem: string) => Either.left(new InvalidInput({ path, problem }))

const isArray = (value: unknown): value is ReadonlyArray<number> => Array.isArray(value)

/**
 * Token ids: checked in one loop, not one by one through a schema.
 *
 * @since 0.1.0
 * @category schemas
 */
export const Tokens: Schema.Schema<Int32Array, ReadonlyArray<number>> = Schema.transformOrFail(
  Schema.declare(isArray),
  Schema.declare((value): value is Int32Array => value instanceof Int32Array),
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
 * A piece of tokens.
 *
 * @since 0.1.0
 * @category models
 */
export const Text = Schema.Struct({ type: Schema.Literal("encoded_text"), tokens: Tokens })

/**
 * @since 0.1.0
 * @category models
 */
export type Text = typeof Text.Type

/**
 * An image, its bytes in memory. `height`, `width` and `tokens` exist for older servers and are sent only when given.
 *
 * @since 0.1.0
 * @category models
 */
export const Image = Wire.struct({
  type: Schema.Literal("image"),
  data: Schema.Uint8ArrayFromBase64,
  format: Format,
  expectedTokens: Wire.omitted(Count),
  height: Wire.omitted(Count),
  width: Wire.omitted(Count),
  tokens: Wire.omitted(Count),
})

/**
 * @since 0.1.0
 * @category models
 */
export type Image = typeof Image.Type

/**
 * An image that the server fetches. It can be sampled from, not trained on.
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
 * @since 0.1.0
 * @category models
 */
export type ImageAsset = typeof ImageAsset.Type

/**
 * Audio: an opaque container, so nothing here knows how many tokens it takes.
 *
 * @since 0.1.0
 * @category models
 */
export const Dmel = Schema.Struct({ type: Schema.Literal("dmel"), dmel: Schema.Uint8ArrayFromBase64 })

/**
 * @since 0.1.0
 * @category models
 */
export type Dmel = typeof Dmel.Type

/**
 * One piece of input; `type` is the wire's own.
 *
 * @since 0.1.0
 * @category models
 */
export const Chunk = Schema.Union(Text, Image, ImageAsset, Dmel)

/**
 * @since 0.1.0
 * @category models
 */
export type Chunk = typeof Chunk.Type

/**
 * @since 0.1.0
 * @category models
 */
export class ModelInput extends Schema.Class<ModelInput>("effect-tinker/ModelInput")({
  chunks: Schema.Array(Chunk),
}) {}

/**
 * What is accepted where a prompt or the input of a datum is asked for.
 *
 * @since 0.1.0
 * @category models
 */
export type Input = ModelInput | ReadonlyArray<number> | Int32Array

/**
 * @since 0.1.0
 * @category constructors
 */
export const make = (...chunks: ReadonlyArray<Chunk>): ModelInput =>
  // The types say already what validation would look for.
  new ModelInput({ chunks }, { disableValidation: true })

/**
 * @since 0.1.0
 * @category constructors
 */
export const empty: ModelInput = make()

/**
 * A piece of tokens. An `Int32Array` is held as it is; in a plain array each must be an integer from 0 to 2^31 - 1.
 *
 * @since 0.1.0
 * @category constructors
 */
export const text = (tokens: ReadonlyArray<number> | Int32Array, path = "tokens"): Result<Text> =>
  Either.map(toTokens(tokens, path), (tokens) => ({ type: "encoded_text", tokens }))

/**
 * @since 0.1.0
 * @category constructors
 */
export const image = (options: Omit<Image, "type">): Result<Image> => validate(Image, { type: "image", ...options })

/**
 * @since 0.1.0
 * @category constructors
 */
export const imageAsset = (options: Omit<ImageAsset, "type">): Result<ImageAsset> =>
  validate(ImageAsset, { type: "image_asset_pointer", ...options })

/**
 * @since 0.1.0
 * @category constructors
 */
export const dmel = (bytes: Uint8Array): Dmel => ({ type: "dmel", dmel: bytes })

const validate = <A, I>(schema: Schema.Schema<A, I>, value: A): Result<A> =>
  Either.mapLeft(Schema.validateEither(schema)(value), (cause) => {
    const [issue] = ParseResult.ArrayFormatter.formatErrorSync(cause)
    return new InvalidInput({ path: issue?.path.join(".") ?? "", problem: issue?.message ?? cause.message, cause })
  })

/**
 * @since 0.1.0
 * @category constructors
 */
export const fromTokens = (tokens: ReadonlyArray<number> | Int32Array, path = "tokens"): Result<ModelInput> =>
  Either.map(text(tokens, path), (chunk) => make(chunk))

/**
 * What was given as a prompt, as a `ModelInput`. `path` names it in errors.
 *
 * @since 0.1.0
 * @category constructors
 */
export const from = (input: Input, path = "modelInput"): Result<ModelInput> =>
  input instanceof ModelInput ? Either.right(input) : fromTokens(input, path)

const toTokens = (ids: ReadonlyArray<number> | Int32Array, path: string): Result<Int32Array> => {
  if (ids instanceof Int32Array) return Either.right(ids)
  if (!isArray(ids)) return invalid(path, "expected a ModelInput, an array of token ids or an Int32Array")
  const bad = firstNonToken(ids)
  return bad < 0
    ? Either.right(new Int32Array(ids))
    : invalid(`${path}[${bad}]`, `expected ${aToken}, got ${describe(ids[bad])}`)
}

/**
 * One input after another, or a piece after an input.
 *
 * @since 0.1.0
 * @category combinators
 */
export const append: {
  (that: ModelInput | Chunk): (self: ModelInput) => ModelInput
  (self: ModelInput, that: ModelInput | Chunk): ModelInput
} = dual(2, (self: ModelInput, that: ModelInput | Chunk) =>
  make(...self.chunks, ...(that instanceof ModelInput ? that.chunks : [that])),
)

/**
 * How many tokens the model will see. Nothing, if that isn't known: an image without `expectedTokens`, audio.
 *
 * @since 0.1.0
 * @category getters
 */
export const length = (self: ModelInput): Option.Option<number> => {
  let sum = 0
  for (const chunk of self.chunks) {
    const tokens = chunkLength(chunk)
    if (tokens === undefined) return Option.none()
    sum += tokens
  }
  return Option.some(sum)
}

const chunkLength = (chunk: Chunk): number | undefined => {
  switch (chunk.type) {
    case "encoded_text":
      return chunk.tokens.length
    case "image":
      return chunk.expectedTokens ?? chunk.tokens
    case "image_asset_pointer":
      return chunk.expectedTokens
    case "dmel":
      return undefined
  }
}

const bytes = (self: ModelInput, perToken: number): number =>
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
 * How large this input counts in a training request: 4 bytes a token, images and audio as they are.
 *
 * @since 0.1.0
 * @category getters
 */
export const trainingBytes = (self: ModelInput): number => bytes(self, 4)

/**
 * How large this prompt counts in a sampling request: 10 bytes a token, images and audio as they are.
 *
 * @since 0.1.0
 * @category getters
 */
export const samplingBytes = (self: ModelInput): number => bytes(self, 10)
