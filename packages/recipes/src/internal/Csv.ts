/** Reads comma-separated values as RFC 4180 defines them: fields in quotes may contain delimiters and line breaks. */
import * as Either from "effect/Either"

/** The bytes of a record and their place, or `undefined` if it is longer than allowed. */
export interface Record {
  readonly offset: number
  readonly bytes: number
  readonly content: Uint8Array | undefined
}

const lineFeed = 0x0a
const quote = 0x22

const [start, plain, quoted, afterQuote] = [0, 1, 2, 3]

/** Splits bytes into records: a line feed inside quotes does not end one. */
export class Records {
  private readonly delimiter: number
  private readonly maxBytes: number
  private pending: Array<Uint8Array> = []
  private size = 0
  private offset = 0
  private consumed = 0
  private state = start

  constructor(delimiter: number, maxBytes: number) {
    this.delimiter = delimiter
    this.maxBytes = maxBytes
  }

  private keep(bytes: Uint8Array): void {
    this.size += bytes.length
    if (this.size <= this.maxBytes) this.pending.push(bytes)
    else this.pending = []
  }

  private end(): Record {
    const { offset, pending, size } = this
    this.pending = []
    this.size = 0
    this.offset = offset + size + 1
    this.state = start
    if (size > this.maxBytes) return { offset, bytes: size, content: undefined }
    const content = new Uint8Array(size)
    let at = 0
    for (const part of pending) {
      content.set(part, at)
      at += part.length
    }
    return { offset, bytes: size, content }
  }

  push(bytes: Uint8Array): ReadonlyArray<Record> {
    const records: Array<Record> = []
    let from = 0
    let { state } = this
    for (let at = 0; at < bytes.length; at++) {
      const byte = bytes[at]
      if (state === quoted) {
        if (byte === quote) state = afterQuote
      } else if (byte === lineFeed) {
        this.keep(bytes.subarray(from, at))
        records.push(this.end())
        from = at + 1
        state = start
      } else if (byte === quote && (state === start || state === afterQuote)) state = quoted
      else state = byte === this.delimiter ? start : plain
    }
    this.state = state
    // Copies the bytes because the producer may reuse its buffer.
    this.keep(bytes.slice(from))
    this.consumed += bytes.length
    return records
  }

  /** Returns the last record if no line feed ends it. */
  finish(): ReadonlyArray<Record> {
    return this.consumed === this.offset ? [] : [this.end()]
  }
}

/** Splits the text of a record into fields, or says what is wrong with it. */
export const fields = (text: string, delimiter: string): Either.Either<ReadonlyArray<string>, string> => {
  const line = text.endsWith("\r") ? text.slice(0, -1) : text
  const all: Array<string> = []
  let at = 0
  for (;;) {
    if (line[at] === '"') {
      let value = ""
      let from = at + 1
      for (;;) {
        const close = line.indexOf('"', from)
        if (close === -1) return Either.left("a quoted field has no closing quote")
        value += line.slice(from, close)
        at = close + 1
        if (line[at] !== '"') break
        value += '"'
        from = at + 1
      }
      if (at < line.length && line[at] !== delimiter) {
        return Either.left("a quoted field goes on after its closing quote; write a quote inside it as two quotes")
      }
      all.push(value)
    } else {
      const end = line.indexOf(delimiter, at)
      const value = line.slice(at, end === -1 ? line.length : end)
      if (value.includes('"')) return Either.left("a field with a quote has to be in quotes")
      all.push(value)
      at += value.length
    }
    if (at >= line.length) return Either.right(all)
    at++
    if (at === line.length) return Either.right([...all, ""])
  }
}
