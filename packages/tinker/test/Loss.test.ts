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

/** As untyped code could call it. */
const problem = (loss: Loss.Loss<never>, data: unknown) =>
  Either.match(Loss.prepareUnknown(loss, data), {
    onLeft: ({ path, problem }) => `${path}: ${problem}`,
    onRight: () => "no problem",
  })

describe("Loss", () => {
  it("Loss.prepare converts every kind of array and uses the wire names", () => {
    const tensor = Either.getOrThrow(TensorData.float32([0, 1, 1]))
    const batch = Either.getOrThrow(
      Loss.prepare(Loss.crossEntropy, [
        good,
        { modelInput: Int32Array.of(1), inputs: { targetTokens: Int32Array.of(2), weights: Float64Array.of(0.5) } },
        {
          modelInput: Uint32Array.of(1, 2, 3),
          inputs: {
            targetTokens: [
              [1, 2],
              [3, 4],
              [5, 6],
            ],
            weights: tensor,
          },
        },
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
        ["target_tokens", "int64", Int32Array.of(1, 2, 3, 4, 5, 6), [3, 2]],
        ["weights", "float32", tensor.data, undefined],
      ],
    ])
  })

  it("Loss.prepare counts bytes as the service does, including sparse tensors", () => {
    const sparse = Either.getOrThrow(
      TensorData.int64([5, 6], { shape: [3, 8], sparse: { crowIndices: [0, 1, 1, 2], colIndices: [0, 7] } }),
    )
    const image = Either.getOrThrow(ModelInput.image({ data: new Uint8Array(100), format: "png" }))
    const batch = Either.getOrThrow(
      Loss.prepare(Loss.crossEntropy, [
        good,
        {
          modelInput: ModelInput.make(image, ModelInput.dmel(new Uint8Array(7))),
          inputs: { targetTokens: sparse, weights: [1, 1, 1] },
        },
      ]),
    )
    expect(batch.data.map(({ bytes }) => bytes)).toEqual([12 + 24 + 12, 100 + 7 + 2 * 8 + 6 * 8 + 3 * 4])
  })

  it("Loss.prepare errors give the path of a misspelled, missing or malformed input", () => {
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
      "data[3].inputs.weights[1]: expected a number in the range of float32, got a string",
    )
    expect(problem(Loss.crossEntropy, at3({ ...good, inputs: { targetTokens, weights: 1 } }))).toBe(
      "data[3].inputs.weights: expected an array of numbers or a tensor, got 1",
    )
    expect(problem(Loss.crossEntropy, at3({ ...good, modelInput: [1, -2] }))).toContain("data[3].modelInput[1]: ")
    expect(problem(Loss.crossEntropy, at3({ ...good, modelInput: undefined }))).toContain("data[3].modelInput: ")
    expect(problem(Loss.crossEntropy, at3({ modelInput: [1] }))).toContain(
      "data[3].inputs: expected an object: cross_entropy takes",
    )
    expect(problem(Loss.crossEntropy, at3(null))).toContain("data[3]: expected a datum")
    expect(problem(Loss.ppo(), [good])).toContain(
      "data[0].inputs.logprobs: missing: ppo takes targetTokens (int64), logprobs (float32), advantages (float32); optional: weights",
    )
  })

  it("Loss.prepare rejects a batch without data", () => {
    expect(problem(Loss.crossEntropy, [])).toBe("data: expected at least one datum")
    expect(problem(Loss.crossEntropy, undefined)).toBe("data: expected at least one datum")
  })

  it("Loss.prepare requires spans for both sides or for neither", () => {
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

  it("a loss configuration uses the wire names and contains only the given values", () => {
    expect(Loss.ppo({ clipLowThreshold: 0.9, clipHighThreshold: 1.1 }).config).toEqual({
      clip_low_threshold: 0.9,
      clip_high_threshold: 1.1,
    })
    expect(Loss.cispo({ clipLowThreshold: 0 }).config).toEqual({ clip_low_threshold: 0 })
    expect(Loss.gspo().config).toEqual({})
    expect(Loss.dro({ beta: 0.05 }).config).toEqual({ beta: 0.05 })
    expect(Loss.stableReinforce({ kl_coeff: 0.1, mode: "text" }).config).toEqual({ kl_coeff: 0.1, mode: "text" })
    expect(problem(Loss.dro({ beta: Number.NaN }), [])).toBe(
      "loss.config.beta: expected a finite number or a string, got NaN",
    )
  })

  it("Loss.make lets a custom loss declare its inputs", () => {
    const loss = Loss.custom({ lossId: "loss-1", inputs: { targetTokens: "int64", bonusScale: "float32" } })
    const batch = Either.getOrThrow(
      Loss.prepare(loss, [Loss.datum(loss, { modelInput: [1], inputs: { targetTokens: [2], bonusScale: [0.5] } })]),
    )
    expect(batch.loss).toEqual({ name: "custom", config: { loss_id: "loss-1" } })
    expect(batch.data[0]?.inputs.map(({ name }) => name)).toEqual(["target_tokens", "bonusScale"])
    expect(problem(loss, [{ modelInput: [1], inputs: { targetTokens: [2] } }])).toContain("data[0].inputs.bonusScale")
  })

  it("each loss accepts only its own inputs", () => {
    const inputs = ({ inputs, name, perToken }: Loss.Loss<never>) => [
      name,
      perToken,
      Object.entries(inputs).map(([key, { name, dtype, required }]) => `${key} ${name} ${dtype}${required ? "" : "?"}`),
    ]
    const policy = [
      "targetTokens target_tokens int64",
      "logprobs logprobs float32",
      "advantages advantages float32",
      "weights weights float32?",
    ]
    const clipped = [
      ...policy,
      "clipLowThreshold clip_low_threshold float32?",
      "clipHighThreshold clip_high_threshold float32?",
    ]
    expect(
      [
        Loss.crossEntropy,
        Loss.importanceSampling,
        Loss.ppo(),
        Loss.cispo(),
        Loss.gspo(),
        Loss.dro(),
        Loss.stableReinforce(),
        Loss.custom({ lossId: "l", inputs: { targetTokens: "int64", bonus: "float32?" } }),
      ].map(inputs),
    ).toEqual([
      ["cross_entropy", true, ["targetTokens target_tokens int64", "weights weights float32"]],
      ["importance_sampling", true, policy],
      ["ppo", true, clipped],
      ["cispo", true, clipped],
      ["gspo", true, [...clipped, "sequenceRatioMask sequence_ratio_mask float32?"]],
      ["dro", true, policy],
      ["stable_reinforce", true, policy],
      ["custom", false, ["targetTokens target_tokens int64", "bonus bonus float32?"]],
    ])
  })

  it("Loss.prepare requires one target per token, and as many other values as targets", () => {
    const lengths = (modelInput: unknown, targetTokens: unknown, weights: unknown) =>
      problem(Loss.crossEntropy, [{ modelInput, inputs: { targetTokens, weights } }])
    expect(lengths([1, 2, 3], [1, 2], [1, 2])).toBe(
      "data[0].inputs.targetTokens: expected one value per token of the model input (3), got 2",
    )
    expect(lengths([1, 2, 3], [1, 2, 3], [1, 2])).toBe(
      "data[0].inputs.weights: expected one value per element of targetTokens (3), got 2",
    )
    const rows = [[1], [2], [3]]
    expect(lengths([1, 2, 3], rows, rows)).toBe("no problem")
    expect(lengths([1, 2, 3], rows, [1, 2])).toContain(
      "data[0].inputs.weights: expected one value per element of targetTokens (3)",
    )
    expect(lengths([1, 2], rows, rows)).toContain(
      "data[0].inputs.targetTokens: expected one value per token of the model input (2)",
    )
    expect(lengths([1, 2, 3], Either.getOrThrow(TensorData.int64([1, 2])), [1, 2])).toContain("(3), got")
    const image = Either.getOrThrow(ModelInput.image({ data: Uint8Array.of(1), format: "png" }))
    expect(lengths(ModelInput.make(image), [1, 2], [1, 2])).toBe("no problem")
    expect(lengths(ModelInput.make(image), [1, 2], [1])).toContain(
      "data[0].inputs.weights: expected one value per element of targetTokens (2)",
    )
    expect(lengths(ModelInput.make(ModelInput.dmel(Uint8Array.of(1), { length: 3 })), [1, 2], [1, 2])).toContain(
      "data[0].inputs.targetTokens: expected one value per token of the model input (3)",
    )
    // Only the author of an uploaded loss knows what its inputs mean.
    const custom = Loss.custom({ lossId: "l", inputs: { targetTokens: "int64", weights: "float32" } })
    expect(problem(custom, [{ modelInput: [1], inputs: { targetTokens: [1], weights: [1, 2] } }])).toBe("no problem")
    expect(problem(custom, [{ modelInput: [1], inputs: { targetTokens: [1, 2], weights: [1] } }])).toContain(
      "data[0].inputs.targetTokens: expected one value per token of the model input (1)",
    )
    const bonus = Loss.custom({ lossId: "l", inputs: { bonus: "float32" } })
    expect(problem(bonus, [{ modelInput: [1], inputs: { bonus: [1, 2] } }])).toBe("no problem")
  })

  it("Loss.prepare rejects an untyped value as a loss", () => {
    const notOne = "loss: expected a loss, e.g. Loss.crossEntropy"
    expect(problem(undefined as never, [good])).toBe(notOne)
    expect(problem(Loss.ppo as never, [good])).toBe(notOne)
    expect(problem({ name: "x", inputs: {} } as never, [good])).toBe("loss.config: expected an object, got undefined")
    expect(problem({ ...Loss.crossEntropy, config: { a: true } } as never, [good])).toBe(
      "loss.config.a: expected a finite number or a string, got true",
    )
    expect(problem({ ...Loss.crossEntropy, inputs: { x: null } } as never, [good])).toContain("loss.inputs.x: expected")
    const custom = (inputs: unknown) => problem(Loss.custom({ lossId: "l", inputs: inputs as {} }), [good])
    expect(custom({ x: "float64" })).toBe("loss.inputs.x: expected float32 or int64")
    expect(custom({ x: null })).toBe("loss.inputs.x: expected float32 or int64")
    expect(custom({ x: "constructor" })).toBe("loss.inputs.x: expected float32 or int64")
    expect(custom({ targetTokens: "int64", target_tokens: "int64" })).toBe(
      "loss.inputs.target_tokens: duplicate wire name target_tokens",
    )
  })

  it("inputs are looked up as own properties only, never on the prototype", () => {
    const loss = Loss.custom({ lossId: "l", inputs: { constructor: "float32", toString: "float32?" } })
    expect(Object.values(loss.inputs).map(({ name }) => name)).toEqual(["constructor", "toString"])
    expect(problem(loss, [{ modelInput: [1], inputs: {} }])).toContain("data[0].inputs.constructor: missing")
    expect(problem(loss, [{ modelInput: [1], inputs: { constructor: [1] } }])).toBe("no problem")
  })

  it("Loss.prepare rejects an untyped value as a datum and gives its path", () => {
    const at = (changes: object) => problem(Loss.crossEntropy, [{ ...good, ...changes }])
    expect(at({ modelInputSpan: [] })).toBe(
      "data[0].modelInputSpan: unknown: a datum has modelInput, inputs, modelInputSpans, lossInputSpans",
    )
    for (const [spans, words] of [
      [null, ": expected an array of spans, got null"],
      [{}, ": expected an array of spans, got an object"],
      [[null], "[0]: expected { source"],
    ] as const) {
      expect(at({ modelInputSpans: spans, lossInputSpans: [] })).toContain(`data[0].modelInputSpans${words}`)
      expect(at({ modelInputSpans: [], lossInputSpans: spans })).toContain(`data[0].lossInputSpans${words}`)
    }
    const chunk = (...chunks: ReadonlyArray<unknown>) =>
      at({ modelInput: ModelInput.make(...(chunks as Array<ModelInput.Chunk>)) })
    const first = "data[0].modelInput.chunks[0]"
    expect(chunk(null)).toBe(`${first}: expected a chunk, got null`)
    expect(chunk({ type: "txt" })).toContain(`${first}.type: expected encoded_text`)
    expect(chunk({ type: "image", data: "123", format: "png" })).toBe(
      `${first}.data: Expected a Uint8Array, got a string`,
    )
    expect(chunk({ type: "image", data: Uint8Array.of(1), format: "gif" })).toContain(`${first}.format: `)
    for (const [token, said] of [
      [1.5, "1.5"],
      ["x", "a string"],
      [-3, "-3"],
      [2 ** 40, "1099511627776"],
    ])
      expect(chunk({ type: "encoded_text", tokens: [1, token] })).toMatch(
        new RegExp(`chunks\\[0\\]\\.tokens\\[1\\]: expected a token id.*got ${said}$`),
      )
    expect(chunk({ type: "encoded_text", tokens: [1, 2, 3] })).toBe("no problem")
    expect(chunk({ type: "encoded_text" })).toContain(`${first}.tokens: `)
    expect(chunk(ModelInput.dmel(undefined as never))).toContain(`${first}.dmel: `)
  })

  it("Loss.prepare rejects arrays with a detached buffer, which look empty", () => {
    const gone = <T extends ArrayBufferView<ArrayBuffer>>(array: T): T => {
      structuredClone(array.buffer, { transfer: [array.buffer] })
      return array
    }
    const { targetTokens } = good.inputs
    const says = "got an array whose memory was transferred"
    const at = (changes: object) => problem(Loss.crossEntropy, [{ ...good, ...changes }])
    expect(at({ modelInput: gone(Int32Array.of(1, 2, 3)) })).toMatch(new RegExp(`^data\\[0\\].modelInput: .*${says}`))
    expect(at({ inputs: { targetTokens: gone(Int32Array.of(1)), weights: [] } })).toContain(says)
    expect(at({ inputs: { targetTokens: gone(BigInt64Array.of(1n)), weights: [] } })).toContain(says)
    expect(at({ inputs: { targetTokens, weights: gone(Float32Array.of(1, 2, 3)) } })).toMatch(
      new RegExp(`^data\\[0\\].inputs.weights: .*${says}`),
    )
    const tensor = Either.getOrThrow(TensorData.float32(Float32Array.of(1, 2, 3)))
    gone(tensor.data as Float32Array<ArrayBuffer>)
    expect(at({ inputs: { targetTokens, weights: tensor } })).toContain("data[0].inputs.weights: the memory")
    const image = { type: "image" as const, data: gone(Uint8Array.of(1)), format: "png" as const }
    expect(at({ modelInput: ModelInput.make(image) })).toContain(
      "chunks[0].data: Expected bytes whose memory was not transferred",
    )
    expect(at({ modelInput: new Int32Array(0), inputs: { targetTokens: [], weights: new Float32Array(0) } })).toBe(
      "no problem",
    )
  })
})
