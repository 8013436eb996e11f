/**
 * Reads the common form of a `SampleResponse`: sequences of tokens and log probabilities without rare fields. A process
 * reads thousands of them, most shortly after its start, when the generated reader is still slow.
 */

import { PlainReader } from "./FastProto.ts"

export interface PlainSequence {
  stopReason: number
  tokens: Uint8Array
  logprobs: Uint8Array | undefined
}

export interface PlainSample {
  readonly sequences: Array<PlainSequence>
  promptLogprobs: Uint8Array | undefined
  promptCacheHitTokens: number
}

const empty = new Uint8Array(0)

const sequence = (reader: PlainReader, within: number): PlainSequence => {
  const read: PlainSequence = { stopReason: 0, tokens: empty, logprobs: undefined }
  const end = reader.end(within)
  while (reader.ok && reader.at < end) {
    switch (reader.varint()) {
      case 0x08:
        read.stopReason = reader.varint()
        break
      case 0x12:
        read.tokens = reader.take(end)
        break
      case 0x1a:
        read.logprobs = reader.take(end)
        break
      default:
        reader.ok = false
    }
  }
  if (reader.at !== end) reader.ok = false
  return read
}

/** Reads a common response; undefined for any other, which the generated reader handles. */
export const readPlainSample = (bytes: Uint8Array): PlainSample | undefined => {
  const reader = new PlainReader(bytes)
  const read: PlainSample = { sequences: [], promptLogprobs: undefined, promptCacheHitTokens: 0 }
  while (reader.ok && reader.at < bytes.length) {
    switch (reader.varint()) {
      case 0x0a:
        read.sequences.push(sequence(reader, bytes.length))
        break
      case 0x12:
        read.promptLogprobs = reader.take(bytes.length)
        break
      case 0x20:
        read.promptCacheHitTokens = reader.varint()
        break
      default:
        reader.ok = false
    }
  }
  return reader.ok ? read : undefined
}
