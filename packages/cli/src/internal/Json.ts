/**
 * Writes JSON exactly as the official command does, byte for byte: two spaces, ASCII only, and numbers that are
 * fractions by nature always with a fraction.
 */

/** A number that is a fraction by nature: a cost, a rate, gigabytes. One is written as 1.0. */
export class Fraction {
  readonly value: number
  constructor(value: number) {
    this.value = value
  }
  toString(): string {
    const { value } = this
    const size = Math.abs(value)
    if (Number.isInteger(value) && size < 1e16) return `${value}.0`
    if (size >= 1e-4 && size < 1e16) return String(value)
    return value.toExponential().replace(/e([+-])(\d)$/, "e$10$2")
  }
}

/** A value in a record of output. */
export type Value = string | number | boolean | null | Fraction | ReadonlyArray<Value> | Record

/** A record of output; its fields are written in their order. */
export interface Record {
  readonly [field: string]: Value
}

/** Converts parsed JSON of unknown shape. */
export const fromUnknown = (value: unknown): Value => {
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") return value
  if (Array.isArray(value)) return value.map(fromUnknown)
  if (typeof value !== "object" || value === null) return null
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, fromUnknown(field)]))
}

const quoted = (text: string): string =>
  JSON.stringify(text).replaceAll(
    /[\u007f-\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  )

const write = (value: Value, indent: string | undefined): string => {
  if (typeof value === "number" && !Number.isFinite(value)) return "null"
  if (value === null || typeof value === "boolean" || typeof value === "number") return String(value)
  if (typeof value === "string") return quoted(value)
  if (value instanceof Fraction) return value.toString()
  const inner = indent === undefined ? undefined : `${indent}  `
  const isList = Array.isArray(value)
  const parts = isList
    ? value.map((part: Value) => write(part, inner))
    : Object.entries(value).map(([name, field]) => `${quoted(name)}: ${write(field, inner)}`)
  const [open, close] = isList ? ["[", "]"] : ["{", "}"]
  if (parts.length === 0) return `${open}${close}`
  return indent === undefined
    ? `${open}${parts.join(", ")}${close}`
    : `${open}\n${inner}${parts.join(`,\n${inner}`)}\n${indent}${close}`
}

/** Writes a value over several lines. */
export const pretty = (value: Value): string => write(value, "")

/** Writes a value on one line. */
export const compact = (value: Value): string => write(value, undefined)
