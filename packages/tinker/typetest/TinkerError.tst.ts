import { Effect, type Layer } from "effect"
import type * as Credentials from "effect-tinker/Credentials"
import * as Api from "effect-tinker/protocol/Api"
import * as ApiFuture from "effect-tinker/ApiFuture"
import type * as ServerConfig from "effect-tinker/protocol/ServerConfig"
import type * as TinkerConfig from "effect-tinker/TinkerConfig"
import * as TinkerError from "effect-tinker/TinkerError"
import * as Transport from "effect-tinker/Transport"
import type { HttpClient } from "@effect/platform/HttpClient"
import { describe, expect, test } from "tstyche"

declare const transport: Transport.Service
declare const number: ApiFuture.ApiFuture<number>
declare const text: ApiFuture.ApiFuture<string>

describe("TinkerError", () => {
  test("TinkerError has exactly these tags", () => {
    expect<TinkerError.TinkerError["_tag"]>().type.toBe<
      | "InvalidConfig"
      | "InvalidInput"
      | "ClientClosed"
      | "Unauthorized"
      | "Forbidden"
      | "NotFound"
      | "RequestRejected"
      | "RateLimited"
      | "BillingPaused"
      | "Unavailable"
      | "UnexpectedResponse"
    >()
  })

  test("TinkerError has closed sets of reasons", () => {
    expect<TinkerError.Unavailable["reason"]>().type.toBe<
      "Connect" | "Disconnected" | "Timeout" | "Pending" | "ServerError" | "EmptyBadRequest"
    >()
    expect<TinkerError.Unauthorized["reason"]>().type.toBe<"Refused" | "CredentialCommand" | "CredentialFile">()
    expect(TinkerError.Unavailable).type.not.toBeConstructableWith({ operation: "x", reason: "Because" })
  })

  test("handling a tag removes it from the error type", () => {
    const handled = transport
      .call(Api.createSession, { sdkVersion: "1" })
      .pipe(Effect.catchTags({ Unavailable: () => Effect.void, RateLimited: () => Effect.void }))
    expect<Effect.Effect.Error<typeof handled>>().type.toBe<
      Exclude<TinkerError.TinkerError, TinkerError.Unavailable | TinkerError.RateLimited>
    >()
  })
})

describe("Transport", () => {
  test("Transport.call requires nothing and fails only with TinkerError", () => {
    const call = transport.call(Api.health, {})
    expect<Effect.Effect.Context<typeof call>>().type.toBe<never>()
    expect<Effect.Effect.Error<typeof call>>().type.toBe<TinkerError.TinkerError>()
  })

  test("Transport.call takes the input of its endpoint", () => {
    expect(transport.call).type.not.toBeCallableWith(Api.getInfo, {})
    expect(transport.call).type.not.toBeCallableWith(Api.getInfo, { modelId: 1 })
    expect(transport.call).type.toBeCallableWith(Api.getInfo, { modelId: "m" })
    expect(transport.call).type.toBeCallableWith(Api.setCheckpointTtl, {
      trainingRunId: "r",
      checkpointId: "weights/1",
      ttlSeconds: null,
    })
    expect(transport.call).type.not.toBeCallableWith(Api.setCheckpointTtl, {
      trainingRunId: "r",
      checkpointId: "weights/1",
    })
  })

  test("Transport.layer requires only the configuration and an HTTP client", () => {
    expect(Transport.layer).type.toBe<
      Layer.Layer<
        Transport.Transport | Credentials.Credentials | ServerConfig.ServerConfig,
        TinkerError.InvalidConfig | TinkerError.Unauthorized,
        TinkerConfig.TinkerConfig | HttpClient
      >
    >()
  })
})

describe("ApiFuture", () => {
  test("FutureError adds the errors of waiting to TinkerError", () => {
    expect<Exclude<TinkerError.FutureError, TinkerError.TinkerError>["_tag"]>().type.toBe<
      "RequestFailed" | "PromiseExpired" | "Stalled" | "DeadlineExceeded" | "SessionLost"
    >()
    expect<ApiFuture.ApiFuture<number>["await"]>().type.toBe<Effect.Effect<number, TinkerError.FutureError>>()
  })

  test("ApiFuture.all keeps the shape of its argument", () => {
    const gathered = ApiFuture.all({ pass: number, update: text })
    expect(gathered).type.toBe<ApiFuture.ApiFuture<{ pass: number; update: string }>>()
    expect(ApiFuture.all([number, text])).type.toBe<ApiFuture.ApiFuture<[number, string]>>()
  })
})
