/**
 * Reads protobuf messages in their common form. `ok` becomes false if a message differs; it must then be read with the
 * generated reader, which handles everything but is slow shortly after process start.
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

  /** Reads a varint of up to 28 bits; larger values are not handled. */
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

  /** Reads a length and returns the end position of the field. */
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

  /** Reads an ASCII name; other names are not handled. */
  name(within: number): string {
    const end = this.end(within)
    let text = ""
    while (this.ok && this.at < end) {
      const code = this.bytes[this.at++] as number
      if (code > 0x7f) this.ok = false
      text += String.fromCharCode(code)
    }
    // Assigning this key to an object would change its prototype.
    if (text === "__proto__") this.ok = false
    return text
  }
}
