/**
 * Text to tokens and back, whichever library does the work.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import type { InvalidInput } from "effect-tinker/TinkerError"
import type { TokenizerError } from "./TokenizerError.ts"

/**
 * Tokens as they are taken: whole numbers from 0 to 2³²−1.
 *
 * @since 0.1.0
 * @category models
 */
export type Tokens = ReadonlyArray<number> | Int32Array | Uint32Array

/**
 * @since 0.1.0
 * @category models
 */
export interface EncodeOptions {
  /** Whether the tokens that the definition puts around a text (BOS and the like) are added. Default: true. */
  readonly addSpecialTokens?: boolean | undefined
  /**
   * Whether special tokens that are written out in the text are text like any other, so that nobody can put an end of a
   * turn into a message. Default: false. With `addSpecialTokens` only on the native backend.
   */
  readonly splitSpecialTokens?: boolean | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface DecodeOptions {
  /** Whether special tokens are left out of the text. Default: false. */
  readonly skipSpecialTokens?: boolean | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Encoded {
  readonly tokens: Int32Array
  /**
   * Two numbers for each token: where in the text it starts and ends, as indices of UTF-16 units, as `slice` takes
   * them. A token that was added is at 0, 0. Several tokens may share one character.
   */
  readonly offsets: Uint32Array
}

/**
 * @since 0.1.0
 * @category models
 */
export interface SpecialToken {
  readonly content: string
  readonly id: number
}

/**
 * The roles that the model's configuration gives to tokens, and all tokens that are marked as special.
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
 * What a chat template needs to know about a tokenizer.
 *
 * @since 0.1.0
 * @category models
 */
export interface ChatTemplates {
  /** By name; the one that is used when none is named is called `default`. */
  readonly templates: ReadonlyMap<string, string>
  /** `bos_token` and the like, by the names under which templates see them. */
  readonly specialTokens: Readonly<Record<string, string>>
}

/**
 * Tokens in, text out. What it has given out never changes, and is never half a character.
 *
 * @since 0.1.0
 * @category models
 */
export interface Decoder {
  /** The text that is certain now, which may be none. Tokens that do not exist are left out, as `decode` does. */
  readonly push: (tokens: Tokens) => Effect.Effect<string, InvalidInput>
  /** The rest. The decoder is then as new. */
  readonly finish: Effect.Effect<string, InvalidInput | TokenizerError>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** The name under which it was loaded. */
  readonly name: string
  readonly backend: "native" | "portable"
  /** How many tokens there are, with those that were added to the model's own. */
  readonly vocabSize: number
  readonly specialTokens: SpecialTokens
  readonly chat: ChatTemplates
  /** A text with a lone surrogate is `InvalidInput`: it has no UTF-8. */
  readonly encode: (text: string, options?: EncodeOptions) => Effect.Effect<Int32Array, InvalidInput | TokenizerError>
  readonly encodeBatch: (
    texts: ReadonlyArray<string>,
    options?: EncodeOptions,
  ) => Effect.Effect<ReadonlyArray<Int32Array>, InvalidInput | TokenizerError>
  /** `Unsupported` on the portable backend, whose library has no offsets. */
  readonly encodeWithOffsets: (
    text: string,
    options?: EncodeOptions,
  ) => Effect.Effect<Encoded, InvalidInput | TokenizerError>
  /**
   * Exactly the text, without any clean-up of spaces that is not part of the definition. A token that does not exist
   * is left out; what is no token at all (negative, a fraction, 2³² and above) is `InvalidInput`.
   */
  readonly decode: (tokens: Tokens, options?: DecodeOptions) => Effect.Effect<string, InvalidInput | TokenizerError>
  readonly decodeBatch: (
    batch: ReadonlyArray<Tokens>,
    options?: DecodeOptions,
  ) => Effect.Effect<ReadonlyArray<string>, InvalidInput | TokenizerError>
  readonly tokenToId: (token: string) => Option.Option<number>
  readonly idToToken: (id: number) => Option.Option<string>
  /** A decoder for tokens that come one after the other; see also `TokenStream`. */
  readonly decoder: (options?: DecodeOptions) => Decoder
}

/**
 * The one tokenizer of a program that needs no more.
 *
 * @since 0.1.0
 * @category tags
 */
export class Tokenizer extends Context.Tag("@effect-tinker/tokenizer/Tokenizer")<Tokenizer, Service>() {}
