import type { Effect, Layer, Scope, Stream } from "effect"
import type * as ApiFuture from "effect-tinker/ApiFuture"
import type { RateLimiter } from "effect-tinker/RateLimiter"
import type { SampleResult } from "effect-tinker/SampleResult"
import * as SamplingClient from "effect-tinker/SamplingClient"
import type { Session } from "effect-tinker/Session"
import type * as TensorData from "effect-tinker/TensorData"
import type { TinkerConfig } from "effect-tinker/TinkerConfig"
import type { FutureError, InvalidInput, TinkerError } from "effect-tinker/TinkerError"
import type { Transport } from "effect-tinker/Transport"
import { describe, expect, it } from "tstyche"

declare const client: SamplingClient.Service
declare const int64: TensorData.Int64Tensor
declare const float32: TensorData.Float32Tensor

const prompt = [1, 2, 3]

type Clone = Transport | RateLimiter | TinkerConfig
type Original = Clone | Session | ApiFuture.Futures

describe("SamplingClient", () => {
  it("SamplingClient.make requires its environment, and its methods require nothing", () => {
    expect(SamplingClient.make({ baseModel: "m" })).type.toBe<
      Effect.Effect<SamplingClient.Service, TinkerError, Original | Scope.Scope>
    >()
    expect(SamplingClient.layer({ modelPath: "tinker://m" })).type.toBe<
      Layer.Layer<SamplingClient.SamplingClient, TinkerError, Original>
    >()
    expect(client.sample({ prompt })).type.toBe<Effect.Effect<SampleResult, FutureError>>()
    expect(client.submit.sample({ prompt })).type.toBe<Effect.Effect<ApiFuture.ApiFuture<SampleResult>, FutureError>>()
    expect(client.computeLogprobs(prompt, { lastN: 1 })).type.toBe<Effect.Effect<Float32Array, FutureError>>()
    expect(client.getBaseModel).type.toBe<Effect.Effect<string, TinkerError>>()
    expect(client.queueState).type.toBe<Stream.Stream<ApiFuture.QueueState>>()
    expect(client.handle).type.toBe<Effect.Effect<string>>()
  })

  it("SamplingClient.fromHandle requires no session", () => {
    expect(SamplingClient.fromHandle("text")).type.toBe<
      Effect.Effect<SamplingClient.Service, InvalidInput, Clone | Scope.Scope>
    >()
    expect(SamplingClient.layerFromHandle("text")).type.toBe<
      Layer.Layer<SamplingClient.SamplingClient, InvalidInput, Clone>
    >()
  })

  it("SamplingClient.make takes exactly one target", () => {
    expect(SamplingClient.make).type.toBeCallableWith({ samplingSessionId: "s" })
    expect(SamplingClient.make).type.not.toBeCallableWith({})
    expect(SamplingClient.make).type.not.toBeCallableWith({ path: "tinker://m" })
  })

  it("sample accepts every kind of array, and integers as targets", () => {
    expect(client.sample).type.toBeCallableWith({ prompt: Int32Array.of(1), targetPromptLogprobs: [[1], [2]] })
    expect(client.sample).type.toBeCallableWith({ prompt: Uint16Array.of(1), targetPromptLogprobs: int64 })
    expect(client.sample).type.not.toBeCallableWith({ prompt, targetPromptLogprobs: float32 })
    expect(client.sample).type.not.toBeCallableWith({ prompt: Float32Array.of(1) })
    expect(client.sample).type.not.toBeCallableWith({ prompt: "text" })
  })

  it("sample rejects unknown fields", () => {
    expect(client.sample).type.not.toBeCallableWith({})
    expect(client.sample).type.not.toBeCallableWith({ prompt, maxTokens: 3 })
    expect(client.sample).type.not.toBeCallableWith({ prompt, params: { max_tokens: 3 } })
    expect(client.sample).type.not.toBeCallableWith({ prompt }, { timeout: 3 })
  })
})
