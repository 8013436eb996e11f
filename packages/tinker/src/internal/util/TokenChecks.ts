/**
 * Checks of number arrays that users give: one tight loop each, which tells the position of the first element that
 * does not fit, or -1. Converting afterwards is the engine's own `set`.
 */

type Values = ArrayLike<unknown>

/** Typed arrays whose elements are all exact integers of at most 32 bits. */
export type SmallIntegers = Int8Array | Int16Array | Int32Array | Uint8Array | Uint16Array | Uint32Array

/** From here on a double is rounded to an infinite float32: half a step above the largest finite one. */
const float32Overflow = 2 ** 128 - 2 ** 103

export const firstNonFloat32 = (values: Values): number => {
  for (let i = 0; i < values.length; i++) {
    const value = values[i]
    if (typeof value !== "number") return i
    // Small integers, which weights often are, need no arithmetic on doubles.
    if ((value | 0) === value) continue
    if (value < float32Overflow && value > -float32Overflow) continue
    // NaN and the infinities were meant.
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
  // Four at a time, as long as all are small integers, which they nearly always are.
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

/** An integer from 0 to 2^31 - 1: what is left of it without a sign and a fraction is itself. */
const isToken = (value: unknown): boolean => typeof value === "number" && (value & 0x7fff_ffff) === value

export const aToken = "a token id, an integer from 0 to 2^31 - 1"

/** What each kind of tensor can hold, and how to say so. */
export const kinds = {
  float32: { first: firstNonFloat32, expected: "a number that a float32 can hold" },
  int64: { first: firstNonInteger, expected: "an integer within ±(2^53 - 1), or a BigInt64Array" },
}

/** Flat numbers, whatever they are in; a typed array that lost its memory is none. */
export const isFlat = (value: unknown): value is Values =>
  Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView) && !isDetached(value))

/** An array whose memory was transferred to another thread looks empty; only using the memory tells. */
export const isDetached = (view: ArrayBufferView): boolean => {
  if (view.byteLength > 0) return false
  try {
    return new Uint8Array(view.buffer).length < 0
  } catch {
    return true
  }
}

export const product = (sizes: ReadonlyArray<number>): number => sizes.reduce((all, size) => all * size, 1)

/** As many elements are made of what was said in fewer bytes; beyond that it is a mistake, or an attack. */
export const denseAtMost = 2 ** 24
