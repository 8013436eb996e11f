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

describe("the error union", () => {
  test("has these tags and no others", () => {
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

  test("has closed reasons", () => {
    expect<TinkerError.Unavailable["reason"]>().type.toBe<
      "Connect" | "Disconnected" | "Timeout" | "Pending" | "ServerError" | "EmptyBadRequest"
    >()
    expect<TinkerError.Unauthorized["reason"]>().type.toBe<"Refused" | "CredentialCommand" | "CredentialFile">()
    expect(TinkerError.Unavailable).type.not.toBeConstructableWith({ operation: "x", reason: "Because" })
  })

  test("gets smaller with every tag that is handled", () => {
    const handled = transport
      .call(Api.createSession, { sdkVersion: "1" })
      .pipe(Effect.catchTags({ Unavailable: () => Effect.void, RateLimited: () => Effect.void }))
    expect<Effect.Effect.Error<typeof handled>>().type.toBe<
      Exclude<TinkerError.TinkerError, TinkerError.Unavailable | TinkerError.RateLimited>
    >()
  })
})

describe("transport", () => {
  test("needs nothing, and fails with the union only", () => {
    const call = transport.call(Api.health, {})
    expect<Effect.Effect.Context<typeof call>>().type.toBe<never>()
    expect<Effect.Effect.Error<typeof call>>().type.toBe<TinkerError.TinkerError>()
  })

  test("takes what the endpoint takes", () => {
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

  test("is a layer over configuration and HTTP client alone", () => {
    expect(Transport.layer).type.toBe<
      Layer.Layer<
        Transport.Transport | Credentials.Credentials | ServerConfig.ServerConfig,
        TinkerError.InvalidConfig | TinkerError.Unauthorized,
        TinkerConfig.TinkerConfig | HttpClient
      >
    >()
  })
})

describe("futures", () => {
  test("fail with what sending can end with, and with what waiting can", () => {
    expect<Exclude<TinkerError.FutureError, TinkerError.TinkerError>["_tag"]>().type.toBe<
      "RequestFailed" | "PromiseExpired" | "Stalled" | "DeadlineExceeded" | "SessionLost"
    >()
    expect<ApiFuture.ApiFuture<number>["await"]>().type.toBe<Effect.Effect<number, TinkerError.FutureError>>()
  })

  test("are gathered in the shape they are given in", () => {
    const gathered = ApiFuture.all({ pass: number, update: text })
    expect(gathered).type.toBe<ApiFuture.ApiFuture<{ pass: number; update: string }>>()
    expect(ApiFuture.all([number, text])).type.toBe<ApiFuture.ApiFuture<[number, string]>>()
  })
})
