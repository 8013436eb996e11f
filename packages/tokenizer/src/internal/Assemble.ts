/** A tokenizer made of what a library can do: the checks of input, the roles of tokens, the decoder of streams. */
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

/** What a library does. Texts are well formed and tokens are unsigned 32-bit numbers when they come here. */
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
  /** The arrays are the library's own. */
  readonly decode: (tokens: Array<number>, skipSpecialTokens: boolean) => Effect.Effect<string, TokenizerError>
  readonly decodeBatch: (
    batch: Array<Array<number>>,
    skipSpecialTokens: boolean,
  ) => Effect.Effect<ReadonlyArray<string>, TokenizerError>
}

const isToken = (id: number) => Number.isInteger(id) && id >= 0 && id <= 0xffff_ffff

/** Where half a character is, or -1. */
const surrogateIn = (text: string) => text.search(/\p{Surrogate}/u)

const checkText = (path: string, text: string): Either.Either<string, InvalidInput> => {
  const at = surrogateIn(text)
  return at === -1
    ? Either.right(text)
    : Either.left(new InvalidInput({ path, problem: `has a lone surrogate at index ${at}, which no UTF-8 can say` }))
}

const checkTokens = (path: string, tokens: Tokens): Either.Either<Array<number>, InvalidInput> => {
  const ids = Array.from(tokens)
  const at = ids.findIndex((id) => !isToken(id))
  return at === -1
    ? Either.right(ids)
    : Either.left(
        new InvalidInput({ path: `${path}[${at}]`, problem: `${ids[at]} is no token: a whole number from 0` }),
      )
}

/** The tokens of ids as the reference sees them: what does not exist is left out, and special ones if asked for. */
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

/** What is certain, as it comes. */
const followed = (run: () => Decoding.Run, tokens: (ids: ReadonlyArray<number>) => ReadonlyArray<string>): Decoder => {
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

/** Everything at the end: only the library knows how. */
const kept = (decode: (ids: Array<number>) => Effect.Effect<string, TokenizerError>): Decoder => {
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

/** Which library encodes these texts: the plain one only where a special token may be written out in one of them. */
const chosenFor = (definition: Definition, library: Library, plain: Effect.Effect<Library, TokenizerError>) => {
  const special = definition.addedTokens.filter((token) => token.special)
  // These are looked for in the normalized text, which only the library knows.
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
          problem: "the portable backend can't add special tokens to a text in which they are text",
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
  const chosen = chosenFor(definition, library, plain)
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
        onSome: (start) => followed(start, (ids) => tokens(ids, skips(options))),
        onNone: () => kept((ids) => library.decode(ids, skips(options))),
      }),
  }
}
