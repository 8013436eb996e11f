/**
 * Decodes forward and forward-backward requests from protobuf or JSON into the same value. For authors of servers.
 *
 * @since 0.1.0
 */
import { fromBinary } from "@bufbuild/protobuf"
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import {
  type Chunk as ChunkMessage,
  type Datum as DatumMessage,
  DatumSchema,
  DType,
  type ForwardBackwardRequest,
  ForwardBackwardRequestSchema,
  type Tensor,
} from "../internal/codec/proto/tinker_public_pb.ts"
import * as ModelInput from "../ModelInput.ts"
import * as TensorData from "../TensorData.ts"

/**
 * A datum of a request.
 *
 * @since 0.1.0
 * @category models
 */
export interface Datum {
  readonly input: ModelInput.ModelInput
  /** The inputs sorted by name, because a protobuf map has no order. */
  readonly inputs: ReadonlyMap<string, TensorData.TensorData>
}

/**
 * A decoded forward or forward-backward request.
 *
 * @since 0.1.0
 * @category models
 */
export interface PassRequest {
  readonly modelId: string
  readonly seqId: number
  readonly forwardOnly: boolean
  readonly loss: string
  readonly config: Readonly<Record<string, number | string>>
  readonly data: ReadonlyArray<Datum>
}

/** A value, or the reason why it is invalid. */
type Read<A> = Either.Either<A, string>

/**
 * Decodes a protobuf message; fails with the reason.
 *
 * @since 0.1.0
 * @category protobuf
 */
export const message = (bytes: Uint8Array): Either.Either<ForwardBackwardRequest, string> =>
  Either.try({
    try: () => fromBinary(ForwardBackwardRequestSchema, bytes),
    catch: (cause) => `not a ForwardBackwardRequest: ${cause instanceof Error ? cause.message : String(cause)}`,
  })

const byName = <A>(entries: ReadonlyArray<readonly [string, A]>): ReadonlyMap<string, A> =>
  new Map(entries.toSorted(([a], [b]) => (a < b ? -1 : 1)))

/** Copies the bytes to align them. */
const copyOf = (bytes: Uint8Array): ArrayBuffer => new Uint8Array(bytes).buffer

/** Reads int64 values. Token ids nearly always fit into int32 and are then stored as such, like those from JSON. */
const integers = (bytes: Uint8Array): Int32Array | BigInt64Array => {
  const halves = int32s(bytes)
  const low = new Int32Array(halves.length >> 1)
  for (let i = 0; i < low.length; i++) {
    const value = halves[2 * i] ?? 0
    if (halves[2 * i + 1] !== value >> 31) return int64s(bytes)
    low[i] = value
  }
  return low
}

const int32s = (bytes: Uint8Array): Int32Array => new Int32Array(copyOf(bytes), 0, bytes.length >> 2)
const int64s = (bytes: Uint8Array): BigInt64Array => new BigInt64Array(copyOf(bytes), 0, bytes.length >> 3)
const float32s = (bytes: Uint8Array): Float32Array => new Float32Array(copyOf(bytes), 0, bytes.length >> 2)
const indices = (bytes: Uint8Array): ReadonlyArray<number> => Array.from(int64s(bytes), Number)

const tensorOf = ({ dtype, encoding, shape }: Tensor, name: string): Read<TensorData.TensorData> => {
  const bytes = encoding.case === "sparseCsr" ? encoding.value.values : (encoding.value ?? new Uint8Array(0))
  const options: TensorData.Options = {
    ...(shape.length > 0 && { shape: shape.map(Number) }),
    ...(encoding.case === "sparseCsr" && {
      sparse: { crowIndices: indices(encoding.value.crowIndices), colIndices: indices(encoding.value.colIndices) },
    }),
  }
  const tensor: Either.Either<TensorData.TensorData, { readonly message: string }> =
    dtype === DType.DTYPE_FLOAT32
      ? TensorData.float32(float32s(bytes), options)
      : dtype === DType.DTYPE_INT64
        ? TensorData.int64(integers(bytes), options)
        : Either.left({ message: `unknown dtype ${dtype}` })
  return Either.mapLeft(tensor, ({ message }) => `${name}: ${message}`)
}

const formatOf = (format: string): "png" | "jpeg" => (format === "jpeg" ? "jpeg" : "png")

const chunkOf = ({ chunk }: ChunkMessage): ReadonlyArray<ModelInput.Chunk> => {
  switch (chunk.case) {
    case "encodedText":
      return [{ type: "encoded_text", tokens: int32s(chunk.value.tokens) }]
    case "image": {
      const { data, expectedTokens, format } = chunk.value
      return [
        { type: "image", data, format: formatOf(format), ...(expectedTokens !== undefined && { expectedTokens }) },
      ]
    }
    case "dmel":
      return [ModelInput.dmel(chunk.value.dmel)]
    case undefined:
      return []
  }
}

const datumOf = (datum: DatumMessage): Read<Datum> =>
  Either.map(
    Either.all(
      Object.entries(datum.lossFnInputs).map(([name, tensor]) =>
        Either.map(tensorOf(tensor, name), (tensor) => [name, tensor] as const),
      ),
    ),
    (inputs) => ({ input: ModelInput.fromChunks(datum.modelInput.flatMap(chunkOf)), inputs: byName(inputs) }),
  )

const configOf = ({ lossFnConfig, lossFnConfigV2 }: ForwardBackwardRequest): PassRequest["config"] => ({
  ...lossFnConfig,
  ...Object.fromEntries(
    Object.entries(lossFnConfigV2).flatMap(([name, { value }]) =>
      value.case === undefined ? [] : [[name, value.value]],
    ),
  ),
})

/**
 * Converts a protobuf message to a request.
 *
 * @since 0.1.0
 * @category protobuf
 */
export const fromMessage = (request: ForwardBackwardRequest): Either.Either<PassRequest, string> =>
  Either.map(
    Either.all(request.data.map((datum, i) => Either.mapLeft(datumOf(datum), (problem) => `data[${i}].${problem}`))),
    (data) => ({
      modelId: request.modelId,
      seqId: request.seqId,
      forwardOnly: request.forwardOnly,
      loss: request.lossFn,
      config: configOf(request),
      data,
    }),
  )

/**
 * Decodes the protobuf message of a single datum; fails with the reason.
 *
 * @since 0.1.0
 * @category protobuf
 */
export const datumFromProtobuf = (bytes: Uint8Array): Either.Either<Datum, string> =>
  Either.flatMap(
    Either.try({
      try: () => fromBinary(DatumSchema, bytes),
      catch: (cause) => `not a Datum: ${cause instanceof Error ? cause.message : String(cause)}`,
    }),
    datumOf,
  )

/**
 * The JSON form of a datum.
 *
 * @since 0.1.0
 * @category json
 */
export const DatumBody = Schema.Struct({
  model_input: ModelInput.ModelInput,
  loss_fn_inputs: Schema.Record({ key: Schema.String, value: TensorData.TensorData }),
})

/**
 * Converts the JSON form of a datum.
 *
 * @since 0.1.0
 * @category json
 */
export const fromDatumBody = (datum: typeof DatumBody.Type): Datum => ({
  input: datum.model_input,
  inputs: byName(Object.entries(datum.loss_fn_inputs)),
})

const Input = Schema.Struct({
  data: Schema.Array(DatumBody),
  loss_fn: Schema.String,
  loss_fn_config: Schema.optional(
    Schema.NullOr(Schema.Record({ key: Schema.String, value: Schema.Union(Schema.Number, Schema.String) })),
  ),
})
const common = { model_id: Schema.String, seq_id: Schema.NonNegativeInt, type: Schema.optional(Schema.Unknown) }

/**
 * The JSON body of a forward request.
 *
 * @since 0.1.0
 * @category json
 */
export const ForwardBody = Schema.Struct({ ...common, forward_input: Input })

/**
 * The JSON body of a forward-backward request.
 *
 * @since 0.1.0
 * @category json
 */
export const ForwardBackwardBody = Schema.Struct({ ...common, forward_backward_input: Input })

/**
 * Converts a JSON body to a request.
 *
 * @since 0.1.0
 * @category json
 */
export const fromBody = (body: typeof ForwardBody.Type | typeof ForwardBackwardBody.Type): PassRequest => {
  const forwardOnly = "forward_input" in body
  const input = forwardOnly ? body.forward_input : body.forward_backward_input
  return {
    modelId: body.model_id,
    seqId: body.seq_id,
    forwardOnly,
    loss: input.loss_fn,
    config: input.loss_fn_config ?? {},
    data: input.data.map(fromDatumBody),
  }
}
