import { describe, expect, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Logger, Metric, Redacted, type Scope } from "effect"
import { Loss, RateLimiter, TinkerConfig, TinkerMetrics, TinkerTenants } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import * as Transport from "effect-tinker/Transport"
import type * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import type { HttpClient } from "@effect/platform"
import * as Clients from "./support/Clients.ts"
import * as HttpScript from "./support/HttpScript.ts"

/** The metric registry is global to the process, so each test uses its own tenant. */
const counted = <A, E>(
  tenant: string,
  program: Effect.Effect<A, E, Clients.Env | Scope.Scope>,
  options: ScriptedServer.Options = {},
  values: TinkerConfig.Values = {},
) =>
  program.pipe(
    Effect.scoped,
    Effect.provide(
      Layer.merge(Clients.layer(options, { metrics: true, tenant, ...values }), Logger.remove(Logger.defaultLogger)),
    ),
    VirtualTime.run,
  )

const count = (metric: Metric.Metric.Counter<number>, tenant: string, operation: string) =>
  Effect.map(Metric.value(TinkerMetrics.labelled(metric, { tenant, operation })), ({ count }) => count)

const level = (tenant: string, operation: string) =>
  Effect.map(Metric.value(TinkerMetrics.labelled(TinkerMetrics.inFlight, { tenant, operation })), ({ value }) => value)

const times = (tenant: string, operation: string) =>
  Metric.value(TinkerMetrics.labelled(TinkerMetrics.queueTime, { tenant, operation }))

const labels = Effect.map(Metric.snapshot, (pairs) =>
  pairs
    .filter(({ metricKey }) => metricKey.name.startsWith("tinker."))
    .map(({ metricKey }) => metricKey.tags.map(({ key, value }) => `${key}=${value}`).join(" ")),
)

describe("TinkerMetrics", () => {
  it("TinkerMetrics.names lists every metric", () => {
    const { names } = TinkerMetrics
    expect(new Set(Object.values(names)).size).toBe(10)
    expect(names.requests).toBe("tinker.requests")
    expect(names.tokensSampled).toBe("tinker.tokens_sampled")
  })

  it.effect("metrics count requests, retries, waits, bytes and tokens by tenant and operation", () =>
    Effect.gen(function* () {
      const tenant = "counted"
      yield* counted(
        tenant,
        Effect.gen(function* () {
          const client = yield* Clients.lora()
          yield* client.trainStep([Clients.datum(1, 2, 3), Clients.datum(1, 2)], Loss.crossEntropy, Clients.adam)
          yield* client.forward([Clients.datum(1, 2)], Loss.crossEntropy)
          const sampler = yield* client.saveWeightsAndGetSamplingClient()
          yield* sampler.sample({ prompt: [1, 2], params: { maxTokens: 5 }, numSamples: 2 })
        }),
        {
          faults: [
            { on: "optim_step", times: 1, status: 429, headers: { "retry-after": "7" } },
            { on: "asample", times: 1, status: 429, headers: { "retry-after": "3" } },
          ],
          sample: () => ({ tokens: [1, 2, 3], logprobs: [0, 0, 0], stopReason: "stop" }),
        },
      )
      const of = (metric: Metric.Metric.Counter<number>, operation: string) => count(metric, tenant, operation)
      expect(yield* of(TinkerMetrics.requests, "forward_backward")).toBe(2)
      expect(yield* of(TinkerMetrics.requests, "optim_step")).toBe(2)
      expect(yield* of(TinkerMetrics.retries, "optim_step")).toBe(1)
      expect(yield* of(TinkerMetrics.failures, "optim_step")).toBe(1)
      expect(yield* of(TinkerMetrics.rateLimitWaits, "optim_step")).toBe(1)
      expect(yield* of(TinkerMetrics.rateLimitWaits, "asample")).toBe(1)
      expect(yield* of(TinkerMetrics.retries, "forward_backward")).toBe(0)
      expect(yield* of(TinkerMetrics.bytesSent, "forward_backward")).toBeGreaterThan(40)
      expect(yield* of(TinkerMetrics.bytesReceived, "retrieve_future")).toBeGreaterThan(40)
      // Counts only the pass with gradients.
      expect(yield* of(TinkerMetrics.tokensTrained, "forward_backward")).toBe(3)
      expect(yield* of(TinkerMetrics.tokensSampled, "asample")).toBe(6)
      const { buckets, count: waits, sum } = yield* times(tenant, "optim_step")
      expect([waits, sum]).toEqual([1, 7])
      expect(buckets.filter(([, total]) => total > 0)[0]?.[0]).toBe(10)
      expect((yield* times(tenant, "asample")).sum).toBe(3)
    }),
  )

  it.effect("metrics track operations in flight, however they end", () =>
    Effect.gen(function* () {
      const tenant = "under way"
      yield* counted(
        tenant,
        Effect.gen(function* () {
          const { call } = yield* Transport.Transport
          const ask = call(Api.health, {}, { timeout: "10 seconds" })
          const fibers = yield* Effect.all([
            Effect.fork(ask),
            Effect.fork(Effect.exit(ask)),
            Effect.fork(Effect.exit(ask)),
          ])
          yield* Effect.sleep("1 second")
          expect(yield* level(tenant, "healthz")).toBe(3)
          yield* Fiber.interrupt(fibers[0])
          expect(yield* level(tenant, "healthz")).toBe(2)
          yield* Effect.sleep("1 minute")
          expect(yield* level(tenant, "healthz")).toBe(0)
        }),
        {
          faults: [
            { on: "healthz", times: 2, hang: true },
            { on: "healthz", times: 1, delay: "5 seconds" },
          ],
        },
      )
    }),
  )

  it.effect("metrics are off unless the configuration enables them, and labels never contain a key", () =>
    Effect.gen(function* () {
      yield* counted("nobody", Clients.lora(), {}, { metrics: false })
      expect((yield* labels).filter((label) => label.includes("nobody"))).toEqual([])
      expect(TinkerConfig.make({ apiKey: Redacted.make("tml-k"), tenant: "tml-k" })).toMatchObject({
        left: { _tag: "InvalidConfig", setting: "tenant" },
      })
      expect(TinkerConfig.make({ apiKey: Redacted.make("tml-k"), tenant: "" })).toMatchObject({
        left: { _tag: "InvalidConfig", setting: "tenant" },
      })
    }),
  )

  it.effect("metrics are labeled with the tenant's name unless it would reveal a key", () =>
    Effect.gen(function* () {
      const http: Layer.Layer<HttpClient.HttpClient> = HttpScript.layer({
        "client/config": [{ body: {} }],
        get_server_capabilities: [{ body: { supported_models: [] } }],
      })
      const ask = (tenant: string) =>
        Effect.flatMap(Transport.Transport, ({ call }) => call(Api.getServerCapabilities, {})).pipe(
          TinkerTenants.provide(tenant),
        )
      yield* Effect.all([ask("acme"), ask("tml-acmes-key")]).pipe(
        Effect.provide(
          TinkerTenants.layer({
            lookup: () =>
              Effect.succeed({ baseUrl: "http://server", apiKey: Redacted.make("tml-acmes-key"), metrics: true }),
            http,
          }).pipe(Layer.provide(RateLimiter.layer)),
        ),
      )
      expect(yield* count(TinkerMetrics.requests, "acme", "get_server_capabilities")).toBe(1)
      expect((yield* labels).filter((label) => label.includes("tml-"))).toEqual([])
      expect(yield* Effect.map(labels, (all) => all.length)).toBeGreaterThan(5)
    }),
  )
})
