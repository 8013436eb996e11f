/** Encodes texts in as few calls as possible; texts that recur are encoded once. */
import * as Effect from "effect/Effect"
import type { InvalidInput } from "effect-tinker/TinkerError"
import type { Service } from "../../Tokenizer.ts"
import type { TokenizerError } from "../../TokenizerError.ts"

/** A text that is encoded separately, or a token. */
export type Segment =
  | {
      readonly text: string
      /** Whether special tokens in it are encoded as text. */
      readonly plain?: boolean
      /** Whether it recurs in every conversation. */
      readonly fixed?: boolean
    }
  | { readonly token: number }

export const fixed = (text: string): Segment => ({ text, fixed: true })

/** Encoded texts by key; the key says whether special tokens are encoded as text. */
export type Memo = Map<string, Int32Array>

export const memo = (): Memo => new Map()

const keyOf = (segment: { readonly text: string; readonly plain?: boolean }) =>
  `${segment.plain === true ? "plain" : "text"} ${segment.text}`

const none = new Int32Array()

/** Bounds the cache: headers contain roles, and those may come from user data. */
const maxFixed = 512

export interface Encoder {
  /** Encodes the segments that the memo does not hold yet. */
  readonly prepare: (segments: ReadonlyArray<Segment>, memo: Memo) => Effect.Effect<void, InvalidInput | TokenizerError>
  /** Returns the tokens of a prepared segment. */
  readonly tokens: (segment: Segment, memo: Memo) => Int32Array
  readonly join: (segments: ReadonlyArray<Segment>, memo: Memo) => Int32Array
}

export const make = (tokenizer: Pick<Service, "encodeBatch">): Encoder => {
  const kept: Memo = new Map()
  const single = new Map<number, Int32Array>()

  const tokens: Encoder["tokens"] = (segment, memo) => {
    if ("text" in segment) {
      const key = keyOf(segment)
      return memo.get(key) ?? kept.get(key) ?? none
    }
    const known = single.get(segment.token) ?? Int32Array.of(segment.token)
    single.set(segment.token, known)
    return known
  }

  return {
    prepare: (segments, memo) =>
      Effect.suspend(() => {
        const wanted = new Map<string, Extract<Segment, { readonly text: string }>>()
        for (const segment of segments) {
          if (!("text" in segment) || segment.text === "") continue
          const key = keyOf(segment)
          if (!memo.has(key) && !kept.has(key)) wanted.set(key, segment)
        }
        const encode = (plain: boolean) => {
          const entries = [...wanted].filter(([, segment]) => (segment.plain ?? false) === plain)
          return entries.length === 0
            ? Effect.void
            : Effect.map(
                tokenizer.encodeBatch(
                  entries.map(([, { text }]) => text),
                  { addSpecialTokens: false, splitSpecialTokens: plain },
                ),
                (all) => {
                  for (const [index, [key, segment]] of entries.entries()) {
                    const into = segment.fixed === true && kept.size < maxFixed ? kept : memo
                    into.set(key, all[index] ?? none)
                  }
                },
              )
        }
        return Effect.zipRight(encode(false), encode(true))
      }),
    tokens,
    join: (segments, memo) => {
      const all = segments.map((segment) => tokens(segment, memo))
      const joined = new Int32Array(all.reduce((sum, { length }) => sum + length, 0))
      let at = 0
      for (const one of all) {
        joined.set(one, at)
        at += one.length
      }
      return joined
    },
  }
}
