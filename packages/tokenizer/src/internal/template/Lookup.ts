/** Implements `value.name`, which prefers attributes of the Python type, and `value[item]`, which prefers the data. */
import { unsupported } from "./Failure.ts"
import { braceFormat } from "./Format.ts"
import type { Meter } from "./Meter.ts"
import { methodOf } from "./Methods.ts"
import { repr } from "./Printing.ts"
import type { Value } from "./Value.ts"
import {
  Callable,
  Dict,
  DictView,
  Generator,
  integerOf,
  isFlat,
  isList,
  keyOf,
  Loop,
  Markup,
  Namespace,
  or,
  Range,
  textOf,
  Tuple,
  typeName,
  Undefined,
  use,
} from "./Value.ts"

const describe = (value: Value): string => {
  const name = typeName(value)
  return name === "NoneType" ? "None" : `${name} object`
}

const absent = (meter: Meter, value: Value, name: Value): Undefined =>
  new Undefined(
    typeof name === "string"
      ? `'${describe(value)}' has no attribute ${repr(meter, name)}`
      : `${describe(value)} has no element ${repr(meter, name)}`,
  )

/** The method `"{a.b[c]}".format(…)`; defined here because it looks up attributes and items. */
const formatMethod = (meter: Meter, value: Value): Callable =>
  new Callable("format", (args) =>
    typeof value === "string"
      ? braceFormat(meter, value, args, (from, part, isAttribute) =>
          isAttribute
            ? getAttribute(meter, from, part)
            : getItem(meter, from, /^\d+$/.test(part) ? Number(part) : part),
        )
      : unsupported("format of Markup"),
  )

/** Attributes of macros, generators and dict views in Python that are not implemented here. */
const unimplemented = new Set(
  "name arguments catch_kwargs catch_varargs caller explicit_caller fromkeys"
    .split(" ")
    .concat("close send throw gi_code gi_frame gi_running gi_suspended gi_yieldfrom isdisjoint mapping".split(" ")),
)

/** Returns the attribute that the type itself has. */
const attribute = (meter: Meter, value: Value, name: string): Value | undefined => {
  if (name.startsWith("__") && name.endsWith("__")) return unsupported(`the attribute ${name}`)
  if (value instanceof Namespace) return value.attributes.get(name)
  if (value instanceof Loop) return value.attribute(name)
  if (value instanceof Callable || value instanceof Generator || value instanceof DictView) {
    return unimplemented.has(name) ? unsupported(`the attribute ${name} of a ${typeName(value)}`) : undefined
  }
  if (value instanceof Tuple && value.names.includes(name)) return value.items[value.names.indexOf(name)]
  if (name === "format" && textOf(value) !== undefined) return formatMethod(meter, value)
  const method = methodOf(value, name)
  if (method === undefined || method instanceof Undefined) return method
  return new Callable(name, (args) => method(args, meter))
}

const at = <A>(items: ArrayLike<A>, index: number): A | undefined => items[index < 0 ? index + items.length : index]

/** Returns the item that the data has under the key or index. */
const item = (meter: Meter, value: Value, key: Value): Value | undefined => {
  if (value instanceof Dict) {
    const known = keyOf(key)
    return known === undefined ? undefined : value.entries.get(known)
  }
  const index = integerOf(key)
  if (index === undefined) return undefined
  if (isList(value)) return at(value, Number(index))
  if (value instanceof Tuple) return at(value.items, Number(index))
  if (value instanceof Range) {
    const position = Number(index) < 0 ? Number(index) + value.length : Number(index)
    return position >= 0 && position < value.length ? value.start + position * value.step : undefined
  }
  const text = textOf(value)
  if (text === undefined) return undefined
  meter.spend(1 + text.length / 16)
  const letter = at(isFlat(text) ? text : Array.from(text), Number(index))
  return letter === undefined ? undefined : value instanceof Markup ? new Markup(letter) : letter
}

/** `value.name` */
export const getAttribute = (meter: Meter, value: Value, name: string): Value => {
  if (value instanceof Undefined) return use(value)
  const own = attribute(meter, value, name)
  if (own !== undefined) return own
  return or(item(meter, value, name), absent(meter, value, name))
}

/** `value[key]` */
export const getItem = (meter: Meter, value: Value, key: Value): Value => {
  if (value instanceof Undefined) return use(value)
  const found = item(meter, value, key)
  if (found !== undefined) return found
  const name = textOf(key)
  return or(name === undefined ? undefined : attribute(meter, value, name), absent(meter, value, key))
}
