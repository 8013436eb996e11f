/** Implements `"%s" % value` and `"{}".format(value)` as far as templates use them; rejects anything rarer. */
import { raise, typeError, unsupported } from "./Failure.ts"
import type { Meter } from "./Meter.ts"
import { floatText, repr, str } from "./Printing.ts"
import type { Arguments, Value } from "./Value.ts"
import { countPoints, Dict, Float, integerOf, numberOf, textOf, Tuple, typeName, Undefined, use } from "./Value.ts"

/** Formats like `toFixed`, but rounds halves to even as Python does. */
export const fixed = (value: number, digits: number): string => {
  if (!Number.isFinite(value)) return floatText(value)
  if (Math.abs(value) >= 1e21 || digits > 100) return unsupported("formatting a number this large")
  const scaled = Math.abs(value) * 10 ** digits
  // A value is exactly a half only if it has few enough binary digits after the point.
  const isHalf = Number.isInteger(value * 2 ** (digits + 1)) && scaled % 1 === 0.5 && scaled < 2 ** 52
  if (!isHalf || Math.floor(scaled) % 2 === 1) return value.toFixed(digits)
  const sign = value < 0 ? "-" : ""
  return sign + (Math.floor(scaled) / 10 ** digits).toFixed(digits)
}

const pad = (meter: Meter, text: string, width: number, side: "<" | ">" | "^", fill = " "): string => {
  const missing = width - countPoints(text)
  if (missing <= 0) return text
  meter.text(width)
  if (side === "<") return text + fill.repeat(missing)
  if (side === ">") return fill.repeat(missing) + text
  const before = Math.floor(missing / 2)
  return fill.repeat(before) + text + fill.repeat(missing - before)
}

export const padded = pad

const signed = (digits: string, sign: string): string =>
  digits.startsWith("-") || sign === "" ? digits : sign + digits

const zeroFilled = (text: string, width: number): string =>
  /^[+-]/.test(text) ? (text[0] ?? "") + text.slice(1).padStart(width - 1, "0") : text.padStart(width, "0")

const asNumber = (value: Value, code: string): number | bigint => {
  if (value instanceof Undefined) return use(value)
  return numberOf(value) ?? typeError(`%${code} format: a real number is required, not ${typeName(value)}`)
}

const whole = (value: Value, code: string): string => {
  const number = asNumber(value, code)
  if (typeof number === "number" && !Number.isFinite(number))
    return raise("ValueError", "cannot convert float to integer")
  return String(typeof number === "number" ? BigInt(Math.trunc(number)) : number)
}

const percent = /%(?:\(([^)]*)\))?([-0+ #]*)(\d+|\*)?(?:\.(\d+|\*))?([a-zA-Z%])?/g

/** `template % value` */
export const percentFormat = (meter: Meter, template: string, value: Value): string => {
  const values = value instanceof Tuple ? value.items : [value]
  let next = 0
  let named = false
  const text = template.replace(
    percent,
    (match, key?: string, flags = "", width?: string, digits?: string, code?: string) => {
      if (code === undefined || width === "*" || digits === "*" || flags.includes("#")) {
        return code === undefined && match.length === 1 && !template.endsWith("%")
          ? raise("ValueError", "unsupported format character")
          : unsupported(`the format ${match}`)
      }
      if (code === "%") return "%"
      let item: Value | undefined
      if (key === undefined) {
        item = values[next++]
        if (item === undefined) return typeError("not enough arguments for format string")
      } else {
        named = true
        if (!(value instanceof Dict)) return typeError("format requires a mapping")
        item = value.entries.get(key)
        if (item === undefined) return raise("KeyError", key)
      }
      const sign = flags.includes("+") ? "+" : flags.includes(" ") ? " " : ""
      const size = Number(width ?? 0)
      meter.text(size)
      let result: string
      if (code === "s" || code === "r") {
        const whole = code === "s" ? str(meter, item) : repr(meter, item)
        result = digits === undefined ? whole : Array.from(whole).slice(0, Number(digits)).join("")
      } else if (code === "d" || code === "i") {
        result = signed(digits === undefined ? whole(item, code) : unsupported(`the format ${match}`), sign)
      } else if (code === "f") {
        result = signed(fixed(Number(asNumber(item, code)), Number(digits ?? 6)), sign)
      } else if (code === "x" || code === "X") {
        const integer = integerOf(item) ?? typeError(`%x format: an integer is required, not ${typeName(item)}`)
        const hex = signed(integer.toString(16), sign)
        result = code === "X" ? hex.toUpperCase() : hex
      } else {
        return unsupported(`the format ${match}`)
      }
      if (flags.includes("-")) return pad(meter, result, size, "<")
      const isNumber = code !== "s" && code !== "r"
      return flags.includes("0") && isNumber ? zeroFilled(result, size) : pad(meter, result, size, ">")
    },
  )
  const isMapping = value instanceof Dict || value instanceof Undefined || Array.isArray(value)
  if (!named && next < values.length && !isMapping) {
    return typeError("not all arguments converted during string formatting")
  }
  meter.text(text.length)
  return text
}

const spec = /^(?:(.)?([<>^]))?([+ -])?(0)?(\d+)?(,)?(?:\.(\d+))?([sdf])?$/su

/** Applies the format after the colon of a replacement field. */
const formatValue = (meter: Meter, value: Value, format: string): string => {
  if (format === "") return str(meter, value)
  const parts = spec.exec(format)
  if (parts === null) return unsupported(`the format {:${format}}`)
  const [, fill, align, sign, zero, width, comma, digits, code] = parts
  const number = numberOf(value)
  let text: string
  if (number === undefined || typeof value === "boolean") {
    const plain = textOf(value)
    if (
      plain === undefined ||
      comma !== undefined ||
      sign !== undefined ||
      zero !== undefined ||
      (code ?? "s") !== "s"
    ) {
      return unsupported(`the format {:${format}} of ${typeName(value)}`)
    }
    text = digits === undefined ? plain : Array.from(plain).slice(0, Number(digits)).join("")
  } else if (code === "f") {
    text = fixed(Number(number), Number(digits ?? 6))
  } else if (value instanceof Float || digits !== undefined || code === "s") {
    return unsupported(`the format {:${format}} of ${typeName(value)}`)
  } else {
    text = String(number)
  }
  if (comma !== undefined) text = text.replace(/^(-?\d+)/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ","))
  text = signed(text, sign === undefined || sign === "-" ? "" : sign)
  const size = Number(width ?? 0)
  meter.text(size)
  if (zero !== undefined && align === undefined) {
    return comma === undefined ? zeroFilled(text, size) : unsupported(`the format {:${format}}`)
  }
  const side = align === "<" || align === ">" || align === "^" ? align : number === undefined ? "<" : ">"
  return pad(meter, text, size, side, fill ?? " ")
}

const field = /\{\{|\}\}|\{([^{}!:]*)(?:!([rs]))?(?::([^{}]*))?\}|[{}]/g

/** `template.format(…)`; `lookup` resolves the parts after dots and in brackets. */
export const braceFormat = (
  meter: Meter,
  template: string,
  { keyword, positional }: Arguments,
  lookup: (value: Value, part: string, isAttribute: boolean) => Value,
): string => {
  let next = 0
  const text = template.replace(field, (match, path?: string, conversion?: string, format?: string) => {
    if (match === "{{" || match === "}}") return match[0] ?? ""
    if (path === undefined) return raise("ValueError", `Single '${match}' encountered in format string`)
    const first = /^[^.[]*/.exec(path)?.[0] ?? ""
    const index = first === "" ? next++ : /^\d+$/.test(first) ? Number(first) : undefined
    const found = index === undefined ? keyword.get(first) : positional[index]
    if (found === undefined)
      return raise(index === undefined ? "KeyError" : "IndexError", `missing argument for {${path}}`)
    let value: Value = found
    for (const [, attribute, item] of path.slice(first.length).matchAll(/\.([^.[]+)|\[([^\]]+)\]/g)) {
      value = lookup(value, attribute ?? item ?? "", attribute !== undefined)
    }
    return formatValue(
      meter,
      conversion === "r" ? repr(meter, value) : conversion === "s" ? str(meter, value) : value,
      format ?? "",
    )
  })
  meter.text(text.length)
  return text
}
