import { describe, expect, it } from "@effect/vitest"
import { TokenStream } from "@effect-tinker/tokenizer"
import { Chunk, Effect, FastCheck, Stream } from "effect"
import type { Service } from "@effect-tinker/tokenizer/Tokenizer"
import * as Goldens from "./support/Goldens.ts"

const run = (tokenizer: Service, tokens: Iterable<number>, skipSpecialTokens: boolean) =>
  Stream.fromIterable(tokens).pipe(
    TokenStream.decode(tokenizer, { skipSpecialTokens }),
    Stream.runCollect,
    Effect.map(Chunk.toReadonlyArray),
  )

const lone = /\p{Surrogate}/u

/** Checks that the joined pieces equal the whole text, and that each piece is well-formed and not empty. */
const check = (tokenizer: Service, tokens: ReadonlyArray<number>, skipSpecialTokens: boolean) =>
  Effect.gen(function* () {
    const pieces = yield* run(tokenizer, tokens, skipSpecialTokens)
    expect(pieces.join("")).toBe(yield* tokenizer.decode(tokens, { skipSpecialTokens }))
    expect(pieces.filter((piece) => piece === "" || lone.test(piece))).toEqual([])
  })

/** A fifth of them, but for `test:all`. */
const share = process.env["TINKER_TESTS"] === "all" ? 1 : 5

const sample = <A>(arbitrary: FastCheck.Arbitrary<A>, seed: number, numRuns: number) =>
  FastCheck.sample(arbitrary, { seed, numRuns: numRuns / share })

describe("TokenStream.decode", () => {
  for (const shape of Goldens.shapes) {
    it.effect(`TokenStream.decode gives the same text as decode: ${shape}`, () =>
      Effect.gen(function* () {
        // The native library decodes the whole text.
        const tokenizer = yield* Goldens.load(shape, "native")
        const salads = FastCheck.array(FastCheck.nat(tokenizer.vocabSize + 1), { maxLength: 40 })
        const texts = FastCheck.string({ unit: "grapheme", maxLength: 30 })
        for (const tokens of sample(salads, 1, 300)) {
          yield* check(tokenizer, tokens, false)
          yield* check(tokenizer, tokens, true)
        }
        const prose = [...sample(texts, 2, 150), ...Goldens.texts.filter((_, i) => i % (8 * share) === 0)]
        for (const text of prose) yield* check(tokenizer, [...(yield* tokenizer.encode(text))], false)
      }),
    )
  }

  it.effect("TokenStream.decode replaces invalid bytes as the library does and continues", () =>
    Effect.gen(function* () {
      const tokenizer = yield* Goldens.load("llama2", "native")
      const byte = FastCheck.integer({ min: 3, max: 258 })
      const bytes = FastCheck.array(FastCheck.oneof(byte, byte, byte, FastCheck.nat(tokenizer.vocabSize)), {
        maxLength: 12,
      })
      for (const tokens of sample(bytes, 3, 500)) yield* check(tokenizer, tokens, false)
    }),
  )

  it.effect("a decoder holds text back only until its character is complete", () =>
    Effect.gen(function* () {
      const tokenizer = yield* Goldens.load("gpt2", "native")
      const tokens = yield* tokenizer.encode("a🪿b")
      expect(tokens.length).toBe(6)
      const decoder = tokenizer.decoder()
      const pieces = yield* Effect.forEach(tokens, (token) => decoder.push([token]))
      expect(pieces).toEqual(["a", "", "", "", "🪿", "b"])
      expect(yield* decoder.finish).toBe("")
    }),
  )

  it.effect("Decoder.finish replaces an incomplete character and resets the decoder", () =>
    Effect.gen(function* () {
      const tokenizer = yield* Goldens.load("gpt2", "native")
      const [, ...cut] = yield* tokenizer.encode("x🪿")
      const decoder = tokenizer.decoder()
      expect(yield* decoder.push(cut.slice(0, 2))).toBe("")
      expect(yield* decoder.finish).toBe("\ufffd")
      expect(yield* decoder.push(cut)).toBe("🪿")
    }),
  )

  it.effect("TokenStream.decode drops the leading space of the definition and keeps other spaces", () =>
    Effect.gen(function* () {
      for (const shape of ["llama2", "mistral", "unigram"] as const) {
        const tokenizer = yield* Goldens.load(shape, "native")
        const tokens = yield* tokenizer.encode("the quick fox", { addSpecialTokens: false })
        const pieces = yield* run(tokenizer, tokens, false)
        expect(pieces.join(""), shape).toBe("the quick fox")
        expect(pieces.length, shape).toBeGreaterThan(2)
      }
    }),
  )

  it.effect("TokenStream.decode emits everything at the end if a step needs the whole text", () =>
    Effect.gen(function* () {
      const json = JSON.parse(Goldens.files("llama2").tokenizer)
      json.decoder = {
        type: "Sequence",
        decoders: [{ type: "Fuse" }, { type: "Replace", pattern: { Regex: "▁+t" }, content: " T" }],
      }
      for (const backend of ["native", "portable"] as const) {
        const make = Goldens.make({ name: "regex", tokenizer: JSON.stringify(json) })
        const tokenizer = yield* Effect.provide(make, Goldens.backends[backend])
        const tokens = yield* tokenizer.encode("to the test", { addSpecialTokens: false })
        const pieces = yield* run(tokenizer, tokens, false)
        expect(pieces, backend).toEqual([" To The Test"])
      }
    }),
  )

  it.effect("a stream of TokenStream.decode can be run again", () =>
    Effect.gen(function* () {
      const tokenizer = yield* Goldens.load("mistral", "portable")
      const stream = Stream.make(yield* tokenizer.encode("again and again")).pipe(
        TokenStream.decode(tokenizer, { skipSpecialTokens: true }),
        Stream.mkString,
      )
      expect(yield* stream).toBe("again and again")
      expect(yield* stream).toBe("again and again")
    }),
  )
})

describe("decoders outside the goldens", () => {
  const shapes: Record<string, unknown> = {
    none: null,
    "BPE suffix": { type: "BPEDecoder", suffix: "e" },
    CTC: { type: "CTC", pad_token: "a", word_delimiter_token: "▁", cleanup: true },
    "strip each": { type: "Strip", content: "e", start: 1, stop: 0 },
    "metaspace never": { type: "Metaspace", replacement: "▁", prepend_scheme: "never", split: true },
    "legacy metaspace": { type: "Metaspace", replacement: "▁", add_prefix_space: true },
    "fused first": {
      type: "Sequence",
      decoders: [{ type: "Fuse" }, { type: "Metaspace", replacement: "▁", prepend_scheme: "first", split: true }],
    },
    "words without clean-up": { type: "WordPiece", prefix: "a", cleanup: false },
    "replace after fuse": {
      type: "Sequence",
      decoders: [
        { type: "Fuse" },
        { type: "Replace", pattern: { String: "e" }, content: "EE" },
        { type: "Strip", content: "▁", start: 3, stop: 0 },
      ],
    },
    "replace long after fuse": {
      type: "Sequence",
      decoders: [{ type: "Fuse" }, { type: "Replace", pattern: { String: "th" }, content: "TH" }],
    },
    "sequence in sequence": {
      type: "Sequence",
      decoders: [{ type: "Sequence", decoders: [{ type: "ByteFallback" }, { type: "Fuse" }] }, { type: "Fuse" }],
    },
  }

  for (const [name, decoder] of Object.entries(shapes)) {
    it.effect(`a decoder decodes like the library, streaming and whole: ${name}`, () =>
      Effect.gen(function* () {
        const json = { ...JSON.parse(Goldens.files("llama2").tokenizer), decoder }
        const make = Goldens.make({ name, tokenizer: JSON.stringify(json) })
        const native = yield* Effect.provide(make, Goldens.backends.native)
        const portable = yield* Effect.provide(make, Goldens.backends.portable)
        const salads = FastCheck.array(FastCheck.integer({ min: 259, max: native.vocabSize - 1 }), {
          minLength: 1,
          maxLength: 30,
        })
        for (const tokens of sample(salads, 4, 200)) {
          yield* check(native, tokens, false)
          expect(yield* portable.decode(tokens)).toBe(yield* native.decode(tokens))
        }
      }),
    )
  }
})
