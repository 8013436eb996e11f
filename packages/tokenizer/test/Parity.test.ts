import { describe, expect, it } from "@effect/vitest"
import { Effect, Option } from "effect"
import * as Goldens from "./support/Goldens.ts"

const { texts } = Goldens

/**
 * The number of texts that the portable library encodes differently from the reference, all under BERT's normalizer: it
 * adds no spaces around Chinese characters beyond the BMP (79 texts) and has a newer punctuation table (1 text,
 * U+2E4B).
 */
const differences: Readonly<Record<Goldens.Backend, Partial<Record<Goldens.Shape, number>>>> = {
  native: {},
  portable: { wordpiece: 80 },
}

const isKnown = (shape: Goldens.Shape, text: string) =>
  shape === "wordpiece" && /[\u{20000}-\u{2fa1f}\u2e4b]/u.test(text)

/** Returns the indices at which two lists differ. */
const unlike = <A>(got: ReadonlyArray<A>, wanted: ReadonlyArray<A>) =>
  wanted.flatMap((one, i) => (JSON.stringify(got[i]) === JSON.stringify(one) ? [] : [i]))

const plain = (all: ReadonlyArray<Int32Array>) => all.map((tokens) => [...tokens])

describe("goldens", () => {
  it("the goldens cover at least 2000 different texts per tokenizer", () => {
    expect(texts.length).toBeGreaterThanOrEqual(2000)
    expect(new Set(texts).size).toBeGreaterThanOrEqual(2000)
    for (const shape of Goldens.shapes) {
      const { decoded, encoded, salads, skipped } = Goldens.golden(shape)
      expect([encoded.length, decoded.length, skipped.length]).toEqual([texts.length, texts.length, texts.length])
      expect(salads.length).toBe(2000)
    }
  })
})

for (const backend of ["native", "portable"] as const) {
  describe(`the ${backend} backend`, () => {
    for (const shape of Goldens.shapes) {
      it.effect(`the ${backend} backend encodes like the reference: ${shape}`, () =>
        Effect.gen(function* () {
          const tokenizer = yield* Goldens.load(shape, backend)
          const golden = Goldens.golden(shape)
          const got = plain(yield* tokenizer.encodeBatch(texts))
          const different = unlike(got, golden.encoded.map(Goldens.unpack))
          expect(different.filter((i) => !isKnown(shape, texts[i]!))).toEqual([])
          expect(different.length).toBe(differences[backend][shape] ?? 0)
          const close = texts.slice(0, golden.bare.length)
          const bare = yield* Effect.forEach(close, (text) => tokenizer.encode(text, { addSpecialTokens: false }))
          expect(unlike(plain(bare), golden.bare.map(Goldens.unpack))).toEqual([])
          const alone = yield* Effect.forEach(close, (text) => tokenizer.encode(text))
          expect(unlike(plain(alone), got.slice(0, close.length))).toEqual([])
        }),
      )

      it.effect(`the ${backend} backend decodes like the reference: ${shape}`, () =>
        Effect.gen(function* () {
          const tokenizer = yield* Goldens.load(shape, backend)
          const { decoded, encoded, salads, skipped } = Goldens.golden(shape)
          const batch = encoded.map(Goldens.unpack)
          const original = (text: string | 0, i: number) => (text === 0 ? texts[i] : text)
          expect(unlike(yield* tokenizer.decodeBatch(batch), decoded.map(original))).toEqual([])
          const without = yield* tokenizer.decodeBatch(batch, { skipSpecialTokens: true })
          expect(unlike(without, skipped.map(original))).toEqual([])

          const tokens = salads.map(([packed]) => Goldens.unpack(packed))
          const [kept, left] = [
            salads.map(([, text]) => text),
            salads.map(([, text, other]) => (other === 0 ? text : other)),
          ]
          expect(unlike(yield* Effect.forEach(tokens, (one) => tokenizer.decode(one)), kept)).toEqual([])
          const skipping = Effect.forEach(tokens, (one) => tokenizer.decode(one, { skipSpecialTokens: true }))
          expect(unlike(yield* skipping, left)).toEqual([])
        }),
      )
    }
  })
}

describe("encodeWithOffsets", () => {
  for (const shape of Goldens.shapes) {
    it.effect(`encodeWithOffsets matches the reference in UTF-16 units: ${shape}`, () =>
      Effect.gen(function* () {
        const tokenizer = yield* Goldens.load(shape, "native")
        const { encoded, offsets } = Goldens.golden(shape)
        const close = texts.slice(0, offsets.length)
        const got = yield* Effect.forEach(close, (text) => tokenizer.encodeWithOffsets(text))
        const wanted = offsets.map((packed, i) =>
          Goldens.unpack(packed).map((count) => [...texts[i]!].slice(0, count).join("").length),
        )
        expect(
          unlike(
            got.map(({ offsets }) => [...offsets]),
            wanted,
          ),
        ).toEqual([])
        expect(
          unlike(
            got.map(({ tokens }) => [...tokens]),
            encoded.slice(0, close.length).map(Goldens.unpack),
          ),
        ).toEqual([])
        expect(wanted.flat().length).toBeGreaterThan(400)
      }),
    )
  }
})

it.effect("both backends have the same vocabulary", () =>
  Effect.forEach(
    Goldens.shapes,
    (shape) =>
      Effect.gen(function* () {
        const native = yield* Goldens.load(shape, "native")
        const portable = yield* Goldens.load(shape, "portable")
        expect(portable.vocabSize, shape).toBe(native.vocabSize)
        expect(portable.specialTokens, shape).toEqual(native.specialTokens)
        const ids = Array.from({ length: native.vocabSize + 2 }, (_, id) => id)
        expect(ids.map(portable.idToToken)).toEqual(ids.map(native.idToToken))
        const tokens = ids.flatMap((id) => Option.toArray(native.idToToken(id)))
        expect(tokens.map(portable.tokenToId)).toEqual(tokens.map(native.tokenToId))
      }),
    { discard: true },
  ),
)
