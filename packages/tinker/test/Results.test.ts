import { create, fromBinary, toBinary } from "@bufbuild/protobuf"
import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc, Option, Schema } from "effect"
import * as Proto from "effect-tinker/protocol/Proto"
import * as SampleResult from "effect-tinker/SampleResult"
import * as TensorData from "effect-tinker/TensorData"
import * as TrainingResult from "effect-tinker/TrainingResult"
import { readFileSync } from "node:fs"

const training = [
  "vectors/forward_backward_response_bf16.json",
  "vectors/forward_backward_response_int32_trailing.json",
  "vectors/forward_backward_response_no_outputs.json",
  "vectors/forward_backward_response_stripped_fields.json",
  "vectors/forward_backward_response_two_records.json",
]
const sampling = [
  "vectors/sample_response_topk.json",
  "vectors/sample_prompt_alt_tokens.json",
  "vectors/sample_target_prompt_logprobs_sparse.json",
  "vectors/sample_prompt_logprobs_last_n.json",
]

const wire = (file: string) => JSON.parse(readFileSync(new URL(`../../../test/wire/${file}`, import.meta.url), "utf8"))

interface Answer {
  readonly bodyBase64?: string
  readonly headers?: Readonly<Record<string, string>>
}
const bytesOf = (answer: Answer) => new Uint8Array(Buffer.from(answer.bodyBase64 ?? "", "base64"))
const lastAnswer = (vector: { readonly exchanges: ReadonlyArray<{ readonly response: Answer }> }) =>
  bytesOf(vector.exchanges.map(({ response }) => response).findLast(({ bodyBase64 }) => bodyBase64 !== undefined)!)

/** The recorded result, which the reference decoded from the same bytes, in the encoded form of our result. */
const untyped = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(untyped)
  if (typeof value !== "object" || value === null) return value
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key, value]) => key !== "$type" && key !== "sequence_id" && value !== null)
      .map(([key, value]) => [key, untyped(value)]),
  )
}

const failure = (result: Either.Either<unknown, Error>) =>
  Either.match(result, { onLeft: (error) => error.message, onRight: () => "no failure" })

const float32 = (...values: ReadonlyArray<number>) => new Uint8Array(Float32Array.from(values).buffer)
const int32 = (...values: ReadonlyArray<number>) => new Uint8Array(Int32Array.from(values).buffer)
const int64 = (...values: ReadonlyArray<number>) => new Uint8Array(BigInt64Array.from(values, BigInt).buffer)

describe("TrainingResult", () => {
  it.each(training)("TrainingResult decodes what the reference decodes: %s", (file) => {
    const vector = wire(file)
    const result = Either.getOrThrow(TrainingResult.fromProtobuf(lastAnswer(vector)))
    expect(Schema.encodeSync(TrainingResult.TrainingResult)(result)).toEqual(untyped(vector.result))
  })

  it("TrainingResult decodes a compressed response: behaviours/response_compression.json", () => {
    const behaviour = wire("behaviours/response_compression.json")
    const answer = behaviour.script.find((answer: Answer) => answer.bodyBase64 !== undefined)
    const result = Either.getOrThrow(TrainingResult.fromProtobuf(bytesOf(answer)))
    expect(Schema.encodeSync(TrainingResult.TrainingResult)(result)).toEqual(untyped(behaviour.expect.result))
  })

  it("TrainingResult decodes JSON to the same result", () => {
    const json = {
      loss_fn_output_type: "pkg.mod:CrossEntropyReturn",
      loss_fn_outputs: [{ logprobs: { data: [-0.5, null], dtype: "float32", shape: [2] } }, {}],
      metrics: { "loss:sum": 1, "grad_norm:mean": null },
    }
    const result = Either.getOrThrow(TrainingResult.fromJson(json))
    expect(result.outputType).toBe("CrossEntropyReturn")
    expect(result.outputs[0]?.["logprobs"]?.data).toEqual(Float32Array.of(-0.5, Number.NaN))
    expect(result.outputs[1]).toEqual({})
    expect(result.metrics).toEqual({ "loss:sum": 1, "grad_norm:mean": Number.NaN })
    const nothing = Either.right({ outputType: "ArrayRecord", outputs: [], metrics: {} })
    expect(TrainingResult.fromJson({ metrics: null })).toEqual(nothing)
    expect(TrainingResult.fromJson({ loss_fn_output_type: "" })).toEqual(nothing)
    expect(TrainingResult.fromProtobuf(new Uint8Array(0))).toEqual(nothing)
    expect(failure(TrainingResult.fromJson(JSON.parse('{"metrics": {"a": 1e999}}')))).toContain(
      "Expected a finite number or NaN",
    )
    expect(() =>
      Schema.encodeSync(TrainingResult.TrainingResult)({ ...result, metrics: { "loss:sum": Infinity } }),
    ).toThrow("Expected a finite number or NaN")
  })

  const field = create(Proto.BatchedTensorSchema, {
    data: float32(1, 2, 3),
    offsets: int64(0, 8, 12),
    dtype: Proto.DType.DTYPE_FLOAT32,
  })
  const message = (fields: Record<string, Proto.BatchedTensor>, numDatums = 0n) =>
    toBinary(
      Proto.ForwardBackwardOutputSchema,
      create(Proto.ForwardBackwardOutputSchema, { lossFnOutputs: [{ fields, numDatums }] }),
    )

  it("TrainingResult counts the datums if the server did not", () => {
    const result = Either.getOrThrow(TrainingResult.fromProtobuf(message({ logprobs: field })))
    expect(result.outputs.map((output) => Array.from<unknown>(output["logprobs"]!.data))).toEqual([[1, 2], [3]])
    expect(result.outputType).toBe("")
  })

  it("TrainingResult uses aligned bytes in place and copies unaligned bytes once", () => {
    const bytes = message({ logprobs: field })
    const at = (offset: number) => {
      const memory = new Uint8Array(bytes.length + 8)
      memory.set(bytes, offset)
      const { outputs } = Either.getOrThrow(TrainingResult.fromProtobuf(memory.subarray(offset, offset + bytes.length)))
      const [first, second] = outputs.map((output) => output["logprobs"]!.data)
      expect([Array.from<unknown>(first!), Array.from<unknown>(second!)]).toEqual([[1, 2], [3]])
      return { shared: first!.buffer === memory.buffer, once: first!.buffer === second!.buffer }
    }
    const found = [0, 1, 2, 3].map(at)
    expect(found.filter(({ shared }) => shared).length).toBe(1)
    expect(found.every(({ once }) => once)).toBe(true)
  })

  it("TrainingResult decodes the same result from a Node Buffer, which slices differently", () => {
    const bytes = Buffer.concat([Buffer.of(0), message({ logprobs: field })]).subarray(1)
    expect(TrainingResult.fromProtobuf(bytes)).toEqual(TrainingResult.fromProtobuf(new Uint8Array(bytes)))
  })

  it("TrainingResult keeps int64 values exact", () => {
    const ids = create(Proto.BatchedTensorSchema, {
      data: new Uint8Array(BigInt64Array.of(2n ** 60n, -1n).buffer),
      offsets: int64(0, 16),
      dtype: Proto.DType.DTYPE_INT64,
    })
    const [output] = Either.getOrThrow(TrainingResult.fromProtobuf(message({ ids }))).outputs
    expect(output?.["ids"]?.data).toEqual(BigInt64Array.of(2n ** 60n, -1n))
    expect(output?.["ids"]?.shape).toEqual([2])
  })

  it("TrainingResult reports malformed bytes as a failure with a description", () => {
    const odd = (init: Parameters<typeof create<typeof Proto.BatchedTensorSchema>>[1]) =>
      failure(
        TrainingResult.fromProtobuf(message({ logprobs: create(Proto.BatchedTensorSchema, { ...field, ...init }) })),
      )
    expect(failure(TrainingResult.fromProtobuf(Uint8Array.of(255, 255, 1)))).toContain("not a ForwardBackwardOutput: ")
    expect(odd({ dtype: Proto.DType.DTYPE_UNSPECIFIED })).toContain("unknown tensor dtype 0")
    expect(odd({ dtype: 9 as never })).toContain("unknown tensor dtype 9")
    expect(odd({ data: Uint8Array.of(1, 2, 3) })).toContain("3 bytes are not a multiple of the element size 4")
    expect(odd({ offsets: int64(0, 16) })).toContain("offsets 0 to 16")
    expect(odd({ offsets: int64(8, 4) })).toContain("offsets 8 to 4")
    expect(odd({ offsets: int64(0, 6) })).toContain("offsets 0 to 6")
    expect(odd({ trailingShape: [-1n] })).toContain("invalid trailing shape [-1]")
    expect(odd({ trailingShape: [0n] })).toContain("offsets 0 to 8 do not delimit rows of 0")
    expect(odd({ trailingShape: [2n] })).toContain("offsets 8 to 12 do not delimit rows of 2")
    expect(failure(TrainingResult.fromProtobuf(message({ logprobs: field }, 3n)))).toContain(
      "logprobs has 2 datums, expected 3",
    )
    expect(failure(TrainingResult.fromJson({ loss_fn_outputs: [{ logprobs: { data: [1] } }] }))).toContain("dtype")
  })

  it("TrainingResult has empty objects for datums without fields, but limits their number", () => {
    expect(Either.map(TrainingResult.fromProtobuf(message({}, 3n)), ({ outputs }) => outputs)).toEqual(
      Either.right([{}, {}, {}]),
    )
    expect(failure(TrainingResult.fromProtobuf(message({}, 1_000_001n)))).toContain("1000001 datums without fields")
    const many = toBinary(
      Proto.ForwardBackwardOutputSchema,
      create(Proto.ForwardBackwardOutputSchema, {
        lossFnOutputs: Array.from({ length: 100 }, () => ({ numDatums: 900_000n })),
      }),
    )
    expect(failure(TrainingResult.fromProtobuf(many))).toContain("90000000 datums without fields")
    expect(failure(TrainingResult.fromProtobuf(message({ logprobs: field }, 2n ** 40n)))).toContain(
      "has 2 datums, expected",
    )
  })

  it("logprobs returns an array per datum without a cast, and names the output that has none", () => {
    const tensor = Either.getOrThrow(TensorData.float32([-0.5, -1]))
    const result = (outputs: ReadonlyArray<Record<string, TensorData.TensorData>>) => ({
      outputType: "",
      metrics: {},
      outputs,
    })
    const [first] = Either.getOrThrow(TrainingResult.logprobs(result([{ logprobs: tensor }])))
    expect(first).toEqual(new Float32Array([-0.5, -1]))
    const problem = (outputs: ReadonlyArray<Record<string, TensorData.TensorData>>) =>
      Either.getOrThrow(Either.flip(TrainingResult.logprobs(result(outputs)))).message
    expect(problem([{ logprobs: tensor }, {}])).toContain("outputs[1].logprobs: missing")
    expect(problem([{ logprobs: Either.getOrThrow(TensorData.int64([1])) }])).toContain("expected dense float32")
  })

  describe("the fast protobuf reader", () => {
    /** An unknown field: the generated reader skips it, and the fast reader gives up. */
    const unknownField = Uint8Array.of(0x78, 1)
    const withUnknownField = (bytes: Uint8Array) => Uint8Array.from([...bytes, ...unknownField])
    const name = fc.oneof(fc.constantFrom("logprobs", "elementwise_loss", "ä", ""), fc.string({ unit: "grapheme" }))
    const named = <A>(value: fc.Arbitrary<A>) =>
      fc.dictionary(
        name.filter((key) => key !== "__proto__"),
        value,
        { maxKeys: 3 },
      )
    const batch = fc.array(fc.nat(5), { maxLength: 4 }).chain((lengths) =>
      named(fc.constantFrom(Proto.DType.DTYPE_FLOAT32, Proto.DType.DTYPE_INT32, Proto.DType.DTYPE_INT64)).map(
        (dtypes) => ({
          numDatums: BigInt(lengths.length),
          typeTag: "mod:Type",
          fields: Object.fromEntries(
            Object.entries(dtypes).map(([name, dtype]) => {
              const size = dtype === Proto.DType.DTYPE_INT64 ? 8 : 4
              const ends = lengths.map((_, index) => 2 * lengths.slice(0, index + 1).reduce((a, b) => a + b, 0))
              const data = new Uint8Array((ends.at(-1) ?? 0) * size).map((_, index) => index)
              const offsets = int64(0, ...ends.map((end) => end * size))
              return [name, create(Proto.BatchedTensorSchema, { data, offsets, dtype, trailingShape: [2n] })]
            }),
          ),
        }),
      ),
    )
    const messages = fc
      .record({
        lossFnOutputType: name,
        lossFnOutputs: fc.array(batch, { maxLength: 2 }),
        metrics: named(fc.double()),
      })
      .map((init) => toBinary(Proto.ForwardBackwardOutputSchema, create(Proto.ForwardBackwardOutputSchema, init)))

    it("the fast protobuf reader agrees with the generated reader", () => {
      fc.assert(
        fc.property(messages, (bytes) => {
          const result = TrainingResult.fromProtobuf(bytes)
          expect(Either.isRight(result)).toBe(true)
          expect(result).toEqual(TrainingResult.fromProtobuf(withUnknownField(bytes)))
        }),
        { numRuns: 300 },
      )
    })

    it("the fast protobuf reader fails where the generated reader fails", () => {
      const readable = (bytes: Uint8Array) => Either.try(() => fromBinary(Proto.ForwardBackwardOutputSchema, bytes))
      let failures = 0
      fc.assert(
        fc.property(messages, fc.nat(), fc.nat(255), (bytes, at, byte) => {
          const broken = Uint8Array.from(bytes)
          if (broken.length > 0) broken[at % broken.length] = byte
          const cut = byte % 2 === 0 ? broken : broken.subarray(0, at % (broken.length + 1))
          if (Either.isRight(readable(cut))) return
          failures++
          expect(Either.isLeft(TrainingResult.fromProtobuf(cut))).toBe(true)
        }),
        { numRuns: 500 },
      )
      expect(failures).toBeGreaterThan(20)
    })
  })

  // Random bytes are rarely a message; these are messages with random numbers.
  const wild = fc
    .record({
      numDatums: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
      fields: fc.dictionary(
        fc.string(),
        fc.record({
          data: fc.uint8Array({ maxLength: 32 }),
          offsets: fc.oneof(
            fc.uint8Array({ maxLength: 32 }),
            fc.array(fc.nat(40)).map((cuts) => int64(...cuts)),
          ),
          dtype: fc.nat(5),
          trailingShape: fc.array(fc.bigInt({ min: -1n, max: 2n ** 62n })),
        }),
        { maxKeys: 2 },
      ),
    })
    .map(({ fields, numDatums }) =>
      message(
        Object.fromEntries(
          Object.entries(fields).map(([name, init]) => [
            name,
            create(Proto.BatchedTensorSchema, { ...init, dtype: init.dtype as Proto.DType }),
          ]),
        ),
        numDatums,
      ),
    )

  it.prop(
    "TrainingResult.fromProtobuf never throws, whatever the bytes",
    [fc.oneof(fc.uint8Array({ maxLength: 64 }), wild)],
    ([bytes]) => {
      expect(Either.isEither(TrainingResult.fromProtobuf(bytes))).toBe(true)
      expect(Either.isEither(SampleResult.fromProtobuf(bytes))).toBe(true)
    },
    { fastCheck: { examples: [[message({}, 2n ** 62n)]] } },
  )

  const floats = fc.array(fc.float32Array(), { minLength: 1, maxLength: 4 })
  const wholes = fc.array(fc.bigInt64Array(), { minLength: 1, maxLength: 4 })
  const batch = (dtype: Proto.DType, arrays: ReadonlyArray<Float32Array | BigInt64Array>) => {
    const sizes = arrays.map(({ byteLength }) => byteLength)
    const cuts = sizes.reduce<Array<number>>((cuts, size) => [...cuts, (cuts.at(-1) ?? 0) + size], [0])
    const bytes = (array: Float32Array | BigInt64Array) =>
      new Uint8Array(array.buffer, array.byteOffset, array.byteLength)
    return create(Proto.BatchedTensorSchema, { data: Buffer.concat(arrays.map(bytes)), offsets: int64(...cuts), dtype })
  }

  it.prop(
    "TrainingResult decodes what an independent writer encoded",
    { floats, wholes, type: fc.string() },
    ({ floats, wholes, type }) => {
      const metrics = { "loss:sum": Number.NaN, "other:max": Infinity }
      const bytes = toBinary(
        Proto.ForwardBackwardOutputSchema,
        create(Proto.ForwardBackwardOutputSchema, {
          lossFnOutputType: `module:${type.replaceAll(":", "")}`,
          lossFnOutputs: [
            { fields: { logprobs: batch(Proto.DType.DTYPE_FLOAT32, floats) }, numDatums: BigInt(floats.length) },
            { fields: { ids: batch(Proto.DType.DTYPE_INT64, wholes) } },
          ],
          metrics,
        }),
      )
      const result = Either.getOrThrow(TrainingResult.fromProtobuf(bytes))
      expect(result.outputType).toBe(type.replaceAll(":", ""))
      expect(result.metrics).toEqual(metrics)
      expect(result.outputs.map((output) => output["logprobs"]?.data ?? output["ids"]?.data)).toEqual([
        ...floats,
        ...wholes,
      ])
      expect(result.outputs.map((output) => (output["logprobs"] ?? output["ids"])?.shape)).toEqual(
        [...floats, ...wholes].map(({ length }) => [length]),
      )
    },
  )
})

describe("SampleResult", () => {
  const json = Schema.encodeSync(SampleResult.SampleResult)

  it.each(sampling)("SampleResult decodes what the reference decodes: %s", (file) => {
    const vector = wire(file)
    const result = Either.getOrThrow(SampleResult.fromProtobuf(lastAnswer(vector)))
    expect(json(result)).toEqual(untyped(vector.result))
    // JSON decodes to the same result.
    const same = Either.getOrThrow(SampleResult.fromJson(vector.result))
    const ids = vector.result.sequences.map((sequence: { readonly sequence_id: string }) => sequence.sequence_id)
    expect(json(same)).toEqual(json(SampleResult.withSequenceIds(result, ids)))
  })

  const rows = (topk: SampleResult.TopkLogprobs) =>
    Array.from({ length: topk.length }, (_, position) => SampleResult.topkRow(topk, position))

  it("SampleResult reads top-k log probabilities in place, row by row, including null and short rows", () => {
    const { topkPromptLogprobs } = Either.getOrThrow(
      SampleResult.fromProtobuf(
        message({
          topkPromptLogprobs: {
            k: 2,
            length: 4,
            tokenIds: int32(0, 0, 5, 6, 7, 0, 0, 3),
            logprobs: float32(-99999, -99999, -0.5, -1, -0.25, -99999, -0.125, Number.NaN),
          },
        }),
      ),
    )
    const topk = Option.getOrThrow(topkPromptLogprobs)
    expect(topk.tokenIds).toBeInstanceOf(Int32Array)
    const expected = [
      null,
      [
        [5, -0.5],
        [6, -1],
      ],
      [[7, -0.25]],
      [
        [0, -0.125],
        [3, Number.NaN],
      ],
    ]
    expect(rows(topk)).toEqual(expected)
    expect([-1, 4].map((position) => SampleResult.topkRow(topk, position))).toEqual([null, null])
    const sent = expected.map((row) => row?.map(([token, logprob]) => [token, Number.isNaN(logprob) ? null : logprob]))
    const read = SampleResult.fromJson(JSON.parse(JSON.stringify({ sequences: [], topk_prompt_logprobs: sent })))
    expect(Either.map(read, (result) => result.topkPromptLogprobs)).toEqual(Either.right(Option.some(topk)))
    expect(Schema.encodeSync(SampleResult.TopkLogprobs)(topk)).toEqual(JSON.parse(JSON.stringify(sent)))
  })

  it("SampleResult rejects top-k log probabilities that are malformed or too large", () => {
    const bad = (topk_prompt_logprobs: unknown) =>
      failure(SampleResult.fromJson({ sequences: [], topk_prompt_logprobs }))
    expect(bad([null, 5])).toContain("[1]: expected an array, got 5")
    expect(bad([[[1.5, 0]]])).toContain("[0][0]: expected a token id and its log probability")
    expect(bad([[[1, "x"]]])).toContain("[0][0]: expected a token id")
    expect(bad([[[1, 0], null]])).toContain("[0][1]: expected a token id")
    expect(bad("x")).toContain("an array of rows")
    const wide = Array.from({ length: 10_000 }, () => [1, 0])
    expect(bad([wide, ...Array.from({ length: 10_000 }, () => null)])).toContain("10001 rows of up to 10000 cells")
    expect(bad([])).toBe("no failure")
    expect(bad([null, []])).toBe("no failure")
  })

  it("SampleResult encodes the request for target log probabilities as the reference does", () => {
    const { target_prompt_logprobs } = wire("vectors/sample_target_prompt_logprobs_sparse.json").exchanges[0].request
      .body
    const tensor = Either.getOrThrow(
      TensorData.int64([6], { shape: [3, 4], sparse: { crowIndices: [0, 0, 0, 1], colIndices: [2] } }),
    )
    expect(Schema.encodeSync(TensorData.TensorData)(tensor)).toStrictEqual(target_prompt_logprobs)
  })

  const message = (init: Parameters<typeof create<typeof Proto.SampleResponseSchema>>[1]) =>
    toBinary(Proto.SampleResponseSchema, create(Proto.SampleResponseSchema, init))

  const bytes = fc.uint8Array({ maxLength: 300 })
  it.prop(
    "the fast and the generated SampleResult reader agree",
    [
      fc.array(
        fc.record({
          tokens: bytes,
          logprobs: fc.option(bytes, { nil: undefined }),
          stopReason: fc.constantFrom(Proto.StopReason.STOP, Proto.StopReason.LENGTH),
        }),
      ),
      fc.option(bytes, { nil: undefined }),
      fc.integer(),
      fc.nat(),
    ],
    ([sequences, promptLogprobs, promptCacheHitTokens, cut]) => {
      const plain = message({
        sequences: sequences.map(({ logprobs, ...rest }) => (logprobs === undefined ? rest : { ...rest, logprobs })),
        ...(promptLogprobs === undefined ? {} : { promptLogprobs }),
        promptCacheHitTokens,
      })
      // An empty top-k table means none, and is left to the generated reader.
      const rare = Uint8Array.of(...plain, 0x1a, 0x00)
      const read = (bytes: Uint8Array) => Either.mapLeft(SampleResult.fromProtobuf(bytes), ({ message }) => message)
      expect(read(plain)).toEqual(read(rare))
      // A truncated message is an error or a shorter result; it never throws.
      expect(Either.isEither(read(plain.subarray(0, cut % (plain.length + 1))))).toBe(true)
    },
    { fastCheck: { numRuns: 300 } },
  )

  it("SampleResult has no values for fields that were not requested", () => {
    const result = Either.getOrThrow(
      SampleResult.fromProtobuf(
        message({
          sequences: [{ tokens: int32(7), logprobs: new Uint8Array(0) }],
          promptLogprobs: new Uint8Array(0),
          topkPromptLogprobs: { k: 0, length: 4 },
        }),
      ),
    )
    expect(result).toEqual({
      sequences: [
        {
          tokens: Int32Array.of(7),
          logprobs: Option.none(),
          stopReason: "stop",
          topkLogprobs: Option.none(),
          sequenceId: Option.none(),
        },
      ],
      promptLogprobs: Option.none(),
      topkPromptLogprobs: Option.none(),
      promptCacheHitTokens: 0,
      targetPromptLogprobs: Option.none(),
      promptAltTokens: Option.none(),
    })
  })

  it("SampleResult decodes the JSON of open servers to the same result", () => {
    const result = Either.getOrThrow(
      SampleResult.fromJson({
        type: "sample",
        sequences: [{ stop_reason: "length", tokens: [7, 8], logprobs: [-0.5, -1] }],
        prompt_logprobs: [null, -0.25],
        topk_prompt_logprobs: [null, [[5, -0.5]]],
      }),
    )
    expect(result.sequences[0]).toMatchObject({
      tokens: Int32Array.of(7, 8),
      logprobs: Option.some(Float32Array.of(-0.5, -1)),
      stopReason: "length",
    })
    expect(Option.map(result.promptLogprobs, SampleResult.toNullable)).toEqual(Option.some([null, -0.25]))
    expect(Option.map(result.topkPromptLogprobs, rows)).toEqual(Option.some([null, [[5, -0.5]]]))
    expect(result.promptCacheHitTokens).toBe(0)
  })

  it("SampleResult aligns prompt log probabilities that are one short", () => {
    const aligned = (prompt_logprobs: ReadonlyArray<number | null>) =>
      Option.map(
        SampleResult.alignPromptLogprobs(
          Either.getOrThrow(SampleResult.fromJson({ sequences: [], prompt_logprobs })),
          3,
        ).promptLogprobs,
        SampleResult.toNullable,
      )
    expect(aligned([-0.5, -1])).toEqual(Option.some([null, -0.5, -1]))
    expect(aligned([null, -0.5, -1])).toEqual(Option.some([null, -0.5, -1]))
    expect(aligned([-0.5])).toEqual(Option.some([-0.5]))
    expect(aligned([])).toEqual(Option.some([]))
    expect(aligned([null, -0.5, -1, -2])).toEqual(Option.some([null, -0.5, -1, -2]))
  })

  it("SampleResult reports malformed bytes or JSON as a failure with a description", () => {
    const bad = (init: Parameters<typeof message>[0]) => failure(SampleResult.fromProtobuf(message(init)))
    expect(bad({ sequences: [{ stopReason: 2 as never }] })).toContain("not a SampleResponse: unknown stop reason 2")
    expect(bad({ sequences: [{ tokens: Uint8Array.of(1) }] })).toContain("1 bytes are not a multiple")
    expect(bad({ topkPromptLogprobs: { k: 2, length: 2, tokenIds: int32(1), logprobs: float32(1) } })).toContain(
      "the top 2 of 2 positions require 4 cells",
    )
    expect(
      bad({ targetPromptLogprobs: { dtype: 1, shape: [4n], encoding: { case: "dense", value: float32(1) } } }),
    ).toContain("[4] has 4 elements, got 1")
    expect(failure(SampleResult.fromJson({ sequences: [{ tokens: [1], stop_reason: "tired" }] }))).toContain(
      "stop_reason",
    )
    expect(failure(SampleResult.fromJson({ sequences: [], prompt_logprobs: ["x"] }))).toContain(
      "[0]: expected a number, got a string",
    )
  })

  const sampled = fc.record({
    tokens: fc.int32Array(),
    logprobs: fc.float32Array({ minLength: 1 }),
    reason: fc.constantFrom("stop" as const, "length" as const),
  })

  it.prop(
    "SampleResult decodes what an independent writer encoded",
    { sequences: fc.array(sampled), hits: fc.nat(), cells: fc.array(fc.tuple(fc.nat(), fc.float()), { minLength: 1 }) },
    ({ cells, hits, sequences }) => {
      const bytes = message({
        sequences: sequences.map(({ tokens, logprobs, reason }) => ({
          tokens: int32(...tokens),
          logprobs: float32(...logprobs),
          stopReason: reason === "stop" ? Proto.StopReason.STOP : Proto.StopReason.LENGTH,
        })),
        promptCacheHitTokens: hits,
        topkPromptLogprobs: {
          k: 1,
          length: cells.length,
          tokenIds: int32(...cells.map(([token]) => token)),
          logprobs: float32(...cells.map(([, logprob]) => logprob)),
        },
      })
      const result = Either.getOrThrow(SampleResult.fromProtobuf(bytes))
      expect(result.sequences).toMatchObject(
        sequences.map(({ tokens, logprobs, reason }) => ({
          tokens,
          logprobs: Option.some(logprobs),
          stopReason: reason,
        })),
      )
      expect(result.promptCacheHitTokens).toBe(hits)
      expect(Option.map(result.topkPromptLogprobs, rows)).toEqual(Option.some(cells.map((cell) => [cell])))
    },
  )

  it.prop(
    "SampleResult survives a JSON round trip",
    {
      tokens: fc.array(fc.nat()),
      logprobs: fc.option(fc.float32Array({ noDefaultInfinity: true })),
      prompt: fc.option(fc.float32Array({ noDefaultInfinity: true })),
      hits: fc.nat(),
    },
    ({ tokens, logprobs, prompt, hits }) => {
      const result: SampleResult.SampleResult = {
        sequences: [
          {
            tokens: Int32Array.from(tokens),
            logprobs: Option.fromNullable(logprobs),
            stopReason: "stop",
            topkLogprobs: Option.none(),
            sequenceId: Option.none(),
          },
        ],
        promptLogprobs: Option.fromNullable(prompt),
        topkPromptLogprobs: Option.none(),
        promptCacheHitTokens: hits,
        targetPromptLogprobs: Option.none(),
        promptAltTokens: Option.none(),
      }
      expect(SampleResult.fromJson(JSON.parse(JSON.stringify(json(result))))).toEqual(
        // JSON has only one zero.
        Either.right(withoutNegativeZero(result)),
      )
    },
  )
})

const withoutNegativeZero = (result: SampleResult.SampleResult): SampleResult.SampleResult => {
  const positive = (values: Float32Array) => values.map((value) => (value === 0 ? 0 : value))
  return {
    ...result,
    sequences: result.sequences.map((sequence) => ({ ...sequence, logprobs: Option.map(sequence.logprobs, positive) })),
    promptLogprobs: Option.map(result.promptLogprobs, positive),
  }
}
