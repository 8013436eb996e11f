/** The functions that every chat template can call. */
import { bind } from "./Arguments.ts"
import { Failure, raise, typeError } from "./Failure.ts"
import type { Meter } from "./Meter.ts"
import { str } from "./Printing.ts"
import type { WallTime } from "./Strftime.ts"
import { strftime } from "./Strftime.ts"
import type { Arguments, Key, Value } from "./Value.ts"
import {
  Callable,
  collect,
  Dict,
  integerOf,
  isIterable,
  Namespace,
  newKey,
  Range,
  textOf,
  typeName,
  Undefined,
  use,
} from "./Value.ts"

/** The limit of jinja2's sandbox. */
const maxRange = 100_000

const range = (args: Arguments): Value => {
  if (args.keyword.size > 0) return typeError("range() takes no keyword arguments")
  const bounds = args.positional.map((value) => {
    if (value instanceof Undefined) return typeError("'Undefined' object cannot be interpreted as an integer")
    const bound = integerOf(value)
    return bound === undefined
      ? typeError(`'${typeName(value)}' object cannot be interpreted as an integer`)
      : Number(bound)
  })
  if (bounds.length === 0 || bounds.length > 3) return typeError("range expected 1 to 3 arguments")
  const [first = 0, second, step = 1] = bounds
  if (step === 0) return raise("ValueError", "range() arg 3 must not be zero")
  const result = second === undefined ? new Range(0, first, 1) : new Range(first, second, step)
  return result.length > maxRange
    ? raise("OverflowError", `Range too big. The sandbox blocks ranges larger than MAX_RANGE (${maxRange}).`)
    : result
}

/** Reads the arguments of `dict(…)`: a dict or pairs, and keyword arguments. */
const entriesOf = (meter: Meter, { keyword, positional }: Arguments): Map<Key, Value> => {
  const [source, ...more] = positional
  if (more.length > 0) return typeError(`dict expected at most 1 argument, got ${positional.length}`)
  const entries = new Map<Key, Value>(source instanceof Dict ? source.entries : [])
  if (source !== undefined && !(source instanceof Dict)) {
    if (source instanceof Undefined) return use(source)
    for (const pair of collect(meter, source)) {
      const [key, value, ...rest] = isIterable(pair) ? collect(meter, pair) : []
      if (key === undefined || value === undefined || rest.length > 0) {
        return raise("ValueError", "dictionary update sequence has an element that is not a pair")
      }
      entries.set(newKey(key), value)
    }
  }
  for (const [key, value] of keyword) entries.set(key, value)
  return entries
}

const namespace = (meter: Meter, args: Arguments): Value => {
  const attributes = new Map<string, Value>()
  for (const [key, value] of entriesOf(meter, args)) {
    if (typeof key !== "string" || key.startsWith("_")) {
      return raise("SecurityError", "Chat templates cannot store underscore-prefixed attributes on a namespace")
    }
    attributes.set(key, value)
  }
  return new Namespace(attributes)
}

export const globals = (meter: Meter, now: () => WallTime): ReadonlyArray<readonly [string, Value]> => [
  ["range", new Callable("range", range)],
  ["dict", new Callable("dict", (args) => new Dict(entriesOf(meter, args)))],
  ["namespace", new Callable("namespace", (args) => namespace(meter, args))],
  [
    "raise_exception",
    new Callable("raise_exception", (args) => {
      const [message] = bind("raise_exception", ["message"], args, 1)
      throw new Failure("Raised", str(meter, message ?? null))
    }),
  ],
  [
    "strftime_now",
    new Callable("strftime_now", (args) => {
      const [format] = bind("strftime_now", ["format"], args, 1)
      return strftime(now(), textOf(format ?? null) ?? typeError("strftime() argument 1 must be str"))
    }),
  ],
]
