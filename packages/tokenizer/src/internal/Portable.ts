/** The library in JavaScript. It encodes; decoding is ours, which does it as the reference does. */
import type * as Script from "@huggingface/tokenizers"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import { TokenizerError } from "../TokenizerError.ts"
import { type Library, tokensOf } from "./Assemble.ts"
import * as Decoding from "./Decoding.ts"
import type { Definition } from "./Definition.ts"

export type Module = Pick<typeof Script, "Tokenizer">

export const load: Effect.Effect<Module, TokenizerError> = Effect.tryPromise({
  try: () => import("@huggingface/tokenizers"),
  catch: (cause) =>
    new TokenizerError({
      reason: "Unsupported",
      tokenizer: "portable backend",
      problem: "the package `@huggingface/tokenizers` can't be loaded",
      cause,
    }),
})

const messageOf = (cause: unknown) => (cause instanceof Error ? cause.message : String(cause))

/** What a byte-level pre-tokenizer splits by when it is told to split. */
const bytesSplit = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

/**
 * The library's own pattern for bytes takes `\s` as JavaScript does, without U+0085. Patterns of the definition it
 * translates, so it is given the same one that way.
 */
const withPattern = (preTokenizer: unknown): unknown => {
  if (!Predicate.isRecord(preTokenizer)) return preTokenizer
  const { add_prefix_space, pretokenizers, type, use_regex } = preTokenizer
  if (type === "Sequence" && Array.isArray(pretokenizers)) {
    return { ...preTokenizer, pretokenizers: pretokenizers.map(withPattern) }
  }
  if (type !== "ByteLevel" || use_regex === false || add_prefix_space !== false) return preTokenizer
  const split = { type: "Split", pattern: { Regex: bytesSplit }, behavior: "Isolated", invert: false }
  return { type: "Sequence", pretokenizers: [split, { ...preTokenizer, use_regex: false }] }
}

/** What the library would silently do otherwise than the reference. */
const gapOf = ({ addedTokens }: Definition): string | undefined => {
  const whole = addedTokens.find((token) => token.single_word)
  return whole && `the token ${JSON.stringify(whole.content)} counts only as a word of its own`
}

export const make = ({ Tokenizer }: Module, definition: Definition): Effect.Effect<Library, TokenizerError> =>
  Effect.gen(function* () {
    const { json, name } = definition
    const fail = (reason: TokenizerError["reason"], problem: string) => (cause?: unknown) =>
      new TokenizerError({
        reason,
        tokenizer: name,
        problem: cause === undefined ? problem : `${problem}: ${messageOf(cause)}`,
        cause,
      })
    const gap = gapOf(definition)
    if (gap !== undefined) return yield* fail("Unsupported", `the portable backend can't do this: ${gap}`)()

    const script = yield* Effect.try({
      try: () =>
        new Tokenizer(
          { ...json, pre_tokenizer: withPattern(json["pre_tokenizer"]) },
          { clean_up_tokenization_spaces: false },
        ),
      catch: fail("Invalid", "tokenizer.json is not valid, or beyond the portable backend"),
    })
    const idToToken: Library["idToToken"] = (id) => Option.fromNullable(script.id_to_token(id))
    const tokens = tokensOf(definition, idToToken)

    const encode: Library["encode"] = (text, addSpecialTokens) =>
      Effect.try({
        try: (): ReadonlyArray<number | undefined> => script.encode(text, { add_special_tokens: addSpecialTokens }).ids,
        catch: fail("Failed", "can't encode"),
      }).pipe(
        Effect.flatMap((ids) => {
          const known = ids.filter((id) => id !== undefined)
          // Where there is no token for the unknown, the reference leaves out what BPE does not know, and only that.
          return known.length === ids.length || definition.model === "BPE"
            ? Effect.succeed(Int32Array.from(known))
            : Effect.fail(fail("Failed", "can't encode: a part of the text is not in the vocabulary")())
        }),
      )

    const run = Option.getOrUndefined(Decoding.compile(definition.decoder))
    const decode: Library["decode"] = (ids, skipSpecialTokens) =>
      Effect.try({
        try: () => {
          if (run === undefined) {
            const options = { skip_special_tokens: skipSpecialTokens, clean_up_tokenization_spaces: false }
            const known = ids.filter((id) => Option.isSome(idToToken(id)))
            return known.length === 0 ? "" : script.decode(known, options)
          }
          const { finish, push } = run()
          return push(tokens(ids, skipSpecialTokens)) + finish()
        },
        catch: fail("Failed", "can't decode"),
      })

    // One text after the other holds up the process for no longer than the longest of them.
    const politely = <A, B>(all: ReadonlyArray<A>, f: (one: A) => Effect.Effect<B, TokenizerError>) =>
      Effect.forEach(all, (one) => Effect.zipLeft(f(one), Effect.yieldNow()))

    return {
      backend: "portable",
      vocabSize: script.get_vocab(true).size,
      tokenToId: (token) => Option.fromNullable(script.token_to_id(token)),
      idToToken,
      encode,
      encodeWithOffsets: () => Effect.fail(fail("Unsupported", "the portable backend has no offsets")()),
      encodeBatch: (texts, addSpecialTokens) => politely(texts, (text) => encode(text, addSpecialTokens)),
      decode,
      decodeBatch: (batch, skipSpecialTokens) => politely(batch, (ids) => decode(ids, skipSpecialTokens)),
    }
  })
