/** The filters, as used after `|`. Filters on sequences are in `SequenceFilters`. */
import { bind } from "./Arguments.ts"
import { raise, typeError, unsupported } from "./Failure.ts"
import { fixed, padded, percentFormat } from "./Format.ts"
import { chargeReplacement } from "./Methods.ts"
import { arithmetic, escapeHtml, negate } from "./Operators.ts"
import { json, str } from "./Printing.ts"
import type { Filter } from "./SequenceFilters.ts"
import { sequenceFilters } from "./SequenceFilters.ts"
import * as Text from "./Text.ts"
import type { Value } from "./Value.ts"
import {
  compare,
  countPoints,
  Dict,
  Float,
  integer,
  integerOf,
  isList,
  Markup,
  numberOf,
  or,
  sizeOf,
  textOf,
  truthy,
  Tuple,
  typeName,
  Undefined,
  use,
} from "./Value.ts"

/** Creates a filter on text: prints the value first; Markup stays Markup. */
const onText =
  (
    name: string,
    parameters: ReadonlyArray<string>,
    change: (text: string, args: ReadonlyArray<Value | undefined>) => string,
  ): Filter =>
  (value, args, meter) => {
    const bound = bind(name, parameters, args)
    const text = str(meter, value)
    meter.text(text.length)
    const result = change(text, bound)
    return value instanceof Markup ? new Markup(result) : result
  }

const given = (value: Value | undefined): value is Exclude<Value, null> => value !== undefined && value !== null

const jsonIndent = (value: Value | undefined): string | undefined => {
  if (!given(value)) return undefined
  const text = textOf(value)
  if (text !== undefined) return text
  const width = integerOf(value)
  return width === undefined
    ? typeError(`can't multiply sequence by non-int of type '${typeName(value)}'`)
    : " ".repeat(Math.min(Math.max(0, Number(width)), 1000))
}

const jsonSeparators = (value: Value | undefined, indent: string | undefined): readonly [string, string] => {
  if (!given(value)) return [indent === undefined ? ", " : ",", ": "]
  const parts = isList(value) ? value : value instanceof Tuple ? value.items : []
  const [items, keys] = parts.map((part) => textOf(part))
  return parts.length === 2 && items !== undefined && keys !== undefined
    ? [items, keys]
    : unsupported("separators other than two strings")
}

const toJson: Filter = (value, args, meter) => {
  const [ascii, indentation, separators, sortKeys] = bind(
    "tojson",
    ["ensure_ascii", "indent", "separators", "sort_keys"],
    args,
  )
  const indent = jsonIndent(indentation)
  const [itemSeparator, keySeparator] = jsonSeparators(separators, indent)
  const style = {
    ascii: ascii !== undefined && truthy(ascii),
    indent,
    itemSeparator,
    keySeparator,
    sortKeys: sortKeys !== undefined && truthy(sortKeys),
  }
  return json(meter, value, style)
}

const length: Filter = (value, args, meter) => {
  bind("length", [], args)
  const text = textOf(value)
  if (text !== undefined) meter.text(text.length)
  return sizeOf(value) ?? typeError(`object of type '${typeName(value)}' has no len()`)
}

const orDefault: Filter = (value, args) => {
  const [fallback, boolean] = bind("default", ["default_value", "boolean"], args)
  const isMissing = value instanceof Undefined || (boolean !== undefined && truthy(boolean) && !truthy(value))
  return isMissing ? or(fallback, "") : value
}

const decimal = /^[+-]?\d+(?:_\d+)*$/
const real = /^[+-]?(?:(?:\d+(?:_\d+)*)(?:\.(?:\d+(?:_\d+)*)?)?|\.\d+(?:_\d+)*)(?:e[+-]?\d+(?:_\d+)*)?$/i
const special = /^([+-]?)(?:(inf|infinity)|nan)$/i

/** Parses like Python's `float(text)`. */
const floatOf = (text: string): number | undefined => {
  const trimmed = Text.strip(text, "both")
  if (/[^\p{ASCII}]/u.test(trimmed) && /\p{Nd}/u.test(trimmed)) return unsupported("digits other than 0 to 9")
  if (real.test(trimmed)) return Number(trimmed.replaceAll("_", ""))
  const word = special.exec(trimmed)
  if (word === null) return undefined
  return word[2] === undefined ? Number.NaN : word[1] === "-" ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY
}

const toInteger = (value: number): Value =>
  Number.isFinite(value)
    ? integer(BigInt(Math.trunc(value)))
    : raise(Number.isNaN(value) ? "ValueError" : "OverflowError", "cannot convert float to integer")

const int: Filter = (value, args, meter) => {
  const [fallback, base] = bind("int", ["default", "base"], args)
  if (value instanceof Undefined) return use(value)
  const otherwise = or(fallback, 0)
  const text = textOf(value)
  if (text === undefined) {
    const whole = integerOf(value)
    if (whole !== undefined) return whole
    if (!(value instanceof Float)) return otherwise
    return Number.isNaN(value.value) ? otherwise : toInteger(value.value)
  }
  if (base !== undefined && !(base === 10)) return unsupported("int with a base")
  const trimmed = Text.strip(text, "both")
  meter.text(text.length)
  if (decimal.test(trimmed)) return integer(BigInt(trimmed.replaceAll("_", "").replace(/^\+/, "")))
  const number = floatOf(text)
  return number === undefined || !Number.isFinite(number) ? otherwise : toInteger(number)
}

const float: Filter = (value, args, meter) => {
  const [fallback] = bind("float", ["default"], args)
  if (value instanceof Undefined) return use(value)
  const text = textOf(value)
  if (text !== undefined) meter.text(text.length)
  const number = text === undefined ? numberOf(value) : floatOf(text)
  return number === undefined ? or(fallback, new Float(0)) : new Float(Number(number))
}

const abs: Filter = (value, args) => {
  bind("abs", [], args)
  if (value instanceof Undefined) return use(value)
  if (numberOf(value) === undefined) return typeError(`bad operand type for abs(): '${typeName(value)}'`)
  if (value instanceof Float) return new Float(Math.abs(value.value))
  return compare(value, 0) < 0 ? negate(value) : (integerOf(value) ?? 0)
}

const round: Filter = (value, args, meter) => {
  const [precision, method] = bind("round", ["precision", "method"], args)
  const how = method === undefined ? "common" : textOf(method)
  if (how !== "common" && how !== "ceil" && how !== "floor") {
    return raise("FilterArgumentError", "method must be common, ceil or floor")
  }
  const digits = Number(integerOf(or(precision, 0)) ?? typeError("precision must be an integer"))
  if (value instanceof Undefined) return use(value)
  if (digits < 0 || digits > 22) return unsupported("round with this precision")
  const number = numberOf(value)
  if (number === undefined) return typeError(`type ${typeName(value)} doesn't define __round__ method`)
  if (how === "common")
    return value instanceof Float ? new Float(Number(fixed(value.value, digits))) : (integerOf(value) ?? 0)
  const scale = 10 ** digits
  const scaled = numberOf(arithmetic(meter, "*", value, scale)) ?? 0
  return new Float((how === "ceil" ? Math.ceil(Number(scaled)) : Math.floor(Number(scaled))) / scale)
}

const indent: Filter = (value, args, meter) => {
  const [width, first, blank] = bind("indent", ["width", "first", "blank"], args)
  if (value instanceof Undefined) return use(value)
  const text = textOf(value)
  if (text === undefined) return typeError(`unsupported operand type(s) for +=: '${typeName(value)}' and 'str'`)
  const columns = integerOf(or(width, 4))
  const space =
    textOf(width ?? null) ?? (columns === undefined ? typeError("width must be a number or a string") : undefined)
  meter.text(Math.max(0, Number(columns ?? 0)))
  const prefix = space ?? " ".repeat(Math.max(0, Number(columns)))
  const lines = Text.splitLines(`${text}\n`, false)
  meter.text(text.length + lines.length * prefix.length)
  const indentsBlank = blank !== undefined && truthy(blank)
  const rest = lines.slice(1).map((line) => (line === "" && !indentsBlank ? "" : prefix + line))
  const result = (first !== undefined && truthy(first) ? prefix : "") + [lines[0] ?? "", ...rest].join("\n")
  return value instanceof Markup ? new Markup(result) : result
}

const replace: Filter = (value, args, meter) => {
  const [old, fresh, count] = bind("replace", ["old", "new", "count"], args, 2)
  const [text, from, to] = [str(meter, value), str(meter, old ?? null), str(meter, fresh ?? null)]
  const limit = given(count) ? (integerOf(count) ?? typeError("count must be an integer")) : -1
  chargeReplacement(meter, text, from, to)
  return Text.replace(text, from, to, Number(limit))
}

const format: Filter = (value, args, meter) => {
  if (value instanceof Markup) return unsupported("format of Markup")
  if (args.positional.length > 0 && args.keyword.size > 0) {
    return raise("FilterArgumentError", "can't handle positional and keyword arguments at the same time")
  }
  const values = args.keyword.size > 0 ? new Dict(args.keyword) : new Tuple(args.positional)
  return percentFormat(meter, str(meter, value), values)
}

const truncate: Filter = (value, args, meter) => {
  const [size, killWords, end, leeway] = bind("truncate", ["length", "killwords", "end", "leeway"], args)
  const text = textOf(value) ?? unsupported("truncate of a value other than a string")
  const most = Number(integerOf(or(size, 255)) ?? typeError("length must be an integer"))
  const ending = textOf(or(end, "...")) ?? typeError("end must be a string")
  const slack = given(leeway) ? Number(integerOf(leeway) ?? 0) : 5
  if (most < countPoints(ending))
    return raise("AssertionError", `expected length >= ${countPoints(ending)}, got ${most}`)
  meter.text(text.length)
  if (countPoints(text) <= most + slack) return value
  const cut = text.slice(0, Text.unitIndex(text, most - countPoints(ending)))
  if (killWords !== undefined && truthy(killWords)) return cut + ending
  return (Text.split(cut, " ", 1, "right")[0] ?? "") + ending
}

const escape: Filter = (value, args, meter) => {
  bind("escape", [], args)
  return value instanceof Markup ? value : new Markup(escapeHtml(str(meter, value)))
}

const textFilters: Readonly<Record<string, Filter>> = {
  upper: onText("upper", [], (text) => text.toUpperCase()),
  lower: onText("lower", [], (text) => text.toLowerCase()),
  capitalize: onText("capitalize", [], Text.capitalize),
  // Words are separated by white space, hyphens and opening brackets, unlike in `str.title`.
  title: onText("title", [], (text) =>
    text
      .split(new RegExp(`([-${Text.spaces}({[<]+)`))
      .map((word) => {
        const [first = ""] = word
        return first.toUpperCase() + word.slice(first.length).toLowerCase()
      })
      .join(""),
  ),
  trim: onText("trim", ["chars"], (text, [chars]) =>
    Text.strip(text, "both", given(chars) ? (textOf(chars) ?? typeError("strip arg must be None or str")) : undefined),
  ),
  center: (value, args, meter) => {
    const [width] = bind("center", ["width"], args)
    const size = Number(integerOf(or(width, 80)) ?? typeError("width must be an integer"))
    const text = str(meter, value)
    const missing = size - countPoints(text)
    if (missing <= 0) return text
    const left = Math.floor(missing / 2) + (missing & size & 1)
    meter.text(size)
    return " ".repeat(left) + padded(meter, text, size - left, "<")
  },
  string: (value, args, meter) => {
    bind("string", [], args)
    return textOf(value) === undefined ? str(meter, value) : value
  },
  safe: (value, args, meter) => {
    bind("safe", [], args)
    return new Markup(str(meter, value))
  },
  escape,
  e: escape,
  forceescape: (value, args, meter) => {
    bind("forceescape", [], args)
    return new Markup(escapeHtml(str(meter, value)))
  },
  replace,
  format,
  indent,
  truncate,
  wordcount: (value, args, meter) => {
    bind("wordcount", [], args)
    const text = str(meter, value)
    meter.text(text.length)
    return text.match(/[\p{L}\p{N}_]+/gu)?.length ?? 0
  },
  tojson: toJson,
  length,
  count: length,
  default: orDefault,
  d: orDefault,
  int,
  float,
  abs,
  round,
}

const table: Readonly<Record<string, Filter>> = { ...textFilters, ...sequenceFilters(() => filterNamed) }

export function filterNamed(name: string): Filter | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined
}
