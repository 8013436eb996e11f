import { describe, expect, it } from "@effect/vitest"
import { Either, Option } from "effect"
import { passKind } from "../src/internal/training/PassKind.js"

const json = (outputs: number, metrics: object = {}) => ({
  loss_fn_output_type: "T",
  loss_fn_outputs: Array.from({ length: outputs }, () => ({})),
  metrics,
})

describe("passKind", () => {
  const { fromJson, fromProtobuf } = passKind(false, 2)
  const accepts = (body: unknown) => Either.isRight(fromJson(body))

  it("passKind accepts a result with an output for each datum, or with metrics and no outputs", () => {
    expect(accepts(json(2))).toBe(true)
    expect(accepts(json(0, { "loss:sum": 1 }))).toBe(true)
  })

  it("passKind rejects a foreign object and a result of another batch or of a part", () => {
    expect(accepts({ unexpected: [true] })).toBe(false)
    expect(accepts({})).toBe(false)
    expect(accepts(json(1, { "loss:sum": 1 }))).toBe(false)
    expect(accepts(json(3))).toBe(false)
  })

  it("passKind rejects an empty protobuf message", () => {
    const read = Option.getOrThrow(fromProtobuf)
    expect(Either.isLeft(read(new Uint8Array()))).toBe(true)
  })
})
