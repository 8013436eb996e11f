/**
 * The request of a forward or forward-backward pass in its two forms: protobuf, and JSON for servers that know
 * nothing else.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import * as Proto from "./internal/ForwardBackwardProto.ts"
import type { PreparedBatch, PreparedChunk, PreparedDatum, PreparedInput } from "./Loss.ts"
import * as ModelInput from "./ModelInput.ts"
import * as TensorData from "./TensorData.ts"
import { InvalidInput } from "./TinkerError.ts"

/**
 * @since 0.1.0
 * @category models
 */
export interface Request {
  readonly modelId: string
  readonly seqId: number
  /** All of what was prepared, or a slice of its data. */
  readonly batch: PreparedBatch
  readonly forwardOnly: boolean
}

/**
 * For `POST forward_backward` with `application/x-protobuf`. An image asset pointer has no protobuf form.
 *
 * @since 0.1.0
 * @category encoding
 */
export const toProtobuf: (request: Request) => Either.Either<Uint8Array<ArrayBuffer>, InvalidInput> = Proto.encode

/**
 * @since 0.1.0
 * @category models
 */
export interface InputJson {
  readonly data: ReadonlyArray<{
    readonly model_input: typeof ModelInput.ModelInput.Encoded
    readonly loss_fn_inputs: Readonly<Record<string, TensorData.TensorJson>>
  }>
  readonly loss_fn: string
  readonly loss_fn_config?: Readonly<Record<string, number | string>>
}

/**
 * @since 0.1.0
 * @category models
 */
export type RequestJson = { readonly model_id: string; readonly seq_id: number } & (
  | { readonly forward_backward_input: InputJson }
  | { readonly forward_input: InputJson }
)

/**
 * For `POST forward_backward`, or `POST forward` if `forwardOnly`, as JSON. What JSON can't say (NaN, infinities,
 * integers beyond ±(2^53 - 1), provenance) is refused, not dropped.
 *
 * @since 0.1.0
 * @category encoding
 */
export const toJson = (request: Request): Either.Either<RequestJson, InvalidInput> =>
  Either.gen(function* () {
    const { loss } = request.batch
    const data: Array<InputJson["data"][number]> = []
    for (const datum of request.batch.data) data.push(yield* datumJson(datum))
    const input: InputJson = {
      data,
      loss_fn: loss.name,
      ...(Object.keys(loss.config).length > 0 && { loss_fn_config: loss.config }),
    }
    return {
      ...(request.forwardOnly ? { forward_input: input } : { forward_backward_input: input }),
      model_id: request.modelId,
      seq_id: request.seqId,
    }
  })

const datumJson = (datum: PreparedDatum) =>
  Either.gen(function* () {
    const path = `data[${datum.index}]`
    if (datum.modelInputSpans.length > 0 || datum.lossInputSpans.length > 0)
      return yield* invalid(
        `${path}.modelInputSpans`,
        "provenance spans have no JSON form, and this server reads no other",
      )
    const inputs: Record<string, TensorData.TensorJson> = {}
    for (const { key, name, tensor } of datum.inputs) {
      const json = yield* tensorJson(tensor, `${path}.inputs.${key}`)
      if (json.data.includes(null))
        return yield* invalid(`${path}.inputs.${key}[${json.data.indexOf(null)}]`, "JSON can't say NaN")
      inputs[name] = json
    }
    return {
      model_input: { chunks: yield* Either.all(datum.chunks.map((chunk) => chunkJson(chunk, `${path}.modelInput`))) },
      loss_fn_inputs: inputs,
    }
  })

const tensorJson = (tensor: PreparedInput["tensor"], path: string) =>
  TensorData.isTensorData(tensor)
    ? encode(TensorData.TensorData, tensor, path)
    : Either.flatMap(TensorData.from(tensor.dtype, tensor.data, path), (tensor) =>
        encode(TensorData.TensorData, tensor, path),
      )

const chunkJson = (chunk: PreparedChunk, path: string) =>
  chunk.type !== "encoded_text" || chunk.tokens instanceof Int32Array
    ? encode(ModelInput.Chunk, chunk as ModelInput.Chunk, path)
    : Either.right({ type: chunk.type, tokens: chunk.tokens })

const invalid = (path: string, problem: string) => Either.left(new InvalidInput({ path, problem }))

const encode = <A, I>(schema: Schema.Schema<A, I>, value: A, path: string): Either.Either<I, InvalidInput> =>
  Either.mapLeft(Schema.encodeEither(schema)(value), (cause) => {
    const problem = ParseResult.ArrayFormatter.formatErrorSync(cause).map((issue) => issue.message)
    return new InvalidInput({ path, problem: problem.join("; ") })
  })
