import { readFileSync } from "node:fs"
import { expect } from "@effect/vitest"

/** Reads what the official cookbook made of generated inputs; see scripts/goldens/recipes_goldens.py. */
export const golden = <A>(name: string): A =>
  JSON.parse(readFileSync(new URL(`../goldens/${name}.json`, import.meta.url), "utf8"))

/** Expects numbers that differ by at most 1e-6, absolute or relative: the cookbook computes in float32. */
export const expectClose = (found: ArrayLike<number>, expected: ArrayLike<number>) => {
  expect(found.length).toBe(expected.length)
  for (let at = 0; at < expected.length; at++) {
    const difference = Math.abs(Number(found[at]) - Number(expected[at]))
    expect(difference).toBeLessThanOrEqual(1e-6 * Math.max(1, Math.abs(Number(expected[at]))))
  }
}

/** Expects the same names and close numbers. */
export const expectCloseMetrics = (
  found: Readonly<Record<string, number>>,
  expected: Readonly<Record<string, number>>,
) => {
  expect(Object.keys(found).toSorted()).toEqual(Object.keys(expected).toSorted())
  const names = Object.keys(expected)
  expectClose(
    names.map((name) => found[name] ?? Number.NaN),
    names.map((name) => expected[name] ?? Number.NaN),
  )
}
