/**
 * Encodes the request of a forward or forward-backward pass as protobuf, or as JSON for servers that support nothing
 * else.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as ParseResult from "effect/ParseResult"
import * as Predicate from "effect/Predicate"
import * as Proto from "../internal/protocol/ForwardBackwardProto.ts"
import { describe, fromIssue, invalid, type Result } from "../internal/codec/Invalid.ts"
import type { PreparedBatch, PreparedChunk, PreparedDatum, PreparedInput } from "../Loss.ts"
import * as ModelInput from "../ModelInput.ts"
import * as TensorData from "../TensorData.ts"
import type { InvalidInput } from "../TinkerError.ts"

/**
 * A forward or forward-backward request.
 *
 * @since 0.1.0
 * @category models
 */
export interface Request {
  readonly modelId: string
  /** An integer from 0 to 2^31 - 1. */
  readonly seqId: number
  /** A prepared batch, or a slice of its data. */
  readonly batch: PreparedBatch
  readonly forwardOnly: boolean
}

/**
 * Encodes the body of `POST forward_backward` as `application/x-protobuf`. Fails for image asset pointers and for
 * images with height or width, which have no protobuf form.
 *
 * @since 0.1.0
 * @category encoding
 */
export const toProtobuf = (request: Request): Either.Either<Uint8Array<ArrayBuffer>, InvalidInput> =>
  Either.flatMap(check(request), Proto.encode)

const check = (request: Request): Result<Request> => {
  if (!Predicate.isRecord(request)) return invalid("request", `expected an object, got ${describe(request)}`)
  const { batch, modelId, seqId } = request
  if (typeof modelId !== "string") return invalid("modelId", `expected a string, got ${describe(modelId)}`)
  if (!Number.isInteger(seqId) || seqId < 0 || seqId > 2 ** 31 - 1)
    return invalid("seqId", `expected an integer from 0 to 2^31 - 1, got ${describe(seqId)}`)
  return Predicate.isRecord(batch) && Array.isArray(batch.data)
    ? Either.right(request)
    : invalid("batch", `expected the result of Loss.prepare, got ${describe(batch)}`)
}

/**
 * The JSON form of a batch.
 *
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
 * The JSON form of a request.
 *
 * @since 0.1.0
 * @category models
 */
export type RequestJson = { readonly model_id: string; readonly seq_id: number } & (
  | { readonly forward_backward_input: InputJson }
  | { readonly forward_input: InputJson }
)

/**
 * Encodes the body of `POST forward_backward`, or of `POST forward` if `forwardOnly`, as JSON. Fails for values that
 * JSON cannot represent (NaN, infinities, integers beyond ±(2^53 - 1), provenance). Sparse tensors are sent as dense
 * ones, because servers that read JSON support no others; a sparse tensor of more than 2^24 elements fails.
 *
 * @since 0.1.0
 * @category encoding
 */
export const toJson = (request: Request): Either.Either<RequestJson, InvalidInput> =>
  Either.gen(function* () {
    const { batch, forwardOnly, modelId, seqId } = yield* check(request)
    const data: Array<InputJson["data"][number]> = []
    for (const datum of batch.data) data.push(yield* datumJson(datum))
    const input: InputJson = {
      data,
      loss_fn: batch.loss.name,
      ...(Object.keys(batch.loss.config).length > 0 && { loss_fn_config: batch.loss.config }),
    }
    return {
      ...(forwardOnly ? { forward_input: input } : { forward_backward_input: input }),
      model_id: modelId,
      seq_id: seqId,
    }
  })

const datumJson = (datum: PreparedDatum) =>
  Either.gen(function* () {
    const path = `data[${datum.index}]`
    if (datum.modelInputSpans.length > 0 || datum.lossInputSpans.length > 0)
      return yield* invalid(
        `${path}.modelInputSpans`,
        "provenance spans have no JSON form, and this server reads only JSON",
      )
    const inputs: Record<string, TensorData.TensorJson> = {}
    for (const { key, name, tensor } of datum.inputs) inputs[name] = yield* tensorJson(tensor, `${path}.inputs.${key}`)
    const chunks: Array<typeof ModelInput.Chunk.Encoded> = []
    for (const [index, chunk] of datum.chunks.entries())
      chunks.push(yield* chunkJson(chunk, `${path}.modelInput.chunks[${index}]`))
    return { model_input: { chunks }, loss_fn_inputs: inputs }
  })

const tensorJson = (tensor: PreparedInput["tensor"], path: string): Result<TensorData.TensorJson> => {
  const numbers = TensorData.isTensorData(tensor) ? TensorData.toNumbers(tensor, path) : Either.right(tensor.data)
  return Either.flatMap(numbers, (data) => {
    const bad = data.findIndex((value) => !Number.isFinite(value))
    return bad < 0
      ? Either.right({ data, dtype: tensor.dtype, ...(tensor.shape !== undefined && { shape: tensor.shape }) })
      : invalid(`${path}[${bad}]`, `JSON cannot represent ${data[bad]}`)
  })
}

const chunkJson = (chunk: PreparedChunk, path: string): Result<typeof ModelInput.Chunk.Encoded> =>
  chunk.type === "encoded_text"
    ? Either.right({ type: chunk.type, tokens: Array.from(chunk.tokens) })
    : Either.mapLeft(ParseResult.encodeEither(ModelInput.Chunk)(chunk), (issue) => fromIssue(path, chunk, issue))
