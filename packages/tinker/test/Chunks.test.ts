import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc } from "effect"
import * as Loss from "effect-tinker/Loss"
import * as ModelInput from "effect-tinker/ModelInput"
// The package does not export this module, and the compiler refuses to rewrite a `.ts` import into another project.
import { cut, split, type Chunk } from "../src/internal/training/Chunks.js"
import { behaviour } from "./support/Recorded.ts"

/** A token, its target and its weight take 16 bytes; audio makes up the rest. */
const counting = (bytes: number) => {
  const tokens = new Int32Array(Math.floor(bytes / 16))
  const text = Either.getOrThrow(ModelInput.text(tokens))
  return {
    modelInput: ModelInput.make(text, ModelInput.dmel(new Uint8Array(bytes % 16))),
    inputs: { targetTokens: tokens, weights: new Float32Array(tokens.length) },
  }
}

const prepared = (...sizes: ReadonlyArray<number>) =>
  Either.getOrThrow(Loss.prepare(Loss.crossEntropy, sizes.map(counting)))

const small = (count: number) => prepared(...Array.from({ length: count }, () => 48))

const lengths = (chunks: ReadonlyArray<Chunk>) => chunks.map(({ data }) => data.length)

describe("Chunks", () => {
  it("a batch is cut where the reference cuts it: behaviours/chunk_limits_default.json", () => {
    const limits = { maxLength: 1024, maxBytes: 5_000_000 }
    const cases: Readonly<Record<string, Loss.PreparedBatch>> = {
      "1024 small datums": small(1024),
      "1025 small datums": small(1025),
      "two datums of exactly 2500000 bytes": prepared(2_500_000, 2_500_000),
      "2500000 + 2500004 bytes": prepared(2_500_000, 2_500_004),
      "one datum of 6000012 bytes then a small one": prepared(6_000_012, 48),
    }
    const ours = Object.entries(cases).map(([name, batch]) => [name, lengths(cut(batch, limits))])
    expect(Object.fromEntries(ours)).toEqual(behaviour("behaviours/chunk_limits_default.json").expect.result)
  })

  it("a batch is split into parts of almost equal size, in order, and never into empty ones", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 40 }), fc.integer({ min: 1, max: 50 }), (count, parts) => {
        const batch = small(count)
        const found = split(batch, parts)
        const sizes = found.map(({ data }) => data.length)
        expect(found).toHaveLength(Math.min(count, parts))
        expect(Math.max(...sizes) - Math.min(...sizes)).toBeLessThanOrEqual(1)
        expect(found.flatMap(({ data }) => data)).toEqual(batch.data)
      }),
    )
  })

  it("an empty batch gives no chunks", () => {
    expect(cut({ ...small(1), data: [] }, { maxLength: 1, maxBytes: 1 })).toEqual([])
  })

  it("limits of zero or less put each datum in its own chunk", () => {
    for (const limits of [
      { maxLength: 0, maxBytes: 1e9 },
      { maxLength: 9, maxBytes: 0 },
      { maxLength: -1, maxBytes: -1 },
    ])
      expect(lengths(cut(small(3), limits))).toEqual([1, 1, 1])
  })

  const sizes = fc.array(fc.nat(100), { minLength: 1, maxLength: 30 })
  const limits = fc.record({ maxLength: fc.integer({ min: 1, max: 8 }), maxBytes: fc.integer({ min: 1, max: 300 }) })

  it.prop(
    "chunks contain every datum in order, respect the limits, and are as large as possible",
    { sizes, limits },
    (given) => {
      const { maxBytes, maxLength } = given.limits
      const batch = prepared(...given.sizes)
      const chunks = cut(batch, given.limits)
      // The same datum objects, in the same order.
      const cutData = chunks.flatMap(({ data }) => data)
      expect(cutData.length).toBe(batch.data.length)
      expect(cutData.every((datum, index) => datum === batch.data[index])).toBe(true)
      for (const [index, { bytes, data, loss }] of chunks.entries()) {
        expect(loss).toBe(batch.loss)
        expect(bytes).toBe(data.reduce((sum, datum) => sum + datum.bytes, 0))
        expect(data.length).toBeGreaterThan(0)
        expect(data.length).toBeLessThanOrEqual(maxLength)
        if (data.length > 1) expect(bytes).toBeLessThanOrEqual(maxBytes)
        // Greedy: the first datum of the next chunk does not fit.
        const next = chunks[index + 1]?.data[0]
        if (next !== undefined) expect(data.length === maxLength || bytes + next.bytes > maxBytes).toBe(true)
      }
    },
  )
})
