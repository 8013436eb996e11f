/** Prints values as Python does, because models were trained on that form and the reference writes it. */
import * as Either from "effect/Either"
import * as Predicate from "effect/Predicate"
import * as ExactJson from "../../ExactJson.ts"
import { floatText, jsonText, reprText } from "../template/Printing.ts"

const float = (value: number): string =>
  Number.isNaN(value) ? "NaN" : Number.isFinite(value) ? floatText(value) : value > 0 ? "Infinity" : "-Infinity"

/** How JSON is written. */
export interface Style {
  /** Whether characters outside of ASCII are escaped. */
  readonly ascii: boolean
  readonly comma: string
  readonly colon: string
  readonly sorts: boolean
}

/** `json.dumps` with its default options. */
const dumps: Style = { ascii: true, comma: ", ", colon: ": ", sorts: false }

/** `json.dumps` with `ensure_ascii=False`. */
export const readable: Style = { ...dumps, ascii: false }

/** `json.dumps` with sorted keys and without spaces. */
export const compact: Style = { ascii: true, comma: ",", colon: ":", sorts: true }

type Entries = ReadonlyArray<readonly [key: string, value: unknown]>

const entriesOf = (value: unknown): Entries | undefined =>
  value instanceof Map
    ? [...value].map(([key, one]) => [String(key), one])
    : Predicate.isRecord(value) && !(value instanceof ExactJson.Float)
      ? Object.entries(value).filter(([, one]) => one !== undefined)
      : undefined

/** Compares texts by code points, as Python and Rust do. */
export const compareText = (one: string, other: string): number => {
  const [a, b] = [Array.from(one), Array.from(other)]
  const at = a.findIndex((letter, index) => letter !== b[index])
  if (at === -1) return a.length - b.length
  return (a[at]?.codePointAt(0) ?? -1) - (b[at]?.codePointAt(0) ?? -1)
}

/** Prints like `json.dumps`. */
export const print = (value: unknown, style: Style = dumps): string => {
  if (typeof value === "string") return jsonText(value, style.ascii)
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : float(value)
  if (typeof value === "bigint" || typeof value === "boolean") return String(value)
  if (value instanceof ExactJson.Float) return float(value.value)
  if (Array.isArray(value)) return `[${value.map((one) => print(one, style)).join(style.comma)}]`
  const entries = entriesOf(value)
  if (entries === undefined) return "null"
  const ordered = style.sorts ? entries.toSorted(([one], [other]) => compareText(one, other)) : entries
  const members = ordered.map(([key, one]) => jsonText(key, style.ascii) + style.colon + print(one, style))
  return `{${members.join(style.comma)}}`
}

/** Prints like `repr`. */
export const repr = (value: unknown): string => {
  if (typeof value === "string") return reprText(value)
  if (typeof value === "boolean") return value ? "True" : "False"
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : floatText(value)
  if (typeof value === "bigint") return String(value)
  if (value instanceof ExactJson.Float) return floatText(value.value)
  if (Array.isArray(value)) return `[${value.map(repr).join(", ")}]`
  const entries = entriesOf(value)
  return entries === undefined
    ? "None"
    : `{${entries.map(([key, one]) => `${reprText(key)}: ${repr(one)}`).join(", ")}}`
}

/** Prints like `str`. */
export const str = (value: unknown): string => (typeof value === "string" ? value : repr(value))

/** Returns whether a parsed value is a list or an object. */
export const isNested = (value: unknown): boolean => Array.isArray(value) || entriesOf(value) !== undefined

/** Parses and prints again, like `json.dumps(json.loads(text))`. */
export const reprint = (text: string): Either.Either<string, ExactJson.ExactJsonError> =>
  Either.map(ExactJson.parse(text), (value) => print(value))
