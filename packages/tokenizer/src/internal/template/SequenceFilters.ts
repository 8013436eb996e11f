/** Filters on sequences. Filters that are lazy in Python are lazy here, because a namespace may change in between. */
import { bind } from "./Arguments.ts"
import { raise, typeError, unsupported } from "./Failure.ts"
import { getItem } from "./Lookup.ts"
import type { Meter } from "./Meter.ts"
import { arithmetic } from "./Operators.ts"
import { str } from "./Printing.ts"
import { runTest } from "./Tests.ts"
import type { Arguments, List, Value } from "./Value.ts"
import {
  collect,
  compare,
  Dict,
  DictView,
  equal,
  Generator,
  integerOf,
  isHashable,
  isIterable,
  isList,
  iterate,
  Markup,
  or,
  Range,
  textOf,
  truthy,
  Tuple,
  typeName,
  Undefined,
} from "./Value.ts"

export type Filter = (value: Value, args: Arguments, meter: Meter) => Value

const given = (value: Value | undefined): value is Exclude<Value, null> => value !== undefined && value !== null
const isSet = (value: Value | undefined): boolean => value !== undefined && truthy(value)

/** Creates a function that resolves a path such as `a.b.0` on an item. */
const getter = (meter: Meter, attribute: Value | undefined, fallback?: Value): ((item: Value) => Value) => {
  if (!given(attribute)) return (item) => item
  const path = textOf(attribute)
  const parts: List =
    path === undefined ? [attribute] : path.split(".").map((part) => (/^\d+$/.test(part) ? Number(part) : part))
  return (item) =>
    parts.reduce((value, part) => {
      const found = getItem(meter, value, part)
      return given(fallback) && found instanceof Undefined ? fallback : found
    }, item)
}

const ignoringCase = (value: Value): Value => {
  if (typeof value === "string") return value.toLowerCase()
  return value instanceof Markup ? new Markup(value.text.toLowerCase()) : value
}

const keyed = (meter: Meter, attribute: Value | undefined, caseSensitive: Value | undefined, fallback?: Value) => {
  const get = getter(meter, attribute, fallback)
  return isSet(caseSensitive) ? get : (item: Value) => ignoringCase(get(item))
}

/** Sorts stably, as Python does; `reverse` also keeps equal items in order. */
const sorted = (meter: Meter, items: List, key: (item: Value) => Value, reverse: boolean): List => {
  meter.spend(items.length * Math.ceil(Math.log2(items.length + 2)))
  const pairs = items.map((item) => [key(item), item] as const)
  const order = reverse
    ? (a: readonly [Value, Value], b: readonly [Value, Value]) => compare(b[0], a[0])
    : (a: readonly [Value, Value], b: readonly [Value, Value]) => compare(a[0], b[0])
  return pairs.toSorted(order).map(([, item]) => item)
}

const lazily = (items: () => Iterable<Value>): Generator =>
  new Generator("generator", { [Symbol.iterator]: () => items()[Symbol.iterator]() })

function* selected(value: Value, keep: () => (item: Value) => boolean, meter: Meter): Iterable<Value> {
  // A falsy value is not iterated and need not be iterable.
  if (!truthy(value)) return
  const test = keep()
  for (const item of iterate(value)) {
    meter.spend(1)
    if (test(item)) yield item
  }
}

const selecting =
  (keeps: boolean, byAttribute: boolean): Filter =>
  (value, { keyword, positional }, meter) =>
    lazily(() =>
      selected(
        value,
        () => {
          if (byAttribute && positional.length === 0) {
            return raise("FilterArgumentError", "Missing parameter for attribute name")
          }
          const get = byAttribute ? getter(meter, positional[0]) : (item: Value) => item
          const [name, ...rest] = byAttribute ? positional.slice(1) : positional
          return name === undefined
            ? (item) => truthy(get(item)) === keeps
            : (item) => runTest(name, get(item), { positional: rest, keyword }, meter) === keeps
        },
        meter,
      ),
    )

function* mapped(value: Value, prepare: () => (item: Value) => Value, meter: Meter): Iterable<Value> {
  if (!truthy(value)) return
  const change = prepare()
  for (const item of iterate(value)) {
    meter.spend(1)
    yield change(item)
  }
}

const mapping =
  (filterNamed: () => (name: string) => Filter | undefined): Filter =>
  (value, { keyword, positional }, meter) =>
    lazily(() =>
      mapped(
        value,
        () => {
          const [name, ...rest] = positional
          if (name === undefined) {
            if (!keyword.has("attribute")) return raise("FilterArgumentError", "map requires a filter argument")
            const [attribute, fallback] = bind("map", ["attribute", "default"], { positional, keyword })
            return getter(meter, attribute, fallback)
          }
          const filter = filterNamed()(textOf(name) ?? "") ?? unsupported(`the filter ${str(meter, name)}`)
          return (item) => filter(item, { positional: rest, keyword }, meter)
        },
        meter,
      ),
    )

const reversible = (value: Value): boolean =>
  isList(value) ||
  value instanceof Tuple ||
  value instanceof Dict ||
  value instanceof DictView ||
  value instanceof Range ||
  value instanceof Undefined

const backwards = (meter: Meter, value: Value): List => {
  const items = collect(meter, value)
  meter.spend(items.length)
  return items.toReversed()
}

const reverse: Filter = (value, args, meter) => {
  bind("reverse", [], args)
  const text = textOf(value)
  if (text !== undefined) {
    meter.text(text.length)
    const turned = Array.from(text).toReversed().join("")
    return value instanceof Markup ? new Markup(turned) : turned
  }
  if (reversible(value)) return new Generator("list_reverseiterator", backwards(meter, value))
  return isIterable(value) ? backwards(meter, value) : raise("FilterArgumentError", "argument must be iterable")
}

const last: Filter = (value, args, meter) => {
  bind("last", [], args)
  const text = textOf(value)
  const items = text === undefined ? (reversible(value) ? collect(meter, value) : undefined) : Array.from(text)
  if (items === undefined) {
    return typeError(`'${typeName(value)}' object is not reversible`)
  }
  return or(items.at(-1), new Undefined("No last item, sequence was empty."))
}

const first: Filter = (value, args) => {
  bind("first", [], args)
  const step = iterate(value)[Symbol.iterator]().next()
  return step.done === true ? new Undefined("No first item, sequence was empty.") : step.value
}

const join: Filter = (value, args, meter) => {
  const [separator, attribute] = bind("join", ["d", "attribute"], args)
  const get = getter(meter, attribute)
  const between = str(meter, or(separator, ""))
  const parts: Array<string> = []
  let length = 0
  for (const item of iterate(value)) {
    const part = str(meter, get(item))
    length += part.length + between.length
    meter.within(length)
    meter.spend(1 + part.length / 16)
    parts.push(part)
  }
  return parts.join(between)
}

const sort: Filter = (value, args, meter) => {
  const [turned, caseSensitive, attribute] = bind("sort", ["reverse", "case_sensitive", "attribute"], args)
  const path = given(attribute) ? textOf(attribute) : undefined
  const names: ReadonlyArray<Value | undefined> = path === undefined ? [attribute] : path.split(",")
  const getters = names.map((name) => keyed(meter, name, caseSensitive))
  return sorted(meter, collect(meter, value), (item) => getters.map((get) => get(item)), isSet(turned))
}

const dictSort: Filter = (value, args, meter) => {
  const [caseSensitive, by, turned] = bind("dictsort", ["case_sensitive", "by", "reverse"], args)
  const what = by === undefined ? "key" : textOf(by)
  if (what !== "key" && what !== "value") {
    return raise("FilterArgumentError", 'You can only sort by either "key" or "value"')
  }
  if (!(value instanceof Dict)) return raise("UndefinedError", `'${typeName(value)}' object has no attribute 'items'`)
  const key = keyed(meter, what === "key" ? 0 : 1, caseSensitive)
  return sorted(meter, collect(meter, new DictView("items", value)), key, isSet(turned))
}

const unique: Filter = (value, args, meter) => {
  const [caseSensitive, attribute] = bind("unique", ["case_sensitive", "attribute"], args)
  const key = keyed(meter, attribute, caseSensitive)
  function* items(): Iterable<Value> {
    const seen: Array<Value> = []
    for (const item of iterate(value)) {
      const found = key(item)
      if (!isHashable(found)) typeError(`unhashable type: '${typeName(found)}'`)
      meter.spend(1 + seen.length)
      if (seen.some((other) => equal(other, found))) continue
      seen.push(found)
      yield item
    }
  }
  return lazily(items)
}

const extreme =
  (isBetter: (order: number) => boolean): Filter =>
  (value, args, meter) => {
    const [caseSensitive, attribute] = bind("min", ["case_sensitive", "attribute"], args)
    const key = keyed(meter, attribute, caseSensitive)
    let best: readonly [Value, Value] | undefined
    for (const item of iterate(value)) {
      meter.spend(1)
      const found = key(item)
      if (best === undefined || isBetter(compare(found, best[0]))) best = [found, item]
    }
    return best === undefined ? new Undefined("No aggregated item, sequence was empty.") : best[1]
  }

const sum: Filter = (value, args, meter) => {
  const [attribute, start] = bind("sum", ["attribute", "start"], args)
  if (textOf(start ?? null) !== undefined) return typeError("sum() can't sum strings [use ''.join(seq) instead]")
  const get = getter(meter, attribute)
  let total: Value = or(start, 0)
  for (const item of iterate(value)) {
    meter.spend(1)
    total = arithmetic(meter, "+", total, get(item))
  }
  return total
}

const groupBy: Filter = (value, args, meter) => {
  const [attribute, fallback, caseSensitive] = bind("groupby", ["attribute", "default", "case_sensitive"], args, 1)
  const key = keyed(meter, attribute, caseSensitive, fallback)
  const shown = getter(meter, attribute, fallback)
  const groups: Array<{ readonly key: Value; readonly items: Array<Value> }> = []
  for (const item of sorted(meter, collect(meter, value), key, false)) {
    const found = key(item)
    const group = groups.at(-1)
    if (group !== undefined && equal(group.key, found)) group.items.push(item)
    else groups.push({ key: found, items: [item] })
  }
  return groups.map(({ items }) => new Tuple([shown(items[0] ?? null), items], ["grouper", "list"]))
}

const needCount = (value: Value | undefined): number =>
  Number(
    integerOf(value ?? null) ?? typeError(`'${typeName(value ?? null)}' object cannot be interpreted as an integer`),
  )

const batch: Filter = (value, args, meter) => {
  const [count, fill] = bind("batch", ["linecount", "fill_with"], args, 1)
  const size = needCount(count)
  function* items(): Iterable<Value> {
    let row: Array<Value> = []
    for (const item of iterate(value)) {
      meter.spend(1)
      if (row.length === size) {
        yield row
        row = []
      }
      row.push(item)
    }
    if (row.length === 0) return
    if (given(fill) && row.length < size) meter.spend(size)
    while (given(fill) && row.length < size) row.push(fill)
    yield row
  }
  return lazily(items)
}

const slice: Filter = (value, args, meter) => {
  const [count, fill] = bind("slice", ["slices", "fill_with"], args, 1)
  const slices = needCount(count)
  function* items(): Iterable<Value> {
    const all = collect(meter, value)
    if (slices === 0) raise("ZeroDivisionError", "integer division or modulo by zero")
    meter.spend(Math.max(0, slices))
    const size = Math.floor(all.length / slices)
    const withExtra = all.length % slices
    for (let index = 0, offset = 0; index < slices; index++) {
      const start = offset + index * size
      if (index < withExtra) offset++
      const row = all.slice(start, offset + (index + 1) * size)
      yield given(fill) && index >= withExtra ? [...row, fill] : row
    }
  }
  return lazily(items)
}

const pairs: Filter = (value, args) => {
  bind("items", [], args)
  function* items(): Iterable<Value> {
    if (value instanceof Undefined) return
    if (!(value instanceof Dict)) typeError("Can only get item pairs from a mapping.")
    else yield* iterate(new DictView("items", value))
  }
  return lazily(items)
}

/** Returns the filters on sequences. `map` looks up filters by name; the lookup is lazy because it includes these. */
export const sequenceFilters = (
  filterNamed: () => (name: string) => Filter | undefined,
): Readonly<Record<string, Filter>> => ({
  batch,
  dictsort: dictSort,
  first,
  groupby: groupBy,
  items: pairs,
  join,
  last,
  list: (value, args: Arguments, meter) => {
    bind("list", [], args)
    return collect(meter, value)
  },
  map: mapping(filterNamed),
  max: extreme((order) => order > 0),
  min: extreme((order) => order < 0),
  reject: selecting(false, false),
  rejectattr: selecting(false, true),
  reverse,
  select: selecting(true, false),
  selectattr: selecting(true, true),
  slice,
  sort,
  sum,
  unique,
})
