import type { Effect, Layer, Ref, Scope, Stream } from "effect"
import type { ClientConfig, DynamicConfig } from "effect-tinker/protocol/schemas/Session"
import type { ServerConfig } from "effect-tinker/protocol/ServerConfig"
import * as Session from "effect-tinker/Session"
import type * as Telemetry from "effect-tinker/Telemetry"
import type { TinkerConfig } from "effect-tinker/TinkerConfig"
import type { ClientClosed, SessionLost, TinkerError } from "effect-tinker/TinkerError"
import type { Transport } from "effect-tinker/Transport"
import { describe, expect, it } from "tstyche"

declare const session: Session.Service

type Environment = Transport | ServerConfig | TinkerConfig

describe("Session", () => {
  it("Session.make requires a scope", () => {
    expect(Session.make()).type.toBe<Effect.Effect<Session.Service, TinkerError, Environment | Scope.Scope>>()
    expect(Session.layer()).type.toBe<Layer.Layer<Session.Session, TinkerError, Environment>>()
    expect(Session.make).type.toBeCallableWith({ displayName: "a", userMetadata: { a: [1] }, sessionTimeout: "1 hour" })
    expect(Session.make).type.not.toBeCallableWith({ display_name: "a" })
  })

  it("Session.resume can also fail with SessionLost", () => {
    const earlier = { sessionId: "s", lives: 0, learnt: Session.nothingLearnt }
    expect(Session.resume(earlier)).type.toBe<
      Effect.Effect<Session.Service, TinkerError | SessionLost, Environment | Scope.Scope>
    >()
    expect(Session.resume).type.not.toBeCallableWith(earlier, { displayName: "a" })
  })

  it("Session exposes its state, and only lost can fail", () => {
    expect(session.id).type.toBe<string>()
    expect(session.flags).type.toBe<ClientConfig>()
    expect(session.dynamic).type.toBe<Effect.Effect<DynamicConfig>>()
    expect(session.heartbeats).type.toBe<Stream.Stream<Session.Heartbeat>>()
    expect(session.lost).type.toBe<Effect.Effect<never, SessionLost | ClientClosed>>()
    expect(session.nextModel).type.toBe<Effect.Effect<number>>()
    expect(session.nextSampler).type.toBe<Effect.Effect<number>>()
    expect(session.nextCustomLoss).type.toBe<Effect.Effect<number>>()
    expect(session.keepForResume).type.toBe<Effect.Effect<void>>()
    expect(session.learnt).type.toBe<Ref.Ref<Session.Learnt>>()
    expect(session.telemetry).type.toBe<Telemetry.Service>()
  })
})
