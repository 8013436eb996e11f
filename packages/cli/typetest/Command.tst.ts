import { Main } from "@effect-tinker/cli"
import { describe, expect, it } from "tstyche"

describe("tinkerfx", () => {
  it("Main.run takes arguments and promises an exit code", () => {
    expect(Main.run(["serve"])).type.toBe<Promise<number>>()
    expect(Main.run).type.toBeCallableWith(["run", "list"], { signal: new AbortController().signal })
    expect(Main.run).type.not.toBeCallableWith("serve")
  })
})
