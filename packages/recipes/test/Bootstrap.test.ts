import { Bootstrap, PassAtK } from "@effect-tinker/recipes"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Option } from "effect"
import { Generator } from "../src/internal/Generator.js"
import { expectClose, golden } from "./support/Goldens.ts"

interface Case {
  readonly problems: ReadonlyArray<PassAtK.Attempts>
  readonly scores: Record<string, number>
}

describe("PassAtK", () => {
  it.effect("estimates are those of the cookbook", () =>
    Effect.gen(function* () {
      for (const { problems, scores } of golden<ReadonlyArray<Case>>("pass-at-k")) {
        for (const k of [1, 2, 5, 10]) {
          const found = yield* PassAtK.mean(problems, k)
          const expected = scores[String(k)]
          expect(Option.isSome(found)).toBe(expected !== undefined)
          if (Option.isSome(found)) expectClose([found.value], [expected ?? 0])
        }
      }
    }),
  )

  it.effect("many attempts don't overflow, and impossible counts are refused", () =>
    Effect.gen(function* () {
      expect(yield* PassAtK.estimate({ attempts: 10_000, solved: 5000 }, 2000)).toBe(1)
      expect(yield* PassAtK.estimate({ attempts: 2000, solved: 1 }, 1000)).toBeCloseTo(0.5)
      for (const [attempts, solved, k, path] of [
        [3, 4, 1, "solved"],
        [3, -1, 1, "solved"],
        [3, 1, 0, "k"],
        [3, 1, 4, "k"],
        [3, 1, Number.NaN, "k"],
        [2.5, 1, 1, "attempts"],
      ] as const) {
        expect(yield* Effect.flip(PassAtK.estimate({ attempts, solved }, k))).toMatchObject({ path })
      }
    }),
  )
})

describe("Bootstrap", () => {
  it.effect("intervals depend on the seed only, and contain the estimate", () =>
    Effect.gen(function* () {
      const values = Array.from({ length: 50 }, (_, index) => (index * 7) % 11)
      const interval = yield* Bootstrap.mean(values, { seed: 3, resamples: 1000 })
      expect(yield* Bootstrap.mean(values, { seed: 3, resamples: 1000 })).toEqual(interval)
      expect(yield* Bootstrap.mean(values, { seed: 4, resamples: 1000 })).not.toEqual(interval)
      expect(interval.low).toBeLessThan(interval.estimate)
      expect(interval.high).toBeGreaterThan(interval.estimate)
      const narrow = yield* Bootstrap.mean(values, { seed: 3, resamples: 1000, confidence: 0.5 })
      expect(narrow.high - narrow.low).toBeLessThan(interval.high - interval.low)
      expect(yield* Bootstrap.mean([2, 2, 2])).toMatchObject({ estimate: 2, low: 2, high: 2, count: 3 })
    }),
  )

  it.effect("an interval has the width that the normal distribution predicts, and covers the truth as often", () =>
    Effect.gen(function* () {
      const generator = new Generator(9, 99)
      const uniform = () => generator.next() / 2 ** 32
      let covered = 0
      let width = 0
      const trials = 200
      for (let trial = 0; trial < trials; trial++) {
        const values = Float64Array.from({ length: 100 }, uniform)
        const { high, low } = yield* Bootstrap.mean(values, { seed: trial, resamples: 400 })
        if (low <= 0.5 && 0.5 <= high) covered++
        width += (high - low) / trials
      }
      // The deviation of a uniform number is 1/√12, that of the mean of a hundred a tenth of it.
      expect(Math.abs(width / (2 * 1.96 * 0.1 * Math.sqrt(1 / 12)) - 1)).toBeLessThan(0.05)
      expect(covered / trials).toBeGreaterThan(0.9)
      expect(covered / trials).toBeLessThan(0.99)
    }),
  )

  it.effect("paired differences see an improvement that separate intervals miss", () =>
    Effect.gen(function* () {
      // Questions differ a lot; the second model is a little better at each.
      const before = Array.from({ length: 60 }, (_, index) => (index * 13) % 60)
      const after = before.map((score, index) => score + 0.5 + (index % 3) / 10)
      const [one, other] = [yield* Bootstrap.mean(before), yield* Bootstrap.mean(after)]
      expect(one.high).toBeGreaterThan(other.low)
      const difference = yield* Bootstrap.difference(before, after)
      expect(difference.low).toBeGreaterThan(0.5)
      expect(difference.probabilityLarger).toBe(1)
      expect((yield* Bootstrap.difference(before, before)).probabilityLarger).toBe(0.5)
      expect((yield* Bootstrap.difference(after, before)).estimate).toBeCloseTo(-difference.estimate)
    }),
  )

  it.effect("values that are missing, not finite or of different number are refused", () =>
    Effect.gen(function* () {
      const path = <A>(run: Effect.Effect<A, { readonly path: string }>) =>
        Effect.map(Effect.flip(run), (error) => error.path)
      expect(yield* path(Bootstrap.mean([]))).toBe("values")
      expect(yield* path(Bootstrap.mean([1, Number.NaN]))).toBe("values[1]")
      expect(yield* path(Bootstrap.mean([1], { confidence: 1 }))).toBe("confidence")
      expect(yield* path(Bootstrap.mean([1], { resamples: 0 }))).toBe("resamples")
      expect(yield* path(Bootstrap.mean([1], { seed: 0.5 }))).toBe("seed")
      expect(yield* path(Bootstrap.difference([1], [1, 2]))).toBe("after")
      expect(yield* path(Bootstrap.difference([Infinity], [1]))).toBe("before[0]")
    }),
  )

  it.effect("weights count like repeated values in the estimate, and equal weights change nothing", () =>
    Effect.gen(function* () {
      const values = [1, 5, 2, 8]
      const plain = yield* Bootstrap.mean(values, { resamples: 500 })
      expect(yield* Bootstrap.mean(values, { resamples: 500, weights: [1, 1, 1, 1] })).toEqual(plain)
      expect((yield* Bootstrap.mean(values, { resamples: 500, weights: [1, 3, 1, 1] })).estimate).toBe(26 / 6)
      const change = yield* Bootstrap.difference([0, 0], [1, 3], { resamples: 500, weights: [3, 1] })
      expect(change).toMatchObject({ estimate: 1.5, low: 1, high: 3 })
      for (const [weights, path] of [
        [[1, 1, 1], "weights"],
        [[1, 1, 0, 1], "weights[2]"],
      ] as const)
        expect(yield* Effect.flip(Bootstrap.mean(values, { weights }))).toMatchObject({ path })
    }),
  )
})
