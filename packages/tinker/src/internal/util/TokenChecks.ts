/**
 * Validates number arrays in one tight loop each. The checks return the position of the first invalid element, or -1.
 * Conversion then uses the engine's own `set`.
 */

type Values = ArrayLike<unknown>

/** Typed arrays of integers of at most 32 bits. */
export type SmallIntegers = Int8Array | Int16Array | Int32Array | Uint8Array | Uint16Array | Uint32Array

/** Doubles from here on round to an infinite float32: half a step above the largest finite one. */
const float32Overflow = 2 ** 128 - 2 ** 103

export const firstNonFloat32 = (values: Values): number => {
  for (let i = 0; i < values.length; i++) {
    const value = values[i]
    if (typeof value !== "number") return i
    // Small integers, which are common in weights, need no floating-point comparison.
    if ((value | 0) === value) continue
    if (value < float32Overflow && value > -float32Overflow) continue
    // NaN and infinities are intended.
    if (Number.isFinite(value)) return i
  }
  return -1
}

export const firstNonInt32 = (values: Values): number => {
  for (let i = 0; i < values.length; i++) {
    const value = values[i]
    if (typeof value !== "number" || (value | 0) !== value) return i
  }
  return -1
}

export const firstNonInteger = (values: Values): number => {
  const { length } = values
  let i = 0
  // Checks four elements at a time while all are small integers, which is nearly always the case.
  for (; i + 3 < length; i += 4) {
    if (!isInt32(values[i]) || !isInt32(values[i + 1]) || !isInt32(values[i + 2]) || !isInt32(values[i + 3])) break
  }
  for (; i < length; i++) {
    const value = values[i]
    if (typeof value !== "number" || ((value | 0) !== value && !Number.isSafeInteger(value))) return i
  }
  return -1
}

const isInt32 = (value: unknown): boolean => typeof value === "number" && (value | 0) === value

export const firstNonToken = (values: Values): number => {
  const { length } = values
  let i = 0
  for (; i + 3 < length; i += 4) {
    if (!isToken(values[i]) || !isToken(values[i + 1]) || !isToken(values[i + 2]) || !isToken(values[i + 3])) break
  }
  for (; i < length; i++) if (!isToken(values[i])) return i
  return -1
}

/** Checks for an integer from 0 to 2^31 - 1: masking the sign bit and dropping the fraction must not change it. */
const isToken = (value: unknown): boolean => typeof value === "number" && (value & 0x7fff_ffff) === value

export const aToken = "a token id, an integer from 0 to 2^31 - 1"

/** The valid elements of each kind of tensor. */
export const kinds = {
  float32: { first: firstNonFloat32, expected: "a number in the range of float32" },
  int64: { first: firstNonInteger, expected: "an integer within ±(2^53 - 1), or a BigInt64Array" },
}

/** Checks for a flat array of numbers of any type, excluding typed arrays whose memory was transferred. */
export const isFlat = (value: unknown): value is Values =>
  Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView) && !isDetached(value))

/**
 * Checks whether the memory of an array was transferred to another thread. Such an array looks empty; only accessing
 * its memory shows it.
 */
export const isDetached = (view: ArrayBufferView): boolean => {
  if (view.byteLength > 0) return false
  try {
    return new Uint8Array(view.buffer).length < 0
  } catch {
    return true
  }
}

export const product = (sizes: ReadonlyArray<number>): number => sizes.reduce((all, size) => all * size, 1)

/** The maximum number of elements created from a compact form; more indicate an error or an attack. */
export const denseAtMost = 2 ** 24
