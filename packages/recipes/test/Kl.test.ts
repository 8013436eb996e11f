import { Kl } from "@effect-tinker/recipes"
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { expectClose, expectCloseMetrics, golden } from "./support/Goldens.ts"

interface Case {
  readonly data: ReadonlyArray<Kl.Penalized>
  readonly coefficient: number
  readonly discount: number
  readonly sampleTrain: Record<string, number>
  readonly prePost: Record<string, number>
  readonly penalty: Record<string, number>
  readonly advantages: ReadonlyArray<ReadonlyArray<number>>
  readonly teacher: Record<string, number>
  readonly distilled: ReadonlyArray<ReadonlyArray<number>>
}

describe("Kl", () => {
  it.effect("metrics and penalties are those of the cookbook", () =>
    Effect.gen(function* () {
      for (const one of golden<ReadonlyArray<Case>>("kl")) {
        expectCloseMetrics(yield* Kl.sampleTrain(one.data), one.sampleTrain)
        expectCloseMetrics(yield* Kl.prePost(one.data), one.prePost)
        const { advantages, metrics } = yield* Kl.penalty(one.data, one)
        expectCloseMetrics(metrics, one.penalty)
        expect(advantages.length).toBe(one.advantages.length)
        for (const [at, values] of advantages.entries()) expectClose(values, one.advantages[at] ?? [])
        const taught = yield* Kl.teacher(one.data, one)
        // The cookbook repeats the number for its only data set.
        expectCloseMetrics(taught.metrics, { teacher_kl: one.teacher["teacher_kl/dataset_0"] ?? NaN })
        expect(taught.advantages.length).toBe(one.distilled.length)
        for (const [at, values] of taught.advantages.entries()) expectClose(values, one.distilled[at] ?? [])
      }
    }),
  )

  it.effect("tokens that are masked out have no influence, and without any other there are no metrics", () =>
    Effect.gen(function* () {
      const masked = { sampled: [-1, -2], other: [-3, -Infinity], mask: [0, 0], advantages: [0.5, 1] }
      expect(yield* Kl.sampleTrain([masked])).toEqual({})
      expect(yield* Kl.prePost([])).toEqual({})
      const { advantages, metrics } = yield* Kl.penalty([masked], { coefficient: 1 })
      expect(advantages).toEqual([Float32Array.of(0.5, 1)])
      expect(metrics).toEqual({})
      const other = { sampled: [-1, -5], other: [-2, -Infinity], mask: [1, 0], advantages: [0, 0] }
      expect(yield* Kl.sampleTrain([other, masked])).toEqual({
        "optim/kl_sample_train_v1": 1,
        "optim/kl_sample_train_v2": 0.5,
        "optim/entropy": 1,
      })
      expect((yield* Kl.penalty([other, masked], { coefficient: 1 })).metrics).toEqual({ kl_policy_base: 1 })
    }),
  )

  it.effect("a token is favoured by as much as a teacher finds it likelier than the student", () =>
    Effect.gen(function* () {
      const data = [
        { sampled: [-1, -2, -3], other: [-3, -1, -9], mask: [1, 1, 0], advantages: [0, 0, 0] },
        { sampled: [-4], other: [-2], mask: [1], advantages: [0] },
      ]
      const { advantages, metrics } = yield* Kl.teacher(data, { coefficient: 0.5 })
      expect(advantages).toEqual([Float32Array.of(-1, 0.5, 0), Float32Array.of(1)])
      expect(metrics["teacher_kl"]).toBeCloseTo((2 - 1 - 2) / 3, 6)
      const discounted = yield* Kl.teacher(data, { coefficient: 0.5, discount: 0.5 })
      expect(discounted.advantages[0]).toEqual(Float32Array.of(-0.75, 0.5, 0))
    }),
  )

  it.effect("different lengths and a negative coefficient are refused", () =>
    Effect.gen(function* () {
      const data = [{ sampled: [-1], other: [-1, -2], mask: [1], advantages: [0] }]
      expect(yield* Effect.flip(Kl.sampleTrain(data))).toMatchObject({ path: "data[0].other" })
      expect(yield* Effect.flip(Kl.penalty(data, { coefficient: 1 }))).toMatchObject({ path: "data[0].other" })
      expect(yield* Effect.flip(Kl.penalty([], { coefficient: -1 }))).toMatchObject({ path: "coefficient" })
    }),
  )

  it.effect("discountedSums adds later values with falling weight", () =>
    Effect.sync(() => {
      expect([...Kl.discountedSums([1, 2, 4], 0.5)]).toEqual([3, 4, 4])
      expect([...Kl.discountedSums([], 0.5)]).toEqual([])
    }),
  )
})
