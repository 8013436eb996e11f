/** JSON as Python prints it: what models were trained on, and what the reference writes. */
import * as Either from "effect/Either"
import * as Predicate from "effect/Predicate"
import * as ExactJson from "../../ExactJson.ts"
import { floatText, jsonText } from "../template/Printing.ts"

const float = (value: number): string =>
  Number.isNaN(value) ? "NaN" : Number.isFinite(value) ? floatText(value) : value > 0 ? "Infinity" : "-Infinity"

/** `json.dumps`, with the escapes that it has by default. */
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

/** `json.dumps(json.loads(text))`: the same values, printed as Python prints them. */
export const reprint = (text: string): Either.Either<string, ExactJson.ExactJsonError> =>
  Either.map(ExactJson.parse(text), print)
