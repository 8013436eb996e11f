/**
 * Reads the common form of a `ForwardBackwardOutput`: ASCII names and small counts. There is one for each training
 * step, with a tensor for every datum.
 */
import { PlainReader } from "./FastProto.ts"

/** The concatenated tensors of all datums in a batch. */
export interface Batched {
  readonly data: Uint8Array
  readonly offsets: Uint8Array
  readonly dtype: number
  readonly trailingShape: ReadonlyArray<number | bigint>
}

export interface Outputs {
  readonly fields: Readonly<Record<string, Batched>>
  readonly numDatums: number | bigint
}

/** The relevant part of the generated message type. */
export interface Pass {
  readonly lossFnOutputType: string
  readonly lossFnOutputs: ReadonlyArray<Outputs>
  readonly metrics: Record<string, number>
}

const empty: Uint8Array = new Uint8Array(0)

const batched = (reader: PlainReader, within: number): Batched => {
  let data = empty
  let offsets = empty
  let dtype = 0
  const trailingShape: Array<number> = []
  const end = reader.end(within)
  while (reader.ok && reader.at < end) {
    switch (reader.varint()) {
      case 0x0a:
        data = reader.take(end)
        break
      case 0x12:
        offsets = reader.take(end)
        break
      case 0x18:
        dtype = reader.varint()
        break
      case 0x22: {
        const last = reader.end(end)
        while (reader.ok && reader.at < last) trailingShape.push(reader.varint())
        if (reader.at !== last) reader.ok = false
        break
      }
      default:
        reader.ok = false
    }
  }
  if (reader.at !== end) reader.ok = false
  return { data, offsets, dtype, trailingShape }
}

/** Reads a map entry whose key comes first, as all common encoders write it. */
const entry = <A>(
  reader: PlainReader,
  within: number,
  tag: number,
  value: (reader: PlainReader, end: number) => A,
  into: Record<string, A>,
): void => {
  const end = reader.end(within)
  if (!reader.ok || reader.varint() !== 0x0a) {
    reader.ok = false
    return
  }
  const key = reader.name(end)
  if (!reader.ok || reader.varint() !== tag) {
    reader.ok = false
    return
  }
  into[key] = value(reader, end)
  if (reader.at !== end) reader.ok = false
}

const double = (reader: PlainReader, end: number) => reader.double(end)

const outputs = (reader: PlainReader, within: number): Outputs => {
  const fields: Record<string, Batched> = {}
  let numDatums = 0
  const end = reader.end(within)
  while (reader.ok && reader.at < end) {
    switch (reader.varint()) {
      case 0x0a:
        // The type tag is not used.
        reader.name(end)
        break
      case 0x12:
        entry(reader, end, 0x12, batched, fields)
        break
      case 0x18:
        numDatums = reader.varint()
        break
      default:
        reader.ok = false
    }
  }
  if (reader.at !== end) reader.ok = false
  return { fields, numDatums }
}

/** Reads a common result; undefined for any other, which the generated reader handles. */
export const readPlainPass = (bytes: Uint8Array): Pass | undefined => {
  const reader = new PlainReader(bytes)
  const lossFnOutputs: Array<Outputs> = []
  const metrics: Record<string, number> = {}
  let lossFnOutputType = ""
  while (reader.ok && reader.at < bytes.length) {
    switch (reader.varint()) {
      case 0x0a:
        lossFnOutputType = reader.name(bytes.length)
        break
      case 0x12:
        lossFnOutputs.push(outputs(reader, bytes.length))
        break
      case 0x1a:
        entry(reader, bytes.length, 0x11, double, metrics)
        break
      default:
        reader.ok = false
    }
  }
  return reader.ok ? { lossFnOutputType, lossFnOutputs, metrics } : undefined
}
