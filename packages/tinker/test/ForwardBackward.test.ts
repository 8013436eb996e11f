import { equals, fromBinary, toBinary } from "@bufbuild/protobuf"
import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc } from "effect"
import type * as Datum from "effect-tinker/Datum"
import * as ForwardBackward from "effect-tinker/protocol/ForwardBackward"
import * as Loss from "effect-tinker/Loss"
import * as ModelInput from "effect-tinker/ModelInput"
import * as Proto from "effect-tinker/protocol/Proto"
import * as TensorData from "effect-tinker/TensorData"
import { readFileSync } from "node:fs"

const wire = (file: string) => JSON.parse(readFileSync(new URL(`../../../test/wire/${file}`, import.meta.url), "utf8"))

const encode = <Inputs>(
  loss: Loss.Loss<Inputs>,
  data: ReadonlyArray<Datum.Datum<Inputs>>,
  { modelId = "model-1", seqId = 1, forwardOnly = false } = {},
) =>
  Either.flatMap(Loss.prepareUnknown(loss, data), (batch) =>
    ForwardBackward.toProtobuf({ modelId, seqId, batch, forwardOnly }),
  )

/** Decodes with the generated reader, which is independent of our encoder. */
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

// Inputs the reference accepts with these losses and our types don't: fewer inputs, or more.
const unusual = (name: string, config: Readonly<Record<string, number | string>> = {}) =>
  Loss.make({ name, config, inputs: { targetTokens: "int64", weights: "float32", advantages: "float32?" } })

const span = (source: "prompt" | "sampled", length: number): Datum.Span => ({
  source,
  sequenceId: "seq-0-0",
  offset: 0,
  length,
})

const policyInputs = { targetTokens: "int64", logprobs: "float32", advantages: "float32" } as const
const supervisedInputs = { targetTokens: "int64", weights: "float32" } as const

interface Options {
  readonly modelId: string
  readonly seqId: number
  readonly forwardOnly: boolean
}
type Encoder = (options: Options) => ReturnType<typeof encode>

const weighing = (...weights: ReadonlyArray<TensorData.Floats>): Encoder => {
  const data = weights.map((weights) => ({ modelInput: [1, 2, 3], inputs: { targetTokens: [2, 3, 4], weights } }))
  return (o) => encode(Loss.crossEntropy, data, o)
}

const five = Either.getOrThrow(
  Loss.prepare(
    Loss.crossEntropy,
    Array.from({ length: 5 }, () => supervised),
  ),
)
const slice =
  (from: number, to: number): Encoder =>
  (o) =>
    ForwardBackward.toProtobuf({ ...o, batch: { ...five, data: five.data.slice(from, to) } })

/** For each request in a recording, in order, the encoder call that must produce it. */
const cases: Readonly<Record<string, Encoder | ReadonlyArray<Encoder>>> = {
  "vectors/forward_backward_chunked_by_bytes.json": [slice(2, 4), slice(4, 5), slice(0, 2)],
  "vectors/forward_backward_chunked_parallel.json": [slice(2, 4), slice(4, 5), slice(0, 2)],
  "vectors/forward_backward_chunked_serial.json": [slice(0, 2), slice(2, 4), slice(4, 5)],
  "vectors/forward_backward_custom.json": [
    weighing([0, 1, 1], [0, 0, 0]),
    weighing([1, 2, 3], Float32Array.of(4, 5, 6)),
  ],
  "vectors/forward_backward_custom_handle_client_side.json": [slice(0, 2), slice(0, 2)],
  "vectors/forward_backward_response_bf16.json": slice(0, 2),
  "vectors/forward_backward_response_int32_trailing.json": slice(0, 2),
  "vectors/forward_backward_response_no_outputs.json": slice(0, 2),
  "vectors/forward_backward_response_stripped_fields.json": slice(0, 2),
  "vectors/forward_backward_response_two_records.json": slice(0, 2),
  "vectors-0.25.0/metrics_hash_unordered.json": weighing([1, 1, 1]),
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

interface Decoded {
  readonly model_id: string
  readonly seq_id: number
  readonly forward_only: boolean
  readonly data: unknown
}

const requests = (file: string): ReadonlyArray<{ readonly bodyBase64: string; readonly bodyDecoded: Decoded }> =>
  wire(file).exchanges.flatMap(({ request }: { readonly request: { readonly path: string } }) =>
    request.path.endsWith("forward_backward") ? [request] : [],
  )

type Elements = Int32Array | Float32Array | BigInt64Array

/** The generated reader returns views at any offset; a copy is aligned. */
const elements = <T extends Elements>(array: new (memory: ArrayBuffer) => T, bytes: Uint8Array): Array<T[number]> =>
  Array.from<T[number]>(new array(bytes.slice().buffer as ArrayBuffer))

const dense = (tensor: Proto.Tensor | undefined): Uint8Array =>
  tensor?.encoding.case === "dense" ? tensor.encoding.value : expect.fail("not dense")

const failure = (result: Either.Either<unknown, { readonly message: string }>) =>
  Either.match(result, { onLeft: ({ message }) => message, onRight: () => "no failure" })

describe("ForwardBackward", () => {
  it.each(Object.keys(cases))("ForwardBackward.toProtobuf encodes what the reference encodes: %s", (file) => {
    const recorded = requests(file)
    const encoders = [cases[file]!].flat()
    expect(encoders.length).toBe(recorded.length)
    for (const [index, { bodyBase64 }] of recorded.entries()) {
      const expected = read(Buffer.from(bodyBase64, "base64"))
      // Version 0.25.0 had only the first of the two configuration maps.
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
      const ours = read(Either.getOrThrow(encoders[index]!({ modelId, seqId, forwardOnly })))
      expect(ours).toEqual(expected)
      expect(equals(Proto.ForwardBackwardRequestSchema, ours, expected)).toBe(true)
    }
  })

  it("ForwardBackward.toProtobuf matches the reference before compression: vectors/forward_backward_zstd.json", () => {
    const { bodyDecoded } = requests("vectors/forward_backward_zstd.json")[0]!
    const { model_id, seq_id, forward_only, data } = bodyDecoded
    const bytes = slice(0, 1)({ modelId: model_id, seqId: seq_id, forwardOnly: forward_only })
    const ours = read(Either.getOrThrow(bytes))
    expect({
      ...bodyDecoded,
      model_id: ours.modelId,
      seq_id: ours.seqId,
      loss_fn: ours.lossFn,
      forward_only: ours.forwardOnly,
      loss_fn_config: ours.lossFnConfig,
      loss_fn_config_v2: ours.lossFnConfigV2,
    }).toEqual(bodyDecoded)
    expect(
      ours.data.map(({ lossFnInputs, modelInput }) => ({
        model_input: modelInput.map(({ chunk }) => ({
          encoded_text: { tokens: chunk.case === "encodedText" && elements(Int32Array, chunk.value.tokens) },
        })),
        loss_fn_inputs: {
          target_tokens: {
            dtype: "int64",
            shape: lossFnInputs["target_tokens"]?.shape.map(Number),
            dense: elements(BigInt64Array, dense(lossFnInputs["target_tokens"])).map(Number),
          },
          weights: {
            dtype: "float32",
            shape: lossFnInputs["weights"]?.shape.map(Number),
            dense: elements(Float32Array, dense(lossFnInputs["weights"])),
          },
        },
      })),
    ).toEqual(data)
  })

  it(`ForwardBackward.toProtobuf rejects what the reference rejects: ${rejected.join(", ")}`, () => {
    expect(rejected.map((file) => wire(file).request)).toEqual([null, null])
    const asset = Either.getOrThrow(ModelInput.imageAsset({ format: "png", location: "gs://x" }))
    const text = Either.getOrThrow(ModelInput.text([1]))
    const pointer = { ...supervised, modelInput: ModelInput.make(text, asset) }
    expect(Either.flip(encode(Loss.crossEntropy, [supervised, pointer]))).toEqual(
      Either.right(
        expect.objectContaining({
          _tag: "InvalidInput",
          path: "data[1].modelInput.chunks[1]",
          problem: "image asset pointers are not supported in training: pass the image itself",
        }),
      ),
    )
    expect(Either.flip(encode(Loss.crossEntropy, []))).toEqual(
      Either.right(expect.objectContaining({ _tag: "InvalidInput", path: "data" })),
    )
  })

  it("errors in a slice name the datum by its index in the whole batch", () => {
    const asset = Either.getOrThrow(ModelInput.imageAsset({ format: "png", location: "gs://x" }))
    const data = [supervised, supervised, { ...supervised, modelInput: ModelInput.make(asset) }]
    const batch = Either.getOrThrow(Loss.prepare(Loss.crossEntropy, data))
    const slice = { ...batch, data: batch.data.slice(2) }
    expect(
      Either.flip(ForwardBackward.toProtobuf({ modelId: "m", seqId: 1, batch: slice, forwardOnly: false })),
    ).toEqual(Either.right(expect.objectContaining({ path: "data[2].modelInput.chunks[0]" })))
  })

  it("ForwardBackward.toProtobuf encodes images and audio", () => {
    const image = (expectedTokens?: number) =>
      Either.getOrThrow(
        ModelInput.image({
          data: Uint8Array.of(1, 2, 3),
          format: "jpeg",
          ...(expectedTokens !== undefined && { expectedTokens }),
        }),
      )
    const older = Either.getOrThrow(ModelInput.image({ data: Uint8Array.of(5), format: "png", tokens: 7 }))
    const audio = ModelInput.dmel(Uint8Array.of(4), { length: 3 })
    const modelInput = ModelInput.make(image(0), audio, image(), older)
    const [datum] = read(Either.getOrThrow(encode(Loss.crossEntropy, [{ ...supervised, modelInput }]))).data
    expect(datum?.modelInput.map(({ chunk }) => chunk)).toMatchObject([
      { case: "image", value: { data: Uint8Array.of(1, 2, 3), format: "jpeg", expectedTokens: 0 } },
      { case: "dmel", value: { dmel: Uint8Array.of(4) } },
      { case: "image", value: { data: Uint8Array.of(1, 2, 3), format: "jpeg" } },
      { case: "image", value: { expectedTokens: 7 } },
    ])
    expect(datum?.modelInput[2]?.chunk.value).not.toHaveProperty("expectedTokens")
  })

  it("ForwardBackward.toProtobuf rejects image dimensions, which only older servers accept", () => {
    const sized = (size: { readonly height?: number; readonly width?: number }) =>
      failure(
        encode(Loss.crossEntropy, [
          supervised,
          {
            ...supervised,
            modelInput: ModelInput.make({ type: "image", data: Uint8Array.of(1), format: "png", ...size }),
          },
        ]),
      )
    expect(sized({})).toBe("no failure")
    expect(sized({ height: 1 })).toMatch(
      /^data\[1\]\.modelInput\.chunks\[0\]: height and width are only for older servers/,
    )
    expect(sized({ width: 1 })).toContain("height and width")
  })

  it.each([-1, 1.5, 2 ** 31, Number.NaN, "1", undefined])(
    "ForwardBackward rejects %s as a sequence number, in protobuf and in JSON",
    (seqId) => {
      const request = { modelId: "m", seqId: seqId as number, batch: five, forwardOnly: false }
      for (const result of [ForwardBackward.toProtobuf(request), ForwardBackward.toJson(request)])
        expect(failure(result)).toMatch(/^seqId: expected an integer from 0 to 2\^31 - 1, got /)
    },
  )

  it("ForwardBackward.toProtobuf accepts the smallest and the largest sequence number", () => {
    for (const seqId of [0, 2 ** 31 - 1])
      expect(read(Either.getOrThrow(encode(Loss.crossEntropy, [supervised], { seqId }))).seqId).toBe(seqId)
  })

  it("ForwardBackward.toProtobuf rejects an untyped request without a batch or a model", () => {
    const request = { modelId: "m", seqId: 1, batch: five, forwardOnly: false }
    const bad = (request: unknown) => failure(ForwardBackward.toProtobuf(request as ForwardBackward.Request))
    expect(bad({ ...request, batch: undefined })).toBe("batch: expected the result of Loss.prepare, got undefined")
    expect(bad({ ...request, batch: [] })).toBe("batch: expected the result of Loss.prepare, got an array")
    expect(bad({ ...request, modelId: 1 })).toBe("modelId: expected a string, got 1")
    expect(bad(null)).toBe("request: expected an object, got null")
  })

  // Everything a batch can hold, with text that is longer in UTF-8, so that the buffer must grow.
  const inside = <T extends Elements>(
    array: new (memory: ArrayBuffer | SharedArrayBuffer) => T,
    values: fc.Arbitrary<T>,
  ) =>
    fc.record({ values, before: fc.nat(3), after: fc.nat(3), shared: fc.boolean() }).map((o) => {
      const size = o.values.BYTES_PER_ELEMENT
      const bytes = size * (o.before + o.values.length + o.after)
      const memory = new array(o.shared ? new SharedArrayBuffer(bytes) : new ArrayBuffer(bytes))
      memory.set(o.values as never, o.before)
      return memory.subarray(o.before, o.before + o.values.length) as T
    })
  interface Given {
    readonly modelInput: ModelInput.Input
    readonly chunks: ReadonlyArray<ModelInput.Chunk>
  }
  const exactly = (length: number) => ({ minLength: length, maxLength: length })

  interface Case<D extends TensorData.Dtype> {
    readonly input: TensorData.Input<D>
    readonly shape: ReadonlyArray<number>
    readonly values: ReadonlyArray<number | bigint>
    readonly sparse?: TensorData.Sparse
  }
  const flat =
    <D extends TensorData.Dtype>() =>
    (input: TensorData.Input<D> & ArrayLike<number | bigint>): Case<D> => ({
      input,
      shape: [input.length],
      values: Array.from(input),
    })
  const matrix = (rows: number) =>
    fc
      .nat(6)
      .chain((columns) =>
        fc.array(
          fc.array(fc.oneof({ weight: 4, arbitrary: fc.constant(0) }, fc.integer()), exactly(columns)),
          exactly(rows),
        ),
      )
  const ofRows =
    <D extends TensorData.Dtype>(dtype: D) =>
    (rows: ReadonlyArray<ReadonlyArray<number>>): Case<D> => {
      if (rows.length === 0) return { input: [] as never, shape: [0], values: [] }
      const tensor = TensorData.toSparse(Either.getOrThrow(TensorData.from(dtype, rows as TensorData.Input<D>)))
      return {
        input: tensor as never,
        shape: tensor.shape ?? [],
        values: Array.from<number | bigint>(tensor.data),
        ...(tensor.sparse !== undefined && { sparse: tensor.sparse }),
      }
    }
  const dense2d =
    <D extends TensorData.Dtype>() =>
    (rows: ReadonlyArray<ReadonlyArray<number>>): Case<D> => ({
      input: rows as never,
      shape: rows.length === 0 ? [0] : [rows.length, rows[0]!.length],
      values: rows.flat(),
    })
  const int64 = (length: number) =>
    fc.oneof(
      fc.array(fc.integer(), exactly(length)).map(flat<"int64">()),
      fc.array(fc.maxSafeInteger(), exactly(length)).map(flat<"int64">()),
      inside(Int32Array, fc.int32Array(exactly(length))).map(flat<"int64">()),
      inside(BigInt64Array, fc.bigInt64Array(exactly(length))).map(flat<"int64">()),
      matrix(length).map(dense2d<"int64">()),
      matrix(length).map(ofRows("int64")),
    )
  const float32 = (length: number) =>
    fc.oneof(
      fc.array(fc.oneof(fc.float(), fc.double({ min: -1e38, max: 1e38 })), exactly(length)).map(flat<"float32">()),
      inside(Float32Array, fc.float32Array(exactly(length))).map(flat<"float32">()),
      matrix(length).map(dense2d<"float32">()),
      matrix(length).map(ofRows("float32")),
    )
  const tokens = (length: number) =>
    fc
      .oneof(fc.array(fc.nat(), exactly(length)), inside(Int32Array, fc.int32Array({ min: 0, ...exactly(length) })))
      .map((ids): Given => ({
        modelInput: ids,
        chunks: [{ type: "encoded_text" as const, tokens: Int32Array.from(ids) }],
      }))
  const piece = fc.oneof(
    inside(Int32Array, fc.int32Array({ min: 0 })).map((tokens) => ({ type: "encoded_text" as const, tokens })),
    // Without a length, so that the targets can have any length.
    fc.record({
      type: fc.constant("image" as const),
      data: fc.uint8Array(),
      format: fc.constantFrom("png" as const, "jpeg" as const),
    }),
    fc.uint8Array().map((bytes) => ModelInput.dmel(bytes)),
  )
  const pieces = fc.array(piece).map((some): Given => {
    const chunks = [...some, ModelInput.dmel(Uint8Array.of(1))]
    return { modelInput: ModelInput.fromChunks(chunks), chunks }
  })
  const spans = fc.array(
    fc.record({
      source: fc.constantFrom("prompt" as const, "sampled" as const),
      sequenceId: fc.string(),
      offset: fc.maxSafeNat(),
      length: fc.nat(),
    }),
  )
  const request = fc.record({
    modelId: fc.string({ unit: "grapheme", maxLength: 2000 }),
    seqId: fc.nat(),
    forwardOnly: fc.boolean(),
    config: fc.dictionary(
      fc.string({ unit: "grapheme" }).filter((key) => key !== "__proto__"),
      fc.oneof(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.string({ unit: "grapheme" })),
    ),
    data: fc.array(
      fc.nat(12).chain((length) =>
        fc.record({
          input: fc.oneof(tokens(length), pieces),
          targets: int64(length),
          weights: float32(length),
          spans,
        }),
      ),
      { minLength: 1, maxLength: 5 },
    ),
  })

  const chunkOf = (chunk: ModelInput.Chunk) => {
    switch (chunk.type) {
      case "encoded_text":
        return { case: "encodedText", tokens: Array.from(chunk.tokens) }
      case "image":
        return { case: "image", data: Array.from(chunk.data), format: chunk.format }
      case "dmel":
        return { case: "dmel", dmel: Array.from(chunk.dmel) }
      default:
        return expect.fail("no protobuf form")
    }
  }
  const chunkRead = ({ chunk }: Proto.Chunk) => {
    switch (chunk.case) {
      case "encodedText":
        return { case: chunk.case, tokens: elements(Int32Array, chunk.value.tokens) }
      case "image":
        return { case: chunk.case, data: Array.from(chunk.value.data), format: chunk.value.format }
      case "dmel":
        return { case: chunk.case, dmel: Array.from(chunk.value.dmel) }
      default:
        return expect.fail("an empty chunk")
    }
  }
  const tensorRead = (tensor: Proto.Tensor, array: typeof BigInt64Array | typeof Float32Array) => {
    const { encoding, shape } = tensor
    const values = (bytes: Uint8Array) => elements<BigInt64Array | Float32Array>(array, bytes)
    return {
      shape: shape.map(Number),
      ...(encoding.case === "sparseCsr"
        ? {
            values: values(encoding.value.values),
            crowIndices: elements(BigInt64Array, encoding.value.crowIndices).map(Number),
            colIndices: elements(BigInt64Array, encoding.value.colIndices).map(Number),
          }
        : { values: values(dense(tensor)) }),
    }
  }
  const tensorOf = <D extends TensorData.Dtype>(
    { shape, sparse, values }: Case<D>,
    as: (value: number | bigint) => number | bigint,
  ) => ({
    shape,
    values: values.map(as),
    ...(sparse !== undefined && {
      crowIndices: Array.from(sparse.crowIndices),
      colIndices: Array.from(sparse.colIndices),
    }),
  })

  it.prop("an independent protobuf reader decodes every encoded request to its input", { request }, ({ request }) => {
    const { modelId, seqId, forwardOnly, config } = request
    const bytes = encode(
      unusual("some_loss", config),
      request.data.map(({ input, targets, weights, spans }) => ({
        modelInput: input.modelInput,
        inputs: { targetTokens: targets.input, weights: weights.input },
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
    for (const [index, { input, targets, weights, spans }] of request.data.entries()) {
      const datum = message.data[index]!
      expect(datum.modelInput.map(chunkRead)).toEqual(input.chunks.map(chunkOf))
      const [ints, floats] = [datum.lossFnInputs["target_tokens"]!, datum.lossFnInputs["weights"]!]
      expect([ints.dtype, floats.dtype]).toEqual([Proto.DType.DTYPE_INT64, Proto.DType.DTYPE_FLOAT32])
      expect(tensorRead(ints, BigInt64Array)).toEqual(tensorOf(targets, BigInt))
      expect(tensorRead(floats, Float32Array)).toEqual(tensorOf(weights, (value) => Math.fround(Number(value))))
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

  describe("ForwardBackward.toJson", () => {
    const toJson = <Inputs>(loss: Loss.Loss<Inputs>, data: ReadonlyArray<Datum.Datum<Inputs>>, forwardOnly = false) =>
      Either.flatMap(Loss.prepareUnknown(loss, data), (batch) =>
        ForwardBackward.toJson({ modelId: "model-1", seqId: 3, batch, forwardOnly }),
      )

    it("ForwardBackward.toJson has the shape that open servers accept", () => {
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

    it("ForwardBackward.toJson rejects values that JSON cannot represent", () => {
      const weighing = (...weights: ReadonlyArray<number>) => [
        { ...supervised, inputs: { targetTokens: [2, 3, 4], weights } },
      ]
      expect(failure(toJson(Loss.crossEntropy, weighing(1, Number.NaN, 1)))).toBe(
        "data[0].inputs.weights[1]: JSON cannot represent NaN",
      )
      expect(failure(toJson(Loss.crossEntropy, weighing(1, 1, -Infinity)))).toBe(
        "data[0].inputs.weights[2]: JSON cannot represent -Infinity",
      )
      const large = { targetTokens: BigInt64Array.of(1n, 2n ** 60n, 1n), weights: [1, 1, 1] }
      expect(failure(toJson(Loss.crossEntropy, [supervised, { ...supervised, inputs: large }]))).toBe(
        "data[1].inputs.targetTokens[1]: 1152921504606846976 exceeds ±(2^53 - 1) and cannot be represented exactly as a number",
      )
      expect(
        failure(
          toJson(Loss.crossEntropy, [
            { ...supervised, modelInputSpans: [span("prompt", 1)], lossInputSpans: [span("prompt", 1)] },
          ]),
        ),
      ).toContain("data[0].modelInputSpans: ")
    })

    it("ForwardBackward.toJson writes sparse tensors as dense, because these servers ignore sparse indices", () => {
      expect(toJson(Loss.crossEntropy, [sparse])).toMatchObject(
        Either.right({
          forward_backward_input: {
            data: [
              {
                loss_fn_inputs: {
                  target_tokens: { data: [...row(8, { 0: 5 }), ...row(8), ...row(8, { 7: 6 })], shape: [3, 8] },
                  weights: { data: [...row(8, { 0: 0.5 }), ...row(8), ...row(8, { 7: 1 })], shape: [3, 8] },
                },
              },
            ],
          },
        }),
      )
      expect(JSON.stringify(toJson(Loss.crossEntropy, [sparse]))).not.toContain("sparse")
      const options = { shape: [3, 2 ** 30], sparse: { crowIndices: [0, 0, 0, 0], colIndices: [] } }
      const huge = {
        targetTokens: Either.getOrThrow(TensorData.int64([], options)),
        weights: Either.getOrThrow(TensorData.float32([], options)),
      }
      expect(failure(toJson(Loss.crossEntropy, [{ ...supervised, inputs: huge }]))).toBe(
        "data[0].inputs.targetTokens: too large for a dense array: 3221225472 elements",
      )
    })

    it("ForwardBackward.toJson writes all fields of an image", () => {
      const image = { type: "image" as const, data: Uint8Array.of(1, 2), format: "png" as const, height: 4, tokens: 5 }
      const modelInput = ModelInput.make(image, ModelInput.dmel(Uint8Array.of(3), { length: 9 }))
      const inputs = { targetTokens: row(14), weights: row(14) }
      expect(toJson(Loss.crossEntropy, [{ modelInput, inputs }])).toMatchObject(
        Either.right({
          forward_backward_input: {
            data: [
              {
                model_input: {
                  chunks: [
                    { type: "image", data: "AQI=", format: "png", height: 4, tokens: 5 },
                    { type: "dmel", dmel: "Aw==" },
                  ],
                },
              },
            ],
          },
        }),
      )
    })
  })
})
