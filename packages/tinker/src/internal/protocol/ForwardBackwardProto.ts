import * as Either from "effect/Either"
import type { Span } from "../../Datum.ts"
import type { PreparedChunk, PreparedDatum, PreparedInput } from "../../Loss.ts"
import type { Request } from "../../protocol/ForwardBackward.ts"
import { invalid, type Result } from "../codec/Invalid.ts"
import {
  ChunkSchema,
  DatumSchema,
  DmelChunkSchema,
  DType,
  EncodedTextChunkSchema,
  ForwardBackwardRequestSchema,
  ImageChunkSchema,
  LossConfigValueSchema,
  PromptProvenanceSpanSchema,
  ProvenanceSpanSchema,
  SampledProvenanceSpanSchema,
  SparseCsrSchema,
  TensorSchema,
} from "../codec/proto/tinker_public_pb.ts"
import { doubleTag, lengthTag, ProtoWriter, varintTag, type Tag } from "../codec/ProtoWriter.ts"

const request = ForwardBackwardRequestSchema.field
const requestTags = {
  modelId: lengthTag(request.modelId),
  seqId: varintTag(request.seqId),
  data: lengthTag(request.data),
  lossFn: lengthTag(request.lossFn),
  lossFnConfig: lengthTag(request.lossFnConfig),
  forwardOnly: varintTag(request.forwardOnly),
  lossFnConfigV2: lengthTag(request.lossFnConfigV2),
}
const configTags = {
  number: doubleTag(LossConfigValueSchema.field.number),
  text: lengthTag(LossConfigValueSchema.field.text),
}
const datumTags = {
  modelInput: lengthTag(DatumSchema.field.modelInput),
  lossFnInputs: lengthTag(DatumSchema.field.lossFnInputs),
  modelInputSpans: lengthTag(DatumSchema.field.modelInputSpans),
  lossFnInputSpans: lengthTag(DatumSchema.field.lossFnInputSpans),
}
const chunkTags = {
  encodedText: lengthTag(ChunkSchema.field.encodedText),
  tokens: lengthTag(EncodedTextChunkSchema.field.tokens),
  image: lengthTag(ChunkSchema.field.image),
  data: lengthTag(ImageChunkSchema.field.data),
  format: lengthTag(ImageChunkSchema.field.format),
  expectedTokens: varintTag(ImageChunkSchema.field.expectedTokens),
  dmel: lengthTag(ChunkSchema.field.dmel),
  bytes: lengthTag(DmelChunkSchema.field.dmel),
}
const tensorTags = {
  dense: lengthTag(TensorSchema.field.dense),
  sparseCsr: lengthTag(TensorSchema.field.sparseCsr),
  dtype: varintTag(TensorSchema.field.dtype),
  shape: lengthTag(TensorSchema.field.shape),
  values: lengthTag(SparseCsrSchema.field.values),
  crowIndices: lengthTag(SparseCsrSchema.field.crowIndices),
  colIndices: lengthTag(SparseCsrSchema.field.colIndices),
}
const spanTags = {
  prompt: lengthTag(ProvenanceSpanSchema.field.promptTokens),
  sampled: lengthTag(ProvenanceSpanSchema.field.sampledTokens),
}
const rangeTags = (schema: typeof PromptProvenanceSpanSchema | typeof SampledProvenanceSpanSchema) => ({
  sequenceId: lengthTag(schema.field.sequenceId),
  offset: varintTag(schema.field.offset),
  length: varintTag(schema.field.length),
})
const ranges = { prompt: rangeTags(PromptProvenanceSpanSchema), sampled: rangeTags(SampledProvenanceSpanSchema) }

// The fields of every map entry, as defined by protobuf.
const key = lengthTag({ number: 1 })
const entry = { message: lengthTag({ number: 2 }), double: doubleTag({ number: 2 }) }

/** Checks whether protobuf can represent the data. */
export const check = (data: ReadonlyArray<PreparedDatum>): Result<void> => {
  for (const { chunks, index } of data) {
    for (let i = 0; i < chunks.length; i++) {
      const problem = unsayable(chunks[i] as PreparedChunk)
      if (problem !== undefined) return invalid(`data[${index}].modelInput.chunks[${i}]`, problem)
    }
  }
  return Either.void
}

/**
 * Encodes a request as protobuf. It is handwritten because the generated writer copies each tensor once per enclosing
 * message; the field numbers come from the generated descriptors.
 */
export const encode = (input: Request): Result<Uint8Array<ArrayBuffer>> => {
  const sayable = check(input.batch.data)
  if (Either.isLeft(sayable)) return Either.left(sayable.left)
  const writer = new ProtoWriter(capacity(input))
  const { loss, data } = input.batch
  const config = Object.entries(loss.config)
  for (const [name, value] of config.toReversed()) {
    const mark = writer.written
    if (typeof value === "number") writer.double(configTags.number, value)
    else writer.text(configTags.text, value)
    writer.close(entry.message, mark)
    writer.text(key, name)
    writer.close(requestTags.lossFnConfigV2, mark)
  }
  if (input.forwardOnly) writeCount(writer, requestTags.forwardOnly, 1)
  for (const [name, value] of config.toReversed()) {
    if (typeof value !== "number") continue
    const mark = writer.written
    writer.double(entry.double, value)
    writer.text(key, name)
    writer.close(requestTags.lossFnConfig, mark)
  }
  writer.text(requestTags.lossFn, loss.name)
  writeAll(writer, data, writeDatum)
  if (input.seqId !== 0) writeCount(writer, requestTags.seqId, input.seqId)
  if (input.modelId !== "") writer.text(requestTags.modelId, input.modelId)
  return Either.right(writer.finish())
}

const unsayable = (chunk: PreparedChunk): string | undefined => {
  switch (chunk.type) {
    case "image_asset_pointer":
      return "image asset pointers are not supported in training: pass the image itself"
    case "image":
      return chunk.height === undefined && chunk.width === undefined
        ? undefined
        : "height and width are only for older servers that read JSON: omit them"
    default:
      return undefined
  }
}

/** Returns the size of all arrays plus more than enough for everything else. */
const capacity = ({ batch }: Request): number =>
  batch.data.reduce((sum, datum) => sum + datum.bytes + 64 * (1 + datum.inputs.length + datum.chunks.length), 1024)

const writeCount = (writer: ProtoWriter, tag: Tag, value: number): void => {
  writer.varint(value)
  writer.varint(tag)
}

/** Writes values in reverse order, like everything else. */
const writeAll = <A>(
  writer: ProtoWriter,
  values: ReadonlyArray<A>,
  write: (writer: ProtoWriter, value: A) => void,
): void => {
  for (let i = values.length - 1; i >= 0; i--) write(writer, values[i] as A)
}

const writeDatum = (writer: ProtoWriter, datum: PreparedDatum): void => {
  const mark = writer.written
  writeAll(writer, datum.lossInputSpans, writeLossInputSpan)
  writeAll(writer, datum.modelInputSpans, writeModelInputSpan)
  writeAll(writer, datum.inputs, writeInput)
  writeAll(writer, datum.chunks, writeChunk)
  writer.close(requestTags.data, mark)
}

const writeInput = (writer: ProtoWriter, { name, tensor }: PreparedInput): void => {
  const mark = writer.written
  writeTensor(writer, tensor)
  writer.close(entry.message, mark)
  writer.text(key, name)
  writer.close(datumTags.lossFnInputs, mark)
}

const writeLossInputSpan = (writer: ProtoWriter, span: Span): void =>
  writeSpan(writer, datumTags.lossFnInputSpans, span)

const writeModelInputSpan = (writer: ProtoWriter, span: Span): void =>
  writeSpan(writer, datumTags.modelInputSpans, span)

const writeSpan = (writer: ProtoWriter, tag: Tag, { source, sequenceId, offset, length }: Span): void => {
  const mark = writer.written
  if (length !== 0) writeCount(writer, ranges[source].length, length)
  if (offset !== 0) writeCount(writer, ranges[source].offset, offset)
  if (sequenceId !== "") writer.text(ranges[source].sequenceId, sequenceId)
  writer.close(spanTags[source], mark)
  writer.close(tag, mark)
}

const writeTensor = (writer: ProtoWriter, tensor: PreparedInput["tensor"]): void => {
  if (tensor.shape !== undefined && tensor.shape.length > 0) {
    const mark = writer.written
    writeAll(writer, tensor.shape, writeSize)
    writer.close(tensorTags.shape, mark)
  }
  writeCount(writer, tensorTags.dtype, tensor.dtype === "float32" ? DType.DTYPE_FLOAT32 : DType.DTYPE_INT64)
  if (tensor.sparse === undefined) return writeElements(writer, tensorTags.dense, tensor)
  const mark = writer.written
  writer.int64s(tensorTags.colIndices, tensor.sparse.colIndices)
  writer.int64s(tensorTags.crowIndices, tensor.sparse.crowIndices)
  writeElements(writer, tensorTags.values, tensor)
  writer.close(tensorTags.sparseCsr, mark)
}

const writeSize = (writer: ProtoWriter, size: number): void => writer.varint(size)

const writeElements = (writer: ProtoWriter, tag: Tag, tensor: PreparedInput["tensor"]): void =>
  tensor.dtype === "float32" ? writer.float32s(tag, tensor.data) : writer.int64s(tag, tensor.data)

const writeChunk = (writer: ProtoWriter, chunk: PreparedChunk): void => {
  const mark = writer.written
  writeContent(writer, chunk)
  writer.close(datumTags.modelInput, mark)
}

const writeContent = (writer: ProtoWriter, chunk: PreparedChunk): void => {
  const mark = writer.written
  switch (chunk.type) {
    case "encoded_text":
      writer.int32s(chunkTags.tokens, chunk.tokens)
      return writer.close(chunkTags.encodedText, mark)
    case "image": {
      const expected = chunk.expectedTokens ?? chunk.tokens
      if (expected !== undefined) writeCount(writer, chunkTags.expectedTokens, expected)
      writer.text(chunkTags.format, chunk.format)
      writer.bytes(chunkTags.data, chunk.data)
      return writer.close(chunkTags.image, mark)
    }
    case "dmel":
      writer.bytes(chunkTags.bytes, chunk.dmel)
      return writer.close(chunkTags.dmel, mark)
    case "image_asset_pointer":
      // Rejected before encoding starts.
      return
  }
}
