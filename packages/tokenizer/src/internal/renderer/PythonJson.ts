/** Prints JSON as Python does, because models were trained on that form and the reference writes it. */
import * as Either from "effect/Either"
import * as Predicate from "effect/Predicate"
import * as ExactJson from "../../ExactJson.ts"
import { floatText, jsonText } from "../template/Printing.ts"

const float = (value: number): string =>
  Number.isNaN(value) ? "NaN" : Number.isFinite(value) ? floatText(value) : value > 0 ? "Infinity" : "-Infinity"

/** Prints like `json.dumps` with its default escapes. */
export const print = (value: unknown): string => {
  if (typeof value === "string") return jsonText(value, true)
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : float(value)
  if (typeof value === "bigint" || typeof value === "boolean") return String(value)
  if (value instanceof ExactJson.Float) return float(value.value)
  if (Array.isArray(value)) return `[${value.map(print).join(", ")}]`
  if (value instanceof Map) return object([...value])
  if (Predicate.isRecord(value)) return object(Object.entries(value).filter(([, one]) => one !== undefined))
  return "null"
}

const object = (entries: ReadonlyArray<readonly [unknown, unknown]>): string =>
  `{${entries.map(([key, value]) => `${jsonText(String(key), true)}: ${print(value)}`).join(", ")}}`

/** Parses and prints again, like `json.dumps(json.loads(text))`. */
export const reprint = (text: string): Either.Either<string, ExactJson.ExactJsonError> =>
  Either.map(ExactJson.parse(text), print)
