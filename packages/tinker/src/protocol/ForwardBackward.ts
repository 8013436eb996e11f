/**
 * The request of a forward or forward-backward pass in its two forms: protobuf, and JSON for servers that know
 * nothing else.
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
 * @since 0.1.0
 * @category models
 */
export interface Request {
  readonly modelId: string
  /** From 0 to 2^31 - 1. */
  readonly seqId: number
  /** All of what was prepared, or a slice of its data. */
  readonly batch: PreparedBatch
  readonly forwardOnly: boolean
}

/**
 * For `POST forward_backward` with `application/x-protobuf`. Image asset pointers have no protobuf form, and neither
 * have the height and width of an image: they are refused.
 *
 * @since 0.1.0
 * @category encoding
 */
export const toProtobuf = (request: Request): Either.Either<Uint8Array<ArrayBuffer>, InvalidInput> =>
  Either.flatMap(check(request), Proto.encode)

const check = (request: Request): Result<Request> => {
  if (!Predicate.isRecord(request)) return invalid("request", `expected an object, got ${describe(request)}`)
  const { batch, modelId, seqId } = request
  if (typeof modelId !== "string") return invalid("modelId", `expected a text, got ${describe(modelId)}`)
  if (!Number.isInteger(seqId) || seqId < 0 || seqId > 2 ** 31 - 1)
    return invalid("seqId", `expected an integer from 0 to 2^31 - 1, got ${describe(seqId)}`)
  return Predicate.isRecord(batch) && Array.isArray(batch.data)
    ? Either.right(request)
    : invalid("batch", `expected what Loss.prepare gives, got ${describe(batch)}`)
}

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
 * integers beyond ±(2^53 - 1), provenance) is refused, not dropped. Sparse tensors are sent dense: the servers that
 * read this form know no other; one of more than 2^24 elements is refused.
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
        "provenance spans have no JSON form, and this server reads no other",
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
      : invalid(`${path}[${bad}]`, `JSON can't say ${data[bad]}`)
  })
}

const chunkJson = (chunk: PreparedChunk, path: string): Result<typeof ModelInput.Chunk.Encoded> =>
  chunk.type === "encoded_text"
    ? Either.right({ type: chunk.type, tokens: Array.from(chunk.tokens) })
    : Either.mapLeft(ParseResult.encodeEither(ModelInput.Chunk)(chunk), (issue) => fromIssue(path, chunk, issue))
