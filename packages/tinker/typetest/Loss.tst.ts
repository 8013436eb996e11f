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
  it("Loss.prepare returns a batch or InvalidInput", () => {
    expect(Loss.prepare(Loss.crossEntropy, [])).type.toBe<Either.Either<Loss.PreparedBatch, InvalidInput>>()
  })

  it("Loss.prepare accepts every kind of array", () => {
    expect(Loss.prepare).type.toBeCallableWith(Loss.crossEntropy, [
      { modelInput, inputs: { targetTokens, weights } },
      { modelInput: Int32Array.of(1), inputs: { targetTokens: Int32Array.of(1), weights: Float32Array.of(1) } },
      { modelInput, inputs: { targetTokens: BigInt64Array.of(1n), weights: Float64Array.of(1) } },
      { modelInput, inputs: { targetTokens: [[1], [2]], weights: [[1], [2]] } },
      { modelInput, inputs: { targetTokens: int64, weights: float32 } },
    ])
  })

  it("Loss.prepare rejects a missing input", () => {
    expect(Loss.prepare).type.not.toBeCallableWith(Loss.crossEntropy, [{ modelInput, inputs: { targetTokens } }])
    expect(Loss.prepare).type.not.toBeCallableWith(Loss.importanceSampling, [
      { modelInput, inputs: { targetTokens, logprobs } },
    ])
    expect(Loss.prepare).type.not.toBeCallableWith(Loss.crossEntropy, [{ inputs: { targetTokens, weights } }])
  })

  it("Loss.prepare rejects a misspelled input", () => {
    expect(Loss.prepare).type.not.toBeCallableWith(Loss.crossEntropy, [
      { modelInput, inputs: { targetTokens, wieghts: weights } },
    ])
  })

  it("Loss.prepare and Loss.datum reject an extra input", () => {
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

  it("Loss.prepare rejects wrong inputs in data that are not literals", () => {
    const misspelled = modelInput.map(() => ({ modelInput, inputs: { targetTokens, weights, wieghts: weights } }))
    expect(Loss.prepare).type.not.toBeCallableWith(Loss.crossEntropy, misspelled)
    const optional = modelInput.map(() => ({
      modelInput,
      inputs: { targetTokens, logprobs, advantages, clipLowTreshold: [0.8] },
    }))
    expect(Loss.prepare).type.not.toBeCallableWith(Loss.ppo(), optional)
    const span = modelInput.map(() => ({ modelInput, inputs: { targetTokens, weights }, modelInputSpan: [] }))
    expect(Loss.prepare).type.not.toBeCallableWith(Loss.crossEntropy, span)
    const missing = modelInput.map(() => ({ modelInput, inputs: { targetTokens } }))
    expect(Loss.prepare).type.not.toBeCallableWith(Loss.crossEntropy, missing)
  })

  it("Loss.prepare accepts valid data that are not literals", () => {
    const made = modelInput.map(() => ({ modelInput, inputs: { targetTokens, weights } }))
    expect(Loss.prepare).type.toBeCallableWith(Loss.crossEntropy, made)
    const policy = { targetTokens, logprobs, advantages }
    const some = modelInput.map((n) => ({ modelInput, inputs: { ...policy, weights: n > 1 ? weights : undefined } }))
    expect(Loss.prepare).type.toBeCallableWith(Loss.ppo(), some)
    expect(Loss.prepare).type.toBeCallableWith(Loss.ppo(), [
      { modelInput, inputs: policy },
      { modelInput: new Uint32Array(1), inputs: { ...policy, clipLowThreshold: [0.8] } },
      { modelInput, inputs: policy, modelInputSpans: [span], lossInputSpans: [span] },
    ])
  })

  it("Loss.prepareUnknown accepts generic code, which is checked at run time", () => {
    const generic = <Inputs>(loss: Loss.Loss<Inputs>, data: ReadonlyArray<Datum.Datum<Inputs>>) =>
      Loss.prepareUnknown(loss, data)
    expect(generic(Loss.crossEntropy, [])).type.toBe<Either.Either<Loss.PreparedBatch, InvalidInput>>()
  })

  it("Loss.datum rejects a tensor of the wrong type", () => {
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

  it("Loss.prepare rejects a datum for another loss", () => {
    const datum = Loss.datum(Loss.crossEntropy, { modelInput, inputs: { targetTokens, weights } })
    expect(Loss.prepare).type.toBeCallableWith(Loss.crossEntropy, [datum])
    expect(Loss.prepare).type.not.toBeCallableWith(Loss.ppo(), [datum])
  })

  it("Loss.datum accepts optional inputs only for the losses that have them", () => {
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

  it("Loss.datum requires spans for both sides or for neither", () => {
    const datum = { modelInput, inputs: { targetTokens, weights } }
    expect(Loss.datum).type.toBeCallableWith(Loss.crossEntropy, {
      ...datum,
      modelInputSpans: [span],
      lossInputSpans: [span],
    })
    expect(Loss.datum).type.not.toBeCallableWith(Loss.crossEntropy, { ...datum, modelInputSpans: [span] })
  })
})

describe("loss configuration", () => {
  it("each loss accepts only its own configuration", () => {
    expect(Loss.ppo).type.toBeCallableWith({ clipLowThreshold: 0.8 })
    expect(Loss.ppo).type.not.toBeCallableWith({ clipLow: 0.8 })
    expect(Loss.dro).type.toBeCallableWith({ beta: 0.1 })
    expect(Loss.dro).type.not.toBeCallableWith({ beta: "0.1" })
    expect(Loss.stableReinforce).type.toBeCallableWith({ kl_coeff: 0.1, mode: "text" })
    expect(Loss.stableReinforce).type.not.toBeCallableWith({ kl_coeff: true })
  })
})

describe("Loss.make", () => {
  const loss = Loss.make({ name: "my_loss", inputs: { targetTokens: "int64", bonus: "float32?" } })

  it("Loss.make has the declared inputs, including optional ones", () => {
    expect<Loss.Inputs<typeof loss>>().type.toBe<{
      readonly targetTokens: TensorData.Input<"int64">
      readonly bonus?: TensorData.Input<"float32"> | undefined
    }>()
    expect(Loss.datum).type.toBeCallableWith(loss, { modelInput, inputs: { targetTokens } })
    expect(Loss.datum).type.toBeCallableWith(loss, { modelInput, inputs: { targetTokens, bonus: [1] } })
    expect(Loss.datum).type.not.toBeCallableWith(loss, { modelInput, inputs: { targetTokens, bonsu: [1] } })
    expect(Loss.datum).type.not.toBeCallableWith(loss, { modelInput, inputs: { bonus: [1] } })
  })

  it("Loss.make accepts two element types", () => {
    expect(Loss.make).type.not.toBeCallableWith({ name: "my_loss", inputs: { a: "nonsense" } })
    expect(Loss.make).type.not.toBeCallableWith({ name: "my_loss", inputs: { a: "float64" } })
    expect(Loss.custom).type.not.toBeCallableWith({ lossId: "l", inputs: { a: "nonsense" } })
  })
})

describe("Loss.custom", () => {
  const loss = Loss.custom({ lossId: "loss-1", inputs: { targetTokens: "int64", bonus: "float32" } })

  it("Loss.custom has the declared inputs", () => {
    expect<Loss.Inputs<typeof loss>>().type.toBe<{
      readonly targetTokens: TensorData.Input<"int64">
      readonly bonus: TensorData.Input<"float32">
    }>()
    expect(Loss.datum).type.toBeCallableWith(loss, { modelInput, inputs: { targetTokens, bonus: [1] } })
    expect(Loss.datum).type.not.toBeCallableWith(loss, { modelInput, inputs: { targetTokens } })
    expect(Loss.datum).type.not.toBeCallableWith(loss, { modelInput, inputs: { targetTokens, bonus: [1], more: [1] } })
  })
})
