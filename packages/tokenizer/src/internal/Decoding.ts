/**
 * Decodes tokens to text incrementally. The steps are those of the reference library, split in two groups: steps on
 * whole tokens, and steps after all tokens were fused into one text, which see only the pieces that are final.
 */
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"

/** A decoding run. Holds back text that may still change. */
export interface Run {
  readonly push: (tokens: ReadonlyArray<string>) => string
  readonly finish: () => string
}

interface TokenStep {
  readonly push: (token: string) => ReadonlyArray<string>
  readonly finish: () => ReadonlyArray<string>
}

interface TextStep {
  readonly push: (text: string) => string
}

interface Fusion {
  readonly push: (tokens: ReadonlyArray<string>) => string
  readonly finish: () => string
}

const Pattern = Schema.Union(Schema.Struct({ String: Schema.String }), Schema.Struct({ Regex: Schema.String }))

const ByteLevel = Schema.Struct({ type: Schema.Literal("ByteLevel") })
const ByteFallback = Schema.Struct({ type: Schema.Literal("ByteFallback") })
const Fuse = Schema.Struct({ type: Schema.Literal("Fuse") })
const Metaspace = Schema.Struct({
  type: Schema.Literal("Metaspace"),
  replacement: Schema.optionalWith(Schema.String, { default: () => "▁" }),
  prepend_scheme: Schema.optional(Schema.String),
  add_prefix_space: Schema.optional(Schema.Boolean),
})
const Replace = Schema.Struct({ type: Schema.Literal("Replace"), pattern: Pattern, content: Schema.String })
const Strip = Schema.Struct({
  type: Schema.Literal("Strip"),
  content: Schema.String,
  start: Schema.NonNegativeInt,
  stop: Schema.NonNegativeInt,
})
const WordPiece = Schema.Struct({ type: Schema.Literal("WordPiece"), prefix: Schema.String, cleanup: Schema.Boolean })
const BpeDecoder = Schema.Struct({ type: Schema.Literal("BPEDecoder"), suffix: Schema.String })
const Ctc = Schema.Struct({
  type: Schema.Literal("CTC"),
  pad_token: Schema.String,
  word_delimiter_token: Schema.String,
  cleanup: Schema.Boolean,
})
const Step = Schema.Union(ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, WordPiece, BpeDecoder, Ctc)
type Step = typeof Step.Type

const decodeStep = Schema.decodeUnknownOption(Step)
const decodeSequence = Schema.decodeUnknownOption(
  Schema.Struct({ type: Schema.Literal("Sequence"), decoders: Schema.Array(Schema.Unknown) }),
)

/** Returns the steps in order, or none if one of them is not supported here. */
const stepsOf = (decoder: unknown): Option.Option<ReadonlyArray<Step>> =>
  Option.match(decodeSequence(decoder), {
    onSome: ({ decoders }) => Option.map(Option.all(decoders.map(stepsOf)), (steps) => steps.flat()),
    onNone: () => Option.map(decodeStep(decoder), (step) => [step]),
  })

/** Checks whether a decoder strips characters from the end of tokens. */
export const stripsEnds = (decoder: unknown): boolean =>
  Option.exists(stepsOf(decoder), (steps) => steps.some((step) => step.type === "Strip" && step.stop > 0))

const each =
  (f: (token: string, index: number) => string): (() => TokenStep) =>
  () => {
    let index = 0
    return { push: (token) => [f(token, index++)], finish: () => [] }
  }

const byteOf = (token: string): number | undefined => {
  const hex = /^<0x(\+?[0-9A-Fa-f]+)>$/.exec(token)?.[1]
  return token.length === 6 && hex !== undefined ? Number.parseInt(hex, 16) : undefined
}

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** Decodes a run of bytes as a whole: one invalid byte turns every byte of the run into U+FFFD. */
const textOfRun = (bytes: ReadonlyArray<number>): ReadonlyArray<string> => {
  if (bytes.length === 0) return []
  try {
    return [strict.decode(Uint8Array.from(bytes))]
  } catch {
    return bytes.map(() => "\ufffd")
  }
}

const byteFallback = (): TokenStep => {
  let bytes: Array<number> = []
  const flush = () => {
    const text = textOfRun(bytes)
    bytes = []
    return text
  }
  return {
    push: (token) => {
      const byte = byteOf(token)
      if (byte === undefined) return [...flush(), token]
      bytes.push(byte)
      return []
    },
    finish: flush,
  }
}

const cleanUp = (text: string) =>
  text
    .replaceAll(" .", ".")
    .replaceAll(" ?", "?")
    .replaceAll(" !", "!")
    .replaceAll(" ,", ",")
    .replaceAll(" ' ", "'")
    .replaceAll(" n't", "n't")
    .replaceAll(" 'm", "'m")
    .replaceAll(" do not", " don't")
    .replaceAll(" 's", "'s")
    .replaceAll(" 've", "'ve")
    .replaceAll(" 're", "'re")

const wordPiece = ({ cleanup, prefix }: typeof WordPiece.Type) =>
  each((token, index) => {
    const inside = token.startsWith(prefix)
    const text = index === 0 ? token : inside ? token.slice(prefix.length) : ` ${token}`
    return cleanup ? cleanUp(text) : text
  })

/** Holds back the latest token, because the last one of all is treated differently. */
const bpe =
  ({ suffix }: typeof BpeDecoder.Type) =>
  (): TokenStep => {
    let last: string | undefined
    return {
      push: (token) => {
        const before = last
        last = token
        return before === undefined ? [] : [before.replaceAll(suffix, " ")]
      },
      finish: () => (last === undefined ? [] : [last.replaceAll(suffix, "")]),
    }
  }

const ctc =
  ({ cleanup, pad_token, word_delimiter_token }: typeof Ctc.Type) =>
  (): TokenStep => {
    let last: string | undefined
    return {
      push: (token) => {
        if (token === last) return []
        last = token
        const bare = token.replaceAll(pad_token, "")
        const text = cleanup ? cleanUp(bare).replaceAll(word_delimiter_token, " ") : bare
        return text === "" ? [] : [text]
      },
      finish: () => [],
    }
  }

const strip = ({ content, start, stop }: typeof Strip.Type) =>
  each((token) => {
    const characters = [...token]
    let from = 0
    while (from < start && characters[from] === content) from++
    let to = characters.length
    while (characters.length - to < stop && to > from && characters[to - 1] === content) to--
    return characters.slice(from, to).join("")
  })

const dropsFirst = ({ add_prefix_space, prepend_scheme }: typeof Metaspace.Type) =>
  (prepend_scheme ?? (add_prefix_space === false ? "never" : "always")) !== "never"

const tokenStep = (step: Exclude<Step, typeof ByteLevel.Type | typeof Fuse.Type>): Option.Option<() => TokenStep> => {
  switch (step.type) {
    case "ByteFallback":
      return Option.some(byteFallback)
    case "Metaspace":
      return Option.some(
        each((token, index) => token.replaceAll(step.replacement, index === 0 && dropsFirst(step) ? "" : " ")),
      )
    case "Replace": {
      // Regular expressions of the definition are not in JavaScript's dialect.
      const { content, pattern } = step
      return "String" in pattern
        ? Option.some(each((token) => token.replaceAll(pattern.String, content)))
        : Option.none()
    }
    case "Strip":
      return Option.some(strip(step))
    case "WordPiece":
      return Option.some(wordPiece(step))
    case "BPEDecoder":
      return Option.some(bpe(step))
    case "CTC":
      return Option.some(ctc(step))
  }
}

/** Returns a step on a text whose end is not known yet, or none if the step needs the whole text. */
const textStep = (step: Step): Option.Option<() => TextStep> => {
  if (step.type === "Fuse") return Option.some(() => ({ push: (text) => text }))
  if (step.type === "Metaspace") {
    return Option.some(() => ({ push: (text) => text.replaceAll(step.replacement, dropsFirst(step) ? "" : " ") }))
  }
  if (step.type === "Replace" && "String" in step.pattern && step.pattern.String.length === 1) {
    const { String: pattern } = step.pattern
    return Option.some(() => ({ push: (text) => text.replaceAll(pattern, step.content) }))
  }
  if (step.type === "Strip" && step.stop === 0) return Option.some(() => stripStart(step))
  return Option.none()
}

const stripStart = ({ content, start }: typeof Strip.Type): TextStep => {
  let left = start
  return {
    push: (text) => {
      let from = 0
      while (left > 0 && from < text.length) {
        if (text.startsWith(content, from)) {
          from += content.length
          left--
        } else left = 0
      }
      return text.slice(from)
    },
  }
}

/** Maps character codes of the byte-level alphabet to the bytes that they stand for. */
const bytesByCode: ReadonlyArray<number | undefined> = (() => {
  const isPlain = (byte: number) =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff)
  let next = 0x100
  const bytes: Array<number | undefined> = Array.from({ length: 0x200 })
  for (let byte = 0; byte < 256; byte++) bytes[isPlain(byte) ? byte : next++] = byte
  return bytes
})()

const encoder = new TextEncoder()

/** Writes the bytes of a token at `start` and returns the end position. */
const putBytes = (token: string, bytes: Uint8Array, start: number): number => {
  for (let i = 0; i < token.length; i++) {
    const byte = bytesByCode[token.charCodeAt(i)]
    // A character outside the alphabet means an added token, which is written unchanged.
    if (byte === undefined) return start + encoder.encodeInto(token, bytes.subarray(start)).written
    bytes[start + i] = byte
  }
  return start + token.length
}

const byteLevel = (): Fusion => {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true })
  return {
    push: (tokens) => {
      // One UTF-16 unit takes at most three bytes.
      const bytes = new Uint8Array(3 * tokens.reduce((length, token) => length + token.length, 0))
      const end = tokens.reduce((at, token) => putBytes(token, bytes, at), 0)
      return decoder.decode(bytes.subarray(0, end), { stream: true })
    },
    finish: () => decoder.decode(),
  }
}

const join = (): Fusion => ({ push: (tokens) => tokens.join(""), finish: () => "" })

const isFusion = (step: Step): step is typeof ByteLevel.Type | typeof Fuse.Type =>
  step.type === "ByteLevel" || step.type === "Fuse"

const start = (
  tokenSteps: ReadonlyArray<() => TokenStep>,
  fusion: () => Fusion,
  textSteps: ReadonlyArray<() => TextStep>,
): Run => {
  const tokens = tokenSteps.map((make) => make())
  const fused = fusion()
  const texts = textSteps.map((make) => make())
  const through = (from: number, several: ReadonlyArray<string>): ReadonlyArray<string> =>
    tokens.slice(from).reduce((all, step) => all.flatMap((token) => step.push(token)), several)
  const polish = (text: string) => texts.reduce((rest, step) => step.push(rest), text)
  const fuse = (several: ReadonlyArray<string>) => polish(fused.push(several))
  return {
    push: (tokens) => fuse(through(0, tokens)),
    finish: () => {
      const rest = tokens.map((step, i) => fuse(through(i + 1, step.finish()))).join("")
      return rest + polish(fused.finish())
    },
  }
}

/**
 * Compiles a decoder into a function that starts a run. Returns none if a step can't be applied incrementally; then
 * only the library can decode.
 */
export const compile = (decoder: unknown): Option.Option<() => Run> => {
  // Without a decoder, tokens are words separated by spaces.
  if (decoder === null) {
    const words = each((token, index) => (index === 0 ? token : ` ${token}`))
    return Option.some(() => start([words], join, []))
  }
  return Option.flatMap(stepsOf(decoder), (steps) => {
    const at = steps.findIndex(isFusion)
    const before = at === -1 ? steps : steps.slice(0, at)
    const fusion = at === -1 ? undefined : steps[at]
    const after = at === -1 ? [] : steps.slice(at + 1)
    return Option.map(
      Option.all([
        Option.all(before.map((step) => (isFusion(step) ? Option.none() : tokenStep(step)))),
        Option.all(after.map(textStep)),
      ]),
      ([tokenSteps, textSteps]) =>
        () =>
          start(tokenSteps, fusion?.type === "ByteLevel" ? byteLevel : join, textSteps),
    )
  })
}
