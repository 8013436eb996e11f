/** The Rust library, as a native binary for Node. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Rust from "tokenizers"
import { TokenizerError } from "../TokenizerError.ts"
import type { Library } from "./Assemble.ts"
import * as Decoding from "./Decoding.ts"
import type { Definition } from "./Definition.ts"

export type Module = Pick<typeof Rust, "Tokenizer">

/** Loads the library. Fails if there is no binary for this platform, or none is installed. */
export const load: Effect.Effect<Module, TokenizerError> = Effect.tryPromise({
  try: () => import("tokenizers"),
  catch: (cause) =>
    new TokenizerError({
      reason: "Unsupported",
      tokenizer: "native backend",
      problem: "the package `tokenizers` has no loadable binary for this platform",
      cause,
    }),
})

const messageOf = (cause: unknown) => (cause instanceof Error ? cause.message : String(cause))

/** Converts offsets in characters, as the library counts, to offsets in UTF-16 units. */
const toUnits = (text: string, offsets: ReadonlyArray<ReadonlyArray<number>>): Uint32Array => {
  const units: Array<number> = [0]
  for (const character of text) units.push((units.at(-1) ?? 0) + character.length)
  return Uint32Array.from(offsets.flat(), (character) => units[character] ?? text.length)
}

export const make = ({ Tokenizer }: Module, definition: Definition): Effect.Effect<Library, TokenizerError> =>
  Effect.gen(function* () {
    const { name } = definition
    if (Decoding.stripsEnds(definition.decoder)) {
      return yield* new TokenizerError({
        reason: "Unsupported",
        tokenizer: name,
        // The library panics on tokens shorter than the part to strip, which ends the process.
        problem: "the native backend can't strip the ends of tokens; use the portable backend",
      })
    }
    const rust = yield* Effect.try({
      try: () => Tokenizer.fromString(definition.text),
      catch: (cause) =>
        new TokenizerError({
          reason: "Invalid",
          tokenizer: name,
          problem: `invalid tokenizer.json: ${messageOf(cause)}`,
          cause,
        }),
    })
    const attempt = <A>(what: string, run: () => Promise<A>) =>
      Effect.tryPromise({
        try: run,
        catch: (cause) =>
          new TokenizerError({
            reason: "Failed",
            tokenizer: name,
            problem: `failed to ${what}: ${messageOf(cause)}`,
            cause,
          }),
      })
    const encoding = (text: string, addSpecialTokens: boolean) =>
      attempt("encode", () => rust.encode(text, null, { addSpecialTokens }))
    return {
      backend: "native",
      vocabSize: rust.getVocabSize(true),
      tokenToId: (token) => Option.fromNullable(rust.tokenToId(token)),
      idToToken: (id) => Option.fromNullable(rust.idToToken(id)),
      encode: (text, addSpecialTokens) =>
        Effect.map(encoding(text, addSpecialTokens), (encoded) => Int32Array.from(encoded.getIds())),
      encodeWithOffsets: (text, addSpecialTokens) =>
        Effect.map(encoding(text, addSpecialTokens), (encoded) => ({
          tokens: Int32Array.from(encoded.getIds()),
          offsets: toUnits(text, encoded.getOffsets()),
        })),
      encodeBatch: (texts, addSpecialTokens) =>
        Effect.map(
          attempt("encode", () => rust.encodeBatch([...texts], { addSpecialTokens })),
          (all) => all.map((encoded) => Int32Array.from(encoded.getIds())),
        ),
      decode: (tokens, skipSpecialTokens) => attempt("decode", () => rust.decode(tokens, skipSpecialTokens)),
      decodeBatch: (batch, skipSpecialTokens) => attempt("decode", () => rust.decodeBatch(batch, skipSpecialTokens)),
    }
  })
