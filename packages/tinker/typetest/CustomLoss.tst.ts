import type { Context, Either } from "effect"
import { Effect } from "effect"
import * as CustomLoss from "effect-tinker/CustomLoss"
import type { Datum } from "effect-tinker/Datum"
import * as Gradient from "effect-tinker/Gradient"
import type * as TensorData from "effect-tinker/TensorData"
import type { InvalidInput, UnexpectedResponse } from "effect-tinker/TinkerError"
import type { TrainingResult } from "effect-tinker/TrainingResult"
import { describe, expect, it } from "tstyche"

interface Rated extends CustomLoss.Inputs {
  readonly advantages: Float32Array
}
declare const evaluation: CustomLoss.Evaluation
declare const result: TrainingResult
declare const rated: CustomLoss.Prepared<Rated>
declare const plain: CustomLoss.Prepared
declare const service: Context.Tag<"Service", number>
declare const failing: (
  data: ReadonlyArray<CustomLoss.Scored<Rated>>,
) => Effect.Effect<CustomLoss.Evaluation, "failed", "Service">

const modelInput = [1, 2, 3]
const targetTokens = [2, 3, 4]

describe("CustomLoss", () => {
  it("a custom loss without declared inputs requires only targets", () => {
    expect(CustomLoss.analytic(() => evaluation)).type.toBe<CustomLoss.CustomLoss>()
    expect(CustomLoss.analytic((data) => ({ loss: 0, gradients: data.map(({ logprobs }) => logprobs) }))).type.toBe<
      CustomLoss.CustomLoss<CustomLoss.Inputs, never, never>
    >()
    expect(
      CustomLoss.fromGradient((data) => ({ loss: Gradient.sum(Gradient.concat(data.map((one) => one.logprobs))) })),
    ).type.toBe<CustomLoss.CustomLoss<CustomLoss.Inputs, InvalidInput>>()
  })

  it("a custom loss sees only its declared inputs", () => {
    CustomLoss.fromGradient<Rated>((data) => {
      expect(data).type.toBe<ReadonlyArray<CustomLoss.Scored<Rated, Gradient.Node>>>()
      for (const { datum, logprobs } of data) {
        expect(logprobs).type.toBe<Gradient.Node>()
        expect(datum.inputs.advantages).type.toBe<Float32Array>()
        expect(datum.inputs).type.not.toHaveProperty("advantage")
      }
      return { loss: Gradient.constant(0) }
    })
    CustomLoss.analytic((data) => {
      for (const { datum, logprobs } of data) {
        expect(logprobs).type.toBe<Float32Array>()
        expect(datum.inputs.weights).type.toBe<TensorData.Input<"float32"> | undefined>()
      }
      return evaluation
    })
  })

  it("a custom loss keeps the errors and requirements of its effect", () => {
    const loss = CustomLoss.effect(failing)
    expect(loss).type.toBe<CustomLoss.CustomLoss<Rated, "failed", "Service">>()
    expect(CustomLoss.linearize(loss, rated, result)).type.toBe<
      Effect.Effect<CustomLoss.Linearized, "failed" | InvalidInput | UnexpectedResponse, "Service">
    >()
    expect(CustomLoss.effect(() => Effect.as(service, evaluation))).type.toBe<
      CustomLoss.CustomLoss<CustomLoss.Inputs, never, "Service">
    >()
  })

  it("a custom loss must return a loss and gradients", () => {
    expect(CustomLoss.analytic).type.not.toBeCallableWith(() => ({ loss: 1 }))
    expect(CustomLoss.analytic).type.not.toBeCallableWith(() => ({ gradients: [[1]] }))
    expect(CustomLoss.analytic).type.not.toBeCallableWith(() => ({ loss: 1, gradients: [1] }))
    expect(CustomLoss.analytic).type.not.toBeCallableWith(() => ({ loss: 1, gradients: [BigInt64Array.of(1n)] }))
    expect(CustomLoss.analytic).type.not.toBeCallableWith(() => ({ ...evaluation, metrics: { mine: "1" } }))
    expect(CustomLoss.fromGradient).type.not.toBeCallableWith(() => ({ loss: 1 }))
    expect(CustomLoss.fromGradient).type.toBeCallableWith(() => ({
      loss: Gradient.constant(1),
      metrics: { mine: 1, other: Gradient.constant(1) },
    }))
  })

  it("a custom loss accepts data with at least its declared inputs", () => {
    const needsRated = CustomLoss.analytic<Rated>(() => evaluation)
    const needsNothing = CustomLoss.analytic(() => evaluation)
    expect(CustomLoss.linearize).type.toBeCallableWith(needsRated, rated, result)
    expect(CustomLoss.linearize).type.toBeCallableWith(needsNothing, rated, result)
    expect(CustomLoss.linearize).type.not.toBeCallableWith(needsRated, plain, result)
    expect(needsNothing).type.toBeAssignableTo<CustomLoss.CustomLoss<Rated>>()
    expect(needsRated).type.not.toBeAssignableTo<CustomLoss.CustomLoss>()
  })
})

describe("CustomLoss.prepare", () => {
  it("CustomLoss.prepare returns a prepared batch or InvalidInput", () => {
    const data: ReadonlyArray<Datum<Rated>> = []
    expect(CustomLoss.prepare(data)).type.toBe<Either.Either<CustomLoss.Prepared<Rated>, InvalidInput>>()
  })

  it("CustomLoss.prepare requires targets, and optional weights of the right type", () => {
    expect(CustomLoss.prepare).type.toBeCallableWith([{ modelInput, inputs: { targetTokens } }])
    expect(CustomLoss.prepare).type.toBeCallableWith([
      { modelInput, inputs: { targetTokens, weights: [1], mine: "x" } },
    ])
    expect(CustomLoss.prepare).type.not.toBeCallableWith([{ modelInput, inputs: {} }])
    expect(CustomLoss.prepare).type.not.toBeCallableWith([{ inputs: { targetTokens } }])
    expect(CustomLoss.prepare).type.not.toBeCallableWith([{ modelInput, inputs: { targetTokens: ["a"] } }])
    expect(CustomLoss.prepare).type.not.toBeCallableWith([{ modelInput, inputs: { targetTokens, weights: "x" } }])
  })
})

describe("Gradient.of", () => {
  it("Gradient.of knows each of its inputs", () => {
    Gradient.of(
      (inputs) => {
        expect(inputs).type.toBe<readonly [Gradient.Node, Gradient.Node]>()
        return inputs[0]
      },
      [1, [2, 3]],
    )
    expect(Gradient.of(([x]) => x, [1])).type.toBe<Either.Either<Gradient.Gradients<readonly [1]>, InvalidInput>>()
    expect<Gradient.Gradients<readonly [1, Float32Array]>["gradients"]>().type.toBe<
      readonly [Float64Array, Float64Array]
    >()
  })

  it("Gradient operations take numbers and return a node", () => {
    expect(Gradient.of).type.not.toBeCallableWith(() => 1, [1])
    expect(Gradient.of).type.not.toBeCallableWith(() => Gradient.constant(1), ["1"])
    expect(Gradient.add).type.not.toBeCallableWith(1, "1")
    expect(Gradient.add).type.not.toBeCallableWith(1, BigInt64Array.of(1n))
  })
})
