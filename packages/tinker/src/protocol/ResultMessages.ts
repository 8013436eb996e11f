/**
 * Encodes results as protobuf, or as JSON for clients that support nothing else. For authors of servers.
 *
 * @since 0.1.0
 */
import { create, toBinary } from "@bufbuild/protobuf"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import {
  ArrayRecordSchema,
  BatchedTensorSchema,
  DType,
  ForwardBackwardOutputSchema,
  PromptAltTokensSchema,
  SampledSequenceSchema,
  SampleResponseSchema,
  SparseCsrSchema,
  StopReason,
  TensorSchema,
  TopkLogprobsSchema,
} from "../internal/codec/proto/tinker_public_pb.ts"
import { SampleResult, type TopkLogprobs } from "../SampleResult.ts"
import type * as TensorData from "../TensorData.ts"
import { TrainingResult } from "../TrainingResult.ts"

/**
 * An encoded result.
 *
 * @since 0.1.0
 * @category models
 */
export interface Payload {
  readonly contentType: string
  readonly body: Uint8Array | string
}

/**
 * Encodes a value as JSON.
 *
 * @since 0.1.0
 * @category json
 */
export const json = (value: unknown): Payload => ({ contentType: "application/json", body: JSON.stringify(value) })

const protobuf = (body: Uint8Array): Payload => ({ contentType: "application/x-protobuf", body })

const bytesOf = (values: Float32Array | Int32Array | BigInt64Array): Uint8Array =>
  new Uint8Array(values.buffer, values.byteOffset, values.byteLength)

const int64Bytes = (values: Int32Array | BigInt64Array): Uint8Array => bytesOf(BigInt64Array.from(values, BigInt))

const encodeTraining = Schema.encodeSync(TrainingResult)

type Output = TrainingResult["outputs"][number]

/** Concatenates the tensors of one name and records their offsets. */
const batched = (tensors: ReadonlyArray<TensorData.TensorData>) => {
  const parts = tensors.map((tensor) => (tensor.dtype === "float32" ? bytesOf(tensor.data) : int64Bytes(tensor.data)))
  const offsets = new BigInt64Array(parts.length + 1)
  parts.forEach((part, i) => {
    offsets[i + 1] = (offsets[i] ?? 0n) + BigInt(part.length)
  })
  const data = new Uint8Array(Number(offsets.at(-1)))
  parts.forEach((part, i) => data.set(part, Number(offsets[i])))
  return create(BatchedTensorSchema, {
    data,
    offsets: bytesOf(offsets),
    dtype: tensors[0]?.dtype === "int64" ? DType.DTYPE_INT64 : DType.DTYPE_FLOAT32,
    trailingShape: (tensors[0]?.shape?.slice(1) ?? []).map(BigInt),
  })
}

const formOf = (output: Output): string =>
  Object.entries(output)
    .map(([name, { dtype, shape }]) => `${name} ${dtype} ${shape?.slice(1).join() ?? ""}`)
    .join("\n")

/** Groups consecutive outputs whose tensors have the same names, types and trailing shapes into one record. */
const records = ({ outputs, outputType }: TrainingResult) => {
  const groups: Array<{ readonly form: string; readonly outputs: Array<Output> }> = []
  for (const output of outputs) {
    const form = formOf(output)
    const last = groups.at(-1)
    if (last?.form === form) last.outputs.push(output)
    else groups.push({ form, outputs: [output] })
  }
  return groups.map(({ outputs }) =>
    create(ArrayRecordSchema, {
      typeTag: outputType,
      numDatums: BigInt(outputs.length),
      fields: Object.fromEntries(
        Object.keys(outputs[0] ?? {}).map((name) => [
          name,
          batched(outputs.flatMap((output) => (output[name] === undefined ? [] : [output[name]]))),
        ]),
      ),
    }),
  )
}

/**
 * Encodes a training result.
 *
 * @since 0.1.0
 * @category results
 */
export const trainingPayload = (result: TrainingResult, wire: "protobuf" | "json"): Payload =>
  wire === "json"
    ? json(encodeTraining(result))
    : protobuf(
        toBinary(
          ForwardBackwardOutputSchema,
          create(ForwardBackwardOutputSchema, {
            lossFnOutputType: result.outputType,
            lossFnOutputs: records(result),
            metrics: result.metrics,
          }),
        ),
      )

const encodeSample = Schema.encodeSync(SampleResult)

const tensorMessage = (tensor: TensorData.TensorData) =>
  create(TensorSchema, {
    encoding: encodingOf(tensor),
    dtype: tensor.dtype === "float32" ? DType.DTYPE_FLOAT32 : DType.DTYPE_INT64,
    shape: tensor.shape?.map(BigInt) ?? [],
  })

const encodingOf = (tensor: TensorData.TensorData) => {
  const value = tensor.dtype === "float32" ? bytesOf(tensor.data) : int64Bytes(tensor.data)
  return tensor.sparse === undefined
    ? ({ case: "dense", value } as const)
    : ({
        case: "sparseCsr",
        value: create(SparseCsrSchema, {
          values: value,
          crowIndices: int64Bytes(tensor.sparse.crowIndices),
          colIndices: int64Bytes(tensor.sparse.colIndices),
        }),
      } as const)
}

const topkMessage = ({ k, length, logprobs, tokenIds }: TopkLogprobs) =>
  create(TopkLogprobsSchema, { k, length, tokenIds: bytesOf(tokenIds), logprobs: bytesOf(logprobs) })

/** Creates a message field that is present only if the value is. */
const field = <K extends string, A, B>(
  name: K,
  value: Option.Option<A>,
  message: (value: A) => B,
): { readonly [_ in K]?: B } =>
  Option.match(value, {
    onNone: () => ({}),
    onSome: (value) => ({ [name]: message(value) }) as { readonly [_ in K]: B },
  })

/**
 * Encodes a sampling result.
 *
 * @since 0.1.0
 * @category results
 */
export const samplePayload = (result: SampleResult, wire: "protobuf" | "json"): Payload =>
  wire === "json"
    ? json(encodeSample(result))
    : protobuf(
        toBinary(
          SampleResponseSchema,
          create(SampleResponseSchema, {
            sequences: result.sequences.map((sequence) =>
              create(SampledSequenceSchema, {
                stopReason: sequence.stopReason === "stop" ? StopReason.STOP : StopReason.LENGTH,
                tokens: bytesOf(sequence.tokens),
                ...field("logprobs", sequence.logprobs, bytesOf),
                ...field("topkSampledLogprobs", sequence.topkLogprobs, topkMessage),
              }),
            ),
            promptCacheHitTokens: result.promptCacheHitTokens,
            ...field("promptLogprobs", result.promptLogprobs, bytesOf),
            ...field("topkPromptLogprobs", result.topkPromptLogprobs, topkMessage),
            ...field("targetPromptLogprobs", result.targetPromptLogprobs, tensorMessage),
            ...field("promptAltTokens", result.promptAltTokens, ({ logprobs, tokens }) =>
              create(PromptAltTokensSchema, { tokens: tensorMessage(tokens), logprobs: tensorMessage(logprobs) }),
            ),
          }),
        ),
      )
