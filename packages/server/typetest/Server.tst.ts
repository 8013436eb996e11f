import type { HttpClient } from "@effect/platform"
import type { NodeTinkerServer } from "@effect-tinker/server"
import {
  CheckpointFiles,
  EngineBackend,
  EngineHost,
  LocalTinker,
  ModelHost,
  type ServerOptions,
  Store,
  TinkerServer,
  WorkerHost,
} from "@effect-tinker/server"
import type { Duration, Effect, Layer, Redacted, Scope } from "effect"
import type { Answer, Request } from "effect-tinker/protocol/Exchange"
import { describe, expect, it } from "tstyche"

declare const backend: ModelHost.Backend
declare const host: ModelHost.Service
declare const request: Request
declare const sample: ModelHost.SampleRequest
declare const url: URL

type Opening = Store.StoreError | CheckpointFiles.FileError

describe("TinkerServer", () => {
  it("make needs a model host and a scope, and handle never fails", () => {
    expect(TinkerServer.make()).type.toBe<
      Effect.Effect<TinkerServer.Service, Opening, ModelHost.ModelHost | Scope.Scope>
    >()
    expect(TinkerServer.layer()).type.toBe<Layer.Layer<TinkerServer.TinkerServer, Opening, ModelHost.ModelHost>>()
    expect<TinkerServer.Service["handle"]>().type.toBe<(request: Request) => Effect.Effect<Answer>>()
    expect<TinkerServer.Service>().type.not.toBeAssignableFrom({ handle: () => "text" })
  })

  it("ServerOptions accepts only known options, and API keys only as Redacted", () => {
    expect(TinkerServer.make).type.toBeCallableWith({ hold: "10 seconds", jwt: "1 hour", snapshotEvery: 3 })
    expect(TinkerServer.make).type.not.toBeCallableWith({ apiKeys: ["tml-plain"] })
    expect(TinkerServer.make).type.not.toBeCallableWith({ dataDir: "x" })
    expect<ServerOptions.ServerOptions["apiKeys"]>().type.toBe<ReadonlyArray<Redacted.Redacted<string>> | undefined>()
    expect<ServerOptions.ServerOptions["sessionTimeout"]>().type.toBe<Duration.DurationInput | undefined>()
  })

  it("listen needs a scope and fails with ListenError", () => {
    expect<ReturnType<typeof NodeTinkerServer.listen>>().type.toBe<
      Effect.Effect<NodeTinkerServer.Listening, NodeTinkerServer.ListenError, Scope.Scope>
    >()
  })
})

describe("LocalTinker", () => {
  it("LocalTinker layers provide an HttpClient, with the engine or a custom host", () => {
    type Provided = HttpClient.HttpClient | TinkerServer.TinkerServer
    expect(LocalTinker.layer()).type.toBe<Layer.Layer<Provided, Opening | ModelHost.HostError>>()
    expect(LocalTinker.layerOn()).type.toBe<Layer.Layer<Provided, Opening, ModelHost.ModelHost>>()
    expect(LocalTinker.layer).type.toBeCallableWith({ models: [{ name: "a", directory: "b" }, EngineBackend.shipped] })
    expect(LocalTinker.layerOn).type.not.toBeCallableWith({ models: [] })
  })
})

describe("ModelHost", () => {
  it("ModelHost.Service is a backend as Effects that fail with HostError", () => {
    expect(ModelHost.inline(backend)).type.toBe<ModelHost.Service>()
    expect(host.pass).type.toBe<
      (id: string, pass: ModelHost.Pass) => Effect.Effect<ModelHost.PassOutput, ModelHost.HostError>
    >()
    expect(host.sample("id", sample, () => {})).type.toBe<Effect.Effect<ModelHost.SampleOutput, ModelHost.HostError>>()
    expect(host.readAnswer("m", new Int32Array(0), true)).type.toBe<
      Effect.Effect<ModelHost.Said, ModelHost.HostError>
    >()
    expect<ModelHost.HostError["reason"]>().type.toBe<"invalid" | "internal">()
  })

  it("WorkerHost and EngineHost provide a ModelHost", () => {
    expect(WorkerHost.make({ module: url })).type.toBe<
      Effect.Effect<ModelHost.Service, ModelHost.HostError, Scope.Scope>
    >()
    expect(WorkerHost.layer({ module: url })).type.toBe<Layer.Layer<ModelHost.ModelHost, ModelHost.HostError>>()
    expect(EngineHost.layer()).type.toBe<Layer.Layer<ModelHost.ModelHost, ModelHost.HostError>>()
    expect(WorkerHost.layer).type.not.toBeCallableWith({ module: "./a.js" })
  })

  it("Method excludes sample, whose arguments cannot be sent to a thread", () => {
    expect<ModelHost.Method>().type.not.toBeAssignableFrom<"sample">()
    expect<ModelHost.Method>().type.toBeAssignableFrom<"renderChat" | "readAnswer" | "pieces">()
  })
})

describe("Store and CheckpointFiles", () => {
  it("Store fails with StoreError, CheckpointFiles with FileError and DamagedFile", () => {
    expect(Store.open(undefined)).type.toBe<Effect.Effect<Store.Service, Store.StoreError, Scope.Scope>>()
    expect(Store.layer("directory")).type.toBe<Layer.Layer<Store.Store, Store.StoreError>>()
    expect(CheckpointFiles.directory("directory")).type.toBe<
      Effect.Effect<CheckpointFiles.Service, CheckpointFiles.FileError>
    >()
    expect(CheckpointFiles.memory().read(["a", "b"], undefined)).type.toBe<
      Effect.Effect<Uint8Array, CheckpointFiles.FileError | CheckpointFiles.DamagedFile>
    >()
    expect(request.body).type.toBe<Uint8Array>()
  })
})
