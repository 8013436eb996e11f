import { describe, expect, it } from "@effect/vitest"
import { Schema } from "effect"
import { vi } from "vitest"
import { lazy } from "../src/internal/util/Lazy.js"

const counted = vi.hoisted(() => ({ made: 0, built: 0, builds: [] as Array<() => Schema.Schema.Any> }))

vi.mock(import("../src/internal/util/Lazy.js"), async (original) => {
  const { lazy } = await original()
  return {
    lazy: (build) => {
      counted.made++
      counted.builds.push(build)
      return lazy(() => {
        counted.built++
        return build()
      })
    },
  }
})

describe("lazy schemas", () => {
  const Fields = { name: Schema.String, size: Schema.optionalWith(Schema.Number, { default: () => 1 }) }

  it("a lazy schema is built once, on first use", () => {
    const build = vi.fn(() => Schema.Struct(Fields))
    const schema = lazy(build)
    expect(build).not.toHaveBeenCalled()
    expect(Schema.decodeSync(schema)({ name: "a" })).toEqual({ name: "a", size: 1 })
    expect(schema.ast).toBe(schema.ast)
    expect(build).toHaveBeenCalledTimes(1)
  })

  it("a lazy schema works wherever a schema is expected", () => {
    const schema = lazy(() => Schema.Struct(Fields))
    expect(Schema.isSchema(schema)).toBe(true)
    expect(schema.fields).toEqual(Fields)
    expect(String(schema)).toBe(String(Schema.Struct(Fields)))
    expect(schema.make({ name: "a", size: 2 })).toEqual({ name: "a", size: 2 })
    expect(Schema.decodeSync(schema.pick("name"))({ name: "a" })).toEqual({ name: "a" })
    expect(Schema.decodeSync(schema.annotations({ identifier: "Named" }))({ name: "a" })).toEqual({
      name: "a",
      size: 1,
    })
    const short = schema.pipe(Schema.filter(({ name }) => name.length < 3))
    expect(Schema.is(short)({ name: "abc", size: 1 })).toBe(false)
    const list = Schema.Struct({ all: Schema.Array(schema), one: Schema.Union(Schema.Null, schema) })
    expect(Schema.decodeSync(list)({ all: [{ name: "a" }], one: { name: "b" } })).toEqual({
      all: [{ name: "a", size: 1 }],
      one: { name: "b", size: 1 },
    })
    class Opaque extends schema {}
    expect(Schema.decodeSync(Opaque)({ name: "a" })).toEqual({ name: "a", size: 1 })
  })

  it("every schema of the SDK has only properties that a lazy schema has, too", async () => {
    await import("../src/index.js")
    expect(counted.builds.length).toBeGreaterThan(100)
    const missing = new Set<string>()
    for (const build of [...counted.builds]) {
      const real = build()
      const schema = lazy(() => real)
      for (const key of Reflect.ownKeys(real)) {
        if (Reflect.get(real, key) !== undefined && Reflect.get(schema, key) === undefined) missing.add(String(key))
      }
    }
    expect([...missing]).toEqual([])
  })

  it("loading the SDK builds only a small part of its lazy schemas", async () => {
    vi.resetModules()
    Object.assign(counted, { made: 0, built: 0 })
    await import("../src/index.js")
    expect(counted.made).toBeGreaterThan(100)
    expect(counted.built).toBeLessThan(counted.made / 5)
  })
})
