import { Advantages, RolloutMetrics } from "@effect-tinker/recipes"
import { Datums } from "@effect-tinker/tokenizer"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Either, FastCheck } from "effect"
import { expectClose, expectCloseMetrics, golden } from "./support/Goldens.ts"

interface Case {
  readonly groups: ReadonlyArray<
    ReadonlyArray<{
      readonly reward: number
      readonly metrics: Record<string, number>
      readonly transitions: ReadonlyArray<{
        readonly observation: ReadonlyArray<number>
        readonly tokens: ReadonlyArray<number>
        readonly logprobs: ReadonlyArray<number>
        readonly masked: boolean
        readonly metrics: Record<string, number>
      }>
    }>
  >
  readonly kept: ReadonlyArray<number>
  readonly advantages: ReadonlyArray<ReadonlyArray<number>>
  readonly data: ReadonlyArray<{
    readonly group: number
    readonly member: number
    readonly input: ReadonlyArray<number>
    readonly target_tokens: ReadonlyArray<number>
    readonly logprobs: ReadonlyArray<number>
    readonly advantages: ReadonlyArray<number>
    readonly mask: ReadonlyArray<number>
  }>
  readonly tags: ReadonlyArray<ReadonlyArray<string>>
  readonly metrics: Record<string, number>
}

const cases = golden<ReadonlyArray<Case>>("rollouts")

describe("Advantages", () => {
  it.effect("advantages and kept groups are those of the cookbook", () =>
    Effect.gen(function* () {
      for (const { advantages, groups, kept } of cases) {
        const all = yield* Advantages.compute(groups)
        expect(all.groups.map(({ index }) => index)).toEqual(groups.map((_, index) => index))
        for (const [index, group] of all.groups.entries()) expectClose(group.advantages, advantages[index] ?? [])
        const some = yield* Advantages.compute(groups, { dropConstant: true })
        expect(some.groups.map(({ index }) => index)).toEqual(kept)
        expect(some.constant).toBe(groups.filter((group) => Advantages.isConstant(group.map((g) => g.reward))).length)
      }
    }),
  )

  it.effect("the data made of rollouts and their advantages are those of the cookbook", () =>
    Effect.gen(function* () {
      for (const { data, groups } of cases) {
        const computed = yield* Advantages.compute(groups)
        const made = computed.groups.flatMap(({ advantages, index, members }) =>
          members.flatMap(({ transitions }, member) =>
            Either.getOrThrow(Datums.fromTrajectory(transitions, advantages[member] ?? 0)).map((one) => ({
              group: index,
              member,
              ...one,
            })),
          ),
        )
        expect(made.length).toBe(data.length)
        for (const [at, { datum, group, mask, member }] of made.entries()) {
          const expected = data[at]
          expect([group, member]).toEqual([expected?.group, expected?.member])
          expect(
            datum.modelInput.chunks.flatMap((chunk) => (chunk.type === "encoded_text" ? [...chunk.tokens] : [])),
          ).toEqual(expected?.input)
          expect([...datum.inputs.targetTokens]).toEqual(expected?.target_tokens)
          expect([...datum.inputs.logprobs]).toEqual(expected?.logprobs)
          expect([...mask]).toEqual(expected?.mask)
          expectClose(datum.inputs.advantages, expected?.advantages ?? [])
        }
      }
    }),
  )

  it.effect("the metrics of rollouts are those of the cookbook", () =>
    Effect.sync(() => {
      for (const { groups, metrics, tags } of cases) {
        const found = RolloutMetrics.compute(
          groups.map((group, index) => ({
            tags: tags[index],
            members: group.map(({ metrics, reward, transitions }) => ({
              reward,
              metrics,
              turns: transitions.map(({ metrics, observation, tokens }) => ({
                observationTokens: observation.length,
                actionTokens: tokens.length,
                metrics,
              })),
            })),
          })),
        )
        expectCloseMetrics(found, metrics)
      }
    }),
  )

  const rewards = FastCheck.array(FastCheck.double({ min: -100, max: 100, noNaN: true }), {
    minLength: 2,
    maxLength: 9,
  })

  it.effect("leave-one-out compares with the mean of the others, and normalized groups have deviation 1", () =>
    Effect.sync(() => {
      FastCheck.assert(
        FastCheck.property(rewards, (values) => {
          const loo = Advantages.ofGroup(values, { baseline: "others" })
          const expected = values.map((reward, index) => {
            const others = values.filter((_, at) => at !== index)
            return reward - others.reduce((sum, one) => sum + one, 0) / others.length
          })
          for (const [at, value] of loo.entries()) expect(Math.abs(value - (expected[at] ?? 0))).toBeLessThan(1e-9)
          const normal = Advantages.ofGroup(values, { normalize: true, epsilon: 0 })
          if (Math.max(...values) - Math.min(...values) > 1e-3) {
            const variance = normal.reduce((sum, one) => sum + one * one, 0) / (values.length - 1)
            expect(Math.abs(variance - 1)).toBeLessThan(1e-6)
          }
        }),
        { numRuns: 200, seed: 1 },
      )
      expect(Advantages.ofGroup([3], { baseline: "others", normalize: true })).toEqual(Float64Array.of(0))
      expect(Advantages.ofGroup([3, 3], { normalize: true })).toEqual(Float64Array.of(0, 0))
      expect(Advantages.ofGroup([])).toEqual(new Float64Array())
    }),
  )

  it.effect("a reward that is not finite is an error or a counted skip", () =>
    Effect.gen(function* () {
      const groups = [
        [{ reward: 1 }, { reward: 2 }],
        [{ reward: 0 }, { reward: Number.NaN }, { reward: 1 }],
        [{ reward: Infinity }],
      ]
      const error = yield* Effect.flip(Advantages.compute(groups))
      expect(error).toMatchObject({ _tag: "BadReward", group: 1, member: 1 })
      expect(error.message).toBe("the reward of member 1 of group 1 is NaN; expected a finite number")
      const computed = yield* Advantages.compute(groups, { onBadReward: "skip", maxExamples: 1 })
      expect(computed.groups.map(({ advantages, index }) => [index, [...advantages]])).toEqual([
        [0, [-0.5, 0.5]],
        [1, [-0.5, 0.5]],
      ])
      expect([computed.bad, computed.examples.length]).toEqual([2, 1])
    }),
  )

  it.effect("what is left of constant groups can be chosen", () =>
    Effect.gen(function* () {
      const groups = [[{ reward: 1 }, { reward: 1 }], [{ reward: 0 }]]
      const left = (whenAllConstant?: "first" | "none" | "all") =>
        Effect.map(Advantages.compute(groups, { dropConstant: true, whenAllConstant }), (one) =>
          one.groups.map(({ index }) => index),
        )
      expect(yield* left()).toEqual([0])
      expect(yield* left("none")).toEqual([])
      expect(yield* left("all")).toEqual([0, 1])
    }),
  )
})
