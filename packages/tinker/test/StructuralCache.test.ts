import { describe, expect, it } from "@effect/vitest"
import { StructuralCache } from "../src/internal/util/StructuralCache.js"

describe("what is remembered of plain data", () => {
  it("is found again for equal values, whatever the order of their fields", () => {
    const known = new StructuralCache<string>()
    known.keep({ a: 1, b: { c: [1, 2] } }, "first")
    expect(known.find({ a: 1, b: { c: [1, 2] } })).toBe("first")
    expect(known.find({ b: { c: [1, 2] }, a: 1 })).toBe("first")
    for (const other of [{ a: 1 }, { a: 1, b: { c: [1, 3] } }, { a: 1, b: { c: [1, 2] }, d: undefined }, { a: "1" }]) {
      expect(known.find(other)).toBeUndefined()
    }
  })

  it("is that of the value as it was, not as it became", () => {
    const known = new StructuralCache<string>()
    const value = { stop: ["a"] }
    known.keep(value, "a")
    value.stop.push("b")
    expect(known.find(value)).toBeUndefined()
    expect(known.find({ stop: ["a"] })).toBe("a")
  })

  it("goes from one value to another and back", () => {
    const known = new StructuralCache<number>()
    for (const n of [1, 2, 3]) known.keep({ n }, n)
    for (const n of [3, 1, 2, 2, 3]) expect(known.find({ n })).toBe(n)
  })

  it("leaves out what does not count, at the top only", () => {
    const known = new StructuralCache<true>({ prompt: true })
    known.keep({ prompt: 1, inner: { prompt: 2 } }, true)
    expect(known.find({ prompt: "another", inner: { prompt: 2 } })).toBe(true)
    expect(known.find({ inner: { prompt: 2 } })).toBe(true)
    expect(known.find({ prompt: 1, inner: { prompt: 3 } })).toBeUndefined()
    // A name that every object has is a name like any other.
    expect(known.find({ inner: { prompt: 2 }, toString: 1 })).toBeUndefined()
  })

  it("tells apart what only looks alike", () => {
    const known = new StructuralCache<string>()
    known.keep({ a: 0 }, "zero")
    expect(known.find({ a: -0 })).toBeUndefined()
    class Look {
      a = 0
    }
    expect(known.find(new Look())).toBeUndefined()
    known.keep({ a: [0] }, "array")
    expect(known.find({ a: { 0: 0 } })).toBeUndefined()
    known.keep({ a: Number.NaN }, "nan")
    expect(known.find({ a: Number.NaN })).toBe("nan")
  })

  it("is nothing for what is not plain data", () => {
    const known = new StructuralCache<string>()
    const odd = { a: new Map() }
    known.keep(odd, "odd")
    expect(known.find(odd)).toBeUndefined()
  })
})
