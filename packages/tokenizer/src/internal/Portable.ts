/** The JavaScript library. It is used for encoding only; this package decodes, to match the reference. */
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
      problem: "the package `@huggingface/tokenizers` failed to load; check that it is installed",
      cause,
    }),
})

const messageOf = (cause: unknown) => (cause instanceof Error ? cause.message : String(cause))

/** The pattern of a byte-level pre-tokenizer with `use_regex`. */
const bytesSplit = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

/**
 * Replaces the library's own byte-level pattern, in which `\s` has JavaScript's meaning and does not match U+0085. The
 * library translates patterns of the definition, so the same pattern is passed as one of those.
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

/** Describes a feature that the library would silently handle differently from the reference. */
const unsupportedFeature = ({ addedTokens }: Definition): string | undefined => {
  const whole = addedTokens.find((token) => token.single_word)
  return whole && `the token ${JSON.stringify(whole.content)} matches only as a whole word`
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
    const unsupported = unsupportedFeature(definition)
    if (unsupported !== undefined)
      return yield* fail("Unsupported", `not supported by the portable backend: ${unsupported}`)()

    const script = yield* Effect.try({
      try: () =>
        new Tokenizer(
          { ...json, pre_tokenizer: withPattern(json["pre_tokenizer"]) },
          { clean_up_tokenization_spaces: false },
        ),
      catch: fail("Invalid", "tokenizer.json is invalid or not supported by the portable backend"),
    })
    const idToToken: Library["idToToken"] = (id) => Option.fromNullable(script.id_to_token(id))
    const tokens = tokensOf(definition, idToToken)

    const encode: Library["encode"] = (text, addSpecialTokens) =>
      Effect.try({
        try: (): ReadonlyArray<number | undefined> => script.encode(text, { add_special_tokens: addSpecialTokens }).ids,
        catch: fail("Failed", "failed to encode"),
      }).pipe(
        Effect.flatMap((ids) => {
          const known = ids.filter((id) => id !== undefined)
          // Without an unknown token, the reference drops unknown parts of the text for BPE and fails for other models.
          return known.length === ids.length || definition.model === "BPE"
            ? Effect.succeed(Int32Array.from(known))
            : Effect.fail(fail("Failed", "failed to encode: part of the text is not in the vocabulary")())
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
        catch: fail("Failed", "failed to decode"),
      })

    // Yields after every text, so that a batch blocks the process no longer than its longest text.
    const forEachYielding = <A, B>(all: ReadonlyArray<A>, f: (one: A) => Effect.Effect<B, TokenizerError>) =>
      Effect.forEach(all, (one) => Effect.zipLeft(f(one), Effect.yieldNow()))

    return {
      backend: "portable",
      vocabSize: script.get_vocab(true).size,
      tokenToId: (token) => Option.fromNullable(script.token_to_id(token)),
      idToToken,
      encode,
      encodeWithOffsets: () => Effect.fail(fail("Unsupported", "the portable backend has no offsets")()),
      encodeBatch: (texts, addSpecialTokens) => forEachYielding(texts, (text) => encode(text, addSpecialTokens)),
      decode,
      decodeBatch: (batch, skipSpecialTokens) => forEachYielding(batch, (ids) => decode(ids, skipSpecialTokens)),
    }
  })
