/** The format of TensorBoard's event files: protobuf messages in frames with masked CRC-32C checksums. */

const table = /* @__PURE__ */ Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1
  return crc
})

export const crc32c = (bytes: Uint8Array): number => {
  let crc = 0xffffffff
  for (const byte of bytes) crc = (crc >>> 8) ^ (table[(crc ^ byte) & 0xff] ?? 0)
  return ~crc >>> 0
}

/** The checksum of a frame is masked, because data that contains its own checksum is hard to check. */
export const maskedCrc = (bytes: Uint8Array): number => {
  const crc = crc32c(bytes)
  return (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0
}

/** Frames a message: its length and data, each with a checksum. */
export const frame = (data: Uint8Array): Uint8Array => {
  const out = new Uint8Array(data.length + 16)
  const view = new DataView(out.buffer)
  view.setUint32(0, data.length, true)
  view.setUint32(8, maskedCrc(out.subarray(0, 8)), true)
  out.set(data, 12)
  view.setUint32(12 + data.length, maskedCrc(data), true)
  return out
}

type Field = ReadonlyArray<number | Uint8Array>

const concat = (parts: ReadonlyArray<Uint8Array>): Uint8Array => {
  const out = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const part of parts) {
    out.set(part, at)
    at += part.length
  }
  return out
}

const varint = (value: number): ReadonlyArray<number> => {
  const bytes: Array<number> = []
  let rest = Math.max(0, Math.trunc(value))
  while (rest > 127) {
    bytes.push((rest % 128) | 128)
    rest = Math.floor(rest / 128)
  }
  return [...bytes, rest]
}

const message = (...fields: ReadonlyArray<Field>): Uint8Array =>
  concat(fields.flat().map((part) => (typeof part === "number" ? Uint8Array.of(part) : part)))

const integer = (field: number, value: number): Field => [...varint(field * 8), ...varint(value)]

const bytes = (field: number, value: Uint8Array): Field => [...varint(field * 8 + 2), ...varint(value.length), value]

const utf8 = new TextEncoder()

const text = (field: number, value: string): Field => bytes(field, utf8.encode(value))

const double = (field: number, value: number): Field => {
  const out = new Uint8Array(8)
  new DataView(out.buffer).setFloat64(0, value, true)
  return [...varint(field * 8 + 1), out]
}

const float = (field: number, value: number): Field => {
  const out = new Uint8Array(4)
  new DataView(out.buffer).setFloat32(0, value, true)
  return [...varint(field * 8 + 5), out]
}

/** The first message of a file. */
export const version = (seconds: number): Uint8Array => message(double(1, seconds), text(3, "brain.Event:2"))

/** Tells the reader that a process starts at this step: what earlier files have of this and later steps is dropped. */
export const sessionStart = (seconds: number, step: number): Uint8Array =>
  message(double(1, seconds), integer(2, step), bytes(7, message(integer(1, 1))))

/** A value of a summary. */
export type Value = Uint8Array

export const scalar = (tag: string, value: number): Value => message(text(1, tag), float(2, value))

/** A text in the layout of the text plugin: a tensor of one string. */
export const note = (tag: string, value: string): Value =>
  message(
    text(1, tag),
    bytes(8, message(integer(1, 7), bytes(2, message(bytes(2, message(integer(1, 1))))), text(8, value))),
    bytes(9, message(bytes(1, message(text(1, "text"))), integer(4, 2))),
  )

/** A message with values of one step. */
export const summary = (seconds: number, step: number, values: ReadonlyArray<Value>): Uint8Array =>
  message(double(1, seconds), integer(2, step), bytes(5, message(...values.map((value) => bytes(1, value)))))
