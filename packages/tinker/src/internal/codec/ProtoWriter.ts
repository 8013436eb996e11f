/**
 * Writes protobuf from the last byte to the first, so that the length of a nested message is known when its turn
 * comes: one pass, one buffer, no copy for every message around. Fields are therefore written in descending order.
 *
 * Arrays are copied as they lie in memory, which is the wire's little-endian order on every machine that runs this.
 */

import * as RequestMemory from "./RequestBuffers.ts"

const encoder = new TextEncoder()

/** A field's number and wire type, as one varint announces them. */
export type Tag = number

export const varintTag = (field: { readonly number: number }): Tag => field.number << 3
export const doubleTag = (field: { readonly number: number }): Tag => (field.number << 3) | 1
export const lengthTag = (field: { readonly number: number }): Tag => (field.number << 3) | 2

export class ProtoWriter {
  private buffer: Uint8Array<ArrayBuffer>
  private view: DataView
  private start: number
  // Where elements are converted: a tensor rarely begins at a multiple of four in the buffer itself.
  private ints = new Int32Array(0)
  private floats = new Float32Array(0)
  /** The first bytes of it, as many as were last asked for, by their width: tensors of a batch are mostly of one length. */
  private converted = { 4: new Uint8Array(0), 8: new Uint8Array(0) }
  private readonly texts = new Map<string, Uint8Array>()

  /** A buffer that turns out to be too small grows; a good guess saves the copy. */
  constructor(capacity: number) {
    this.buffer = RequestMemory.take(capacity)
    this.view = new DataView(this.buffer.buffer)
    this.start = this.buffer.length
  }

  /** How much is written; given to `close` it ends the message that began there. */
  get written(): number {
    return this.buffer.length - this.start
  }

  finish(): Uint8Array<ArrayBuffer> {
    return this.buffer.subarray(this.start)
  }

  varint(value: number): void {
    let size = 1
    for (let rest = value; rest > 127; rest = Math.floor(rest / 128)) size++
    this.reserve(size)
    let at = this.start
    let rest = value
    for (; rest > 127; rest = Math.floor(rest / 128)) this.buffer[at++] = (rest % 128) | 128
    this.buffer[at] = rest
  }

  /** Puts tag and length before everything that was written since `mark`. */
  close(tag: Tag, mark: number): void {
    this.varint(this.written - mark)
    this.varint(tag)
  }

  bytes(tag: Tag, value: Uint8Array): void {
    const mark = this.written
    this.reserve(value.length)
    this.buffer.set(value, this.start)
    this.close(tag, mark)
  }

  int32s(tag: Tag, value: Int32Array | ReadonlyArray<number>): void {
    if (value instanceof Int32Array) return this.array(tag, value)
    this.room(value.length)
    this.ints.set(value)
    this.bytes(tag, this.firstBytes(4, value.length))
  }

  float32s(tag: Tag, value: Float32Array | ReadonlyArray<number>): void {
    if (value instanceof Float32Array) return this.array(tag, value)
    this.room(value.length)
    this.floats.set(value)
    this.bytes(tag, this.firstBytes(4, value.length))
  }

  /** Safe integers, as pairs of their halves. */
  int64s(tag: Tag, value: Int32Array | BigInt64Array | ReadonlyArray<number>): void {
    if (value instanceof BigInt64Array) return this.array(tag, value)
    this.room(2 * value.length)
    // Two loops, so that each sees one kind of array and stays fast.
    if (value instanceof Int32Array) widen(this.ints, value)
    else split(this.ints, value)
    this.bytes(tag, this.firstBytes(8, value.length))
  }

  private firstBytes(width: 4 | 8, elements: number): Uint8Array {
    const known = this.converted[width]
    if (known.length === width * elements && known.buffer === this.ints.buffer) return known
    return (this.converted[width] = new Uint8Array(this.ints.buffer, 0, width * elements))
  }

  private array(tag: Tag, value: Int32Array | Float32Array | BigInt64Array): void {
    this.bytes(tag, new Uint8Array(value.buffer, value.byteOffset, value.byteLength))
  }

  private room(length: number): void {
    if (length <= this.ints.length) return
    this.ints = new Int32Array(length)
    this.floats = new Float32Array(this.ints.buffer)
  }

  text(tag: Tag, value: string): void {
    let bytes = this.texts.get(value)
    if (bytes === undefined) this.texts.set(value, (bytes = encoder.encode(value)))
    this.bytes(tag, bytes)
  }

  double(tag: Tag, value: number): void {
    this.reserve(8)
    this.view.setFloat64(this.start, value, true)
    this.varint(tag)
  }

  private reserve(size: number): void {
    if (size > this.start) {
      const { buffer, written } = this
      this.buffer = RequestMemory.take(2 * buffer.length + size)
      this.view = new DataView(this.buffer.buffer)
      this.buffer.set(buffer.subarray(this.start), this.buffer.length - written)
      this.start = this.buffer.length - written
    }
    this.start -= size
  }
}

const widen = (halves: Int32Array, values: Int32Array): void => {
  for (let i = 0, at = 0; i < values.length; i++, at += 2) {
    const value = values[i] as number
    halves[at] = value
    halves[at + 1] = value >> 31
  }
}

const split = (halves: Int32Array, values: ReadonlyArray<number>): void => {
  for (let i = 0, at = 0; i < values.length; i++, at += 2) {
    const value = values[i] as number
    const low = value | 0
    halves[at] = low
    halves[at + 1] = low >> 31
    // Rarely: beyond 32 bits.
    if (low !== value) halves[at + 1] = Math.floor(value / 2 ** 32)
  }
}
