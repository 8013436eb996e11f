/** Builds a tokenizer on top of a library: input checks, roles of special tokens, streaming decoder. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import { InvalidInput } from "effect-tinker/TinkerError"
import type {
  Decoder,
  DecodeOptions,
  Encoded,
  EncodeOptions,
  Service,
  SpecialToken,
  SpecialTokens,
  Tokens,
} from "../Tokenizer.ts"
import { TokenizerError } from "../TokenizerError.ts"
import * as Decoding from "./Decoding.ts"
import type { Definition, Role } from "./Definition.ts"

/** A tokenizer library. It only gets well-formed strings, and tokens that are unsigned 32-bit integers. */
export interface Library {
  readonly backend: Service["backend"]
  readonly vocabSize: number
  readonly tokenToId: (token: string) => Option.Option<number>
  readonly idToToken: (id: number) => Option.Option<string>
  readonly encode: (text: string, addSpecialTokens: boolean) => Effect.Effect<Int32Array, TokenizerError>
  readonly encodeBatch: (
    texts: ReadonlyArray<string>,
    addSpecialTokens: boolean,
  ) => Effect.Effect<ReadonlyArray<Int32Array>, TokenizerError>
  readonly encodeWithOffsets: (text: string, addSpecialTokens: boolean) => Effect.Effect<Encoded, TokenizerError>
  /** Takes ownership of the array. */
  readonly decode: (tokens: Array<number>, skipSpecialTokens: boolean) => Effect.Effect<string, TokenizerError>
  readonly decodeBatch: (
    batch: Array<Array<number>>,
    skipSpecialTokens: boolean,
  ) => Effect.Effect<ReadonlyArray<string>, TokenizerError>
}

const isToken = (id: number) => Number.isInteger(id) && id >= 0 && id <= 0xffff_ffff

/** Returns the index of the first lone surrogate, or -1. */
const surrogateIn = (text: string) => text.search(/\p{Surrogate}/u)

const checkText = (path: string, text: string): Either.Either<string, InvalidInput> => {
  const at = surrogateIn(text)
  return at === -1
    ? Either.right(text)
    : Either.left(new InvalidInput({ path, problem: `lone surrogate at index ${at}, which can't be encoded as UTF-8` }))
}

const checkTokens = (path: string, tokens: Tokens): Either.Either<Array<number>, InvalidInput> => {
  const ids = Array.from(tokens)
  const at = ids.findIndex((id) => !isToken(id))
  return at === -1
    ? Either.right(ids)
    : Either.left(
        new InvalidInput({ path: `${path}[${at}]`, problem: `expected an integer from 0 to 2^32 - 1, got ${ids[at]}` }),
      )
}

/** Maps ids to tokens like the reference: drops ids that do not exist and, on request, special tokens. */
export const tokensOf = (
  definition: Definition,
  idToToken: Library["idToToken"],
): ((ids: ReadonlyArray<number>, skipSpecialTokens: boolean) => ReadonlyArray<string>) => {
  const special = new Set(definition.addedTokens.filter((token) => token.special).map(({ content }) => content))
  return (ids, skipSpecialTokens) => {
    const tokens: Array<string> = []
    for (const id of ids) {
      const token = idToToken(id)
      if (Option.isSome(token) && !(skipSpecialTokens && special.has(token.value))) tokens.push(token.value)
    }
    return tokens
  }
}

/** Decodes incrementally and returns text as soon as it is final. */
const streamingDecoder = (
  run: () => Decoding.Run,
  tokens: (ids: ReadonlyArray<number>) => ReadonlyArray<string>,
): Decoder => {
  let current = run()
  return {
    push: (pushed) =>
      Effect.map(
        Effect.suspend(() => checkTokens("tokens", pushed)),
        (ids) => current.push(tokens(ids)),
      ),
    finish: Effect.sync(() => {
      const rest = current.finish()
      current = run()
      return rest
    }),
  }
}

/** Buffers all tokens and lets the library decode them at the end. */
const bufferingDecoder = (decode: (ids: Array<number>) => Effect.Effect<string, TokenizerError>): Decoder => {
  let all: Array<number> = []
  return {
    push: (pushed) =>
      Effect.map(
        Effect.suspend(() => checkTokens("tokens", pushed)),
        (ids) => {
          for (const id of ids) all.push(id)
          return ""
        },
      ),
    finish: Effect.suspend(() => {
      const ids = all
      all = []
      return decode(ids)
    }),
  }
}

/** Chooses the library for some texts: the one without special tokens only if a text may spell out a special token. */
const libraryFor = (definition: Definition, library: Library, plain: Effect.Effect<Library, TokenizerError>) => {
  const special = definition.addedTokens.filter((token) => token.special)
  // Such tokens are matched in the normalized text, which only the library knows.
  const hidden = special.some(({ normalized }) => normalized)
  return (texts: ReadonlyArray<string>, options: EncodeOptions | undefined): Effect.Effect<Library, TokenizerError> => {
    if (options?.splitSpecialTokens !== true) return Effect.succeed(library)
    if (!hidden && !texts.some((text) => special.some(({ content }) => text.includes(content)))) {
      return Effect.succeed(library)
    }
    return library.backend === "portable" && (options.addSpecialTokens ?? true)
      ? new TokenizerError({
          reason: "Unsupported",
          tokenizer: definition.name,
          problem: "the portable backend can't combine addSpecialTokens with splitSpecialTokens for this text",
        })
      : plain
  }
}

export const make = (
  definition: Definition,
  library: Library,
  plain: Effect.Effect<Library, TokenizerError>,
): Service => {
  const named = (content: string): Option.Option<SpecialToken> =>
    Option.map(library.tokenToId(content), (id) => ({ content, id }))
  const byRole = (role: Role) =>
    Option.flatMap(Option.fromNullable(definition.chat.specialTokens[`${role}_token`]), named)
  const specialTokens: SpecialTokens = {
    bos: byRole("bos"),
    eos: byRole("eos"),
    unk: byRole("unk"),
    sep: byRole("sep"),
    pad: byRole("pad"),
    cls: byRole("cls"),
    mask: byRole("mask"),
    all: definition.addedTokens.filter(({ special }) => special).map(({ content, id }) => ({ content, id })),
  }
  const tokens = tokensOf(definition, library.idToToken)
  const run = Decoding.compile(definition.decoder)
  const chosen = libraryFor(definition, library, plain)
  const adds = (options: EncodeOptions | undefined) => options?.addSpecialTokens ?? true
  const skips = (options: DecodeOptions | undefined) => options?.skipSpecialTokens ?? false
  return {
    name: definition.name,
    backend: library.backend,
    vocabSize: library.vocabSize,
    specialTokens,
    chat: definition.chat,
    tokenToId: (token) => (surrogateIn(token) === -1 ? library.tokenToId(token) : Option.none()),
    idToToken: (id) => (isToken(id) ? library.idToToken(id) : Option.none()),
    encode: (text, options) =>
      Effect.flatMap(
        Effect.suspend(() => checkText("text", text)),
        (checked) => Effect.flatMap(chosen([checked], options), (by) => by.encode(checked, adds(options))),
      ),
    encodeWithOffsets: (text, options) =>
      Effect.flatMap(
        Effect.suspend(() => checkText("text", text)),
        (checked) => Effect.flatMap(chosen([checked], options), (by) => by.encodeWithOffsets(checked, adds(options))),
      ),
    encodeBatch: (texts, options) =>
      Effect.flatMap(
        Effect.suspend(() => Either.all(texts.map((text, i) => checkText(`texts[${i}]`, text)))),
        (checked) => Effect.flatMap(chosen(checked, options), (by) => by.encodeBatch(checked, adds(options))),
      ),
    decode: (ids, options) =>
      Effect.flatMap(
        Effect.suspend(() => checkTokens("tokens", ids)),
        (checked) => library.decode(checked, skips(options)),
      ),
    decodeBatch: (batch, options) =>
      Effect.flatMap(
        Effect.suspend(() => Either.all(batch.map((ids, i) => checkTokens(`batch[${i}]`, ids)))),
        (checked) => library.decodeBatch(checked, skips(options)),
      ),
    decoder: (options) =>
      Option.match(run, {
        onSome: (start) => streamingDecoder(start, (ids) => tokens(ids, skips(options))),
        onNone: () => bufferingDecoder((ids) => library.decode(ids, skips(options))),
      }),
  }
}
