import type { Effect, Layer, Scope } from "effect"
import type { ServerCapabilities } from "effect-tinker/protocol/schemas/Session"
import type { Credentials } from "effect-tinker/Credentials"
import type { RateLimiter } from "effect-tinker/RateLimiter"
import type * as RestClient from "effect-tinker/RestClient"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import type { ServerConfig } from "effect-tinker/protocol/ServerConfig"
import * as ServiceClient from "effect-tinker/ServiceClient"
import type * as Session from "effect-tinker/Session"
import type { TinkerConfig } from "effect-tinker/TinkerConfig"
import type { TinkerError, TrainingError } from "effect-tinker/TinkerError"
import type * as TrainingClient from "effect-tinker/TrainingClient"
import type { Journal } from "effect-tinker/TrainingJournal"
import type { Transport } from "effect-tinker/Transport"
import { describe, expect, it } from "tstyche"

declare const service: ServiceClient.Service
declare const journal: Journal

type Environment = Transport | Credentials | ServerConfig | RateLimiter | TinkerConfig

describe("ServiceClient", () => {
  it("creating a ServiceClient can't fail, because it opens nothing", () => {
    expect(ServiceClient.make()).type.toBe<Effect.Effect<ServiceClient.Service, never, Environment | Scope.Scope>>()
    expect(ServiceClient.layer({ displayName: "mine" })).type.toBe<
      Layer.Layer<ServiceClient.ServiceClient, never, Environment>
    >()
    expect(ServiceClient.layer).type.not.toBeCallableWith({ name: "mine" })
  })

  it("ServiceClient queries require no scope", () => {
    expect(service.getServerCapabilities).type.toBe<Effect.Effect<typeof ServerCapabilities.Type, TinkerError>>()
    expect(service.session).type.toBe<Effect.Effect<Session.Service, TinkerError>>()
    expect(service.rest).type.toBe<RestClient.Service>()
  })

  it("ServiceClient creates clients in the caller's scope, with no other requirements", () => {
    expect(service.createLoraTrainingClient({ baseModel: "m" })).type.toBe<
      Effect.Effect<TrainingClient.Service, TrainingError, Scope.Scope>
    >()
    expect(service.createTrainingClientFromCheckpoint("tinker://a")).type.toBe<
      Effect.Effect<TrainingClient.Service, TrainingError, Scope.Scope>
    >()
    expect(service.resumeTrainingClient({ journal })).type.toBe<
      Effect.Effect<TrainingClient.Resumed, TrainingError, Scope.Scope>
    >()
    expect(service.createSamplingClient({ baseModel: "m" })).type.toBe<
      Effect.Effect<SamplingClient.Service, TinkerError, Scope.Scope>
    >()
  })

  it("ServiceClient rejects missing and unknown client options", () => {
    expect(service.createLoraTrainingClient).type.not.toBeCallableWith({})
    expect(service.createLoraTrainingClient).type.not.toBeCallableWith({ baseModel: "m", base_model: "m" })
    expect(service.createTrainingClientFromCheckpoint).type.not.toBeCallableWith({ path: "tinker://a" })
    expect(service.resumeTrainingClient).type.not.toBeCallableWith({})
    expect(service.createSamplingClient).type.not.toBeCallableWith({})
  })
})
