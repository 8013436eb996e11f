/** The methods of Python's types. */
import { bind } from "./Arguments.ts"
import { raise, typeError, unsupported } from "./Failure.ts"
import { padded } from "./Format.ts"
import type { Meter } from "./Meter.ts"
import * as Text from "./Text.ts"
import type { Arguments, Value } from "./Value.ts"
import {
  collect,
  countPoints,
  Dict,
  DictView,
  equal,
  integerOf,
  isHashable,
  keyOf,
  Markup,
  or,
  textOf,
  Tuple,
  typeName,
  Undefined,
} from "./Value.ts"

type Method<A> = (self: A, args: Arguments, meter: Meter) => Value

const needText = (value: Value | undefined, what: string): string =>
  textOf(value ?? null) ?? typeError(`${what} must be str, not ${typeName(value ?? null)}`)

const optionalText = (value: Value | undefined, what: string): string | undefined =>
  value === undefined || value === null ? undefined : needText(value, what)

const needInteger = (value: Value | undefined, fallback: number): number => {
  if (value === undefined) return fallback
  const number = integerOf(value)
  return number === undefined
    ? typeError(`'${typeName(value)}' object cannot be interpreted as an integer`)
    : Number(number)
}

const plain =
  (change: (text: string) => Value): Method<string> =>
  (text, args) => {
    bind("str method", [], args)
    return change(text)
  }

const stripping =
  (side: Text.Side): Method<string> =>
  (text, args) => {
    const [chars] = bind("strip", ["chars"], args, 0, true)
    return Text.strip(text, side, optionalText(chars, "strip arg"))
  }

const splitting =
  (from: "left" | "right"): Method<string> =>
  (text, args, meter) => {
    const [separator, limit] = bind("split", ["sep", "maxsplit"], args)
    const parts = Text.split(text, optionalText(separator, "sep"), needInteger(limit, -1), from)
    meter.spend(parts.length)
    return parts
  }

/** Returns the part of the text between `start` and `end`, and where it begins, in code points. */
const window = (text: string, start: Value | undefined, end: Value | undefined): readonly [string, number] => {
  if (start === undefined && end === undefined) return [text, 0]
  const length = countPoints(text)
  const clamp = (index: number) => Math.min(Math.max(index < 0 ? index + length : index, 0), length)
  const from = clamp(start === null ? 0 : needInteger(start, 0))
  const to = clamp(end === null ? length : needInteger(end, length))
  // A search that starts after the end finds nothing, not even the empty string.
  if (from > to || needInteger(start ?? 0, 0) > length) return ["", -1]
  return [text.slice(Text.unitIndex(text, from), Text.unitIndex(text, to)), from]
}

const affix =
  (name: "startswith" | "endswith"): Method<string> =>
  (text, args) => {
    const [affixes, start, end] = bind(name, ["prefix", "start", "end"], args, 1, true)
    const [part, offset] = window(text, start, end)
    const all = affixes instanceof Tuple ? affixes.items : [affixes ?? null]
    return all.some((affix) => {
      const wanted = needText(affix, `${name} first arg`)
      return offset >= 0 && (name === "startswith" ? part.startsWith(wanted) : part.endsWith(wanted))
    })
  }

const finding =
  (name: "find" | "rfind" | "index" | "rindex"): Method<string> =>
  (text, args) => {
    const [wanted, start, end] = bind(name, ["sub", "start", "end"], args, 1, true)
    const sub = needText(wanted, "sub")
    const [part, offset] = window(text, start, end)
    const at = offset < 0 ? -1 : name.startsWith("r") ? part.lastIndexOf(sub) : part.indexOf(sub)
    if (at >= 0) return offset + countPoints(part.slice(0, at))
    return name.endsWith("index") ? raise("ValueError", "substring not found") : -1
  }

const partitioning =
  (from: "left" | "right"): Method<string> =>
  (text, args) => {
    const [separator] = bind("partition", ["sep"], args, 1, true)
    const sep = needText(separator, "sep")
    if (sep === "") return raise("ValueError", "empty separator")
    const at = from === "left" ? text.indexOf(sep) : text.lastIndexOf(sep)
    if (at < 0) return new Tuple(from === "left" ? [text, "", ""] : ["", "", text])
    return new Tuple([text.slice(0, at), sep, text.slice(at + sep.length)])
  }

const justifying =
  (name: "ljust" | "rjust" | "center"): Method<string> =>
  (text, args, meter) => {
    const [width, fill] = bind(name, ["width", "fillchar"], args, 1, true)
    const letter = fill === undefined ? " " : needText(fill, "fillchar")
    if (countPoints(letter) !== 1) return typeError("The fill character must be exactly one character long")
    const size = needInteger(width, 0)
    meter.text(Math.max(0, size))
    if (name !== "center") return padded(meter, text, size, name === "ljust" ? "<" : ">", letter)
    const missing = size - countPoints(text)
    if (missing <= 0) return text
    // An odd remainder goes to the left if the width is odd as well.
    const left = Math.floor(missing / 2) + (missing & size & 1)
    return letter.repeat(left) + text + letter.repeat(missing - left)
  }

const isAll = (text: string, kind: RegExp): boolean => text !== "" && kind.test(text)

const joinTexts: Method<string> = (text, args, meter) => {
  const [items] = bind("join", ["iterable"], args, 1, true)
  const texts = collect(meter, items ?? null).map((item, index) =>
    typeof item === "string"
      ? item
      : item instanceof Markup
        ? item.text
        : typeError(`sequence item ${index}: expected str instance, ${typeName(item)} found`),
  )
  meter.text(texts.reduce((sum, item) => sum + item.length + text.length, 0))
  return texts.join(text)
}

/** Charges one step per occurrence, and for the resulting text before it is built. */
export const chargeReplacement = (meter: Meter, text: string, from: string, to: string): void => {
  meter.text(text.length)
  const places = Text.occurrences(text, from)
  meter.spend(places)
  meter.text(text.length + Math.max(0, to.length - from.length) * places)
}

const replaceText: Method<string> = (text, args, meter) => {
  if (args.keyword.has("count")) return unsupported("replace(count=…), which older versions of Python reject,")
  const [old, fresh, count] = bind("replace", ["old", "new", "count"], args, 2, true)
  const [from, to] = [needText(old, "replace() argument 1"), needText(fresh, "replace() argument 2")]
  chargeReplacement(meter, text, from, to)
  return Text.replace(text, from, to, needInteger(count, -1))
}

const zeroFill: Method<string> = (text, args, meter) => {
  const [width] = bind("zfill", ["width"], args, 1, true)
  const missing = Math.max(0, needInteger(width, 0) - countPoints(text))
  meter.text(missing)
  const sign = /^[+-]/.exec(text)?.[0] ?? ""
  return sign + "0".repeat(missing) + text.slice(sign.length)
}

const textMethods: Readonly<Record<string, Method<string>>> = {
  upper: plain((text) => text.toUpperCase()),
  lower: plain((text) => text.toLowerCase()),
  capitalize: plain(Text.capitalize),
  title: plain(Text.title),
  strip: stripping("both"),
  lstrip: stripping("left"),
  rstrip: stripping("right"),
  split: splitting("left"),
  rsplit: splitting("right"),
  splitlines: (text, args, meter) => {
    const [keepEnds] = bind("splitlines", ["keepends"], args)
    const lines = Text.splitLines(text, needInteger(keepEnds, 0) !== 0)
    meter.spend(lines.length)
    return lines
  },
  startswith: affix("startswith"),
  endswith: affix("endswith"),
  find: finding("find"),
  rfind: finding("rfind"),
  index: finding("index"),
  rindex: finding("rindex"),
  count: (text, args) => {
    const [wanted, start, end] = bind("count", ["sub", "start", "end"], args, 1, true)
    const sub = needText(wanted, "sub")
    const [part, offset] = window(text, start, end)
    return offset < 0 ? 0 : Text.occurrences(part, sub)
  },
  join: joinTexts,
  replace: replaceText,
  partition: partitioning("left"),
  rpartition: partitioning("right"),
  removeprefix: (text, args) => {
    const [prefix] = bind("removeprefix", ["prefix"], args, 1, true)
    const wanted = needText(prefix, "removeprefix() argument")
    return text.startsWith(wanted) ? text.slice(wanted.length) : text
  },
  removesuffix: (text, args) => {
    const [suffix] = bind("removesuffix", ["suffix"], args, 1, true)
    const wanted = needText(suffix, "removesuffix() argument")
    return text.endsWith(wanted) ? text.slice(0, text.length - wanted.length) : text
  },
  ljust: justifying("ljust"),
  rjust: justifying("rjust"),
  center: justifying("center"),
  zfill: zeroFill,
  isalpha: plain((text) => isAll(text, /^\p{L}+$/u)),
  isalnum: plain((text) => isAll(text, /^[\p{L}\p{N}]+$/u)),
  isdecimal: plain((text) => isAll(text, /^\p{Nd}+$/u)),
  isdigit: plain((text) =>
    /\p{No}/u.test(text) ? unsupported("isdigit with superscript or similar digits") : isAll(text, /^\p{Nd}+$/u),
  ),
  isspace: plain((text) => text !== "" && Text.strip(text, "left") === ""),
  isascii: plain((text) => !/[\u0080-\uffff]/.test(text)),
  islower: plain((text) => /\p{Lowercase}/u.test(text) && !/[\p{Uppercase}\p{Lt}]/u.test(text)),
  isupper: plain((text) => /\p{Uppercase}/u.test(text) && !/[\p{Lowercase}\p{Lt}]/u.test(text)),
}

/** Methods of Markup that return plain strings or escape their arguments. */
const unsupportedForMarkup = new Set(["join", "replace", "partition", "rpartition"])

const dictMethods: Readonly<Record<string, Method<Dict>>> = {
  get: (dict, args) => {
    const [wanted, fallback] = bind("get", ["key", "default"], args, 1, true)
    if (!isHashable(wanted ?? null)) return typeError(`unhashable type: '${typeName(wanted ?? null)}'`)
    const key = keyOf(wanted ?? null)
    return or(key === undefined ? undefined : dict.entries.get(key), or(fallback, null))
  },
  items: (dict, args) => {
    bind("items", [], args)
    return new DictView("items", dict)
  },
  keys: (dict, args) => {
    bind("keys", [], args)
    return new DictView("keys", dict)
  },
  values: (dict, args) => {
    bind("values", [], args)
    return new DictView("values", dict)
  },
  copy: (dict, args) => {
    bind("copy", [], args)
    return dict
  },
}

const listMethods: Readonly<Record<string, Method<ReadonlyArray<Value>>>> = {
  index: (items, args, meter) => {
    const [wanted, ...range] = bind("index", ["value", "start", "stop"], args, 1, true)
    if (range.length > 0) return unsupported("index with a start")
    meter.spend(items.length)
    const at = items.findIndex((item) => equal(item, wanted ?? null))
    return at < 0 ? raise("ValueError", "value is not in list") : at
  },
  count: (items, args, meter) => {
    const [wanted] = bind("count", ["value"], args, 1, true)
    meter.spend(items.length)
    return items.filter((item) => equal(item, wanted ?? null)).length
  },
  copy: (items, args) => {
    bind("copy", [], args)
    return items
  },
}

const own = <A>(table: Readonly<Record<string, A>>, name: string): A | undefined =>
  Object.hasOwn(table, name) ? table[name] : undefined

/** Methods that Python has and this engine does not implement. */
const unimplemented: Readonly<Record<string, ReadonlyArray<string>>> = {
  str: [
    "casefold",
    "encode",
    "expandtabs",
    "format_map",
    "isidentifier",
    "isnumeric",
    "isprintable",
    "istitle",
    "maketrans",
    "swapcase",
    "translate",
  ],
  dict: ["fromkeys"],
  list: [],
  tuple: [],
  int: [
    "as_integer_ratio",
    "bit_count",
    "bit_length",
    "conjugate",
    "denominator",
    "from_bytes",
    "imag",
    "numerator",
    "real",
    "to_bytes",
  ],
  float: ["as_integer_ratio", "conjugate", "fromhex", "hex", "imag", "is_integer", "real"],
  range: ["count", "index", "start", "step", "stop"],
}

/** Methods that only strings have; calls of them are rejected before anything is rendered. */
export const unsupportedMethods: ReadonlySet<string> = new Set(unimplemented["str"])

/** Methods that modify a list or dict, which the sandbox forbids. */
const changing: Readonly<Record<string, ReadonlyArray<string>>> = {
  dict: ["clear", "pop", "popitem", "setdefault", "update"],
  list: ["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"],
}

const typeOf = (value: Value): string => {
  const name = typeName(value)
  return name === "Markup" ? "str" : name === "bool" ? "int" : name
}

const textMethod = (self: string | Markup, name: string): ((args: Arguments, meter: Meter) => Value) | undefined => {
  const method = own(textMethods, name)
  if (method === undefined) return undefined
  if (typeof self === "string") {
    return (args, meter) => {
      meter.text(self.length)
      return method(self, args, meter)
    }
  }
  if (unsupportedForMarkup.has(name)) return () => unsupported(`${name} of Markup`)
  return (args, meter) => {
    meter.text(self.text.length)
    const result = method(self.text, args, meter)
    if (typeof result === "string") return new Markup(result)
    return Array.isArray(result)
      ? result.map((item: Value) => (typeof item === "string" ? new Markup(item) : item))
      : result
  }
}

/** Returns the method bound to its object, if the type has one of that name. */
export const methodOf = (
  value: Value,
  name: string,
): ((args: Arguments, meter: Meter) => Value) | Undefined | undefined => {
  if (typeof value === "string" || value instanceof Markup) {
    const method = textMethod(value, name)
    if (method !== undefined) return method
  } else if (value instanceof Dict) {
    const method = own(dictMethods, name)
    if (method !== undefined) return (args, meter) => method(value, args, meter)
  } else if (Array.isArray(value) || value instanceof Tuple) {
    const items: ReadonlyArray<Value> = value instanceof Tuple ? value.items : value
    const method = value instanceof Tuple && name === "copy" ? undefined : own(listMethods, name)
    if (method !== undefined) return (args, meter) => method(items, args, meter)
  }
  const type = typeOf(value)
  if (own(changing, type)?.includes(name) === true) {
    return new Undefined(`access to attribute '${name}' of '${type}' object is unsafe.`, "SecurityError")
  }
  if (own(unimplemented, type)?.includes(name) === true) return unsupported(`${name} of ${type}`)
  return undefined
}
