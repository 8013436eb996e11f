import { NodeSdk } from "@effect/opentelemetry"
import { describe, expect, it } from "@effect/vitest"
import { InMemorySpanExporter, type ReadableSpan, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base"
import { HttpClient } from "@effect/platform"
import { Effect, Layer, Logger, Redacted, type Scope, Stream } from "effect"
import { Loss, Optimizer, TinkerConfig, type TrainingClient } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import * as HttpDirect from "effect-tinker/http/HttpDirect"
import * as Transport from "effect-tinker/Transport"
import type * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import * as Clients from "./support/Clients.ts"
import * as HttpScript from "./support/HttpScript.ts"

const key = "tml-a-traced-key"

type Program<A, E> = Effect.Effect<A, E, Clients.Env | Scope.Scope>

/** Runs a program on a scripted server and returns the spans that reach an OpenTelemetry exporter. */
const exported = <A, E>(
  program: Program<A, E>,
  options: ScriptedServer.Options = {},
  values: TinkerConfig.Values = {},
) =>
  Effect.gen(function* () {
    const exporter = new InMemorySpanExporter()
    const sdk = NodeSdk.layer(() => ({
      resource: { serviceName: "test" },
      spanProcessor: new SimpleSpanProcessor(exporter),
    }))
    return yield* Effect.gen(function* () {
      const clients = Layer.merge(
        Clients.layer(options, { apiKey: Redacted.make(key), ...values }),
        Logger.remove(Logger.defaultLogger),
      )
      const result = yield* program.pipe(Effect.scoped, Effect.provide(clients), VirtualTime.run)
      return { result, spans: exporter.getFinishedSpans() }
    }).pipe(Effect.provide(sdk))
  })

/** The spans below a span, as an indented tree of names, in the order in which they started. */
const treeBelow = (spans: ReadonlyArray<ReadableSpan>, parent: ReadableSpan, depth = 0): ReadonlyArray<string> =>
  spans
    .filter(({ parentSpanContext }) => parentSpanContext?.spanId === parent.spanContext().spanId)
    .toSorted((a, b) => a.startTime[0] - b.startTime[0] || a.startTime[1] - b.startTime[1])
    .flatMap((span) => [`${"  ".repeat(depth)}${span.name}`, ...treeBelow(spans, span, depth + 1)])

const named = (spans: ReadonlyArray<ReadableSpan>, name: string) => spans.filter((span) => span.name === name)

const only = (spans: ReadonlyArray<ReadableSpan>, name: string): ReadableSpan => {
  const [span, ...others] = named(spans, name)
  if (span === undefined || others.length > 0) throw new Error(`${others.length + 1} spans ${name}`)
  return span
}

const adam = Optimizer.adam()
const batch = [Clients.datum(1, 2, 3)]

/** Without log lines, which Effect adds as events. */
const eventsOf = (span: ReadableSpan | undefined) => span?.events.filter(({ name }) => name.startsWith("tinker.")) ?? []

/** 0: unset, 1: ok, 2: error. */
const statusOf = (span: ReadableSpan) => ["unset", "ok", "error"][span.status.code]

const step = (client: TrainingClient.Service) => client.trainStep(batch, Loss.crossEntropy, adam)

describe("Spans", () => {
  it.effect("the spans of a training step form one tree, from the call to the results", () =>
    Effect.gen(function* () {
      const { result, spans } = yield* exported(
        Effect.gen(function* () {
          const client = yield* Clients.lora()
          yield* step(client).pipe(Effect.withSpan("mine"))
          return client
        }),
      )
      const mine = only(spans, "mine")
      expect(treeBelow(spans, mine)).toEqual([
        "tinker.train_step",
        "  tinker.training.forward_backward",
        "    tinker.queue",
        "    tinker.forward_backward",
        "    tinker.result",
        "  tinker.training.optim_step",
        "    tinker.queue",
        "    tinker.optim_step",
        "    tinker.result",
      ])
      expect(spans.filter((span) => span.spanContext().traceId === mine.spanContext().traceId).length).toBe(10)
      expect(new Set(spans.map(statusOf))).toEqual(new Set(["ok"]))
      const owner = { "tinker.session_id": result.session.id, "tinker.model_id": result.modelId }
      expect(only(spans, "tinker.train_step").attributes).toMatchObject({
        ...owner,
        "tinker.step": 0,
        "tinker.tokens": 2,
      })
      expect(only(spans, "tinker.training.optim_step").attributes).toMatchObject({ ...owner, "tinker.requests": 1 })
      const { attributes } = only(spans, "tinker.forward_backward")
      expect(attributes).toMatchObject({ "http.request.method": "POST", "http.response.status_code": 200 })
      expect(attributes["http.request.body.size"]).toBeGreaterThan(20)
      expect(attributes["http.response.body.size"]).toBeGreaterThan(20)
      expect(named(spans, "tinker.result").map((span) => span.attributes)).toMatchObject([
        { "tinker.request_type": "CreateModel", "tinker.request_id": "req-0001", "tinker.polls": 1 },
        { "tinker.request_type": "ForwardBackward", "tinker.request_id": "req-0002", "tinker.polls": 1 },
        { "tinker.request_type": "OptimStep", "tinker.request_id": "req-0003", "tinker.polls": 1 },
      ])
    }),
  )

  it.effect("the session and every request outside a step have spans", () =>
    Effect.gen(function* () {
      const { spans } = yield* exported(Clients.lora())
      expect(treeBelow(spans, only(spans, "tinker.session"))).toEqual(["tinker.create_session"])
      expect(only(spans, "tinker.session").attributes).toEqual({ "tinker.session_id": "sess-0001" })
      expect(treeBelow(spans, only(spans, "tinker.training.create_model"))).toEqual([
        "tinker.create_model",
        "tinker.result",
      ])
      expect(spans.map(({ name }) => name)).toContain("tinker.sessions/finish")
      expect(spans.map(({ name }) => name)).not.toContain("tinker.retrieve_future")
    }),
  )

  it.effect("spans record how long and why an operation waited, with one event per poll instead of a span", () =>
    Effect.gen(function* () {
      const { spans } = yield* exported(
        Effect.flatMap(Clients.lora(), (client) => client.optimStep(adam)),
        {
          work: ({ operation }) => (operation === "optim_step" ? "100 seconds" : 0),
          hold: "30 seconds",
          faults: [{ on: "optim_step", times: 1, status: 429, headers: { "retry-after": "7" } }],
        },
      )
      const request = only(spans, "tinker.optim_step")
      expect(request.duration[0]).toBe(7)
      expect(request.attributes).toMatchObject({ "http.request.resend_count": 1, "http.response.status_code": 200 })
      expect(
        eventsOf(request).map(({ attributes, name }) => [name, attributes?.["error"], attributes?.["attempt"]]),
      ).toEqual([["tinker.attempt_failed", "RateLimited", 1]])
      expect(
        eventsOf(only(spans, "tinker.training.optim_step")).map(({ attributes }) => attributes?.["state"]),
      ).toEqual(["paused_rate_limit"])
      const wait = named(spans, "tinker.result").at(-1)
      expect(wait?.duration[0]).toBe(100)
      expect(wait?.attributes).toMatchObject({ "tinker.request_type": "OptimStep", "tinker.polls": 4 })
      expect(eventsOf(wait).map(({ attributes, name }) => [name, attributes?.["state"]])).toEqual([
        ["tinker.queue_state", "active"],
      ])
    }),
  )

  it.effect("a stream of steps has one span tree per step", () =>
    Effect.gen(function* () {
      const { spans } = yield* exported(
        Effect.flatMap(Clients.lora(), (client) =>
          Stream.make(batch, batch, batch).pipe(client.trainSteps(Loss.crossEntropy, adam), Stream.runDrain),
        ),
      )
      const steps = named(spans, "tinker.train_step")
      expect(steps.map((span) => span.attributes["tinker.step"])).toEqual([0, 1, 2])
      expect(steps.map((span) => treeBelow(spans, span).length)).toEqual([8, 8, 8])
    }),
  )

  it.effect("the spans of a stream that is stopped early end", () =>
    Effect.gen(function* () {
      const { spans } = yield* exported(
        Effect.gen(function* () {
          const client = yield* Clients.lora()
          yield* Stream.make(batch, batch, batch, batch).pipe(
            client.trainSteps(Loss.crossEntropy, adam, { ahead: 2 }),
            Stream.take(1),
            Stream.runDrain,
          )
        }),
      )
      const steps = named(spans, "tinker.train_step")
      expect(steps.length).toBeGreaterThan(1)
      const ids = new Set(steps.map((span) => span.spanContext().spanId))
      for (const half of named(spans, "tinker.training.forward_backward")) {
        expect(ids).toContain(half.parentSpanContext?.spanId)
      }
    }),
  )

  it.effect("the spans of failed and canceled operations end with their status", () =>
    Effect.gen(function* () {
      const { spans } = yield* exported(
        Effect.gen(function* () {
          const client = yield* Clients.lora()
          yield* Effect.flip(step(client))
          yield* Effect.flip(client.trainStep([], Loss.crossEntropy, Optimizer.adam({ learningRate: Number.NaN })))
          const first = yield* client.enqueue.saveState("first")
          const second = yield* client.enqueue.optimStep(adam)
          expect(yield* second.cancel).toBe(true)
          yield* first.await
        }),
        { faults: [{ on: "forward_backward", times: 1, status: 403, body: { detail: "no" } }] },
      )
      expect(named(spans, "tinker.train_step").map(statusOf)).toEqual(["error", "error"])
      expect(statusOf(only(spans, "tinker.training.forward_backward"))).toBe("error")
      expect(only(spans, "tinker.forward_backward").attributes["http.response.status_code"]).toBe(403)
      // One step whose pass was rejected, and one operation that was canceled.
      expect(named(spans, "tinker.training.optim_step").map(statusOf)).toEqual(["error", "ok"])
      expect(named(spans, "tinker.optim_step")).toEqual([])
      expect(statusOf(only(spans, "tinker.training.save_weights"))).toBe("ok")
    }),
  )

  it.effect("the spans of a sample record its time in the queue and the rate limit pause", () =>
    Effect.gen(function* () {
      const { spans } = yield* exported(
        Effect.gen(function* () {
          const client = yield* Clients.lora()
          const sampler = yield* client.saveWeightsAndGetSamplingClient()
          yield* sampler.sample({ prompt: [1, 2], params: { maxTokens: 2 } })
        }),
        { faults: [{ on: "asample", times: 1, status: 429 }] },
      )
      const sample = only(spans, "tinker.sample")
      expect(treeBelow(spans, sample)).toEqual([
        "tinker.queue",
        "tinker.asample",
        "tinker.queue",
        "tinker.asample",
        "tinker.result",
      ])
      expect(sample.attributes["tinker.request_id"]).toMatch(/^req-/)
      expect(eventsOf(sample).map(({ attributes, name }) => [name, attributes?.["state"]])).toEqual([
        ["tinker.queue_state", "paused_rate_limit"],
      ])
    }),
  )

  it.effect("no spans are created where tracing is disabled", () =>
    Effect.gen(function* () {
      const { spans } = yield* exported(
        Effect.flatMap(Clients.lora(), (client) => Effect.withTracerEnabled(step(client), false)),
      )
      expect(named(spans, "tinker.training.create_model").length).toBe(1)
      const ofStep = /train_step|queue|forward_backward|optim_step/
      expect(spans.filter(({ name }) => ofStep.test(name)).map(({ name }) => name)).toEqual([])
    }),
  )

  it.effect("the spans of an unload cover its time in the queue, its request and its result", () =>
    Effect.gen(function* () {
      const { spans } = yield* exported(Effect.flatMap(Clients.lora(), (client) => client.unload))
      expect(treeBelow(spans, only(spans, "tinker.training.unload_model"))).toEqual([
        "tinker.queue",
        "tinker.unload_model",
        "tinker.result",
      ])
    }),
  )

  it.effect("spans contain no credentials or headers", () =>
    Effect.gen(function* () {
      const { spans } = yield* exported(
        Effect.gen(function* () {
          const client = yield* Clients.lora()
          yield* Effect.flip(step(client))
          yield* step(client)
        }),
        { faults: [{ on: "forward_backward", times: 1, status: 403, body: { detail: `not with ${key}` } }] },
        { headers: { "x-proxy": Redacted.make("hunter-proxy") } },
      )
      const everything = JSON.stringify(
        spans.map(({ attributes, events, name, status }) => ({ attributes, events, name, status })),
      )
      expect(everything).toContain("not with <redacted>")
      expect(everything).not.toMatch(/tml-|hunter-proxy|x-proxy|x-api-key/)
    }),
  )
})

describe("traceparent", () => {
  const sent = (values: TinkerConfig.Values) =>
    exported(
      Effect.gen(function* () {
        const client = yield* Clients.lora()
        yield* step(client)
        const server = yield* Clients.server
        const requests = yield* Effect.all([server.requestsTo("optim_step"), server.requestsTo("retrieve_future")])
        return requests.map((seen) => seen.at(-1)?.headers["traceparent"])
      }),
      {},
      values,
    )

  it.effect("traceparent is sent when enabled: of the request's span, or of the span that a poll belongs to", () =>
    Effect.gen(function* () {
      const { result, spans } = yield* sent({ traceparent: true })
      const parentOf = (span: ReadableSpan | undefined) =>
        `00-${span?.spanContext().traceId}-${span?.spanContext().spanId}-01`
      expect(result).toEqual([
        parentOf(only(spans, "tinker.optim_step")),
        parentOf(named(spans, "tinker.result").at(-1)),
      ])
    }),
  )

  it.effect("traceparent is not sent by default", () =>
    Effect.gen(function* () {
      expect((yield* sent({})).result).toEqual([undefined, undefined])
    }),
  )

  it.effect("traceparent is sent over HttpDirect too, including that of a span created by the program", () =>
    Effect.gen(function* () {
      const headers: Array<ReadonlyArray<string>> = []
      const answer = new TextEncoder().encode(JSON.stringify({ status: "ok" }))
      const direct = HttpDirect.offer(
        HttpClient.make(() => Effect.dieMessage("HttpClient.execute was used")),
        (request, done) => {
          headers.push(request.headers)
          const body = request.url.includes("config") ? new TextEncoder().encode("{}") : answer
          done({ _tag: "Answered", answer: { status: 200, headers: {}, body } })
          return () => undefined
        },
      )
      const { spanId, traceId } = yield* Effect.gen(function* () {
        const { transport } = yield* Transport.make
        yield* transport.call(Api.health, {})
        return yield* Effect.orDie(Effect.currentSpan)
      }).pipe(
        Effect.withSpan("mine"),
        Effect.scoped,
        Effect.provideService(HttpClient.HttpClient, direct),
        Effect.provide(TinkerConfig.layer({ apiKey: Redacted.make(key), traceparent: true })),
      )
      const last = headers.at(-1) ?? []
      expect(last[last.indexOf("traceparent") + 1]).toBe(`00-${traceId}-${spanId}-01`)
      expect(last.filter((name) => name === "traceparent").length).toBe(1)
    }),
  )

  it.effect("traceparent is not sent to another origin after a redirect", () =>
    Effect.gen(function* () {
      const seen = yield* Effect.gen(function* () {
        const { transport } = yield* Transport.make
        yield* Effect.exit(transport.call(Api.health, {}))
        return (yield* HttpScript.HttpScript).to("healthz")
      }).pipe(
        Effect.withSpan("mine"),
        Effect.scoped,
        Effect.provide(
          Layer.merge(
            TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make(key), traceparent: true }),
            HttpScript.layer({
              "client/config": [{ body: {} }],
              healthz: [
                { status: 307, headers: { location: "http://other/api/v1/healthz" } },
                { body: { status: "ok" } },
              ],
            }),
          ),
        ),
      )
      expect(seen.map(({ headers, url }) => [new URL(url).host, headers["traceparent"] !== undefined])).toEqual([
        ["server", true],
        ["other", false],
      ])
    }),
  )
})
