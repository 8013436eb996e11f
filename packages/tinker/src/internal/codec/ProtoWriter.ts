/**
 * Writes protobuf from the last byte to the first, so that the length of a nested message is known when its header is
 * written: one pass, one buffer, and no copy per enclosing message. Fields are therefore written in descending order.
 *
 * Arrays are copied as they are in memory, which is the wire's little-endian order on all supported machines.
 */

import * as RequestMemory from "./RequestBuffers.ts"

const encoder = new TextEncoder()

/** The number and wire type of a field, encoded as one varint. */
export type Tag = number

export const varintTag = (field: { readonly number: number }): Tag => field.number << 3
export const doubleTag = (field: { readonly number: number }): Tag => (field.number << 3) | 1
export const lengthTag = (field: { readonly number: number }): Tag => (field.number << 3) | 2

export class ProtoWriter {
  private buffer: Uint8Array<ArrayBuffer>
  private view: DataView
  private start: number
  // The buffer for converting elements: a tensor rarely starts at a multiple of four in the output buffer itself.
  private ints = new Int32Array(0)
  private floats = new Float32Array(0)
  /** The last views of the conversion buffer by element width; the tensors of a batch mostly have the same length. */
  private converted = { 4: new Uint8Array(0), 8: new Uint8Array(0) }
  private readonly texts = new Map<string, Uint8Array>()

  /** Creates a writer. The buffer grows if necessary; a good estimate avoids copying. */
  constructor(capacity: number) {
    this.buffer = RequestMemory.take(capacity)
    this.view = new DataView(this.buffer.buffer)
    this.start = this.buffer.length
  }

  /** The number of bytes written. Pass it to `close` to end the message that starts here. */
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

  /** Writes tag and length in front of everything written since `mark`. */
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

  /** Writes safe integers as pairs of 32-bit halves. */
  int64s(tag: Tag, value: Int32Array | BigInt64Array | ReadonlyArray<number>): void {
    if (value instanceof BigInt64Array) return this.array(tag, value)
    this.room(2 * value.length)
    // Separate loops keep each monomorphic and fast.
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
    // Values beyond 32 bits are rare.
    if (low !== value) halves[at + 1] = Math.floor(value / 2 ** 32)
  }
}
