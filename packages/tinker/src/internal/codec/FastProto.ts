/**
 * Reads protobuf of which a plain form is expected, and says so when it is not: then the generated reader, which knows
 * everything and is slow while a process is young, has to read it again. `ok` until something was not as expected.
 */
export class PlainReader {
  at = 0
  ok = true
  private readonly bytes: Uint8Array
  private readonly view: DataView

  constructor(bytes: Uint8Array) {
    this.bytes = bytes
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
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

  double(within: number): number {
    const at = this.at
    this.at += 8
    if (this.at <= within) return this.view.getFloat64(at, true)
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

  /** Of a name in ASCII; whatever else is not plain. */
  name(within: number): string {
    const end = this.end(within)
    let text = ""
    while (this.ok && this.at < end) {
      const code = this.bytes[this.at++] as number
      if (code > 0x7f) this.ok = false
      text += String.fromCharCode(code)
    }
    // As a key of an object it would not be one.
    if (text === "__proto__") this.ok = false
    return text
  }
}
