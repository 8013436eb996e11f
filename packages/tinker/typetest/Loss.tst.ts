import type { Either } from "effect"
import type * as Datum from "effect-tinker/Datum"
import * as Loss from "effect-tinker/Loss"
import type * as TensorData from "effect-tinker/TensorData"
import type { InvalidInput } from "effect-tinker/TinkerError"
import { describe, expect, it } from "tstyche"

declare const int64: TensorData.Int64Tensor
declare const float32: TensorData.Float32Tensor
declare const span: Datum.Span

const modelInput = [1, 2, 3]
const targetTokens = [2, 3, 4]
const weights = [0, 1, 1]
const logprobs = [-0.5]
const advantages = [1]

describe("Loss.prepare", () => {
  it("gives a batch or InvalidInput", () => {
    expect(Loss.prepare(Loss.crossEntropy, [])).type.toBe<Either.Either<Loss.PreparedBatch, InvalidInput>>()
  })

  it("takes every kind of array", () => {
    expect(Loss.prepare).type.toBeCallableWith(Loss.crossEntropy, [
      { modelInput, inputs: { targetTokens, weights } },
      { modelInput: Int32Array.of(1), inputs: { targetTokens: Int32Array.of(1), weights: Float32Array.of(1) } },
      { modelInput, inputs: { targetTokens: BigInt64Array.of(1n), weights: Float64Array.of(1) } },
      { modelInput, inputs: { targetTokens: [[1], [2]], weights: [[1], [2]] } },
      { modelInput, inputs: { targetTokens: int64, weights: float32 } },
    ])
  })

  it("refuses a missing input", () => {
    expect(Loss.prepare).type.not.toBeCallableWith(Loss.crossEntropy, [{ modelInput, inputs: { targetTokens } }])
    expect(Loss.prepare).type.not.toBeCallableWith(Loss.importanceSampling, [
      { modelInput, inputs: { targetTokens, logprobs } },
    ])
    expect(Loss.prepare).type.not.toBeCallableWith(Loss.crossEntropy, [{ inputs: { targetTokens, weights } }])
  })

  it("refuses a misspelt input", () => {
    expect(Loss.prepare).type.not.toBeCallableWith(Loss.crossEntropy, [
      { modelInput, inputs: { targetTokens, wieghts: weights } },
    ])
  })

  it("refuses an input too many, also where a datum is written by itself", () => {
    expect(Loss.prepare).type.not.toBeCallableWith(Loss.crossEntropy, [
      { modelInput, inputs: { targetTokens, weights, advantages } },
    ])
    expect(Loss.datum).type.not.toBeCallableWith(Loss.crossEntropy, {
      modelInput,
      inputs: { targetTokens, weights, wieghts: weights },
    })
    expect(Loss.datum).type.not.toBeCallableWith(Loss.crossEntropy, {
      modelInput,
      inputs: { targetTokens, weights },
      spans: [],
    })
  })

  it("refuses a tensor of the other type", () => {
    expect(Loss.datum).type.not.toBeCallableWith(Loss.crossEntropy, {
      modelInput,
      inputs: { targetTokens: float32, weights },
    })
    expect(Loss.datum).type.not.toBeCallableWith(Loss.crossEntropy, {
      modelInput,
      inputs: { targetTokens: Float32Array.of(1), weights },
    })
    expect(Loss.datum).type.not.toBeCallableWith(Loss.crossEntropy, {
      modelInput,
      inputs: { targetTokens, weights: BigInt64Array.of(1n) },
    })
  })

  it("refuses the datums of another loss", () => {
    const datum = Loss.datum(Loss.crossEntropy, { modelInput, inputs: { targetTokens, weights } })
    expect(Loss.prepare).type.toBeCallableWith(Loss.crossEntropy, [datum])
    expect(Loss.prepare).type.not.toBeCallableWith(Loss.ppo(), [datum])
  })

  it("takes what is optional, only where it belongs", () => {
    const policy = { targetTokens, logprobs, advantages }
    expect(Loss.datum).type.toBeCallableWith(Loss.ppo(), { modelInput, inputs: { ...policy, clipLowThreshold: [0.8] } })
    expect(Loss.datum).type.toBeCallableWith(Loss.gspo(), {
      modelInput,
      inputs: { ...policy, weights, sequenceRatioMask: [1] },
    })
    expect(Loss.datum).type.not.toBeCallableWith(Loss.ppo(), {
      modelInput,
      inputs: { ...policy, sequenceRatioMask: [1] },
    })
    expect(Loss.datum).type.not.toBeCallableWith(Loss.dro(), {
      modelInput,
      inputs: { ...policy, clipLowThreshold: [0.8] },
    })
  })

  it("takes spans for both sides or for none", () => {
    const datum = { modelInput, inputs: { targetTokens, weights } }
    expect(Loss.datum).type.toBeCallableWith(Loss.crossEntropy, {
      ...datum,
      modelInputSpans: [span],
      lossInputSpans: [span],
    })
    expect(Loss.datum).type.not.toBeCallableWith(Loss.crossEntropy, { ...datum, modelInputSpans: [span] })
  })
})

describe("configuration", () => {
  it("is the loss's own", () => {
    expect(Loss.ppo).type.toBeCallableWith({ clipLowThreshold: 0.8 })
    expect(Loss.ppo).type.not.toBeCallableWith({ clipLow: 0.8 })
    expect(Loss.dro).type.toBeCallableWith({ beta: 0.1 })
    expect(Loss.dro).type.not.toBeCallableWith({ beta: "0.1" })
    expect(Loss.stableReinforce).type.toBeCallableWith({ kl_coeff: 0.1, mode: "text" })
    expect(Loss.stableReinforce).type.not.toBeCallableWith({ kl_coeff: true })
  })
})

describe("Loss.custom", () => {
  const loss = Loss.custom({ lossId: "loss-1", inputs: { targetTokens: "int64", bonus: "float32" } })

  it("carries what it declares", () => {
    expect<Loss.Inputs<typeof loss>>().type.toBe<{
      readonly targetTokens: TensorData.Input<"int64">
      readonly bonus: TensorData.Input<"float32">
    }>()
    expect(Loss.datum).type.toBeCallableWith(loss, { modelInput, inputs: { targetTokens, bonus: [1] } })
    expect(Loss.datum).type.not.toBeCallableWith(loss, { modelInput, inputs: { targetTokens } })
    expect(Loss.datum).type.not.toBeCallableWith(loss, { modelInput, inputs: { targetTokens, bonus: [1], more: [1] } })
  })
})
