import type { HttpClient } from "@effect/platform"
import type { Layer } from "effect"
import { Context, Effect, type Scope } from "effect"
import type { RateLimiter } from "effect-tinker/RateLimiter"
import { ServiceClient } from "effect-tinker/ServiceClient"
import * as Tinker from "effect-tinker/Tinker"
import type { TinkerConfig, Values } from "effect-tinker/TinkerConfig"
import type { ClientClosed, InvalidConfig, TinkerError, Unauthorized } from "effect-tinker/TinkerError"
import * as TinkerTenants from "effect-tinker/TinkerTenants"
import type { Transport } from "effect-tinker/Transport"
import { describe, expect, it } from "tstyche"

class Database extends Context.Tag("Database")<Database, { readonly key: Effect.Effect<Values, "down"> }>() {}
class Other extends Context.Tag("Other")<Other, number>() {}

declare const http: Layer.Layer<HttpClient.HttpClient>
declare const configured: Layer.Layer<HttpClient.HttpClient, "no pool", TinkerConfig | Other>

type Own = InvalidConfig | Unauthorized | ClientClosed

describe("TinkerTenants", () => {
  it("TinkerTenants.make keeps the errors and requirements of its lookup", () => {
    expect(TinkerTenants.make({ lookup: () => Effect.succeed({}), http })).type.toBe<
      Effect.Effect<TinkerTenants.Service, never, RateLimiter | Scope.Scope>
    >()
    expect(
      TinkerTenants.make({ lookup: () => Effect.flatMap(Database, ({ key }) => key), http: configured }),
    ).type.toBe<
      Effect.Effect<
        TinkerTenants.Service<"down" | "no pool" | Own>,
        never,
        RateLimiter | Scope.Scope | Database | Other
      >
    >()
  })

  it("TinkerTenants.layer accepts only lookups that fail with errors of the SDK", () => {
    expect(TinkerTenants.layer({ lookup: () => Effect.succeed({}), http })).type.toBe<
      Layer.Layer<TinkerTenants.TinkerTenants, never, RateLimiter>
    >()
    expect(TinkerTenants.layer).type.not.toBeCallableWith({ lookup: () => Effect.fail("down"), http })
    expect(TinkerTenants.layer).type.not.toBeCallableWith({ lookup: () => Effect.succeed({}) })
    expect(TinkerTenants.layer).type.not.toBeCallableWith({ lookup: () => Effect.succeed({ key: "k" }), http })
  })

  it("TinkerTenants.provide provides everything a tenant has and leaves other requirements", () => {
    const program = Effect.gen(function* () {
      yield* Other
      return yield* (yield* ServiceClient).createSamplingClient({ baseModel: "m" })
    })
    expect(TinkerTenants.provide("a")(Effect.asVoid(program))).type.toBe<
      Effect.Effect<void, TinkerError, Other | Scope.Scope | TinkerTenants.TinkerTenants>
    >()
    expect(TinkerTenants.provide("a")(Effect.context<Tinker.Tinker>())).type.toBe<
      Effect.Effect<Context.Context<Tinker.Tinker>, Own, TinkerTenants.TinkerTenants>
    >()
    expect(TinkerTenants.provide("a")(Effect.context<HttpClient.HttpClient>())).type.toBe<
      Effect.Effect<Context.Context<HttpClient.HttpClient>, Own, HttpClient.HttpClient | TinkerTenants.TinkerTenants>
    >()
    expect(TinkerTenants.invalidate("a")).type.toBe<Effect.Effect<void, never, TinkerTenants.TinkerTenants>>()
  })
})

describe("Tinker", () => {
  it("Tinker.layer provides the whole SDK", () => {
    expect(Tinker.layer()).type.toBe<
      Layer.Layer<Tinker.Tinker, InvalidConfig | Unauthorized, TinkerConfig | RateLimiter | HttpClient.HttpClient>
    >()
    expect<Tinker.Tinker>().type.toBeAssignableFrom<ServiceClient | Transport | TinkerConfig>()
  })
})
