import { LearningRate } from "@effect-tinker/recipes"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Either } from "effect"
import { Optimizer } from "effect-tinker"
import { golden } from "./support/Goldens.ts"

interface Case {
  readonly rates: ReadonlyArray<{
    readonly model: string
    readonly lora: boolean
    readonly rate?: number
    readonly error?: string
  }>
  readonly counts: ReadonlyArray<{
    readonly model: string
    readonly rank: number
    readonly layers: readonly [boolean, boolean, boolean]
    readonly count: number
  }>
  readonly schedules: ReadonlyArray<{
    readonly schedule: LearningRate.Schedule
    readonly step: number
    readonly steps: number
    readonly multiplier: number
  }>
}

const { counts, rates, schedules } = golden<Case>("learning-rates")

describe("LearningRate", () => {
  it.effect("rates are those of the cookbook for every model it knows, and so are its refusals", () =>
    Effect.sync(() => {
      for (const { lora, model, rate } of rates) {
        const found = LearningRate.recommended(model, { lora })
        expect(Either.isRight(found)).toBe(rate !== undefined)
        if (rate !== undefined) {
          // Powers may differ in the last digit from machine to machine.
          expect(Math.abs(Either.getOrThrow(found) / rate - 1)).toBeLessThan(1e-14)
        }
      }
      const known = rates.filter(({ lora, model, rate }) => lora && rate !== undefined && !model.includes(":"))
      expect(LearningRate.calibrated.toSorted()).toEqual(known.map(({ model }) => model).toSorted())
      expect(known.length).toBeGreaterThan(20)
    }),
  )

  it.effect("a refusal says why and what to do", () =>
    Effect.gen(function* () {
      const why = (model: string) => Effect.map(Effect.flip(LearningRate.recommended(model)), ({ reason }) => reason)
      expect(yield* why("openai/gpt-oss-20b")).toBe("Uncalibrated")
      expect(yield* why("Qwen/Qwen9-1B")).toBe("UnknownSize")
      expect(yield* why("example/unknown")).toBe("UnknownModel")
      expect(yield* why("constructor")).toBe("UnknownModel")
      const { message } = yield* Effect.flip(LearningRate.recommended("Qwen/Qwen9-1B"))
      expect(message).toContain("pass hiddenSize")
      expect(yield* LearningRate.recommended("Qwen/Qwen9-1B", { hiddenSize: 4096 })).toBe(
        yield* LearningRate.recommended("Qwen/Qwen3-8B"),
      )
      expect(Either.isLeft(LearningRate.recommended("Qwen/Qwen9-1B", { hiddenSize: Number.NaN }))).toBe(true)
    }),
  )

  it.effect("parameters of adapters are those of the cookbook", () =>
    Effect.gen(function* () {
      for (const { count, layers, model, rank } of counts) {
        const [trainMlp, trainAttn, trainUnembed] = layers
        expect(yield* LearningRate.loraParameters(model, { rank, trainMlp, trainAttn, trainUnembed })).toBe(count)
      }
      expect(Either.isLeft(LearningRate.loraParameters("toString"))).toBe(true)
    }),
  )

  it.effect("schedules are those of the cookbook", () =>
    Effect.sync(() => {
      const optimizer = Optimizer.adam({ learningRate: 3e-4, beta2: 0.9 })
      for (const { multiplier, schedule, step, steps } of schedules) {
        expect(Math.abs(LearningRate.multiplier(schedule, step, steps) - multiplier)).toBeLessThan(1e-15)
        const scheduled = LearningRate.scheduled(optimizer, schedule, steps)(step)
        expect(scheduled).toEqual({ ...optimizer, learningRate: scheduled.learningRate })
        expect(scheduled.learningRate).toBeCloseTo(3e-4 * multiplier, 15)
      }
      expect(LearningRate.multiplier("constant", 0, 0)).toBeNaN()
      expect(Either.isLeft(Optimizer.validate(LearningRate.scheduled(optimizer, "linear", 0)(0)))).toBe(true)
    }),
  )
})
