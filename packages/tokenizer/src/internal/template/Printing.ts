/** Prints values as Python's `str`, `repr` and `json.dumps` do. */
import { Failure, raise, typeError, unsupported } from "./Failure.ts"
import type { Meter } from "./Meter.ts"
import type { Key, List, Value } from "./Value.ts"
import {
  Callable,
  compare,
  Dict,
  DictView,
  Float,
  Generator,
  isList,
  iterate,
  Loop,
  Markup,
  Namespace,
  Range,
  Tuple,
  typeName,
  Undefined,
} from "./Value.ts"

export const floatText = (value: number): string => {
  if (Number.isNaN(value)) return "nan"
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf"
  if (Object.is(value, -0)) return "-0.0"
  const size = Math.abs(value)
  if (size !== 0 && (size >= 1e16 || size < 1e-4)) {
    return value.toExponential().replace(/e([+-])(\d)$/, "e$10$2")
  }
  return Number.isInteger(value) ? value.toFixed(1) : String(value)
}

/** Prints a large integer; fails above Python's limit of digits. */
const bigText = (value: bigint): string => {
  const text = value.toString(16).length > 3600 ? "" : String(value)
  return text === "" || text.replace("-", "").length > 4300
    ? raise("ValueError", "Exceeds the limit (4300 digits) for integer string conversion")
    : text
}

const named: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" }
const invisible = /[\p{C}\p{Zl}\p{Zp}\p{Zs}]/u

const escaped = (letter: string): string => {
  const name = named[letter]
  if (name !== undefined) return name
  if (letter === " " || !invisible.test(letter)) return letter
  const point = (letter.codePointAt(0) ?? 0).toString(16)
  return point.length <= 2
    ? `\\x${point.padStart(2, "0")}`
    : point.length <= 4
      ? `\\u${point.padStart(4, "0")}`
      : `\\U${point.padStart(8, "0")}`
}

export const reprText = (text: string): string => {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'"
  let inner = ""
  for (const letter of text) inner += letter === quote || letter === "\\" ? `\\${letter}` : escaped(letter)
  return quote + inner + quote
}

const tooDeep = (meter: Meter): never => {
  throw new Failure("Limit", `the data is nested deeper than ${meter.limits.depth} levels`)
}

const keyText = (key: Key): string => (typeof key === "string" ? reprText(key) : key === null ? "None" : String(key))

const reprList = (meter: Meter, items: Iterable<Value>, depth: number): string => {
  let text = ""
  for (const item of items) {
    text += (text === "" ? "" : ", ") + repr(meter, item, depth + 1)
    meter.join(text.length)
  }
  return text
}

const reprDict = (meter: Meter, entries: ReadonlyMap<Key, Value>, depth: number): string => {
  let text = ""
  for (const [key, value] of entries) {
    text += `${text === "" ? "" : ", "}${keyText(key)}: ${repr(meter, value, depth + 1)}`
    meter.join(text.length)
  }
  return `{${text}}`
}

export const repr = (meter: Meter, value: Value, depth = 0): string => {
  if (depth > meter.limits.depth) return tooDeep(meter)
  if (typeof value === "string") {
    meter.text(value.length)
    return reprText(value)
  }
  if (value === null) return "None"
  if (typeof value === "boolean") return value ? "True" : "False"
  if (typeof value === "number") return String(value)
  if (typeof value === "bigint") return bigText(value)
  if (value instanceof Float) return floatText(value.value)
  if (value instanceof Markup) return `Markup(${reprText(value.text)})`
  if (value instanceof Undefined) return "Undefined"
  if (isList(value)) return `[${reprList(meter, value, depth)}]`
  if (value instanceof Tuple) return `(${reprList(meter, value.items, depth)}${value.items.length === 1 ? ",)" : ")"}`
  if (value instanceof Dict) return reprDict(meter, value.entries, depth)
  if (value instanceof DictView) return `dict_${value.kind}([${reprList(meter, iterate(value), depth)}])`
  if (value instanceof Range) {
    return `range(${value.start}, ${value.stop}${value.step === 1 ? "" : `, ${value.step}`})`
  }
  if (value instanceof Namespace) return `<Namespace ${reprDict(meter, value.attributes, depth)}>`
  if (value instanceof Loop) return `<LoopContext ${value.index0 + 1}/${value.length}>`
  if (value instanceof Generator || value instanceof Callable) return unsupported(`printing a ${typeName(value)}`)
  return value satisfies never
}

export const str = (meter: Meter, value: Value): string => {
  if (typeof value === "string") return value
  if (value instanceof Markup) return value.text
  return value instanceof Undefined ? "" : repr(meter, value)
}

export interface JsonStyle {
  readonly ascii: boolean
  readonly indent: string | undefined
  readonly itemSeparator: string
  readonly keySeparator: string
  readonly sortKeys: boolean
}

const unit = (letter: string): string => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`

/** Prints a JSON string. `JSON.stringify` agrees with Python except for lone surrogates and non-ASCII characters. */
export const jsonText = (text: string, ascii: boolean): string => {
  const plain = JSON.stringify(text)
  if (ascii) return plain.replace(/[\u007f-\uffff]/g, unit)
  return plain.includes("\\ud")
    ? plain.replace(/(\\\\)|\\u(d[89a-f][0-9a-f]{2})/g, (match, backslash: string | undefined, code: string) =>
        backslash === undefined ? String.fromCharCode(Number.parseInt(code, 16)) : match,
      )
    : plain
}

const jsonFloat = (value: number): string =>
  Number.isNaN(value) ? "NaN" : Number.isFinite(value) ? floatText(value) : value > 0 ? "Infinity" : "-Infinity"

const enclosed = (
  meter: Meter,
  style: JsonStyle,
  depth: number,
  [open, close]: string,
  parts: Array<string>,
): string => {
  if (parts.length === 0) return `${open}${close}`
  const line = style.indent === undefined ? "" : `\n${style.indent.repeat(depth + 1)}`
  const end = style.indent === undefined ? "" : `\n${style.indent.repeat(depth)}`
  const text = `${open}${line}${parts.join(style.itemSeparator + line)}${end}${close}`
  meter.join(text.length)
  return text
}

const jsonList = (meter: Meter, items: List, style: JsonStyle, depth: number): string =>
  enclosed(
    meter,
    style,
    depth,
    "[]",
    items.map((item) => json(meter, item, style, depth + 1)),
  )

/** `json.dumps` */
export const json = (meter: Meter, value: Value, style: JsonStyle, depth = 0): string => {
  if (depth > meter.limits.depth) return tooDeep(meter)
  meter.spend(1)
  if (typeof value === "string") {
    meter.text(value.length)
    return jsonText(value, style.ascii)
  }
  if (value === null) return "null"
  if (typeof value === "boolean" || typeof value === "number") return String(value)
  if (typeof value === "bigint") return bigText(value)
  if (value instanceof Float) return jsonFloat(value.value)
  if (value instanceof Markup) return jsonText(value.text, style.ascii)
  if (isList(value)) return jsonList(meter, value, style, depth)
  if (value instanceof Tuple) return jsonList(meter, value.items, style, depth)
  if (value instanceof Dict) {
    const entries = [...value.entries]
    if (style.sortKeys) entries.sort(([a], [b]) => compare(a, b))
    const parts = entries.map(([key, item]) => {
      const name = typeof key === "string" ? jsonText(key, style.ascii) : `"${key}"`
      return name + style.keySeparator + json(meter, item, style, depth + 1)
    })
    return enclosed(meter, style, depth, "{}", parts)
  }
  return typeError(`Object of type ${typeName(value)} is not JSON serializable`)
}
