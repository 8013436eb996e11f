import { describe, expect, it } from "@effect/vitest"
import { ExactJson } from "@effect-tinker/tokenizer"
import { Either, FastCheck } from "effect"

const parse = (text: string) => Either.getOrThrow(ExactJson.parse(text))
const plain = (value: ExactJson.ExactJson): unknown => {
  if (value instanceof ExactJson.Float) return value.value
  if (value instanceof Map) return Object.fromEntries(Array.from(value, ([key, item]) => [key, plain(item)]))
  return Array.isArray(value) ? value.map(plain) : typeof value === "bigint" ? Number(value) : value
}

describe("ExactJson", () => {
  it("ExactJson.parse keeps floats, large integers and the order of keys", () => {
    expect(parse("1")).toBe(1)
    expect(parse("-0")).toBe(0)
    expect(parse(" 1.0 ")).toEqual(new ExactJson.Float(1))
    expect(parse("1e2")).toEqual(new ExactJson.Float(100))
    expect(parse("9007199254740993")).toBe(9007199254740993n)
    expect(parse('{"b": 1, "10": 2, "9": 3, "b": 4}')).toEqual(
      new Map([
        ["b", 4],
        ["10", 2],
        ["9", 3],
      ]),
    )
    expect([...(parse('{"b": 1, "10": 2, "9": 3}') as Map<string, unknown>).keys()]).toEqual(["b", "10", "9"])
    expect(parse("[NaN, -Infinity]")).toEqual([new ExactJson.Float(Number.NaN), new ExactJson.Float(-Infinity)])
  })

  it.each([
    ["", 0],
    ["[1,]", 3],
    ["[1 2]", 3],
    ['{"a" 1}', 5],
    ["{a: 1}", 1],
    ["1 2", 2],
    ["01", 1],
    ['"a\nb"', 0],
    ["truex", 4],
    [`${"[".repeat(1000)}`, 501],
  ])("ExactJson.parse reports the position of the error in %s", (text, index) => {
    expect(Either.getLeft(ExactJson.parse(text))).toMatchObject({ value: { _tag: "ExactJsonError", index } })
  })

  it.prop("ExactJson.parse agrees with JSON.parse on plain JSON", [FastCheck.json()], ([text]) => {
    expect(plain(parse(text))).toEqual(plain(JSON.parse(text)))
  })
})
