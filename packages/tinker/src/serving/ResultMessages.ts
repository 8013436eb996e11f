/**
 * Results as they travel: protobuf, or JSON for clients that read nothing else. For those who write a server.
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
  StopReason,
  TensorSchema,
  TopkLogprobsSchema,
} from "../internal/proto/tinker_public_pb.ts"
import { SampleResult, type TopkLogprobs } from "../SampleResult.ts"
import type * as TensorData from "../TensorData.ts"
import { TrainingResult } from "../TrainingResult.ts"

/**
 * A result as it travels.
 *
 * @since 0.1.0
 * @category models
 */
export interface Payload {
  readonly contentType: string
  readonly body: Uint8Array | string
}

/**
 * @since 0.1.0
 * @category json
 */
export const json = (value: unknown): Payload => ({ contentType: "application/json", body: JSON.stringify(value) })

const protobuf = (body: Uint8Array): Payload => ({ contentType: "application/x-protobuf", body })

const bytesOf = (values: Float32Array | Int32Array | BigInt64Array): Uint8Array =>
  new Uint8Array(values.buffer, values.byteOffset, values.byteLength)

const encodeTraining = Schema.encodeSync(TrainingResult)

/** Tensors of one trailing shape travel together; another shape begins another record. */
const records = ({ outputs, outputType }: TrainingResult) => {
  const groups: Array<{ readonly trailing: ReadonlyArray<number>; readonly tensors: Array<TensorData.TensorData> }> = []
  for (const { logprobs } of outputs) {
    if (logprobs === undefined) continue
    const trailing = logprobs.shape?.slice(1) ?? []
    const last = groups.at(-1)
    if (last !== undefined && last.trailing.join() === trailing.join()) last.tensors.push(logprobs)
    else groups.push({ trailing, tensors: [logprobs] })
  }
  return groups.map(({ tensors, trailing }) => {
    const parts = tensors.map(({ data }) => bytesOf(data))
    const offsets = new BigInt64Array(parts.length + 1)
    parts.forEach((part, i) => {
      offsets[i + 1] = (offsets[i] ?? 0n) + BigInt(part.length)
    })
    const data = new Uint8Array(Number(offsets.at(-1)))
    parts.forEach((part, i) => data.set(part, Number(offsets[i])))
    return create(ArrayRecordSchema, {
      typeTag: outputType,
      numDatums: BigInt(parts.length),
      fields: {
        logprobs: create(BatchedTensorSchema, {
          data,
          offsets: bytesOf(offsets),
          dtype: DType.DTYPE_FLOAT32,
          trailingShape: trailing.map(BigInt),
        }),
      },
    })
  })
}

/**
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
    encoding: {
      case: "dense",
      value: bytesOf(tensor.dtype === "float32" ? tensor.data : BigInt64Array.from(tensor.data, BigInt)),
    },
    dtype: tensor.dtype === "float32" ? DType.DTYPE_FLOAT32 : DType.DTYPE_INT64,
    shape: tensor.shape?.map(BigInt) ?? [],
  })

const topkMessage = ({ k, length, logprobs, tokenIds }: TopkLogprobs) =>
  create(TopkLogprobsSchema, { k, length, tokenIds: bytesOf(tokenIds), logprobs: bytesOf(logprobs) })

/** A field of a message that is there only if the value is. */
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
