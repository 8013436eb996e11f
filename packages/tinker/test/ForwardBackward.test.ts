import { equals, fromBinary, toBinary } from "@bufbuild/protobuf"
import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc } from "effect"
import type * as Datum from "effect-tinker/Datum"
import * as ForwardBackward from "effect-tinker/ForwardBackward"
import * as Loss from "effect-tinker/Loss"
import * as ModelInput from "effect-tinker/ModelInput"
import * as Proto from "effect-tinker/Proto"
import * as TensorData from "effect-tinker/TensorData"
import { readFileSync } from "node:fs"

const wire = (file: string) => JSON.parse(readFileSync(new URL(`../../../test/wire/${file}`, import.meta.url), "utf8"))

const encode = <Inputs>(
  loss: Loss.Loss<Inputs>,
  data: ReadonlyArray<Datum.Datum<Inputs>>,
  { modelId = "model-1", seqId = 1, forwardOnly = false } = {},
) =>
  Either.flatMap(Loss.prepare(loss, data), (batch) =>
    ForwardBackward.toProtobuf({ modelId, seqId, batch, forwardOnly }),
  )

/** By the generated reader, which knows nothing of how the bytes were written. */
const read = (bytes: Uint8Array) => fromBinary(Proto.ForwardBackwardRequestSchema, new Uint8Array(bytes))

const policy = {
  modelInput: [1, 2, 3],
  inputs: { targetTokens: [2, 3, 4], logprobs: [-0.1, -0.2, -0.3], advantages: [1, 1, -1] },
}
const supervised = { modelInput: [1, 2, 3], inputs: { targetTokens: [2, 3, 4], weights: [0, 1, 1] } }
const both = [
  supervised,
  { modelInput: Int32Array.of(9, 8), inputs: { targetTokens: Int32Array.of(8, 7), weights: Float32Array.of(1, 0.5) } },
]

const dtypes = [
  { targetTokens: Int32Array.of(2, 3, 4), weights: Float64Array.of(0, 0.5, 1) },
  {
    targetTokens: [
      [2, 3],
      [4, 5],
      [6, 7],
    ],
    weights: [
      [1, 0],
      [0.5, 0.5],
      [0, 1],
    ],
  },
  {
    targetTokens: Either.getOrThrow(TensorData.int64([2, 3, 4])),
    weights: Either.getOrThrow(TensorData.float32([1, 1, 1])),
  },
].map((inputs) => ({ modelInput: [1, 2, 3], inputs }))

const csr = { shape: [3, 8], sparse: { crowIndices: [0, 1, 1, 2], colIndices: [0, 7] } }
const sparse = {
  modelInput: [1, 2, 3],
  inputs: {
    targetTokens: Either.getOrThrow(TensorData.int64([5, 6], csr)),
    weights: Either.getOrThrow(TensorData.float32([0.5, 1], csr)),
  },
}

const row = (length: number, entries: Readonly<Record<number, number>> = {}) =>
  Array.from({ length }, (_, i) => entries[i] ?? 0)
const matrix = (at1: number, at3: number) => [row(16, { 1: at1 }), row(16), row(16, { 3: at3 })]
const autoSparse = {
  modelInput: [1, 2, 3],
  inputs: {
    targetTokens: TensorData.toSparse(Either.getOrThrow(TensorData.int64(matrix(5, 9)))),
    weights: TensorData.toSparse(Either.getOrThrow(TensorData.float32(matrix(0.5, 1)))),
    advantages: matrix(0, 0),
  },
}

// What the reference lets through with these losses, and our types don't: fewer inputs, or more.
const unusual = (name: string, config: Readonly<Record<string, number | string>> = {}) =>
  Loss.make<Loss.CrossEntropyInputs & { readonly advantages?: TensorData.Input<"float32"> }>({
    name,
    config,
    inputs: {
      targetTokens: { name: "target_tokens", dtype: "int64", required: true },
      weights: { name: "weights", dtype: "float32", required: true },
      advantages: { name: "advantages", dtype: "float32", required: false },
    },
  })

const span = (source: "prompt" | "sampled", length: number): Datum.Span => ({
  source,
  sequenceId: "seq-0-0",
  offset: 0,
  length,
})

const policyInputs = { targetTokens: "int64", logprobs: "float32", advantages: "float32" } as const
const supervisedInputs = { targetTokens: "int64", weights: "float32" } as const

const cases: Readonly<Record<string, (options: { modelId: string; seqId: number; forwardOnly: boolean }) => unknown>> =
  {
    "vectors/forward.json": (o) => encode(Loss.crossEntropy, [supervised], o),
    "vectors/forward_backward_cross_entropy.json": (o) => encode(Loss.crossEntropy, both, o),
    "vectors/forward_backward_loss_importance_sampling.json": (o) => encode(Loss.importanceSampling, [policy], o),
    "vectors/forward_backward_loss_ppo.json": (o) =>
      encode(Loss.ppo({ clipLowThreshold: 0.9, clipHighThreshold: 1.1 }), [policy], o),
    "vectors/forward_backward_loss_cispo.json": (o) =>
      encode(Loss.cispo({ clipLowThreshold: 0, clipHighThreshold: 4 }), [policy], o),
    "vectors/forward_backward_loss_dro.json": (o) => encode(Loss.dro({ beta: 0.05 }), [policy], o),
    "vectors/forward_backward_loss_stable_reinforce.json": (o) =>
      encode(Loss.stableReinforce({ kl_coeff: 0.1, mode: "text-value" }), [policy], o),
    "vectors/forward_backward_loss_custom.json": (o) =>
      encode(Loss.custom({ lossId: "loss-0001", inputs: policyInputs }), [policy], o),
    "vectors/forward_backward_custom_handle_server_side.json": (o) =>
      encode(Loss.custom({ lossId: "loss-0001", inputs: supervisedInputs }), [supervised], o),
    "vectors/forward_backward_dtypes.json": (o) => encode(Loss.crossEntropy, dtypes, o),
    "vectors/forward_backward_sparse_csr.json": (o) => encode(Loss.crossEntropy, [sparse], o),
    "vectors/forward_backward_torch_auto_sparse.json": (o) => encode(unusual("cross_entropy"), [autoSparse], o),
    "vectors/forward_backward_provenance_spans.json": (o) =>
      encode(
        unusual("stable_reinforce"),
        [
          {
            ...supervised,
            modelInputSpans: [span("prompt", 1), span("sampled", 2)],
            lossInputSpans: [span("sampled", 3)],
          },
        ],
        o,
      ),
    "vectors-0.25.0/forward_backward_config.json": (o) =>
      encode(
        unusual("dro", { beta: 0.5 }),
        [{ modelInput: [1, 2, 3], inputs: { targetTokens: [2, 3, 4], weights: [1, 1, 1] } }],
        o,
      ),
  }

const rejected = ["vectors/forward_backward_image_asset_pointer_rejected.json", "vectors/forward_backward_empty.json"]

describe("ForwardBackward", () => {
  it.each(Object.keys(cases))("says what the reference says: %s", (file) => {
    const vector = wire(file)
    const recorded = vector.exchanges.find((exchange: { request: { path: string } }) =>
      exchange.request.path.endsWith("forward_backward"),
    ).request
    const expected = read(Buffer.from(recorded.bodyBase64, "base64"))
    // Version 0.25.0 knew only the first of the two maps of configuration.
    if (file.startsWith("vectors-0.25.0"))
      for (const [key, value] of Object.entries(expected.lossFnConfig))
        expected.lossFnConfigV2[key] = fromBinary(
          Proto.LossConfigValueSchema,
          toBinary(Proto.LossConfigValueSchema, {
            $typeName: "tinker_public.LossConfigValue",
            value: { case: "number", value },
          }),
        )
    const { modelId, seqId, forwardOnly } = expected
    const ours = read(Either.getOrThrow(cases[file]!({ modelId, seqId, forwardOnly }) as ReturnType<typeof encode>))
    expect(ours).toEqual(expected)
    expect(equals(Proto.ForwardBackwardRequestSchema, ours, expected)).toBe(true)
  })

  it(`sends nothing where the reference sends nothing: ${rejected.join(", ")}`, () => {
    expect(rejected.map((file) => wire(file).request)).toEqual([null, null])
    const asset = Either.getOrThrow(ModelInput.imageAsset({ format: "png", location: "gs://x" }))
    const text = Either.getOrThrow(ModelInput.text([1]))
    const pointer = { ...supervised, modelInput: ModelInput.make(text, asset) }
    expect(Either.flip(encode(Loss.crossEntropy, [supervised, pointer]))).toEqual(
      Either.right(
        expect.objectContaining({
          _tag: "InvalidInput",
          path: "data[1].modelInput.chunks[1]",
          problem: "an image asset pointer can't be trained on: give the image itself",
        }),
      ),
    )
    expect(Either.flip(encode(Loss.crossEntropy, []))).toEqual(
      Either.right(expect.objectContaining({ _tag: "InvalidInput", path: "data" })),
    )
  })

  it("names a datum by its place in the whole batch when a slice is sent", () => {
    const asset = Either.getOrThrow(ModelInput.imageAsset({ format: "png", location: "gs://x" }))
    const data = [supervised, supervised, { ...supervised, modelInput: ModelInput.make(asset) }]
    const batch = Either.getOrThrow(Loss.prepare(Loss.crossEntropy, data))
    const slice = { ...batch, data: batch.data.slice(2) }
    expect(
      Either.flip(ForwardBackward.toProtobuf({ modelId: "m", seqId: 1, batch: slice, forwardOnly: false })),
    ).toEqual(Either.right(expect.objectContaining({ path: "data[2].modelInput.chunks[0]" })))
  })

  it("writes images and audio", () => {
    const image = (expectedTokens?: number) =>
      Either.getOrThrow(
        ModelInput.image({
          data: Uint8Array.of(1, 2, 3),
          format: "jpeg",
          ...(expectedTokens !== undefined && { expectedTokens }),
        }),
      )
    const modelInput = ModelInput.make(image(0), ModelInput.dmel(Uint8Array.of(4)), image())
    const [datum] = read(Either.getOrThrow(encode(Loss.crossEntropy, [{ ...supervised, modelInput }]))).data
    expect(datum?.modelInput.map(({ chunk }) => chunk)).toMatchObject([
      { case: "image", value: { data: Uint8Array.of(1, 2, 3), format: "jpeg", expectedTokens: 0 } },
      { case: "dmel", value: { dmel: Uint8Array.of(4) } },
      { case: "image", value: { data: Uint8Array.of(1, 2, 3), format: "jpeg" } },
    ])
    expect(datum?.modelInput[2]?.chunk.value).not.toHaveProperty("expectedTokens")
  })

  // Everything a batch can hold, and texts that are longer in UTF-8, so that the buffer must grow.
  const int64 = fc.oneof(fc.array(fc.integer()), fc.array(fc.maxSafeInteger()), fc.int32Array(), fc.bigInt64Array())
  const float32 = fc.oneof(fc.array(fc.double()), fc.float32Array(), fc.float64Array())
  const request = fc.record({
    modelId: fc.string({ unit: "grapheme", maxLength: 2000 }),
    seqId: fc.nat(),
    forwardOnly: fc.boolean(),
    config: fc.dictionary(
      fc.string({ unit: "grapheme" }).filter((key) => key !== "__proto__"),
      fc.oneof(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.string({ unit: "grapheme" })),
    ),
    data: fc.array(
      fc.record({
        tokens: fc.oneof(fc.array(fc.nat()), fc.int32Array({ min: 0 })),
        targetTokens: int64,
        weights: float32,
        spans: fc.array(
          fc.record({
            source: fc.constantFrom("prompt" as const, "sampled" as const),
            sequenceId: fc.string(),
            offset: fc.maxSafeNat(),
            length: fc.nat(),
          }),
        ),
      }),
      { minLength: 1, maxLength: 5 },
    ),
  })

  it.prop("is read by an independent reader as it was meant", { request }, ({ request }) => {
    const { modelId, seqId, forwardOnly, config } = request
    const bytes = encode(
      unusual("some_loss", config),
      request.data.map(({ tokens, targetTokens, weights, spans }) => ({
        modelInput: tokens,
        inputs: { targetTokens, weights },
        modelInputSpans: spans,
        lossInputSpans: spans,
      })),
      { modelId, seqId, forwardOnly },
    )
    const message = read(Either.getOrThrow(bytes))
    expect(message).toMatchObject({ modelId, seqId, forwardOnly, lossFn: "some_loss" })
    const numbers = Object.entries(config).filter(([, value]) => typeof value === "number")
    expect(message.lossFnConfig).toEqual(Object.fromEntries(numbers))
    expect(
      Object.fromEntries(Object.entries(message.lossFnConfigV2).map(([key, { value }]) => [key, value.value])),
    ).toEqual(config)
    expect(message.data.length).toBe(request.data.length)
    for (const [index, { tokens, targetTokens, weights, spans }] of request.data.entries()) {
      const datum = message.data[index]!
      const text = datum.modelInput[0]!.chunk
      expect(text.case === "encodedText" && new Int32Array(text.value.tokens.slice().buffer)).toEqual(
        Int32Array.from(tokens),
      )
      const targets = datum.lossFnInputs["target_tokens"]!
      const floats = datum.lossFnInputs["weights"]!
      expect([targets.dtype, floats.dtype]).toEqual([Proto.DType.DTYPE_INT64, Proto.DType.DTYPE_FLOAT32])
      expect(targets.shape).toEqual([BigInt(targetTokens.length)])
      expect(targets.encoding.case === "dense" && new BigInt64Array(targets.encoding.value.slice().buffer)).toEqual(
        BigInt64Array.from(targetTokens as ArrayLike<number>, BigInt),
      )
      expect(floats.encoding.case === "dense" && new Float32Array(floats.encoding.value.slice().buffer)).toEqual(
        Float32Array.from(weights),
      )
      for (const side of [datum.modelInputSpans, datum.lossFnInputSpans])
        expect(
          side.map(({ span }) => [span.case, span.value?.sequenceId, span.value?.offset, span.value?.length]),
        ).toEqual(
          spans.map(({ source, sequenceId, offset, length }) => [
            source === "prompt" ? "promptTokens" : "sampledTokens",
            sequenceId,
            BigInt(offset),
            BigInt(length),
          ]),
        )
    }
  })

  describe("as JSON", () => {
    const toJson = <Inputs>(loss: Loss.Loss<Inputs>, data: ReadonlyArray<Datum.Datum<Inputs>>, forwardOnly = false) =>
      Either.flatMap(Loss.prepare(loss, data), (batch) =>
        ForwardBackward.toJson({ modelId: "model-1", seqId: 3, batch, forwardOnly }),
      )

    it("has the shape that open servers take", () => {
      const input = {
        data: [
          {
            model_input: { chunks: [{ type: "encoded_text", tokens: [1, 2, 3] }] },
            loss_fn_inputs: {
              target_tokens: { data: [2, 3, 4], dtype: "int64", shape: [3] },
              weights: { data: [0, 1, 1], dtype: "float32" },
            },
          },
        ],
        loss_fn: "cross_entropy",
      }
      const weights = Either.getOrThrow(TensorData.float32([0, 1, 1]))
      const data = [{ modelInput: Int32Array.of(1, 2, 3), inputs: { targetTokens: [2, 3, 4], weights } }]
      expect(toJson(Loss.crossEntropy, data)).toEqual(
        Either.right({ forward_backward_input: input, model_id: "model-1", seq_id: 3 }),
      )
      expect(toJson(Loss.crossEntropy, data, true)).toEqual(
        Either.right({ forward_input: input, model_id: "model-1", seq_id: 3 }),
      )
      expect(toJson(Loss.ppo({ clipLowThreshold: 0.8 }), [policy])).toMatchObject(
        Either.right({ forward_backward_input: { loss_fn_config: { clip_low_threshold: 0.8 } } }),
      )
    })

    it("refuses what JSON can't say", () => {
      const path = (result: ReturnType<typeof toJson>) =>
        Either.match(result, { onLeft: (e) => e.path, onRight: () => "" })
      const weighing = (weights: TensorData.Floats) => [{ ...supervised, inputs: { targetTokens: [1], weights } }]
      expect(path(toJson(Loss.crossEntropy, weighing([1, Number.NaN])))).toBe("data[0].inputs.weights[1]")
      expect(path(toJson(Loss.crossEntropy, weighing([Infinity])))).toBe("data[0].inputs.weights")
      expect(
        path(
          toJson(Loss.crossEntropy, [
            supervised,
            { ...supervised, inputs: { targetTokens: BigInt64Array.of(2n ** 60n), weights: [1] } },
          ]),
        ),
      ).toBe("data[1].inputs.targetTokens")
      expect(
        path(
          toJson(Loss.crossEntropy, [
            { ...supervised, modelInputSpans: [span("prompt", 1)], lossInputSpans: [span("prompt", 1)] },
          ]),
        ),
      ).toBe("data[0].modelInputSpans")
    })
  })
})
