import { Preferences } from "@effect-tinker/recipes"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Either, FastCheck } from "effect"
import { CustomLoss, Gradient } from "effect-tinker"
import { expectCloseMetrics, golden } from "./support/Goldens.ts"

interface Case {
  readonly beta: number
  readonly data: ReadonlyArray<{
    readonly logprobs: ReadonlyArray<number>
    readonly reference: ReadonlyArray<number>
    readonly weights: ReadonlyArray<number>
  }>
  readonly loss: number
  readonly metrics: Record<string, number>
  readonly gradients: ReadonlyArray<ReadonlyArray<number>>
}

const scored = ({ data }: Pick<Case, "data">): ReadonlyArray<CustomLoss.Scored<Preferences.Inputs>> =>
  data.map(({ logprobs, reference, weights }) => {
    const targetTokens = Int32Array.from(weights, (_, at) => at)
    const datum = { modelInput: targetTokens, inputs: { targetTokens, weights: Float32Array.from(weights) } }
    return {
      datum: Either.getOrThrow(Preferences.withReference(datum, reference)),
      logprobs: Float32Array.from(logprobs),
    }
  })

/** The same loss, with a gradient that is derived. */
const derived = (beta: number) =>
  CustomLoss.fromGradient<Preferences.Inputs>((data) => {
    const gains = data.map(({ datum: { inputs }, logprobs }, index) =>
      Gradient.mul(
        Gradient.sub(Gradient.dot(logprobs, inputs.weights), inputs.reference),
        index % 2 === 0 ? beta : -beta,
      ),
    )
    const losses = gains.flatMap((gain, index) =>
      index % 2 === 0 ? [] : [Gradient.neg(Gradient.logSigmoid(Gradient.add(gain, gains[index - 1] ?? 0)))],
    )
    return { loss: Gradient.mean(Gradient.concat(losses)) }
  })

describe("Preferences", () => {
  it.effect("loss, metrics and gradient of DPO are those of the cookbook and torch", () =>
    Effect.gen(function* () {
      for (const one of golden<ReadonlyArray<Case>>("dpo")) {
        const { gradients, loss, metrics = {} } = yield* Preferences.dpo({ beta: one.beta }).evaluate(scored(one))
        expect(Math.abs(loss - one.loss)).toBeLessThan(1e-10)
        expectCloseMetrics(metrics, one.metrics)
        for (const [at, gradient] of gradients.entries()) {
          const expected = one.gradients[at] ?? []
          expect(gradient.length).toBe(expected.length)
          for (const [token, value] of expected.entries()) {
            expect(Math.abs(Number(gradient[token]) - value)).toBeLessThan(1e-10)
          }
        }
      }
    }),
  )

  it.effect("the gradient by formula is the derived one", () =>
    Effect.gen(function* () {
      const logprob = FastCheck.double({ min: -20, max: 0, noNaN: true })
      const token = FastCheck.record({ logprob, reference: logprob, weight: FastCheck.constantFrom(0, 0.5, 1) })
      const answer = FastCheck.array(token, { minLength: 1, maxLength: 6 })
      const batches = FastCheck.tuple(
        FastCheck.double({ min: 0.01, max: 3, noNaN: true }),
        FastCheck.array(FastCheck.tuple(answer, answer), { minLength: 1, maxLength: 4 }),
      )
      for (const [beta, pairs] of FastCheck.sample(batches, { seed: 2, numRuns: 60 })) {
        const data = scored({
          data: pairs.flat().map((tokens) => ({
            logprobs: tokens.map(({ logprob }) => logprob),
            reference: tokens.map(({ reference }) => reference),
            weights: tokens.map(({ weight }) => weight),
          })),
        })
        const own = yield* Preferences.dpo({ beta }).evaluate(data)
        const other = yield* derived(beta).evaluate(data)
        expect(Math.abs(own.loss - other.loss)).toBeLessThan(1e-6)
        for (const [at, gradient] of own.gradients.entries()) {
          for (const [token, value] of Array.from(gradient).entries()) {
            expect(Math.abs(value - Number(other.gradients[at]?.[token]))).toBeLessThan(1e-6)
          }
        }
      }
    }),
  )

  it.effect("answers that are far apart have a finite loss and gradient", () =>
    Effect.gen(function* () {
      for (const [chosen, rejected] of [
        [-1e6, 0],
        [0, -1e6],
      ] as const) {
        const pairs = { chosen: [chosen], rejected: [rejected], chosenReference: [0], rejectedReference: [0] }
        const { gradient, loss } = yield* Preferences.evaluate(pairs, 1)
        expect(loss).toBeCloseTo(Math.max(0, rejected - chosen))
        expect(gradient[0]).toBeCloseTo(chosen < rejected ? -1 : 0)
      }
    }),
  )

  it.effect("data without a counterpart, without pairs or without a beta are refused", () =>
    Effect.gen(function* () {
      const data = scored({ data: [{ logprobs: [-1], reference: [-1], weights: [1] }] })
      expect(yield* Effect.flip(Preferences.dpo().evaluate(data))).toMatchObject({ path: "data" })
      expect(yield* Effect.flip(Preferences.dpo().evaluate([]))).toMatchObject({ path: "chosen" })
      const both = [...data, ...data]
      expect(yield* Effect.flip(Preferences.dpo({ beta: 0 }).evaluate(both))).toMatchObject({ path: "beta" })
      const datum = { inputs: { targetTokens: Int32Array.of(1), weights: Float32Array.of(1) } }
      expect(Either.isLeft(Preferences.withReference(datum, [1, 2]))).toBe(true)
      const uneven = { chosen: [0], rejected: [], chosenReference: [0], rejectedReference: [0] }
      expect(yield* Effect.flip(Preferences.evaluate(uneven, 1))).toMatchObject({ path: "rejected" })
    }),
  )
})
