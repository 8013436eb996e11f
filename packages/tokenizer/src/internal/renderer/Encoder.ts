/** Encodes texts in as few calls as possible; texts that recur are encoded once. */
import * as Effect from "effect/Effect"
import * as ModelInput from "effect-tinker/ModelInput"
import type { InvalidInput } from "effect-tinker/TinkerError"
import type { Service } from "../../Tokenizer.ts"
import type { TokenizerError } from "../../TokenizerError.ts"

interface TextSegment {
  readonly text: string
  /** Whether special tokens in it are encoded as text. */
  readonly plain?: boolean
  /** Whether it recurs in every conversation. */
  readonly fixed?: boolean
}

/** One side of two texts that are encoded as one; a token with characters of both belongs to the first. */
interface JointSegment {
  readonly first: string
  readonly second: string
  readonly side: "first" | "second"
}

/** A text that is encoded separately, one side of two texts that are encoded as one, a token, or an image. */
export type Segment =
  | TextSegment
  | JointSegment
  | { readonly token: number }
  | { readonly image: ModelInput.Image | ModelInput.ImageAsset; readonly length: number }

export const fixed = (text: string): Segment => ({ text, fixed: true })

/** Returns the segments of two texts that are encoded as one. */
export const joint = (first: string, second: string): readonly [Segment, Segment] => [
  { first, second, side: "first" },
  { first, second, side: "second" },
]

/** Encoded texts by key; the key says whether special tokens are encoded as text. */
export type Memo = Map<string, Int32Array>

export const memo = (): Memo => new Map()

const keyOf = (segment: TextSegment) => `${segment.plain === true ? "plain" : "text"} ${segment.text}`

const jointKeyOf = ({ first, second, side }: JointSegment) => `${side} ${first.length} ${first}${second}`

const none = new Int32Array()

/** Bounds the cache: headers contain roles, and those may come from user data. */
const maxFixed = 512

type Needs = Effect.Effect<void, InvalidInput | TokenizerError>

export interface Encoder {
  /** Encodes the segments that the memo does not hold yet. */
  readonly prepare: (segments: ReadonlyArray<Segment>, memo: Memo) => Needs
  /** Returns how many tokens a prepared segment takes. */
  readonly lengthOf: (segment: Segment, memo: Memo) => number
  /** Returns the tokens of prepared segments; images have none. */
  readonly join: (segments: ReadonlyArray<Segment>, memo: Memo) => Int32Array
  /** Returns prepared segments as chunks; consecutive texts are one chunk, and there are no empty ones. */
  readonly toInput: (segments: ReadonlyArray<Segment>, memo: Memo) => ModelInput.ModelInput
}

const startsWith = (tokens: Int32Array, prefix: Int32Array) =>
  prefix.length <= tokens.length && prefix.every((token, index) => token === tokens[index])

export const make = (tokenizer: Pick<Service, "encodeBatch" | "decodeBatch">): Encoder => {
  const kept: Memo = new Map()
  const single = new Map<number, Int32Array>()

  const tokensOf = (segment: Segment, memo: Memo): Int32Array => {
    if ("text" in segment) {
      const key = keyOf(segment)
      return memo.get(key) ?? kept.get(key) ?? none
    }
    if ("side" in segment) return memo.get(jointKeyOf(segment)) ?? none
    if ("image" in segment) return none
    const known = single.get(segment.token) ?? Int32Array.of(segment.token)
    single.set(segment.token, known)
    return known
  }

  const encode = (texts: ReadonlyArray<TextSegment>, plain: boolean, memo: Memo): Needs => {
    const wanted = new Map<string, TextSegment>()
    for (const segment of texts) {
      if (segment.text === "" || (segment.plain ?? false) !== plain) continue
      const key = keyOf(segment)
      if (!memo.has(key) && !kept.has(key)) wanted.set(key, segment)
    }
    if (wanted.size === 0) return Effect.void
    const entries = [...wanted]
    return Effect.map(
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

  /** Returns how many tokens of the whole cover the first text. */
  const splitAt = (whole: Int32Array, first: string, own: Int32Array) =>
    startsWith(whole, own)
      ? Effect.succeed(own.length)
      : Effect.map(
          tokenizer.decodeBatch(
            Array.from({ length: Math.min(whole.length, first.length) + 1 }, (_, i) => whole.slice(0, i)),
          ),
          (texts) => {
            const at = texts.findIndex((text) => text.length >= first.length)
            return at === -1 ? whole.length : at
          },
        )

  const split = (segment: JointSegment, memo: Memo): Needs =>
    Effect.suspend(() => {
      const { first, second } = segment
      const key = (side: "first" | "second") => jointKeyOf({ first, second, side })
      if (memo.has(key("first"))) return Effect.void
      const whole = tokensOf({ text: first + second }, memo)
      return Effect.map(splitAt(whole, first, tokensOf({ text: first }, memo)), (at) => {
        memo.set(key("first"), whole.slice(0, at))
        memo.set(key("second"), whole.slice(at))
      })
    })

  const join: Encoder["join"] = (segments, memo) => {
    const all = segments.map((segment) => tokensOf(segment, memo))
    const joined = new Int32Array(all.reduce((sum, { length }) => sum + length, 0))
    let at = 0
    for (const one of all) {
      joined.set(one, at)
      at += one.length
    }
    return joined
  }

  return {
    prepare: (segments, memo) =>
      Effect.suspend(() => {
        const joints = segments.filter((segment) => "side" in segment)
        const texts = [
          ...segments.filter((segment) => "text" in segment),
          ...joints.flatMap(({ first, second }) => [{ text: first, fixed: true }, { text: first + second }]),
        ]
        return Effect.zipRight(
          Effect.zipRight(encode(texts, false, memo), encode(texts, true, memo)),
          Effect.forEach(joints, (segment) => split(segment, memo), { discard: true }),
        )
      }),
    lengthOf: (segment, memo) => ("image" in segment ? segment.length : tokensOf(segment, memo).length),
    join,
    toInput: (segments, memo) => {
      const chunks: Array<ModelInput.Chunk> = []
      let texts: Array<Segment> = []
      const close = () => {
        const tokens = join(texts, memo)
        texts = []
        if (tokens.length > 0) chunks.push({ type: "encoded_text", tokens })
      }
      for (const segment of segments) {
        if ("image" in segment) {
          close()
          chunks.push({ ...segment.image, expectedTokens: segment.length })
        } else texts.push(segment)
      }
      close()
      return ModelInput.make(...chunks)
    },
  }
}
