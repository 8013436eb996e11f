/**
 * The common form of a `SampleResponse`: sequences of tokens and log probabilities, nothing rare. Thousands of them are
 * read in a process, most while it is young and the generated reader, which can read everything, is still slow.
 */

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

/** A place in the bytes; `ok` until something was not as expected. */
class Reader {
  at = 0
  ok = true
  private readonly bytes: Uint8Array

  constructor(bytes: Uint8Array) {
    this.bytes = bytes
  }

  /** Up to 28 bits; whatever is larger is not plain. */
  varint(): number {
    let value = 0
    for (let shift = 0; shift < 28; shift += 7) {
      const byte = this.bytes[this.at++]
      if (byte === undefined) break
      value |= (byte & 0x7f) << shift
      if (byte < 0x80) return value
    }
    this.ok = false
    return 0
  }

  /** The end of a field that tells its length. */
  end(within: number): number {
    const length = this.varint()
    if (this.at + length > within) this.ok = false
    return this.at + length
  }

  take(within: number): Uint8Array {
    const end = this.end(within)
    const taken = this.bytes.subarray(this.at, end)
    this.at = end
    return taken
  }
}

const sequence = (reader: Reader, within: number): PlainSequence => {
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

/** Nothing, if it is anything but plain: the generated reader knows what it is, or what is wrong with it. */
export const readPlainSample = (bytes: Uint8Array): PlainSample | undefined => {
  const reader = new Reader(bytes)
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
