/** Compares the configuration of a run with the one that it was started with. */

export type Json = null | boolean | number | string | ReadonlyArray<Json> | { readonly [key: string]: Json }

export interface Difference {
  readonly setting: string
  readonly before: string
  readonly now: string
}

const print = (value: Json | undefined): string => (value === undefined ? "(not set)" : JSON.stringify(value))

const isObject = (value: Json | undefined): value is { readonly [key: string]: Json } =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** Returns the settings that differ. The order of keys does not matter. */
export const differences = (before: Json | undefined, now: Json | undefined, path = ""): ReadonlyArray<Difference> => {
  if (isObject(before) && isObject(now)) {
    const keys = [...new Set([...Object.keys(before), ...Object.keys(now)])].toSorted()
    return keys.flatMap((key) => differences(before[key], now[key], path === "" ? key : `${path}.${key}`))
  }
  if (Array.isArray(before) && Array.isArray(now) && before.length === now.length) {
    return before.flatMap((value, index) => differences(value, now[index], `${path}[${index}]`))
  }
  return print(before) === print(now)
    ? []
    : [{ setting: path === "" ? "(all)" : path, before: print(before), now: print(now) }]
}
