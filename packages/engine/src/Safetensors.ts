/**
 * The safetensors format: a JSON header and raw numbers. Reads F32, F16 and BF16 as float32; writes F32.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import { EngineError } from "./EngineError.ts"

/**
 * A tensor in row-major order.
 *
 * @since 0.1.0
 * @category models
 */
export interface Tensor {
  readonly shape: ReadonlyArray<number>
  readonly data: Float32Array
}

/**
 * The tensors of a file by name. A tensor is converted when it is requested.
 *
 * @since 0.1.0
 * @category models
 */
export interface Safetensors {
  readonly metadata: Readonly<Record<string, string>>
  readonly names: ReadonlyArray<string>
  readonly get: (name: string) => Tensor | undefined
}

const bytesOf: Readonly<Record<string, number>> = { F32: 4, F16: 2, BF16: 2 }
const maxHeader = 100_000_000

const halfToFloat = (half: number): number => {
  const sign = half & 0x8000 ? -1 : 1
  const exponent = (half >> 10) & 31
  const fraction = half & 1023
  if (exponent === 0) return sign * fraction * 2 ** -24
  if (exponent === 31) return fraction ? Number.NaN : sign * Infinity
  return sign * (1024 + fraction) * 2 ** (exponent - 25)
}

const convert = (dtype: string, bytes: Uint8Array): Float32Array => {
  // Copies the bytes to align them. (`slice` of Node's Buffer does not copy.)
  const { buffer } = new Uint8Array(bytes)
  if (dtype === "F32") return new Float32Array(buffer)
  const halves = new Uint16Array(buffer)
  const floats = new Float32Array(halves.length)
  if (dtype === "BF16") {
    const bits = new Uint32Array(floats.buffer)
    for (let i = 0; i < halves.length; i++) bits[i] = (halves[i] ?? 0) << 16
  } else for (let i = 0; i < halves.length; i++) floats[i] = halfToFloat(halves[i] ?? 0)
  return floats
}

interface Entry {
  readonly dtype: string
  readonly shape: ReadonlyArray<number>
  readonly data_offsets: readonly [number, number]
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0

const isEntry = (value: unknown): value is Entry => {
  const { dtype, shape, data_offsets } = (value ?? {}) as Partial<Record<keyof Entry, unknown>>
  return (
    typeof dtype === "string" &&
    Array.isArray(shape) &&
    shape.every(isCount) &&
    Array.isArray(data_offsets) &&
    data_offsets.length === 2 &&
    data_offsets.every(isCount)
  )
}

/**
 * Reads a file. Checks every offset against the size of the file and the shape of its tensor.
 *
 * @since 0.1.0
 * @category decoding
 */
export const read = (file: Uint8Array): Either.Either<Safetensors, EngineError> => {
  const invalid = (problem: string) =>
    Either.left(new EngineError({ reason: "InvalidModel", problem: `safetensors: ${problem}` }))
  if (file.length < 8) return invalid("no header")
  const length = Number(new DataView(file.buffer, file.byteOffset, 8).getBigUint64(0, true))
  if (length > maxHeader || 8 + length > file.length) return invalid("the header is longer than the file")
  let header: unknown
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(file.subarray(8, 8 + length)))
  } catch {
    return invalid("the header is not valid JSON")
  }
  if (typeof header !== "object" || header === null) return invalid("the header is not an object")
  const entries = new Map<string, Entry>()
  const metadata: Record<string, string> = {}
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") {
      for (const [key, value] of Object.entries(entry ?? {})) metadata[key] = String(value)
      continue
    }
    if (!isEntry(entry)) return invalid(`${name}: expected dtype, shape and data_offsets`)
    const [start, end] = entry.data_offsets
    const size = bytesOf[entry.dtype]
    if (size === undefined) return invalid(`${name}: ${entry.dtype} is not F32, F16 or BF16`)
    if (end - start !== entry.shape.reduce((a, b) => a * b, size))
      return invalid(`${name}: the size does not match the shape`)
    if (8 + length + end > file.length) return invalid(`${name}: the data exceeds the file`)
    entries.set(name, entry)
  }
  return Either.right({
    metadata,
    names: [...entries.keys()],
    get: (name) => {
      const entry = entries.get(name)
      if (entry === undefined) return undefined
      const [start, end] = entry.data_offsets
      return { shape: entry.shape, data: convert(entry.dtype, file.subarray(8 + length + start, 8 + length + end)) }
    },
  })
}

/**
 * Combines the tensors of several files.
 *
 * @since 0.1.0
 * @category combinators
 */
export const join = (files: ReadonlyArray<Safetensors>): Safetensors => ({
  metadata: Object.assign({}, ...files.map((file) => file.metadata)),
  names: files.flatMap((file) => file.names),
  get: (name) => files.find((file) => file.names.includes(name))?.get(name),
})

/**
 * Writes tensors in the given order, so that equal tensors give equal bytes.
 *
 * @since 0.1.0
 * @category encoding
 */
export const write = (
  tensors: Readonly<Record<string, Tensor>>,
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array => {
  let offset = 0
  const header: Record<string, unknown> = { __metadata__: { format: "pt", ...metadata } }
  for (const [name, { data, shape }] of Object.entries(tensors)) {
    header[name] = { dtype: "F32", shape, data_offsets: [offset, offset + data.byteLength] }
    offset += data.byteLength
  }
  const json = new TextEncoder().encode(JSON.stringify(header))
  const padded = Math.ceil(json.length / 8) * 8
  const file = new Uint8Array(8 + padded + offset).fill(32, 8, 8 + padded)
  new DataView(file.buffer).setBigUint64(0, BigInt(padded), true)
  file.set(json, 8)
  let at = 8 + padded
  for (const { data } of Object.values(tensors)) {
    file.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at)
    at += data.byteLength
  }
  return file
}
