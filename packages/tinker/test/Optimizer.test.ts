import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc, Schema } from "effect"
import { OptimStepRequest } from "effect-tinker/protocol/schemas/Training"
import * as Optimizer from "effect-tinker/Optimizer"
import { readFileSync } from "node:fs"

const cases = [
  { file: "vectors/optim_step_adam_defaults.json", optimizer: Optimizer.adam() },
  {
    file: "vectors/optim_step_adam_full.json",
    optimizer: Optimizer.adam({
      learningRate: 0.001,
      beta1: 0.8,
      beta2: 0.99,
      eps: 1e-8,
      weightDecay: 0.01,
      gradClipNorm: 1,
    }),
  },
  { file: "vectors/optim_step_dimuon.json", optimizer: Optimizer.dimuon({ learningRate: 0.001 }) },
]

const encode = Schema.encodeSync(OptimStepRequest)
const decode = Schema.decodeUnknownSync(OptimStepRequest)

const problem = (optimizer: Optimizer.Optimizer) =>
  Either.match(Optimizer.validate(optimizer), {
    onLeft: ({ path, problem }) => `${path}: ${problem}`,
    onRight: () => "no problem",
  })

const rates = (schedule: Optimizer.Schedule, steps: number) =>
  Array.from({ length: steps }, (_, step) => Number(schedule(step).learningRate.toFixed(6)))

describe("Optimizer", () => {
  it.each(cases)("an optimizer step encodes what the reference encodes: $file", ({ file, optimizer }) => {
    const vector = JSON.parse(readFileSync(new URL(`../../../test/wire/${file}`, import.meta.url), "utf8"))
    const { body } = vector.request
    const step = { modelId: "sess-0001:train:0", seqId: body.seq_id, ...Optimizer.toParams(optimizer) }
    expect(encode(step)).toStrictEqual(body)
    expect(decode(body)).toEqual(step)
  })

  it("decoding an optimizer step fills in the reference's defaults", () => {
    expect(decode({ model_id: "m", seq_id: 1, adam_params: {} })).toMatchObject({ adamParams: Optimizer.adam() })
  })

  it("Optimizer.toConfig gives the configuration for creating a model", () => {
    expect(Optimizer.toConfig(Optimizer.adam())).toEqual({ type: "adamw" })
    expect(Optimizer.toConfig(Optimizer.dimuon({ learningRate: 1 }))).toEqual({ type: "dimuon", version: 1 })
  })

  it("Optimizer rejects parameters outside their range", () => {
    expect(problem(Optimizer.adam())).toBe("no problem")
    expect(problem(Optimizer.adam({ learningRate: 0, beta1: 0 }))).toBe("no problem")
    expect(problem(Optimizer.adam({ learningRate: -1e-4 }))).toBe(
      "optimizer.learningRate: expected a finite non-negative number, got -0.0001",
    )
    expect(problem(Optimizer.adam({ learningRate: Number.NaN }))).toContain("optimizer.learningRate")
    expect(problem(Optimizer.adam({ beta1: 1 }))).toBe("optimizer.beta1: expected 0 <= beta < 1, got 1")
    expect(problem(Optimizer.adam({ beta2: -0.1 }))).toContain("optimizer.beta2")
    expect(problem(Optimizer.adam({ eps: 0 }))).toContain("optimizer.eps: expected a positive number")
    expect(problem(Optimizer.adam({ weightDecay: Infinity }))).toContain("optimizer.weightDecay")
    expect(problem(Optimizer.dimuon({ learningRate: -1 }))).toContain("optimizer.learningRate")
    expect(problem(Optimizer.dimuon({ learningRate: 1, gradClipNorm: -1 }))).toContain("optimizer.gradClipNorm")
  })

  const one = Optimizer.adam({ learningRate: 1, weightDecay: 0.5 })

  it("Optimizer.constant keeps the learning rate", () => {
    expect(rates(Optimizer.constant(one), 3)).toEqual([1, 1, 1])
  })

  it("Optimizer.linear falls linearly to the floor and stays there", () => {
    expect(rates(Optimizer.linear(one, { steps: 4 }), 6)).toEqual([1, 0.75, 0.5, 0.25, 0, 0])
    expect(rates(Optimizer.linear(one, { steps: 2, floor: 0.5 }), 4)).toEqual([1, 0.75, 0.5, 0.5])
  })

  it("Optimizer.cosine falls along a cosine", () => {
    expect(rates(Optimizer.cosine(one, { steps: 4 }), 6)).toEqual([1, 0.853553, 0.5, 0.146447, 0, 0])
  })

  it("Optimizer.warmup never overshoots, even with a fractional number of steps", () => {
    expect(rates(Optimizer.warmup(Optimizer.constant(one), 2.5), 4)).toEqual([0.4, 0.8, 1, 1])
  })

  it("a schedule with a missing or NaN option gives a NaN rate, which is rejected before it is sent", () => {
    const missing = undefined as unknown as number
    for (const schedule of [
      Optimizer.linear(one, { steps: missing }),
      Optimizer.cosine(one, { steps: Number.NaN }),
      Optimizer.linear(one, { steps: 10, floor: Number.NaN }),
      Optimizer.warmup(Optimizer.constant(one), missing),
    ])
      expect(problem(schedule(3))).toBe("optimizer.learningRate: expected a finite non-negative number, got NaN")
  })

  it("Optimizer rejects parameters that are not numbers", () => {
    expect(problem({ ...one, learningRate: "0.1" as never })).toBe(
      "optimizer.learningRate: expected a finite non-negative number, got a string",
    )
    expect(problem({ ...one, eps: undefined as never })).toContain(
      "optimizer.eps: expected a positive number, got undefined",
    )
    expect(problem({ ...one, beta1: 1n as never })).toContain("got 1n")
  })

  it("schedules start with their warm-up", () => {
    expect(rates(Optimizer.linear(one, { steps: 6, warmup: 2 }), 8)).toEqual([0.5, 1, 1, 0.75, 0.5, 0.25, 0, 0])
    expect(rates(Optimizer.warmup(Optimizer.constant(one), 4), 6)).toEqual([0.25, 0.5, 0.75, 1, 1, 1])
  })

  it("a schedule changes only the learning rate", () => {
    expect(Optimizer.cosine(one, { steps: 4 })(2)).toEqual({ ...one, learningRate: 0.5 })
  })

  it.prop(
    "a scheduled rate stays between the floor and the base rate",
    {
      steps: fc.integer({ min: 1, max: 1000 }),
      warmup: fc.nat(100),
      floor: fc.double({ min: 0, max: 1, noNaN: true }),
      step: fc.nat(2000),
    },
    ({ steps, warmup, floor, step }) => {
      for (const schedule of [Optimizer.linear, Optimizer.cosine]) {
        const rate = schedule(one, { steps, warmup, floor })(step).learningRate
        expect(rate).toBeLessThanOrEqual(1 + 1e-9)
        if (step >= warmup) expect(rate).toBeGreaterThanOrEqual(floor - 1e-9)
        else expect(rate).toBeGreaterThan(0)
      }
    },
  )
})
