/** `+`, `-`, `*`, `/`, `//`, `%`, `**`, `~` and slices. */
import { raise, typeError, unsupported } from "./Failure.ts"
import { percentFormat } from "./Format.ts"
import type { Meter } from "./Meter.ts"
import type { Value } from "./Value.ts"
import {
  Float,
  integer,
  integerOf,
  isFlat,
  isList,
  Markup,
  numberOf,
  Range,
  textOf,
  Tuple,
  typeName,
  Undefined,
  use,
} from "./Value.ts"

export type ArithmeticSign = "+" | "-" | "*" | "/" | "//" | "%" | "**"

type Integer = number | bigint

/** Uses the `number` result if it is exact, otherwise calculates again with `bigint`. */
const exact = (fast: number, slow: () => bigint): Integer => (Number.isSafeInteger(fast) ? fast + 0 : integer(slow()))

const bitsOf = (value: Integer): number => value.toString(16).length * 4

/** Checks the size of a power before calculating it. */
const power = (meter: Meter, base: Integer, exponent: Integer): Value => {
  if (exponent < 0) {
    if (base === 0) return raise("ZeroDivisionError", "0.0 cannot be raised to a negative power")
    return new Float(Number(base) ** Number(exponent))
  }
  meter.bits(base === 0 || base === 1 || base === -1 ? 1 : bitsOf(base) * Number(exponent))
  return exact(Number(base) ** Number(exponent), () => BigInt(base) ** BigInt(exponent))
}

const floorDivide = (a: bigint, b: bigint): bigint => {
  const quotient = a / b
  return a % b !== 0n && a < 0n !== b < 0n ? quotient - 1n : quotient
}

const integers = (meter: Meter, sign: ArithmeticSign, a: Integer, b: Integer): Value => {
  const [x, y] = [Number(a), Number(b)]
  if (typeof a === "bigint" || typeof b === "bigint") meter.bits(bitsOf(a) + bitsOf(b))
  switch (sign) {
    case "+":
      return exact(x + y, () => BigInt(a) + BigInt(b))
    case "-":
      return exact(x - y, () => BigInt(a) - BigInt(b))
    case "*":
      return exact(x * y, () => BigInt(a) * BigInt(b))
    case "**":
      return power(meter, a, b)
  }
  if (y === 0) return raise("ZeroDivisionError", "division by zero")
  if (sign === "/") {
    return typeof a === "bigint" || typeof b === "bigint" ? unsupported("/ of integers above 2⁵³") : new Float(x / y)
  }
  return integer(
    sign === "//" ? floorDivide(BigInt(a), BigInt(b)) : BigInt(a) - floorDivide(BigInt(a), BigInt(b)) * BigInt(b),
  )
}

const floatModulo = (a: number, b: number): number => {
  const rest = a % b
  if (rest === 0) return b < 0 ? -0 : 0
  return rest < 0 === b < 0 ? rest : rest + b
}

const floats = (sign: ArithmeticSign, a: number, b: number): Value => {
  switch (sign) {
    case "+":
      return new Float(a + b)
    case "-":
      return new Float(a - b)
    case "*":
      return new Float(a * b)
    case "**": {
      if (a === 0 && b < 0) return raise("ZeroDivisionError", "0.0 cannot be raised to a negative power")
      if (a < 0 && !Number.isInteger(b)) return unsupported("complex numbers")
      const result = a ** b
      return Number.isFinite(a) && Number.isFinite(b) && !Number.isFinite(result)
        ? raise("OverflowError", "Numerical result out of range")
        : new Float(result)
    }
  }
  if (b === 0) return raise("ZeroDivisionError", "float division by zero")
  if (sign === "/") return new Float(a / b)
  const rest = floatModulo(a, b)
  if (sign === "%") return new Float(rest)
  const quotient = (a - rest) / b
  const floor = Math.floor(quotient)
  return new Float(quotient - floor > 0.5 ? floor + 1 : floor)
}

const repeat = (meter: Meter, value: Value, count: Integer): Value => {
  const times = Math.max(0, Number(count))
  const text = textOf(value)
  if (text !== undefined) {
    meter.text(text.length * times)
    const repeated = text.repeat(times)
    return value instanceof Markup ? new Markup(repeated) : repeated
  }
  const items = isList(value) ? value : value instanceof Tuple ? value.items : []
  meter.spend(items.length * times)
  const repeated: Array<Value> = []
  for (let left = times; left > 0 && items.length > 0; left--) for (const item of items) repeated.push(item)
  return value instanceof Tuple ? new Tuple(repeated) : repeated
}

const isSequence = (value: Value): boolean => textOf(value) !== undefined || isList(value) || value instanceof Tuple

export const escapeHtml = (text: string): string =>
  text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/'/g, "&#39;").replace(/"/g, "&#34;")

const add = (meter: Meter, a: Value, b: Value): Value | undefined => {
  const text = textOf(a)
  if (text !== undefined) {
    const other = textOf(b)
    if (other === undefined) return typeError(`can only concatenate str (not "${typeName(b)}") to str`)
    meter.join(text.length + other.length)
    if (typeof a === "string" && typeof b === "string") return a + b
    return new Markup(
      (a instanceof Markup ? text : escapeHtml(text)) + (b instanceof Markup ? other : escapeHtml(other)),
    )
  }
  if (isList(a) && isList(b)) {
    meter.spend(a.length + b.length)
    return [...a, ...b]
  }
  if (a instanceof Tuple && b instanceof Tuple) {
    meter.spend(a.items.length + b.items.length)
    return new Tuple([...a.items, ...b.items])
  }
  return undefined
}

export const arithmetic = (meter: Meter, sign: ArithmeticSign, a: Value, b: Value): Value => {
  if (typeof a === "number" && typeof b === "number") return integers(meter, sign, a, b)
  if (a instanceof Undefined) return use(a)
  const format = sign === "%" ? textOf(a) : undefined
  if (format !== undefined) {
    return a instanceof Markup ? unsupported("% of Markup") : percentFormat(meter, format, b)
  }
  if (b instanceof Undefined) return use(b)
  const [x, y] = [numberOf(a), numberOf(b)]
  if (x !== undefined && y !== undefined) {
    return a instanceof Float || b instanceof Float ? floats(sign, Number(x), Number(y)) : integers(meter, sign, x, y)
  }
  if (sign === "+") {
    const sum = add(meter, a, b)
    if (sum !== undefined) return sum
  }
  if (sign === "*") {
    const times = integerOf(b)
    if (times !== undefined && isSequence(a)) return repeat(meter, a, times)
    const before = integerOf(a)
    if (before !== undefined && isSequence(b)) return repeat(meter, b, before)
  }
  return typeError(`unsupported operand type(s) for ${sign}: '${typeName(a)}' and '${typeName(b)}'`)
}

export const negate = (value: Value): Value => {
  if (value instanceof Undefined) return use(value)
  if (value instanceof Float) return new Float(-value.value)
  const number = integerOf(value)
  if (number === undefined) return typeError(`bad operand type for unary -: '${typeName(value)}'`)
  return typeof number === "number" ? 0 - number : integer(-number)
}

export const plus = (value: Value): Value => {
  if (value instanceof Undefined) return use(value)
  if (value instanceof Float) return value
  return integerOf(value) ?? typeError(`bad operand type for unary +: '${typeName(value)}'`)
}

const bound = (value: Value): number | undefined => {
  if (value === null) return undefined
  const index = integerOf(value)
  return index === undefined
    ? typeError("slice indices must be integers or None or have an __index__ method")
    : Number(index)
}

/** Returns the first index of a slice and the index after its last, by Python's rules. */
const indices = (length: number, from: number | undefined, to: number | undefined, by: number) => {
  const [lowest, highest] = by > 0 ? [0, length] : [-1, length - 1]
  const clamp = (index: number) => Math.min(Math.max(index < 0 ? index + length : index, lowest), highest)
  return [
    from === undefined ? (by > 0 ? lowest : highest) : clamp(from),
    to === undefined ? (by > 0 ? highest : lowest) : clamp(to),
  ] as const
}

const sliceItems = <A>(items: ArrayLike<A>, start: number, stop: number, by: number): Array<A> => {
  const result: Array<A> = []
  for (let index = start; by > 0 ? index < stop : index > stop; index += by) {
    const item = items[index]
    if (item !== undefined) result.push(item)
  }
  return result
}

/** `value[from:to:by]` */
export const slice = (meter: Meter, value: Value, from: Value, to: Value, by: Value): Value => {
  if (value instanceof Undefined) return use(value)
  const text = textOf(value)
  const items = isList(value) ? value : value instanceof Tuple ? value.items : undefined
  if (text === undefined && items === undefined) {
    return value instanceof Range
      ? unsupported("slicing a range")
      : typeError(`'${typeName(value)}' object is not subscriptable`)
  }
  const [first, last, step] = [bound(from), bound(to), bound(by) ?? 1]
  if (step === 0) return raise("ValueError", "slice step cannot be zero")
  if (items !== undefined) {
    const [start, stop] = indices(items.length, first, last, step)
    meter.spend(1 + Math.abs(stop - start) / 4)
    const part = step === 1 ? items.slice(start, Math.max(start, stop)) : sliceItems(items, start, stop, step)
    return value instanceof Tuple ? new Tuple(part) : part
  }
  const whole = text ?? ""
  meter.text(whole.length)
  const letters = isFlat(whole) ? whole : Array.from(whole)
  const [start, stop] = indices(letters.length, first, last, step)
  const part =
    step === 1 && typeof letters === "string"
      ? letters.slice(start, Math.max(start, stop))
      : sliceItems(letters, start, stop, step).join("")
  return value instanceof Markup ? new Markup(part) : part
}
