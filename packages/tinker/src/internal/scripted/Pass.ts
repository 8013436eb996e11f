/** The request of a forward or forward-backward pass, read from either wire into the same value. */
import { fromBinary } from "@bufbuild/protobuf"
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import { ModelInput } from "../../ModelInput.ts"
import * as TensorData from "../../TensorData.ts"
import {
  type Chunk,
  type Datum as DatumMessage,
  DType,
  type ForwardBackwardRequest,
  ForwardBackwardRequestSchema,
  type Tensor,
} from "../proto/tinker_public_pb.ts"
import * as Hash from "../Hash.ts"

/** The numbers of a tensor, dense, and its shape. */
export interface Numbers {
  readonly values: ReadonlyArray<number>
  readonly shape: ReadonlyArray<number>
}

export interface Datum {
  /** Of what the model reads. */
  readonly inputHash: number
  readonly tokens: number
  readonly inputs: ReadonlyMap<string, Numbers>
}

export interface Pass {
  readonly modelId: string
  readonly seqId: number
  readonly forwardOnly: boolean
  readonly loss: string
  readonly data: ReadonlyArray<Datum>
}

type Read<A> = Either.Either<A, string>

/** The message as it is on the wire; the left says why it is none. */
export const message = (bytes: Uint8Array): Read<ForwardBackwardRequest> =>
  Either.try({
    try: () => fromBinary(ForwardBackwardRequestSchema, bytes),
    catch: (cause) => `not a ForwardBackwardRequest: ${cause instanceof Error ? cause.message : String(cause)}`,
  })

const numbers = (tensor: TensorData.TensorData, name: string): Read<Numbers> =>
  Either.mapBoth(TensorData.toNumbers(tensor, name), {
    onLeft: ({ message }) => message,
    onRight: (values) => ({ values, shape: tensor.shape ?? [values.length] }),
  })

const inputsOf = (entries: ReadonlyArray<readonly [string, Read<Numbers>]>): Read<ReadonlyMap<string, Numbers>> =>
  Either.map(
    Either.all(entries.map(([name, read]) => Either.map(read, (value) => [name, value] as const))),
    // In the order of names: a protobuf map has none of its own.
    (read) => new Map(read.toSorted(([a], [b]) => (a < b ? -1 : 1))),
  )

/** A copy, so that it lies aligned. */
const copyOf = (bytes: Uint8Array): ArrayBuffer => Uint8Array.from(bytes).buffer

const int32s = (bytes: Uint8Array): Int32Array => new Int32Array(copyOf(bytes), 0, bytes.length >> 2)
const int64s = (bytes: Uint8Array): BigInt64Array => new BigInt64Array(copyOf(bytes), 0, bytes.length >> 3)
const float32s = (bytes: Uint8Array): Float32Array => new Float32Array(copyOf(bytes), 0, bytes.length >> 2)
const indices = (bytes: Uint8Array): ReadonlyArray<number> => Array.from(int64s(bytes), Number)

const tensorOf = ({ dtype, encoding, shape }: Tensor, name: string): Read<Numbers> => {
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
        ? TensorData.int64(int64s(bytes), options)
        : Either.left({ message: `${name} is of the unknown type ${dtype}` })
  return Either.flatMap(
    Either.mapLeft(tensor, ({ message }) => message),
    (tensor) => numbers(tensor, name),
  )
}

const chunkOf = ({ chunk }: Chunk): { readonly hash: number; readonly tokens: number } => {
  switch (chunk.case) {
    case "encodedText": {
      const tokens = int32s(chunk.value.tokens)
      return { hash: Hash.ofNumbers(tokens), tokens: tokens.length }
    }
    case "image":
      return { hash: Hash.ofBytes(chunk.value.data), tokens: chunk.value.expectedTokens ?? 1 }
    case "dmel":
      return { hash: Hash.ofBytes(chunk.value.dmel), tokens: 1 }
    case undefined:
      return { hash: 0, tokens: 0 }
  }
}

const jsonChunkOf = (chunk: ModelInput["chunks"][number]): { readonly hash: number; readonly tokens: number } => {
  switch (chunk.type) {
    case "encoded_text":
      return { hash: Hash.ofNumbers(chunk.tokens), tokens: chunk.tokens.length }
    case "image":
      return { hash: Hash.ofBytes(chunk.data), tokens: chunk.expectedTokens ?? chunk.tokens ?? 1 }
    case "image_asset_pointer":
      return { hash: Hash.ofText(chunk.location), tokens: chunk.expectedTokens ?? 1 }
    case "dmel":
      return { hash: Hash.ofBytes(chunk.dmel), tokens: 1 }
  }
}

const inputOf = (chunks: ReadonlyArray<{ readonly hash: number; readonly tokens: number }>) => ({
  inputHash: chunks.reduce((hash, chunk) => Hash.mix(hash, chunk.hash), 0),
  tokens: chunks.reduce((sum, chunk) => sum + chunk.tokens, 0),
})

/** The hash and length of a prompt, by the same rules as those of a datum. */
export const promptOf = ({ chunks }: ModelInput) => inputOf(chunks.map(jsonChunkOf))

const datumOf = (datum: DatumMessage): Read<Datum> =>
  Either.map(
    inputsOf(Object.entries(datum.lossFnInputs).map(([name, tensor]) => [name, tensorOf(tensor, name)])),
    (inputs) => ({ ...inputOf(datum.modelInput.map(chunkOf)), inputs }),
  )

export const fromMessage = (request: ForwardBackwardRequest): Read<Pass> =>
  Either.map(Either.all(request.data.map(datumOf)), (data) => ({
    modelId: request.modelId,
    seqId: request.seqId,
    forwardOnly: request.forwardOnly,
    loss: request.lossFn,
    data,
  }))

const Input = Schema.Struct({
  data: Schema.Array(
    Schema.Struct({
      model_input: ModelInput,
      loss_fn_inputs: Schema.Record({ key: Schema.String, value: TensorData.TensorData }),
    }),
  ),
  loss_fn: Schema.String,
  loss_fn_config: Schema.optional(
    Schema.NullOr(Schema.Record({ key: Schema.String, value: Schema.Union(Schema.Number, Schema.String) })),
  ),
})
const common = { model_id: Schema.String, seq_id: Schema.NonNegativeInt, type: Schema.optional(Schema.Unknown) }

export const ForwardBody = Schema.Struct({ ...common, forward_input: Input })
export const ForwardBackwardBody = Schema.Struct({ ...common, forward_backward_input: Input })

export const fromBody = (body: typeof ForwardBody.Type | typeof ForwardBackwardBody.Type): Read<Pass> => {
  const forwardOnly = "forward_input" in body
  const input = forwardOnly ? body.forward_input : body.forward_backward_input
  return Either.map(
    Either.all(
      input.data.map((datum) =>
        Either.map(
          inputsOf(Object.entries(datum.loss_fn_inputs).map(([name, tensor]) => [name, numbers(tensor, name)])),
          (inputs): Datum => ({ ...promptOf(datum.model_input), inputs }),
        ),
      ),
    ),
    (data) => ({ modelId: body.model_id, seqId: body.seq_id, forwardOnly, loss: input.loss_fn, data }),
  )
}

/** What a datum does to the gradient: the same for both wires and however a batch is cut into requests. */
export const gradientOf = ({ data, loss }: Pass): number =>
  data.reduce((sum, { inputHash, inputs }) => {
    let hash = Hash.mix(Hash.ofText(loss), inputHash)
    for (const [name, { values }] of inputs) hash = Hash.mix(hash, Hash.ofNumbers(values, Hash.ofText(name)))
    return (sum + hash) % 2 ** 32
  }, 0)
