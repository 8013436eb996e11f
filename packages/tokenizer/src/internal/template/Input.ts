/** Converts input data to the values that templates see. */
import { Failure } from "./Failure.ts"
import type { Key, Value } from "./Value.ts"
import { Dict, Float, integer } from "./Value.ts"

const reject = (path: string, problem: string): never => {
  throw new Failure("Input", `${path === "" ? "the input" : path} ${problem}`)
}

const numeric = (value: number, path: string): Value => {
  if (!Number.isInteger(value) || Object.is(value, -0)) return new Float(value)
  return Number.isSafeInteger(value)
    ? value
    : reject(path, "is an integer above 2⁵³ and has lost precision; pass a bigint or an ExactJson.Float")
}

const isPlain = (value: object): boolean => {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null || prototype === Object.prototype
}

/** Converts a value; `path` is its position, used in errors. */
export const fromUnknown = (value: unknown, path: string, depth: number): Value => {
  if (depth < 0) {
    throw new Failure("Limit", `${path.slice(0, 80)}… is nested too deeply`)
  }
  switch (typeof value) {
    case "string":
    case "boolean":
      return value
    case "number":
      return numeric(value, path)
    case "bigint":
      return integer(value)
    case "object":
      break
    default:
      return reject(path, `has the unsupported type ${typeof value}`)
  }
  if (value === null) return null
  if (value instanceof Float) return value
  if (Array.isArray(value)) return value.map((item, index) => fromUnknown(item, `${path}[${index}]`, depth - 1))
  if (!(value instanceof Map) && !isPlain(value)) return reject(path, "is not a plain object")
  const entries = new Map<Key, Value>()
  for (const [key, item] of value instanceof Map ? value : Object.entries(value)) {
    if (typeof key !== "string") return reject(path, "has a key that is not a string")
    // Drops undefined values, as `JSON.stringify` does.
    if (item !== undefined) entries.set(key, fromUnknown(item, path === "" ? key : `${path}.${key}`, depth - 1))
  }
  return new Dict(entries)
}

const reasoningFields = ["reasoning_content", "thinking", "reasoning"]

/** Makes reasoning available under the names that templates use, whatever the caller calls it, as transformers does. */
export const withReasoning = (message: Dict): Dict => {
  const name = reasoningFields.find((field) => (message.entries.get(field) ?? null) !== null)
  const reasoning = name === undefined ? undefined : message.entries.get(name)
  if (reasoning === undefined) return message
  return new Dict(
    new Map<Key, Value>([["thinking", reasoning], ...message.entries]).set("reasoning_content", reasoning),
  )
}
