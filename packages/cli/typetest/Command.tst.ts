import type { Arguments } from "@effect-tinker/cli"
import { Main, Serve } from "@effect-tinker/cli"
import type { FileError } from "@effect-tinker/server/CheckpointFiles"
import type { HostError } from "@effect-tinker/server/ModelHost"
import type { ListenError } from "@effect-tinker/server/NodeTinkerServer"
import type { StoreError } from "@effect-tinker/server/Store"
import type { Effect } from "effect"
import { describe, expect, it } from "tstyche"

describe("tinkerfx", () => {
  it("Main.run returns an exit code and never fails", () => {
    expect(Main.run(["serve"])).type.toBe<Effect.Effect<number>>()
    expect(Main.run).type.not.toBeCallableWith("serve")
  })

  it("Serve.run lists all its errors", () => {
    expect(Serve.run([])).type.toBe<
      Effect.Effect<void, Arguments.UsageError | ListenError | StoreError | FileError | HostError>
    >()
  })
})
