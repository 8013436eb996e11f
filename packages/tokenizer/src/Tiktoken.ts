/**
 * Converts tokenizers in the format of `tiktoken` (a list of byte sequences with their ranks) to a `tokenizer.json`. Kimi
 * and Inkling have such tokenizers.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import { TokenizerError } from "./TokenizerError.ts"
import type { TokenizerFiles } from "./TokenizerFiles.ts"

/**
 * A tokenizer in the format of `tiktoken`.
 *
 * @since 0.1.0
 * @category models
 */
export interface Encoding {
  /** The name used in errors. */
  readonly name: string
  /** The contents of the file: a line for each token, with its bytes in base64 and its rank. */
  readonly ranks: string
  /** The pattern that splits texts into words. */
  readonly pattern: string
  /** The special tokens by id. */
  readonly specialTokens: ReadonlyMap<number, string>
}

/** Chinese characters, as the inside of a character class. Libraries name this class in different ways. */
const han =
  "\u2e80-\u2e99\u2e9b-\u2ef3\u2f00-\u2fd5\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufa6d\ufa70-\ufad9\u{16fe2}\u{16fe3}\u{16ff0}\u{16ff1}\u{20000}-\u{2a6df}\u{2a700}-\u{2b739}\u{2b740}-\u{2b81d}\u{2b820}-\u{2cea1}\u{2ceb0}-\u{2ebe0}\u{2ebf0}-\u{2ee5d}\u{2f800}-\u{2fa1d}\u{30000}-\u{3134a}\u{31350}-\u{323af}"

const contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
const rest = ["\\s*[\\r\\n]+", "\\s+(?!\\S)", "\\s+"]

const upper = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
const lower = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
const lead = "[^\\r\\n\\p{L}\\p{N}]?"

/** Excludes Chinese characters from a class; nested classes are not available everywhere. */
const western = (letters: string) => `(?:(?![${han}])${letters})`

/**
 * The pattern of Kimi K2, K2.5 and K2.6.
 *
 * @since 0.1.0
 * @category constants
 */
export const kimiPattern: string = [
  `[${han}]+`,
  `${lead}${western(upper)}*${western(lower)}+${contractions}`,
  `${lead}${western(upper)}+${western(lower)}*${contractions}`,
  "\\p{N}{1,3}",
  " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*",
  ...rest,
].join("|")

/**
 * The pattern of `o200k_base`, which Inkling uses.
 *
 * @since 0.1.0
 * @category constants
 */
export const o200kPattern: string = [
  `${lead}${upper}*${lower}+${contractions}`,
  `${lead}${upper}+${lower}*${contractions}`,
  "\\p{N}{1,3}",
  " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*",
  ...rest,
].join("|")

/** Maps bytes to the characters that stand for them in a `tokenizer.json`. */
const letters: ReadonlyArray<string> = (() => {
  const isVisible = (byte: number) =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff)
  let hidden = 0
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isVisible(byte) ? byte : 256 + hidden++))
})()

const lettersOf = (base64: string): string => {
  const bytes = atob(base64)
  let text = ""
  for (let index = 0; index < bytes.length; index++) text += letters[bytes.charCodeAt(index)] ?? ""
  return text
}

type Merge = readonly [rank: number, left: string, right: string]

/** Returns all ways to merge two tokens into a third one; `tiktoken` merges the pair with the lowest rank. */
const mergesOf = (ranks: ReadonlyMap<string, number>): ReadonlyArray<readonly [string, string]> => {
  const all: Array<Merge> = []
  for (const [token, rank] of ranks) {
    for (let at = 1; at < token.length; at++) {
      const left = token.slice(0, at)
      const right = token.slice(at)
      if (ranks.has(left) && ranks.has(right)) all.push([rank, left, right])
    }
  }
  const rankOf = (token: string) => ranks.get(token) ?? 0
  return all
    .toSorted(([one, a, b], [other, c, d]) => one - other || rankOf(a) - rankOf(c) || rankOf(b) - rankOf(d))
    .map(([, left, right]) => [left, right])
}

const line = /^(\S+) (\d+)$/

const ranksOf = (text: string): ReadonlyMap<string, number> | undefined => {
  const ranks = new Map<string, number>()
  for (const one of text.split("\n")) {
    if (one.trim() === "") continue
    const found = line.exec(one.trim())
    if (found === null) return undefined
    ranks.set(lettersOf(found[1] ?? ""), Number(found[2]))
  }
  return ranks
}

/**
 * Converts an encoding to the files of a tokenizer.
 *
 * @since 0.1.0
 * @category constructors
 */
export const toFiles = (encoding: Encoding): Either.Either<TokenizerFiles, TokenizerError> => {
  const { name, pattern, specialTokens } = encoding
  const ranks = Either.getOrUndefined(Either.try(() => ranksOf(encoding.ranks)))
  if (ranks === undefined || ranks.size === 0) {
    const problem = "expected lines with a token in base64 and its rank"
    return Either.left(new TokenizerError({ reason: "Invalid", tokenizer: name, problem }))
  }
  const tokenizer = JSON.stringify({
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: [...specialTokens]
      .toSorted(([one], [other]) => one - other)
      .map(([id, content]) => ({
        id,
        content,
        single_word: false,
        lstrip: false,
        rstrip: false,
        normalized: false,
        special: true,
      })),
    normalizer: null,
    pre_tokenizer: {
      type: "Sequence",
      pretokenizers: [
        { type: "Split", pattern: { Regex: pattern }, behavior: "Isolated", invert: false },
        { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false },
      ],
    },
    post_processor: null,
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      // A word that is a token is never split.
      ignore_merges: true,
      vocab: Object.fromEntries(ranks),
      merges: mergesOf(ranks),
    },
  })
  return Either.right({ name, tokenizer })
}

/** How many special tokens Kimi's tokenizer has; those without a name are reserved. */
const kimiSpecials = 256

/**
 * Converts the tokenizer of Kimi K2, K2.5 or K2.6, given its `tiktoken.model` and its `tokenizer_config.json`.
 *
 * @since 0.1.0
 * @category constructors
 */
export const kimi = (name: string, ranks: string, config: string): Either.Either<TokenizerFiles, TokenizerError> =>
  Either.gen(function* () {
    const invalid = (problem: string) =>
      Either.left(new TokenizerError({ reason: "Invalid", tokenizer: name, problem }))
    const parsed: unknown = Either.getOrUndefined(Either.try((): unknown => JSON.parse(config)))
    const added: unknown =
      typeof parsed === "object" && parsed !== null && "added_tokens_decoder" in parsed
        ? parsed.added_tokens_decoder
        : undefined
    if (typeof added !== "object" || added === null) {
      return yield* invalid("tokenizer_config.json has no added_tokens_decoder")
    }
    const first = ranks.split("\n").filter((one) => one.trim() !== "").length
    const names = new Map(
      Object.entries(added).flatMap(([id, token]: readonly [string, unknown]) =>
        typeof token === "object" && token !== null && "content" in token && typeof token.content === "string"
          ? [[Number(id), token.content] as const]
          : [],
      ),
    )
    const specialTokens = new Map(
      Array.from({ length: kimiSpecials }, (_, index) => {
        const id = first + index
        return [id, names.get(id) ?? `<|reserved_token_${id}|>`] as const
      }),
    )
    const files = yield* toFiles({ name, ranks, pattern: kimiPattern, specialTokens })
    return { ...files, config }
  })

const inklingNames: Readonly<Record<number, string>> = {
  199_998: "unused",
  199_999: "endoftext",
  200_000: "message_user",
  200_001: "message_model",
  200_002: "message_system",
  200_003: "message_tool",
  200_004: "content_text",
  200_005: "content_image",
  200_006: "content_model_end_sampling",
  200_008: "content_thinking",
  200_010: "end_message",
  200_020: "content_audio_input",
  200_022: "content_tool_error",
  200_023: "audio",
  200_024: "content_xml",
  200_028: "begin_of_text",
  200_043: "audio_end",
  200_049: "content_invoke_tool_json",
  200_057: "content_invoke_tool_text",
}

/**
 * Converts the tokenizer of Inkling, given `o200k_base.tiktoken`, which the vendor of `tiktoken` publishes.
 *
 * @since 0.1.0
 * @category constructors
 */
export const inkling = (ranks: string): Either.Either<TokenizerFiles, TokenizerError> => {
  const specialTokens = new Map(
    Array.from({ length: 60 }, (_, index) => {
      const id = 199_998 + index
      return [id, `<|${inklingNames[id] ?? `unused_${id}`}|>`] as const
    }),
  )
  const name = "thinkingmachines/Inkling"
  return Either.map(toFiles({ name, ranks, pattern: o200kPattern, specialTokens }), (files) => ({
    ...files,
    config: JSON.stringify({ bos_token: "<|begin_of_text|>", eos_token: "<|endoftext|>" }),
  }))
}
