import { fromBinary } from "@bufbuild/protobuf"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import type { SampleResult, Sequence, TopkLogprobs } from "../../SampleResult.ts"
import * as TensorData from "../../TensorData.ts"
import { product } from "../util/TokenChecks.ts"
import { type Batched, type Outputs, type Pass, readPlainPass } from "./PassResultProto.ts"
import { type PlainSequence, readPlainSample } from "./SampleResultProto.ts"
import type { TrainingResult } from "../../TrainingResult.ts"
import {
  DType,
  ForwardBackwardOutputSchema,
  SampleResponseSchema,
  StopReason,
  type Tensor,
  type TopkLogprobs as TopkMessage,
} from "./proto/tinker_public_pb.ts"

/**
 * Runs a decoder and returns its exceptions as errors. The generated reader and the functions below throw on invalid
 * bytes.
 */
export const decoded = <A>(message: string, decode: () => A): Either.Either<A, ParseResult.ParseError> =>
  Either.try({
    try: decode,
    catch: (cause) =>
      ParseResult.parseError(
        new ParseResult.Type(
          Schema.Uint8ArrayFromSelf.ast,
          undefined,
          `not a ${message}: ${cause instanceof Error ? cause.message : String(cause)}`,
        ),
      ),
  })

const malformed = (problem: string): never => {
  throw new Error(problem)
}

const valid = <A>(result: Either.Either<A, Error>): A => Either.getOrElse(result, (error) => malformed(error.message))

/** Returns a view if the bytes are aligned in memory, else an aligned copy. */
const aligned = (bytes: Uint8Array, size: number): Uint8Array => {
  if (bytes.length % size !== 0) malformed(`${bytes.length} bytes are not a multiple of the element size ${size}`)
  if (bytes.byteOffset % size === 0) return bytes
  const copy = new Uint8Array(bytes.length)
  copy.set(bytes)
  return copy
}

const int32s = (bytes: Uint8Array): Int32Array => {
  const { buffer, byteOffset, length } = aligned(bytes, 4)
  return new Int32Array(buffer, byteOffset, length / 4)
}

const float32s = (bytes: Uint8Array): Float32Array => {
  const { buffer, byteOffset, length } = aligned(bytes, 4)
  return new Float32Array(buffer, byteOffset, length / 4)
}

const int64s = (bytes: Uint8Array): BigInt64Array => {
  const { buffer, byteOffset, length } = aligned(bytes, 8)
  return new BigInt64Array(buffer, byteOffset, length / 8)
}

/** Reads bfloat16 values, which are the upper halves of float32. */
const bfloat16s = (bytes: Uint8Array): Float32Array => {
  const { buffer, byteOffset, length } = aligned(bytes, 2)
  const widened = Uint32Array.from(new Uint16Array(buffer, byteOffset, length / 2), (half) => half << 16)
  return new Float32Array(widened.buffer)
}

const elements = (dtype: DType | number, bytes: Uint8Array) => {
  switch (dtype) {
    case DType.DTYPE_FLOAT32:
      return { size: 4, data: float32s(bytes) }
    case DType.DTYPE_INT64:
      return { size: 8, data: int64s(bytes) }
    case DType.DTYPE_INT32:
      return { size: 4, data: int32s(bytes) }
    case DType.DTYPE_BFLOAT16:
      return { size: 2, data: bfloat16s(bytes) }
    default:
      return malformed(`unknown tensor dtype ${dtype}`)
  }
}

type Elements = Float32Array | Int32Array | BigInt64Array

const tensorOf = (data: Elements, options: TensorData.Options): TensorData.TensorData =>
  valid<TensorData.TensorData>(
    data instanceof Float32Array ? TensorData.float32(data, options) : TensorData.int64(data, options),
  )

const indices = (bytes: Uint8Array): Array<number> => Array.from(int64s(bytes), Number)

const tensor = ({ encoding, dtype, shape }: Tensor): TensorData.TensorData => {
  const sizes = shape.length === 0 ? {} : { shape: shape.map(Number) }
  if (encoding.case !== "sparseCsr") return tensorOf(elements(dtype, encoding.value ?? new Uint8Array(0)).data, sizes)
  const { values, crowIndices, colIndices } = encoding.value
  return tensorOf(elements(dtype, values).data, {
    ...sizes,
    sparse: { crowIndices: indices(crowIndices), colIndices: indices(colIndices) },
  })
}

/** Splits a batch into one tensor per datum at the given byte offsets. */
const batched = ({ data: bytes, dtype, offsets, trailingShape }: Batched): Array<TensorData.TensorData> => {
  const { size, data } = elements(dtype, bytes)
  const trailing = trailingShape.map(Number)
  if (!trailing.every((size) => Number.isSafeInteger(size) && size >= 0))
    malformed(`invalid trailing shape [${trailing.join(", ")}]`)
  const row = product(trailing)
  const cuts = indices(offsets)
  const tensors: Array<TensorData.TensorData> = []
  for (let index = 1; index < cuts.length; index++) {
    const start = cuts[index - 1] ?? 0
    const end = cuts[index] ?? 0
    const from = start / size
    const to = end / size
    const first = row === 0 ? 0 : (to - from) / row
    const fits = row === 0 ? from === to : Number.isInteger(first)
    if (from < 0 || to < from || to > data.length || !Number.isInteger(from) || !fits)
      malformed(`offsets ${start} to ${end} do not delimit rows of ${row} elements in ${bytes.length} bytes`)
    tensors.push(TensorData.ofRows(data.subarray(from, to), [first, ...trailing]))
  }
  return tensors
}

const outputs = ({ fields, numDatums }: Outputs): Array<Record<string, TensorData.TensorData>> => {
  const names = Object.keys(fields)
  const columns = names.map((name) => batched(fields[name] as Batched))
  const count = Number(numDatums) || (columns[0]?.length ?? 0)
  const odd = columns.findIndex(({ length }) => length !== count)
  if (odd >= 0) malformed(`${names[odd]} has ${columns[odd]?.length} datums, expected ${count}`)
  return Array.from({ length: count }, (_, index) => {
    const row: Record<string, TensorData.TensorData> = {}
    for (const [at, name] of names.entries()) row[name] = columns[at]?.[index] as TensorData.TensorData
    return row
  })
}

/**
 * The maximum number of outputs without fields. A few bytes can declare any number of them, and no real batch has this
 * many.
 */
const emptyAtMost = 1_000_000

/** Returns the name after the last colon, which servers prefix with a module, or a default if there are no outputs. */
export const outputType = (name: string, outputs: ReadonlyArray<unknown>): string =>
  name === "" && outputs.length === 0 ? "ArrayRecord" : name.slice(name.lastIndexOf(":") + 1)

export const trainingResult = (bytes: Uint8Array): TrainingResult => {
  const message: Pass = readPlainPass(bytes) ?? fromBinary(ForwardBackwardOutputSchema, bytes)
  const empty = message.lossFnOutputs.reduce(
    (sum, { fields, numDatums }) => (Object.keys(fields).length === 0 ? sum + Math.abs(Number(numDatums)) : sum),
    0,
  )
  if (empty > emptyAtMost) malformed(`${empty} datums without fields`)
  const all = message.lossFnOutputs.flatMap(outputs)
  return { outputType: outputType(message.lossFnOutputType, all), outputs: all, metrics: message.metrics }
}

const topk = (message: TopkMessage | undefined): Option.Option<TopkLogprobs> => {
  if (message === undefined || message.k === 0 || message.length === 0) return Option.none()
  const { k, length } = message
  const tokenIds = int32s(message.tokenIds)
  const logprobs = float32s(message.logprobs)
  if (tokenIds.length !== k * length || logprobs.length !== k * length)
    malformed(`the top ${k} of ${length} positions require ${k * length} cells`)
  return Option.some({ k, length, tokenIds, logprobs })
}

const notEmpty = (bytes: Uint8Array | undefined): Option.Option<Float32Array> =>
  bytes === undefined || bytes.length === 0 ? Option.none() : Option.some(float32s(bytes))

const stopReason = (reason: StopReason | number): Sequence["stopReason"] => {
  switch (reason) {
    case StopReason.STOP:
      return "stop"
    case StopReason.LENGTH:
      return "length"
    default:
      return malformed(`unknown stop reason ${reason}`)
  }
}

const sequence = (message: PlainSequence, topkMessage: TopkMessage | undefined): Sequence => ({
  tokens: int32s(message.tokens),
  logprobs: notEmpty(message.logprobs),
  stopReason: stopReason(message.stopReason),
  topkLogprobs: topk(topkMessage),
  sequenceId: Option.none(),
})

export const sampleResult = (bytes: Uint8Array): SampleResult => {
  const plain = readPlainSample(bytes)
  if (plain !== undefined) {
    return {
      sequences: plain.sequences.map((message) => sequence(message, undefined)),
      promptLogprobs: notEmpty(plain.promptLogprobs),
      topkPromptLogprobs: Option.none(),
      promptCacheHitTokens: plain.promptCacheHitTokens,
      targetPromptLogprobs: Option.none(),
      promptAltTokens: Option.none(),
    }
  }
  const message = fromBinary(SampleResponseSchema, bytes)
  const alternatives = message.promptAltTokens
  return {
    sequences: message.sequences.map(({ logprobs, stopReason, tokens, topkSampledLogprobs }) =>
      sequence({ logprobs, stopReason, tokens }, topkSampledLogprobs),
    ),
    promptLogprobs: notEmpty(message.promptLogprobs),
    topkPromptLogprobs: topk(message.topkPromptLogprobs),
    promptCacheHitTokens: message.promptCacheHitTokens,
    targetPromptLogprobs: Option.map(Option.fromNullable(message.targetPromptLogprobs), tensor),
    promptAltTokens:
      alternatives?.tokens === undefined || alternatives.logprobs === undefined
        ? Option.none()
        : Option.some({ tokens: tensor(alternatives.tokens), logprobs: tensor(alternatives.logprobs) }),
  }
}
