/**
 * Converts text to tokens and back, independently of the library behind it.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import type { InvalidInput } from "effect-tinker/TinkerError"
import type { TokenizerError } from "./TokenizerError.ts"

/**
 * Tokens as input: integers from 0 to 2³²−1.
 *
 * @since 0.1.0
 * @category models
 */
export type Tokens = ReadonlyArray<number> | Int32Array | Uint32Array

/**
 * Options of `encode`.
 *
 * @since 0.1.0
 * @category models
 */
export interface EncodeOptions {
  /** Whether to add the special tokens that the definition puts around a text, such as BOS. Default: true. */
  readonly addSpecialTokens?: boolean | undefined
  /**
   * Whether to encode special tokens spelled out in the text as plain text, so that a message can't contain an end of
   * turn. Default: false. Together with `addSpecialTokens`, native backend only.
   */
  readonly splitSpecialTokens?: boolean | undefined
}

/**
 * Options of `decode`.
 *
 * @since 0.1.0
 * @category models
 */
export interface DecodeOptions {
  /** Whether to leave special tokens out of the text. Default: false. */
  readonly skipSpecialTokens?: boolean | undefined
}

/**
 * Tokens with their positions in the text.
 *
 * @since 0.1.0
 * @category models
 */
export interface Encoded {
  readonly tokens: Int32Array
  /**
   * Two numbers per token: its start and end in the text, as UTF-16 indices that `slice` accepts. Added tokens have 0,
   * 0. Several tokens may share one character.
   */
  readonly offsets: Uint32Array
}

/**
 * The text and the id of a special token.
 *
 * @since 0.1.0
 * @category models
 */
export interface SpecialToken {
  readonly content: string
  readonly id: number
}

/**
 * The special tokens by the role that the model's configuration assigns, and the list of all special tokens.
 *
 * @since 0.1.0
 * @category models
 */
export interface SpecialTokens {
  readonly bos: Option.Option<SpecialToken>
  readonly eos: Option.Option<SpecialToken>
  readonly unk: Option.Option<SpecialToken>
  readonly sep: Option.Option<SpecialToken>
  readonly pad: Option.Option<SpecialToken>
  readonly cls: Option.Option<SpecialToken>
  readonly mask: Option.Option<SpecialToken>
  readonly all: ReadonlyArray<SpecialToken>
}

/**
 * The parts of a tokenizer that chat templates use.
 *
 * @since 0.1.0
 * @category models
 */
export interface ChatTemplates {
  /** The templates by name; the one used by default is called `default`. */
  readonly templates: ReadonlyMap<string, string>
  /** `bos_token` and so on, by the names that templates use. */
  readonly specialTokens: Readonly<Record<string, string>>
}

/**
 * Decodes tokens incrementally. Returned text never changes later and never ends within a character.
 *
 * @since 0.1.0
 * @category models
 */
export interface Decoder {
  /** Returns the text that is final so far, possibly empty. Leaves out tokens that do not exist, as `decode` does. */
  readonly push: (tokens: Tokens) => Effect.Effect<string, InvalidInput>
  /** Returns the remaining text and resets the decoder. */
  readonly finish: Effect.Effect<string, InvalidInput | TokenizerError>
}

/**
 * A tokenizer.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** The name that it was loaded by. */
  readonly name: string
  readonly backend: "native" | "portable"
  /** The number of tokens, including added tokens. */
  readonly vocabSize: number
  readonly specialTokens: SpecialTokens
  readonly chat: ChatTemplates
  /** Encodes a text. Fails with `InvalidInput` if it has a lone surrogate, which can't be written as UTF-8. */
  readonly encode: (text: string, options?: EncodeOptions) => Effect.Effect<Int32Array, InvalidInput | TokenizerError>
  readonly encodeBatch: (
    texts: ReadonlyArray<string>,
    options?: EncodeOptions,
  ) => Effect.Effect<ReadonlyArray<Int32Array>, InvalidInput | TokenizerError>
  /** Encodes a text with offsets. Fails with `Unsupported` on the portable backend, whose library has no offsets. */
  readonly encodeWithOffsets: (
    text: string,
    options?: EncodeOptions,
  ) => Effect.Effect<Encoded, InvalidInput | TokenizerError>
  /**
   * Decodes tokens without any cleanup of spaces that is not part of the definition. Leaves out tokens that do not
   * exist; fails with `InvalidInput` for numbers that can't be tokens (negative, fractional, 2³² or greater).
   */
  readonly decode: (tokens: Tokens, options?: DecodeOptions) => Effect.Effect<string, InvalidInput | TokenizerError>
  readonly decodeBatch: (
    batch: ReadonlyArray<Tokens>,
    options?: DecodeOptions,
  ) => Effect.Effect<ReadonlyArray<string>, InvalidInput | TokenizerError>
  readonly tokenToId: (token: string) => Option.Option<number>
  readonly idToToken: (id: number) => Option.Option<string>
  /** Creates a decoder for tokens that arrive over time; see also `TokenStream`. */
  readonly decoder: (options?: DecodeOptions) => Decoder
}

/**
 * The service tag for programs that use a single tokenizer.
 *
 * @since 0.1.0
 * @category tags
 */
export class Tokenizer extends Context.Tag("@effect-tinker/tokenizer/Tokenizer")<Tokenizer, Service>() {}
