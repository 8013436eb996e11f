import { describe, expect, it } from "@effect/vitest"
import { StructuralCache } from "../src/internal/util/StructuralCache.js"

describe("StructuralCache", () => {
  it("StructuralCache finds an entry for an equal value, whatever the order of its fields", () => {
    const cache = new StructuralCache<string>()
    cache.keep({ a: 1, b: { c: [1, 2] } }, "first")
    expect(cache.find({ a: 1, b: { c: [1, 2] } })).toBe("first")
    expect(cache.find({ b: { c: [1, 2] }, a: 1 })).toBe("first")
    for (const other of [{ a: 1 }, { a: 1, b: { c: [1, 3] } }, { a: 1, b: { c: [1, 2] }, d: undefined }, { a: "1" }]) {
      expect(cache.find(other)).toBeUndefined()
    }
  })

  it("mutating a value after it was stored does not change its entry", () => {
    const cache = new StructuralCache<string>()
    const value = { stop: ["a"] }
    cache.keep(value, "a")
    value.stop.push("b")
    expect(cache.find(value)).toBeUndefined()
    expect(cache.find({ stop: ["a"] })).toBe("a")
  })

  it("StructuralCache finds several entries in any order", () => {
    const cache = new StructuralCache<number>()
    for (const n of [1, 2, 3]) cache.keep({ n }, n)
    for (const n of [3, 1, 2, 2, 3]) expect(cache.find({ n })).toBe(n)
  })

  it("ignored fields are ignored at the top level only", () => {
    const cache = new StructuralCache<true>({ prompt: true })
    cache.keep({ prompt: 1, inner: { prompt: 2 } }, true)
    expect(cache.find({ prompt: "another", inner: { prompt: 2 } })).toBe(true)
    expect(cache.find({ inner: { prompt: 2 } })).toBe(true)
    expect(cache.find({ prompt: 1, inner: { prompt: 3 } })).toBeUndefined()
    // A name that exists on Object.prototype is treated like any other.
    expect(cache.find({ inner: { prompt: 2 }, toString: 1 })).toBeUndefined()
  })

  it("StructuralCache distinguishes values that only look alike", () => {
    const cache = new StructuralCache<string>()
    cache.keep({ a: 0 }, "zero")
    expect(cache.find({ a: -0 })).toBeUndefined()
    class Look {
      a = 0
    }
    expect(cache.find(new Look())).toBeUndefined()
    cache.keep({ a: [0] }, "array")
    expect(cache.find({ a: { 0: 0 } })).toBeUndefined()
    cache.keep({ a: Number.NaN }, "nan")
    expect(cache.find({ a: Number.NaN })).toBe("nan")
  })

  it("StructuralCache stores nothing for values that are not plain data", () => {
    const cache = new StructuralCache<string>()
    const odd = { a: new Map() }
    cache.keep(odd, "odd")
    expect(cache.find(odd)).toBeUndefined()
  })
})
