/** Texts to tokens, as few calls as possible: what is written again and again is encoded once. */
import * as Effect from "effect/Effect"
import type { InvalidInput } from "effect-tinker/TinkerError"
import type { Service } from "../../Tokenizer.ts"
import type { TokenizerError } from "../../TokenizerError.ts"

/** A piece of text, which is encoded by itself; or a token. */
export type Segment =
  | {
      readonly text: string
      /** Special tokens in it are text. */
      readonly plain?: boolean
      /** It comes in every conversation. */
      readonly fixed?: boolean
    }
  | { readonly token: number }

export const fixed = (text: string): Segment => ({ text, fixed: true })

/** What was encoded, by the text; those in which special tokens are text have a name of their own. */
export type Memo = Map<string, Int32Array>

export const memo = (): Memo => new Map()

const keyOf = (segment: { readonly text: string; readonly plain?: boolean }) =>
  `${segment.plain === true ? "plain" : "text"} ${segment.text}`

const none = new Int32Array()

/** Headers are made of roles, which may come from anywhere. */
const mostFixed = 512

export interface Encoder {
  /** Encodes what the memo has not got yet. */
  readonly prepare: (segments: ReadonlyArray<Segment>, memo: Memo) => Effect.Effect<void, InvalidInput | TokenizerError>
  /** Of a segment that was prepared. */
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
                    const into = segment.fixed === true && kept.size < mostFixed ? kept : memo
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
