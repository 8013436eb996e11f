/**
 * What was found out about equal values once is not found out again. For values that come again and again with every
 * request, and are costly to look through: parameters of a sample, of an optimizer.
 */

/** More are not worth remembering: whoever has so many has a new one each time. */
const most = 256

const plainName = /^\w+$/

const isPlain = (value: object): boolean => {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null || Array.isArray(value)
}

/** A text that two values share only if they are equal, or nothing: for what is deep, long, or not plain data. */
export const keyOf = (value: unknown, depth = 3): string | undefined => {
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
      let text = Array.isArray(value) ? "[" : "{"
      const keys = Object.keys(value)
      if (keys.length > 32) return undefined
      for (const name of keys) {
        const member = keyOf((value as Record<string, unknown>)[name], depth - 1)
        if (member === undefined) return undefined
        // What ends a name ends it in no other place: other names are quoted.
        text += plainName.test(name) ? `${name}:${member},` : `${JSON.stringify(name)}:${member},`
      }
      return text
    }
    default:
      return undefined
  }
}

export class Remembered<A> {
  private readonly known = new Map<string, A>()

  get(key: string): A | undefined {
    return this.known.get(key)
  }

  set(key: string, value: A): void {
    if (this.known.has(key)) return
    if (this.known.size >= most) this.known.clear()
    this.known.set(key, value)
  }
}
