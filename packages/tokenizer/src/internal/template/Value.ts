/**
 * Python's values. Strings, booleans, None and integers are JavaScript primitives (`string`, `boolean`, `null`,
 * `number` if exact, otherwise `bigint`), lists are arrays, and everything else has a class. Values are immutable,
 * except for namespaces, which templates assign to, and generators, which can be read only once.
 */
import { Float } from "../../ExactJson.ts"
import { raise, typeError, unsupported } from "./Failure.ts"
import type { Meter } from "./Meter.ts"

export { Float }

/** Text marked by `safe` or `escape`: text added to it is escaped. */
export class Markup {
  readonly text: string
  constructor(text: string) {
    this.text = text
  }
}

/** The value of a missing name, key or item. It prints as nothing; most other uses are errors. */
export class Undefined {
  readonly problem: string
  readonly exception: string
  constructor(problem: string, exception = "UndefinedError") {
    this.problem = problem
    this.exception = exception
  }
}

export class Tuple {
  readonly items: ReadonlyArray<Value>
  /** Attribute names of the items, as in the results of `groupby`. */
  readonly names: ReadonlyArray<string>
  constructor(items: ReadonlyArray<Value>, names: ReadonlyArray<string> = []) {
    this.items = items
    this.names = names
  }
}

/** A dict key. Floats and booleans find the keys of equal integers, but can't be keys themselves. */
export type Key = string | number | bigint | null

export class Dict {
  readonly entries: ReadonlyMap<Key, Value>
  constructor(entries: ReadonlyMap<Key, Value>) {
    this.entries = entries
  }
}

export class DictView {
  readonly kind: "keys" | "values" | "items"
  readonly dict: Dict
  constructor(kind: DictView["kind"], dict: Dict) {
    this.kind = kind
    this.dict = dict
  }
}

export class Range {
  readonly start: number
  readonly stop: number
  readonly step: number
  readonly length: number
  constructor(start: number, stop: number, step: number) {
    this.start = start
    this.stop = stop
    this.step = step
    this.length = Math.max(0, Math.ceil((stop - start) / step))
  }
}

/** A lazy sequence without a length that can be read only once. */
export class Generator {
  readonly kind: string
  readonly next: () => IteratorResult<Value>
  constructor(kind: string, items: Iterable<Value>) {
    const iterator = items[Symbol.iterator]()
    this.kind = kind
    this.next = () => iterator.next()
  }
  /** Returns an iterator without `return`, so that a reader that stops early does not close it for others. */
  [Symbol.iterator](): Iterator<Value> {
    return { next: this.next }
  }
}

export class Namespace {
  readonly attributes: Map<string, Value>
  constructor(attributes: Map<string, Value>) {
    this.attributes = attributes
  }
}

export interface Arguments {
  readonly positional: ReadonlyArray<Value>
  readonly keyword: ReadonlyMap<string, Value>
}

/** A macro, a global function, or a method bound to its object. */
export class Callable {
  readonly name: string
  readonly call: (args: Arguments) => Value
  constructor(name: string, call: (args: Arguments) => Value) {
    this.name = name
    this.call = call
  }
}

/** The `loop` variable of a `for` statement. */
export class Loop {
  index0 = -1
  private before: Value | undefined
  private current: Value | undefined
  private after: IteratorResult<Value> | undefined
  private iterator: Iterator<Value>
  private known: number | undefined
  private lastChanged: Value | undefined

  constructor(items: Iterable<Value>, known: number | undefined) {
    this.iterator = items[Symbol.iterator]()
    this.known = known
  }

  advance(): IteratorResult<Value> {
    const step = this.after ?? this.iterator.next()
    this.after = undefined
    if (step.done !== true) {
      this.index0++
      this.before = this.current
      this.current = step.value
    }
    return step
  }

  private peek(): IteratorResult<Value> {
    return (this.after ??= this.iterator.next())
  }

  /** Reads the remaining items if the sequence has no length. */
  get length(): number {
    if (this.known === undefined) {
      const ahead = this.after !== undefined && this.after.done !== true ? 1 : 0
      const rest = [...{ [Symbol.iterator]: () => this.iterator }]
      this.iterator = rest[Symbol.iterator]()
      this.known = rest.length + this.index0 + 1 + ahead
    }
    return this.known
  }

  attribute(name: string): Value | undefined {
    switch (name) {
      case "index":
        return this.index0 + 1
      case "index0":
        return this.index0
      case "first":
        return this.index0 === 0
      case "last":
        return this.peek().done === true
      case "length":
        return this.length
      case "revindex":
        return this.length - this.index0
      case "revindex0":
        return this.length - this.index0 - 1
      case "previtem":
        return this.index0 === 0 ? new Undefined("there is no previous item") : this.before
      case "nextitem": {
        const next = this.peek()
        return next.done === true ? new Undefined("there is no next item") : next.value
      }
      case "depth":
        return 1
      case "depth0":
        return 0
      case "cycle":
        return new Callable("cycle", ({ positional }) =>
          positional.length === 0
            ? typeError("no items for cycling given")
            : (positional[this.index0 % positional.length] ?? null),
        )
      case "changed":
        return new Callable("changed", ({ positional }) => {
          const now = new Tuple(positional)
          if (this.lastChanged !== undefined && equal(this.lastChanged, now)) return false
          this.lastChanged = now
          return true
        })
      default:
        return undefined
    }
  }
}

export type List = ReadonlyArray<Value>

export type Value =
  | string
  | Markup
  | number
  | bigint
  | Float
  | boolean
  | null
  | Undefined
  | List
  | Tuple
  | Dict
  | DictView
  | Range
  | Generator
  | Namespace
  | Loop
  | Callable

/** Replaces undefined only; `??` would also replace None. */
export const or = (value: Value | undefined, otherwise: Value): Value => (value === undefined ? otherwise : value)

export const isList = (value: Value): value is List => Array.isArray(value)

/** Returns the text of a `str` or Markup. */
export const textOf = (value: Value): string | undefined =>
  typeof value === "string" ? value : value instanceof Markup ? value.text : undefined

/** Returns the value of an integer, boolean or float. */
export const numberOf = (value: Value): number | bigint | undefined => {
  if (typeof value === "number" || typeof value === "bigint") return value
  if (typeof value === "boolean") return value ? 1 : 0
  return value instanceof Float ? value.value : undefined
}

/** Returns the value of an integer or boolean. */
export const integerOf = (value: Value): number | bigint | undefined =>
  value instanceof Float ? undefined : numberOf(value)

/** Converts to `number` if that is exact. */
export const integer = (value: bigint): number | bigint =>
  value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : value

export const typeName = (value: Value): string => {
  if (value === null) return "NoneType"
  switch (typeof value) {
    case "string":
      return "str"
    case "boolean":
      return "bool"
    case "number":
    case "bigint":
      return "int"
  }
  if (isList(value)) return "list"
  if (value instanceof Float) return "float"
  if (value instanceof Dict) return "dict"
  if (value instanceof Tuple) return "tuple"
  if (value instanceof Markup) return "Markup"
  if (value instanceof Undefined) return "Undefined"
  if (value instanceof DictView) return `dict_${value.kind}`
  if (value instanceof Range) return "range"
  if (value instanceof Generator) return value.kind
  if (value instanceof Namespace) return "Namespace"
  return value instanceof Loop ? "LoopContext" : "function"
}

/** Fails as Python does when an undefined value is used for anything but printing, testing and iterating. */
export const use = (value: Undefined): never => raise(value.exception, value.problem)

export const truthy = (value: Value): boolean => {
  switch (typeof value) {
    case "boolean":
      return value
    case "string":
      return value !== ""
    case "number":
      return value !== 0
    case "bigint":
      return true
  }
  if (value === null || value instanceof Undefined) return false
  if (isList(value)) return value.length > 0
  if (value instanceof Dict) return value.entries.size > 0
  if (value instanceof Tuple) return value.items.length > 0
  if (value instanceof Markup) return value.text !== ""
  if (value instanceof Float) return value.value !== 0
  if (value instanceof DictView) return value.dict.entries.size > 0
  return value instanceof Range || value instanceof Loop ? value.length > 0 : true
}

const equalLists = (a: List, b: List): boolean =>
  a.length === b.length && a.every((item, index) => equal(item, b[index] ?? null))

/** Compares `number` and `bigint` exactly. */
const compareNumbers = (a: number | bigint, b: number | bigint): number => (a < b ? -1 : a > b ? 1 : 0)

export const equal = (a: Value, b: Value): boolean => {
  if (a === b) return true
  const text = textOf(a)
  if (text !== undefined) return text === textOf(b)
  const x = numberOf(a)
  if (x !== undefined) {
    const y = numberOf(b)
    return y !== undefined && x === x && y === y && compareNumbers(x, y) === 0
  }
  if (isList(a)) return isList(b) && equalLists(a, b)
  if (a instanceof Tuple) return b instanceof Tuple && equalLists(a.items, b.items)
  if (a instanceof Undefined) return b instanceof Undefined
  if (a instanceof Range) return b instanceof Range && equalLists([...iterate(a)], [...iterate(b)])
  if (a instanceof DictView) return b instanceof DictView && unsupported("comparing views of dicts")
  if (!(a instanceof Dict && b instanceof Dict) || a.entries.size !== b.entries.size) return false
  for (const [key, value] of a.entries) {
    const other = b.entries.get(key)
    if (other === undefined || !equal(value, other)) return false
  }
  return true
}

/** Compares by code points as Python does; JavaScript compares UTF-16 units. */
export const compareTexts = (a: string, b: string): number => {
  const end = Math.min(a.length, b.length)
  let index = 0
  while (index < end && a.charCodeAt(index) === b.charCodeAt(index)) index++
  if (index === end) return a.length - b.length
  const x = a.charCodeAt(index)
  const y = b.charCodeAt(index)
  const isSurrogate = (unit: number) => unit >= 0xd800 && unit <= 0xdfff
  // Surrogates stand for code points above all others.
  return isSurrogate(x) === isSurrogate(y) ? x - y : isSurrogate(x) ? 1 : -1
}

/** Compares as for `<`: negative, zero or positive, or NaN if every comparison is false. */
export const compare = (a: Value, b: Value, sign = "<"): number => {
  const x = numberOf(a)
  const y = numberOf(b)
  if (x !== undefined && y !== undefined) return x === x && y === y ? compareNumbers(x, y) : Number.NaN
  const text = textOf(a)
  const other = textOf(b)
  if (text !== undefined && other !== undefined) return compareTexts(text, other)
  const items = isList(a) && isList(b) ? [a, b] : a instanceof Tuple && b instanceof Tuple ? [a.items, b.items] : []
  const [left, right] = items
  if (left !== undefined && right !== undefined) {
    for (let index = 0; index < left.length && index < right.length; index++) {
      const [one, two] = [left[index] ?? null, right[index] ?? null]
      if (!equal(one, two)) return compare(one, two, sign)
    }
    return left.length - right.length
  }
  if (a instanceof Undefined) return use(a)
  if (b instanceof Undefined) return use(b)
  return typeError(`'${sign}' not supported between instances of '${typeName(a)}' and '${typeName(b)}'`)
}

/** Returns the key to look up, or undefined if the value can't be a key. */
export const keyOf = (value: Value): Key | undefined => {
  if (value === null || typeof value === "string" || typeof value === "number" || typeof value === "bigint")
    return value
  if (typeof value === "boolean") return value ? 1 : 0
  if (value instanceof Markup) return value.text
  if (value instanceof Float) return Number.isSafeInteger(value.value) ? value.value + 0 : undefined
  return undefined
}

/** Checks whether a value can be a key in Python; lists and dicts can't. */
export const isHashable = (value: Value): boolean =>
  value instanceof Tuple ? value.items.every(isHashable) : !isList(value) && !(value instanceof Dict)

/** Returns the key for a new dict; fails if the value can't be one. */
export const newKey = (value: Value): Key => {
  if (value === null || typeof value === "string" || typeof value === "number" || typeof value === "bigint")
    return value
  return isHashable(value)
    ? unsupported(`a dict with a key of type ${typeName(value)}`)
    : typeError(`unhashable type: '${typeName(value)}'`)
}

function* rangeItems(range: Range): Iterable<Value> {
  for (let index = 0; index < range.length; index++) yield range.start + index * range.step
}

const viewItems = (view: DictView): Iterable<Value> =>
  view.kind === "keys"
    ? view.dict.entries.keys()
    : view.kind === "values"
      ? view.dict.entries.values()
      : Array.from(view.dict.entries, (entry) => new Tuple(entry))

export const isIterable = (value: Value): boolean =>
  value !== null &&
  typeof value !== "number" &&
  typeof value !== "bigint" &&
  typeof value !== "boolean" &&
  !(value instanceof Float || value instanceof Namespace || value instanceof Callable)

export const iterate = (value: Value): Iterable<Value> => {
  if (isList(value)) return value
  if (typeof value === "string") return value
  if (value instanceof Dict) return value.entries.keys()
  if (value instanceof Tuple) return value.items
  if (value instanceof Generator) return value
  if (value instanceof Range) return rangeItems(value)
  if (value instanceof DictView) return viewItems(value)
  if (value instanceof Undefined) return []
  if (value instanceof Markup) return Array.from(value.text, (letter) => new Markup(letter))
  if (value instanceof Loop) return unsupported("iterating over loop")
  return typeError(`'${typeName(value)}' object is not iterable`)
}

/** Collects all items and charges for each, so that an endless generator hits the limit. */
export const collect = (meter: Meter, value: Value): List => {
  if (isList(value)) return value
  if (value instanceof Tuple) return value.items
  const items: Array<Value> = []
  for (const item of iterate(value)) {
    meter.spend(1)
    items.push(item)
  }
  return items
}

/** Returns the number of items if the value has a length. */
export const sizeOf = (value: Value): number | undefined => {
  if (typeof value === "string") return countPoints(value)
  if (isList(value)) return value.length
  if (value instanceof Dict) return value.entries.size
  if (value instanceof Tuple) return value.items.length
  if (value instanceof Markup) return countPoints(value.text)
  if (value instanceof DictView) return value.dict.entries.size
  if (value instanceof Range || value instanceof Loop) return value.length
  return value instanceof Undefined ? 0 : undefined
}

const surrogate = /[\ud800-\udfff]/

/** Checks whether indices in code points, as in Python, equal indices in UTF-16 units. */
export const isFlat = (text: string): boolean => !surrogate.test(text)

export const countPoints = (text: string): number => {
  if (isFlat(text)) return text.length
  let count = 0
  for (const _ of text) count++
  return count
}

/** `item in container` */
export const contains = (meter: Meter, container: Value, item: Value): boolean => {
  const text = textOf(container)
  if (text !== undefined) {
    const part = textOf(item)
    if (part === undefined) return typeError(`'in <string>' requires string as left operand, not ${typeName(item)}`)
    meter.spend(1 + text.length / 16)
    return text.includes(part)
  }
  if (container instanceof Dict) {
    if (!isHashable(item)) return typeError(`unhashable type: '${typeName(item)}'`)
    const key = keyOf(item)
    return key !== undefined && container.entries.has(key)
  }
  if (!isIterable(container)) return typeError(`argument of type '${typeName(container)}' is not iterable`)
  for (const other of iterate(container)) {
    meter.spend(1)
    if (equal(item, other)) return true
  }
  return false
}
