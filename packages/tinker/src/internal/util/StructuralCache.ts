/**
 * Caches results by structural equality. For values that occur in many requests and are expensive to process: the
 * parameters of samples and optimizers.
 */

/** The maximum number of entries. With more distinct values, caching does not help. */
const most = 256

const plainName = /^\w+$/

const isPlain = (value: object): boolean => {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null || Array.isArray(value)
}

/**
 * Returns a string that is equal only for equal values, or undefined for values that are deep, long, or not plain data.
 */
export const keyOf = (value: unknown, depth = 3, except: object = nothing): string | undefined => {
  switch (typeof value) {
    case "string":
      return value.length > 1_000 ? undefined : JSON.stringify(value)
    case "number":
      return Object.is(value, -0) ? "-0" : String(value)
    case "boolean":
    case "undefined":
      return String(value)
    case "object": {
      if (value === null) return "null"
      if (depth === 0 || !isPlain(value)) return undefined
      // Includes the length, because an array may have holes.
      let text = Array.isArray(value) ? `[${value.length}:` : "{"
      const keys = Object.keys(value)
      if (keys.length > 32) return undefined
      for (const name of keys) {
        if (Object.hasOwn(except, name)) continue
        const member = keyOf((value as Record<string, unknown>)[name], depth - 1)
        if (member === undefined) return undefined
        // The separator cannot occur in plain names, and other names are quoted.
        text += plainName.test(name) ? `${name}:${member},` : `${JSON.stringify(name)}:${member},`
      }
      return text
    }
    default:
      return undefined
  }
}

const nothing: object = {}

type Fields = Readonly<Record<string, unknown>>

/** Checks whether a value equals a private copy. */
const isCopy = (copy: unknown, value: unknown, except: object): boolean => {
  if (typeof value !== "object" || value === null || typeof copy !== "object" || copy === null) {
    return Object.is(copy, value)
  }
  if (Object.getPrototypeOf(copy) !== Object.getPrototypeOf(value)) return false
  if (Array.isArray(value) && value.length !== (copy as ReadonlyArray<unknown>).length) return false
  let count = 0
  for (const name of Object.keys(value)) {
    if (Object.hasOwn(except, name)) continue
    count++
    if (!Object.hasOwn(copy, name) || !isCopy((copy as Fields)[name], (value as Fields)[name], nothing)) return false
  }
  return count === Object.keys(copy).length
}

const copyOf = (value: unknown, except: object): unknown => {
  if (typeof value !== "object" || value === null) return value
  if (Array.isArray(value)) return value.map((member) => copyOf(member, nothing))
  const copy: Record<string, unknown> = Object.create(Object.getPrototypeOf(value) as object | null)
  for (const name of Object.keys(value)) {
    if (!Object.hasOwn(except, name)) copy[name] = copyOf((value as Fields)[name], nothing)
  }
  return copy
}

/** Caches results for plain data; the fields in `except` are ignored. */
export class StructuralCache<A> {
  private readonly known = new Map<string, A>()
  /** The same value often occurs again immediately, and comparing is cheaper than building a key. */
  private last: { readonly copy: unknown; readonly found: A } | undefined = undefined
  private readonly except: object

  constructor(except: object = nothing) {
    this.except = except
  }

  find(value: object): A | undefined {
    if (this.last !== undefined && isCopy(this.last.copy, value, this.except)) return this.last.found
    const key = keyOf(value, undefined, this.except)
    const found = key === undefined ? undefined : this.known.get(key)
    if (found !== undefined) this.last = { copy: copyOf(value, this.except), found }
    return found
  }

  keep(value: object, found: A): void {
    const key = keyOf(value, undefined, this.except)
    if (key === undefined) return
    if (this.known.size >= most) this.known.clear()
    this.known.set(key, found)
    this.last = { copy: copyOf(value, this.except), found }
  }
}
