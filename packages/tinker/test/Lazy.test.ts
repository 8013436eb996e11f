import { describe, expect, it } from "@effect/vitest"
import { Schema } from "effect"
import { vi } from "vitest"
import { lazy } from "../src/internal/util/Lazy.js"

const counted = vi.hoisted(() => ({ made: 0, built: 0 }))

vi.mock(import("../src/internal/util/Lazy.js"), async (original) => {
  const { lazy } = await original()
  return {
    lazy: (build) => {
      counted.made++
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

  it("a lazy schema reflects and accepts properties like the schema it wraps", () => {
    const real = Schema.Struct(Fields)
    const schema = lazy(() => real)
    expect(Object.keys(schema)).toEqual(Object.keys(real))
    expect({ ...schema }).toEqual({ ...real })
    expect(Reflect.ownKeys(schema).toSorted()).toEqual(Reflect.ownKeys(real).toSorted())
    expect(Object.hasOwn(schema, "ast")).toBe(Object.hasOwn(real, "ast"))
    expect(Object.getPrototypeOf(schema)).toBe(Object.getPrototypeOf(real))
    expect(Object.assign(schema, { zz: 1 }).zz).toBe(1)
    expect(Reflect.get(Object.defineProperty(schema, "yy", { value: 3 }), "yy")).toBe(3)
    expect(Object.getOwnPropertyDescriptor(schema, "yy")).toMatchObject({ value: 3, configurable: false })
    expect(() => (schema as unknown as () => void)()).toThrow(TypeError)
    const signature = lazy(() => Fields.size)
    expect(Object.keys(signature)).toEqual(Object.keys(Fields.size))
  })

  it("a lazy schema can be a property signature", () => {
    const schema = Schema.Struct({ name: lazy(() => Fields.size) })
    expect(Schema.decodeSync(schema)({})).toEqual({ name: 1 })
  })

  it("loading the SDK builds only a small part of its lazy schemas", async () => {
    Object.assign(counted, { made: 0, built: 0 })
    await import("../src/index.js")
    expect(counted.made).toBeGreaterThan(100)
    expect(counted.built).toBeLessThan(counted.made / 5)
  })
})
