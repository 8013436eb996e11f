/** The tests, as used after `is`. */
import { bind } from "./Arguments.ts"
import { typeError, unsupported } from "./Failure.ts"
import type { Meter } from "./Meter.ts"
import { arithmetic } from "./Operators.ts"
import { str } from "./Printing.ts"
import type { Arguments, Value } from "./Value.ts"
import {
  Callable,
  compare,
  contains,
  Dict,
  DictView,
  equal,
  Float,
  integerOf,
  isIterable,
  Markup,
  numberOf,
  sizeOf,
  textOf,
  Undefined,
} from "./Value.ts"

type Test = (value: Value, args: Arguments, meter: Meter) => boolean

const alone =
  (test: (value: Value, meter: Meter) => boolean): Test =>
  (value, args, meter) => {
    bind("test", [], args)
    return test(value, meter)
  }

const against =
  (test: (value: Value, other: Value, meter: Meter) => boolean): Test =>
  (value, args, meter) => {
    const [other] = bind("test", ["other"], args, 1)
    return test(value, other ?? null, meter)
  }

const remainder = (value: Value, divisor: Value, meter: Meter): Value => arithmetic(meter, "%", value, divisor)

const sameAs = (value: Value, other: Value): boolean =>
  value === null || typeof value === "boolean" || other === null || typeof other === "boolean"
    ? value === other
    : unsupported("sameas with anything but true, false and none")

const equals = against(equal)
const differs = against((value, other) => !equal(value, other))
const isLess = against((value, other) => compare(value, other, "<") < 0)
const isAtMost = against((value, other) => compare(value, other, "<=") <= 0)
const isGreater = against((value, other) => compare(value, other, ">") > 0)
const isAtLeast = against((value, other) => compare(value, other, ">=") >= 0)

const table: Readonly<Record<string, Test>> = {
  defined: alone((value) => !(value instanceof Undefined)),
  undefined: alone((value) => value instanceof Undefined),
  none: alone((value) => value === null),
  boolean: alone((value) => typeof value === "boolean"),
  true: alone((value) => value === true),
  false: alone((value) => value === false),
  integer: alone((value) => typeof value !== "boolean" && integerOf(value) !== undefined),
  float: alone((value) => value instanceof Float),
  number: alone((value) => numberOf(value) !== undefined),
  string: alone((value) => textOf(value) !== undefined),
  mapping: alone((value) => value instanceof Dict),
  iterable: alone(isIterable),
  // Requires a length and indexing, which dict views lack.
  sequence: alone((value) => sizeOf(value) !== undefined && !(value instanceof DictView)),
  callable: alone((value) => value instanceof Callable || value instanceof Undefined),
  escaped: alone((value) => value instanceof Markup),
  lower: alone((value, meter) => {
    const text = str(meter, value)
    return /\p{Lowercase}/u.test(text) && !/[\p{Uppercase}\p{Lt}]/u.test(text)
  }),
  upper: alone((value, meter) => {
    const text = str(meter, value)
    return /\p{Uppercase}/u.test(text) && !/[\p{Lowercase}\p{Lt}]/u.test(text)
  }),
  odd: alone((value, meter) => equal(remainder(value, 2, meter), 1)),
  even: alone((value, meter) => equal(remainder(value, 2, meter), 0)),
  divisibleby: against((value, divisor, meter) => equal(remainder(value, divisor, meter), 0)),
  in: against((value, container, meter) => contains(meter, container, value)),
  sameas: against(sameAs),
  "==": equals,
  eq: equals,
  equalto: equals,
  "!=": differs,
  ne: differs,
  "<": isLess,
  lt: isLess,
  lessthan: isLess,
  "<=": isAtMost,
  le: isAtMost,
  ">": isGreater,
  gt: isGreater,
  greaterthan: isGreater,
  ">=": isAtLeast,
  ge: isAtLeast,
}

export const testNamed = (name: string): Test | undefined => (Object.hasOwn(table, name) ? table[name] : undefined)

/** Runs a test given by a name computed at run time, as `select` does. */
export const runTest = (name: Value, value: Value, args: Arguments, meter: Meter): boolean => {
  const text = textOf(name)
  if (text === undefined) return typeError("test name must be a string")
  const test = testNamed(text) ?? unsupported(`the test ${text}`)
  return test(value, args, meter)
}
