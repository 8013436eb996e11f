import type { Effect, Metric, MetricKeyType, MetricState, Scope } from "effect"
import * as Telemetry from "effect-tinker/Telemetry"
import * as TinkerConfig from "effect-tinker/TinkerConfig"
import type { ClientClosed, SequenceBroken } from "effect-tinker/TinkerError"
import type { StepFailed } from "effect-tinker/TrainingClient"
import * as TinkerMetrics from "effect-tinker/TinkerMetrics"
import type { Transport } from "effect-tinker/Transport"
import { describe, expect, it } from "tstyche"

declare const broken: SequenceBroken
declare const closed: ClientClosed
declare const failed: StepFailed

describe("Telemetry", () => {
  it("Telemetry methods never fail", () => {
    expect(Telemetry.make("s")).type.toBe<
      Effect.Effect<Telemetry.Service, never, Transport | TinkerConfig.TinkerConfig | Scope.Scope>
    >()
    expect(Telemetry.off.flush).type.toBe<Effect.Effect<void>>()
    expect(Telemetry.off.end).type.toBe<Effect.Effect<void>>()
    expect(Telemetry.off.dropped).type.toBe<Effect.Effect<number>>()
  })

  it("Telemetry accepts the errors of calls", () => {
    expect(Telemetry.off.report).type.toBeCallableWith(broken)
    expect(Telemetry.off.report).type.toBeCallableWith(closed)
    expect(Telemetry.off.report).type.not.toBeCallableWith(failed)
  })

  it("Telemetry accepts JSON values", () => {
    expect(Telemetry.off.event).type.toBeCallableWith("name", { a: [1, null] }, "DEBUG")
    expect(Telemetry.off.event).type.not.toBeCallableWith("name", { a: 1n })
    expect(Telemetry.off.event).type.not.toBeCallableWith("name", {}, "LOUD")
  })
})

describe("TinkerMetrics", () => {
  it("metrics keep their type after labels are added", () => {
    expect(TinkerMetrics.labelled(TinkerMetrics.requests, { operation: "asample" })).type.toBe<
      Metric.Metric<MetricKeyType.MetricKeyType.Counter<number>, number, MetricState.MetricState.Counter<number>>
    >()
    expect(TinkerMetrics.labelled).type.not.toBeCallableWith(TinkerMetrics.requests, { tenant: "acme" })
  })
})

describe("TinkerConfig", () => {
  it("TinkerConfig enables telemetry and metrics with plain values", () => {
    expect(TinkerConfig.make).type.toBeCallableWith({
      metrics: true,
      tenant: "acme",
      traceparent: true,
      telemetry: true,
    })
    expect(TinkerConfig.make).type.not.toBeCallableWith({ metrics: "yes" })
  })
})
