/**
 * Checks of number arrays that users give: one tight loop each, which tells the position of the first element that
 * does not fit, or -1. Converting afterwards is the engine's own `set`.
 */

type Values = ArrayLike<unknown>

export const firstNonNumber = (values: Values): number => {
  for (let i = 0; i < values.length; i++) if (typeof values[i] !== "number") return i
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
  for (let i = 0; i < values.length; i++) {
    const value = values[i]
    if (typeof value !== "number" || ((value | 0) !== value && !Number.isSafeInteger(value))) return i
  }
  return -1
}

export const firstNonToken = (values: Values): number => {
  for (let i = 0; i < values.length; i++) {
    const value = values[i]
    if (typeof value !== "number" || (value | 0) !== value || value < 0) return i
  }
  return -1
}

export const aToken = "a token id, an integer from 0 to 2^31 - 1"

/** What each kind of tensor can hold, and how to say so. */
export const kinds = {
  float32: { first: firstNonNumber, expected: "a number" },
  int64: { first: firstNonInteger, expected: "an integer within ±(2^53 - 1), or a BigInt64Array" },
}

export const describe = (value: unknown): string => {
  if (value === null) return "null"
  if (typeof value === "string") return JSON.stringify(value)
  if (typeof value === "bigint") return `${value}n`
  return typeof value === "number" ? String(value) : typeof value
}
