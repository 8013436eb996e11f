/**
 * Combines the results of the requests that a batch was split into. The suffix of a metric's name, after the colon,
 * determines how it is combined. Servers invent names, and an unknown one must not lose the result.
 */
import type { TrainingResult } from "../../TrainingResult.ts"

/** Those of the chunks in their order. A single one is the result, whatever its metrics are called. */
export const combine = (results: ReadonlyArray<TrainingResult>): TrainingResult => {
  const [first, ...more] = results
  if (first === undefined) return { outputType: "", outputs: [], metrics: {} }
  return more.length === 0
    ? first
    : {
        outputType: first.outputType,
        outputs: results.flatMap(({ outputs }) => outputs),
        metrics: combineMetrics(results),
      }
}

const combineMetrics = (results: ReadonlyArray<TrainingResult>): TrainingResult["metrics"] => {
  const combined = new Map<string, number>()
  const counts = results.map(({ outputs }) => outputs.length)
  for (const name of new Set(results.flatMap(({ metrics }) => Object.keys(metrics)))) {
    const values = results.flatMap(({ metrics }) => (Object.hasOwn(metrics, name) ? (metrics[name] ?? []) : []))
    const [first = Number.NaN, ...more] = values
    const kind = /^[^:]*:([^:]*)$/.exec(name)?.[1] ?? ""
    const reduce = reductions.get(kind)
    if (reduce === undefined) {
      // Nobody knows how to combine it. Of several values the first is shown, which is better than none.
      combined.set(name, first)
      continue
    }
    // A metric that only some chunks have would look like one of the whole batch.
    if (values.length < results.length) continue
    combined.set(name, reduce(values, counts) ?? first)
    if (kind === "unique") for (const [index, value] of more.entries()) combined.set(`${name}_${index + 1}`, value)
  }
  return Object.fromEntries(combined)
}

/** Nothing where the values can't be combined: a mean over no outputs, the hash of what is no integer. */
type Reduce = (values: ReadonlyArray<number>, counts: ReadonlyArray<number>) => number | undefined

const mean: Reduce = (values, counts) => {
  const total = sum(counts)
  return total === 0 ? undefined : sum(values.map((value, index) => value * (counts[index] ?? 0))) / total
}

const slack: Reduce = (values, counts) => {
  const average = mean(values, counts)
  return average === undefined ? undefined : Math.max(...values) - average
}

const sum = (values: ReadonlyArray<number>): number => values.reduce((all, value) => all + value, 0)

const integers = (values: ReadonlyArray<number>): ReadonlyArray<bigint> | undefined =>
  values.every(Number.isFinite) ? values.map((value) => BigInt(Math.trunc(value))) : undefined

const wrap = (value: bigint): bigint => BigInt.asUintN(64, value)

const hash2: Reduce = (values) => {
  const hashes = integers(values)
  return hashes === undefined ? undefined : Number(wrap(hashes.reduce((all, hash) => all + hash, 0n)))
}

/** Python's hash of an integer: the remainder by the prime 2^61 - 1, and never -1, which means failure there. */
const hashInteger = (value: bigint): bigint => {
  const remainder = value % (2n ** 61n - 1n)
  return remainder === -1n ? -2n : remainder
}

/**
 * Python's hash of the tuple of the values as integers, sorted. Of its 64 bits a number keeps the upper 53. Servers of
 * protocol 0.25 give metrics that are combined so; `hash2` came in its place.
 */
export const hashUnordered = (values: ReadonlyArray<number>): number | undefined => {
  const hashes = integers(values.toSorted((a, b) => a - b))
  if (hashes === undefined) return undefined
  const start = 2870177450012600261n
  let hash = start
  for (const value of hashes) {
    hash = wrap(hash + hashInteger(value) * 14029467366897019727n)
    hash = wrap((hash << 31n) | (hash >> 33n)) * 11400714785074694791n
  }
  hash = BigInt.asIntN(64, hash + (BigInt(hashes.length) ^ start ^ 3527539n))
  return hash === -1n ? 1546275796 : Number(hash)
}

const reductions: ReadonlyMap<string, Reduce> = new Map<string, Reduce>([
  ["mean", mean],
  ["slack", slack],
  ["sum", sum],
  ["min", (values) => Math.min(...values)],
  ["max", (values) => Math.max(...values)],
  ["hash2", hash2],
  ["hash_unordered", hashUnordered],
  // Can't be combined: each chunk's value is kept under a name of its own.
  ["unique", ([first]) => first],
])
