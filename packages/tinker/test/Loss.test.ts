import { describe, expect, it } from "@effect/vitest"
import { Either } from "effect"
import type * as Datum from "effect-tinker/Datum"
import * as Loss from "effect-tinker/Loss"
import * as ModelInput from "effect-tinker/ModelInput"
import * as TensorData from "effect-tinker/TensorData"

const good: Datum.Datum<Loss.CrossEntropyInputs> = {
  modelInput: [1, 2, 3],
  inputs: { targetTokens: [2, 3, 4], weights: [0, 1, 1] },
}

/** As from a program without types. */
const problem = (loss: Loss.Loss<never>, data: unknown) =>
  Either.match(Loss.prepare(loss, data as ReadonlyArray<Datum.Datum<never>>), {
    onLeft: ({ path, problem }) => `${path}: ${problem}`,
    onRight: () => "no problem",
  })

describe("Loss", () => {
  it("prepares every kind of array under the wire's names", () => {
    const tensor = Either.getOrThrow(TensorData.float32([0, 1, 1]))
    const batch = Either.getOrThrow(
      Loss.prepare(Loss.crossEntropy, [
        good,
        { modelInput: Int32Array.of(1), inputs: { targetTokens: Int32Array.of(2), weights: Float64Array.of(0.5) } },
        { modelInput: ModelInput.empty, inputs: { targetTokens: [[1, 2]], weights: tensor } },
      ]),
    )
    expect(batch.loss).toEqual({ name: "cross_entropy", config: {} })
    expect(
      batch.data.map(({ inputs }) => inputs.map(({ name, tensor }) => [name, tensor.dtype, tensor.data, tensor.shape])),
    ).toEqual([
      [
        ["target_tokens", "int64", [2, 3, 4], [3]],
        ["weights", "float32", [0, 1, 1], [3]],
      ],
      [
        ["target_tokens", "int64", Int32Array.of(2), [1]],
        ["weights", "float32", Float32Array.of(0.5), [1]],
      ],
      [
        ["target_tokens", "int64", Int32Array.of(1, 2), [1, 2]],
        ["weights", "float32", tensor.data, undefined],
      ],
    ])
  })

  it("counts bytes as the service does, sparse tensors included", () => {
    const sparse = Either.getOrThrow(
      TensorData.int64([5, 6], { shape: [3, 8], sparse: { crowIndices: [0, 1, 1, 2], colIndices: [0, 7] } }),
    )
    const image = Either.getOrThrow(ModelInput.image({ data: new Uint8Array(100), format: "png" }))
    const batch = Either.getOrThrow(
      Loss.prepare(Loss.crossEntropy, [
        good,
        {
          modelInput: ModelInput.make(image, ModelInput.dmel(new Uint8Array(7))),
          inputs: { targetTokens: sparse, weights: [1] },
        },
      ]),
    )
    expect(batch.data.map(({ bytes }) => bytes)).toEqual([12 + 24 + 12, 100 + 7 + 2 * 8 + 6 * 8 + 4])
  })

  it("names a misspelt, a missing and a malformed input by its path", () => {
    const at3 = (datum: unknown) => [good, good, good, datum]
    const { targetTokens, weights } = good.inputs
    expect(problem(Loss.crossEntropy, at3({ ...good, inputs: { targetTokens, wieghts: weights } }))).toBe(
      "data[3].inputs.wieghts: unknown: cross_entropy takes targetTokens (int64), weights (float32)",
    )
    expect(problem(Loss.crossEntropy, at3({ ...good, inputs: { targetTokens } }))).toBe(
      "data[3].inputs.weights: missing: cross_entropy takes targetTokens (int64), weights (float32)",
    )
    expect(problem(Loss.crossEntropy, at3({ ...good, inputs: { weights, targetTokens: [1, 2.5] } }))).toBe(
      "data[3].inputs.targetTokens[1]: expected an integer within ±(2^53 - 1), or a BigInt64Array, got 2.5",
    )
    expect(problem(Loss.crossEntropy, at3({ ...good, inputs: { targetTokens, weights: [1, "2"] } }))).toBe(
      'data[3].inputs.weights[1]: expected a number, got "2"',
    )
    expect(problem(Loss.crossEntropy, at3({ ...good, inputs: { targetTokens, weights: 1 } }))).toBe(
      "data[3].inputs.weights: expected an array of numbers or a tensor, got 1",
    )
    expect(problem(Loss.crossEntropy, at3({ ...good, modelInput: [1, -2] }))).toContain("data[3].modelInput[1]: ")
    expect(problem(Loss.crossEntropy, at3({ ...good, modelInput: undefined }))).toContain("data[3].modelInput: ")
    expect(problem(Loss.crossEntropy, at3({ modelInput: [1] }))).toContain(
      "data[3].inputs: expected cross_entropy takes",
    )
    expect(problem(Loss.crossEntropy, at3(null))).toContain("data[3]: expected a datum")
    expect(problem(Loss.ppo(), [good])).toContain(
      "data[0].inputs.logprobs: missing: ppo takes targetTokens (int64), logprobs (float32), advantages (float32); optional: weights",
    )
  })

  it("refuses a batch without data", () => {
    expect(problem(Loss.crossEntropy, [])).toBe("data: expected at least one datum")
    expect(problem(Loss.crossEntropy, undefined)).toBe("data: expected at least one datum")
  })

  it("takes spans for both sides or for none", () => {
    const span = { source: "sampled", sequenceId: "seq-0-0", offset: 0, length: 2 }
    const both = { modelInputSpans: [span], lossInputSpans: [span] }
    expect(problem(Loss.crossEntropy, [{ ...good, ...both }])).toBe("no problem")
    expect(problem(Loss.crossEntropy, [{ ...good, modelInputSpans: [span] }])).toContain(
      "data[0].lossInputSpans: missing",
    )
    expect(problem(Loss.crossEntropy, [{ ...good, lossInputSpans: [span] }])).toContain(
      "data[0].modelInputSpans: missing",
    )
    expect(problem(Loss.crossEntropy, [{ ...good, ...both, lossInputSpans: [{ ...span, offset: -1 }] }])).toContain(
      "data[0].lossInputSpans[0]: expected",
    )
    expect(problem(Loss.crossEntropy, [{ ...good, ...both, modelInputSpans: [{ ...span, source: "x" }] }])).toContain(
      "data[0].modelInputSpans[0]: expected",
    )
  })

  it("configures under the wire's names, and only what is given", () => {
    expect(Loss.ppo({ clipLowThreshold: 0.9, clipHighThreshold: 1.1 }).config).toEqual({
      clip_low_threshold: 0.9,
      clip_high_threshold: 1.1,
    })
    expect(Loss.cispo({ clipLowThreshold: 0 }).config).toEqual({ clip_low_threshold: 0 })
    expect(Loss.gspo().config).toEqual({})
    expect(Loss.dro({ beta: 0.05 }).config).toEqual({ beta: 0.05 })
    expect(Loss.stableReinforce({ kl_coeff: 0.1, mode: "text" }).config).toEqual({ kl_coeff: 0.1, mode: "text" })
    expect(problem(Loss.dro({ beta: Number.NaN }), [])).toBe(
      "loss.config.beta: expected a finite number or a text, got NaN",
    )
  })

  it("lets a custom loss declare its inputs", () => {
    const loss = Loss.custom({ lossId: "loss-1", inputs: { targetTokens: "int64", bonusScale: "float32" } })
    const batch = Either.getOrThrow(
      Loss.prepare(loss, [Loss.datum(loss, { modelInput: [1], inputs: { targetTokens: [2], bonusScale: [0.5] } })]),
    )
    expect(batch.loss).toEqual({ name: "custom", config: { loss_id: "loss-1" } })
    expect(batch.data[0]?.inputs.map(({ name }) => name)).toEqual(["target_tokens", "bonusScale"])
    expect(problem(loss, [{ modelInput: [1], inputs: { targetTokens: [2] } }])).toContain("data[0].inputs.bonusScale")
  })
})
