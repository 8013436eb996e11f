/** Requests sent without a fiber of their own: an error in a callback always reaches the caller. */
import { HttpClient } from "@effect/platform"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Layer, Option, Redacted, Scope, TestClock, Tracer } from "effect"
import { RateLimiter, type SamplingClient, ServiceClient, TinkerConfig, type TinkerError } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import * as HttpFailure from "effect-tinker/http/HttpFailure"
import * as Transport from "effect-tinker/Transport"
import * as Exchange from "effect-tinker/protocol/Exchange"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import * as CountingClock from "./support/CountingClock.ts"

type Handle = (request: Exchange.Request) => ReturnType<Exchange.Handle>

const on =
  <B, E2>(below: Layer.Layer<B, E2>) =>
  <A, E>(above: Layer.Layer<A, E, B>): Layer.Layer<A | B, E | E2> =>
    Layer.flatMap(below, (context) => Layer.provideMerge(above, Layer.succeedContext(context)))

const clients = (client: HttpClient.HttpClient) =>
  on(
    on(
      Layer.mergeAll(
        TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make("tml-a") }),
        RateLimiter.layer,
        Layer.succeed(HttpClient.HttpClient, client),
      ),
    )(Transport.layer),
  )(ServiceClient.layer())

const served = Effect.map(
  ScriptedServer.make(),
  ({ handle }): Handle =>
    (request) =>
      Effect.mapError(handle(request), (cause) => new HttpFailure.Disconnected({ cause })),
)

/** A sampling client whose requests go through `around`. */
const rig = (
  around: (request: Exchange.Request, handle: Handle) => ReturnType<Handle>,
  wrap: (client: HttpClient.HttpClient) => HttpClient.HttpClient = (client) => client,
) =>
  Effect.gen(function* () {
    const handle = yield* served
    const client = wrap(Exchange.client((request) => around(request, handle)))
    const scope = yield* Scope.make()
    yield* Effect.addFinalizer(() => Scope.close(scope, Exit.void))
    const context = yield* Layer.buildWithScope(clients(client), scope)
    const sampler: SamplingClient.Service = yield* Effect.flatMap(ServiceClient.ServiceClient, (service) =>
      service.createSamplingClient({ baseModel: "Qwen/Qwen3-8B" }),
    ).pipe(Effect.provide(context), Scope.extend(scope))
    return { context, sampler, scope }
  })

const sample = { prompt: [1, 2, 3], params: { maxTokens: 4 } }

/** Delays an effect by one turn, so that no answer arrives before its request was sent. */
const later = <A, E>(effect: Effect.Effect<A, E>) => Effect.zipRight(Effect.yieldNow(), effect)

const isPoll = ({ path }: Exchange.Request) => path.includes("retrieve_future")
const forked = HttpClient.mapRequest((request: Parameters<HttpClient.HttpClient["execute"]>[0]) => request)

const failure = (effect: Effect.Effect<unknown, TinkerError.FutureError>) =>
  Effect.map(Effect.flip(effect), (error) => ({
    _tag: error._tag,
    reason: "reason" in error ? error.reason : undefined,
  }))

describe("errors in callbacks of a sample", () => {
  const deep = `{"error":${"[".repeat(20_000)}${"]".repeat(20_000)}}`

  it.scoped.each([
    ["immediately", <A, E>(effect: Effect.Effect<A, E>) => effect],
    ["later", later],
  ] as const)("a sample fails with PollerDied when a poll response that arrives %s can't be decoded", ([, when]) =>
    Effect.gen(function* () {
      const { sampler } = yield* rig((request, handle) =>
        when(
          isPoll(request)
            ? Effect.succeed({ status: 200, headers: { "content-type": "application/json" }, body: deep })
            : handle(request),
        ),
      )
      expect(yield* failure(sampler.sample(sample))).toEqual({ _tag: "RequestFailed", reason: "PollerDied" })
      // A submitted sample, which has a fiber, fails the same way.
      const future = yield* sampler.submit.sample(sample)
      expect(yield* failure(future.await)).toEqual({ _tag: "RequestFailed", reason: "PollerDied" })
    }),
  )

  it.scoped("a sample fails with PollerDied when a wrapper around the HTTP client throws", () =>
    Effect.gen(function* () {
      const { sampler } = yield* rig(
        (request, handle) => later(handle(request)),
        HttpClient.mapRequestInput((request) => {
          if (request.url.includes("retrieve_future")) throw new Error("of the user")
          return request
        }),
      )
      expect(yield* failure(sampler.sample(sample))).toEqual({ _tag: "RequestFailed", reason: "PollerDied" })
    }),
  )

  it.scoped("a sample fails with PollerDied when an in-process server throws", () =>
    Effect.gen(function* () {
      const { sampler } = yield* rig((request, handle) => {
        if (isPoll(request)) throw new Error("of the server")
        return later(handle(request))
      })
      expect(yield* failure(sampler.sample(sample))).toEqual({ _tag: "RequestFailed", reason: "PollerDied" })
    }),
  )
})

describe("calls", () => {
  const refusing = (request: Exchange.Request, handle: Handle): ReturnType<Handle> =>
    later(
      request.path.includes("get_server_capabilities")
        ? Effect.succeed({ status: 404, headers: {}, body: `{"detail":"no"}` })
        : handle(request),
    )

  const throwing = (part: "attribute" | "event") => {
    const broken = () => {
      throw new Error("of the tracer")
    }
    return Tracer.make({
      context: (f) => f(),
      span: (name, parent, context, links, startTime, kind) => ({
        _tag: "Span",
        name,
        spanId: "1",
        traceId: "1",
        parent,
        context,
        links,
        status: { _tag: "Started", startTime },
        attributes: new Map(),
        sampled: true,
        kind,
        end: () => {},
        attribute: () => {},
        addLinks: () => {},
        event: () => {},
        [part]: broken,
      }),
    })
  }

  it.scoped.each([
    ["a direct client", (client: HttpClient.HttpClient) => client],
    ["any client", forked],
  ] as const)("keeps its result when its tracer throws: %s", ([, wrap]) =>
    Effect.gen(function* () {
      const { context } = yield* rig((request, handle) => later(handle(request)), wrap)
      const exit = yield* Effect.flatMap(Transport.Transport, ({ call }) => call(Api.getServerCapabilities, {})).pipe(
        Effect.withTracer(throwing("attribute")),
        Effect.provide(context),
        Effect.exit,
      )
      expect(exit._tag).toBe("Success")
    }),
  )

  it.scoped.each([
    ["a direct client", (client: HttpClient.HttpClient) => client],
    ["any client", forked],
  ] as const)("whose tracer throws ends: %s", ([, wrap]) =>
    Effect.gen(function* () {
      const { context } = yield* rig(refusing, wrap)
      const exit = yield* Effect.flatMap(Transport.Transport, ({ call }) => call(Api.getServerCapabilities, {})).pipe(
        Effect.withTracer(throwing("event")),
        Effect.provide(context),
        Effect.exit,
      )
      expect(Exit.isFailure(exit) && exit.cause._tag).toBe("Die")
    }),
  )

  it.scoped.each([
    ["a direct client", (client: HttpClient.HttpClient) => client],
    ["any client", forked],
  ] as const)("of which a server in the process dies is not repeated: %s", ([, wrap]) =>
    Effect.gen(function* () {
      let calls = 0
      const { context } = yield* rig((request, handle) => {
        if (!request.path.includes("get_server_capabilities")) return handle(request)
        calls++
        return Effect.die(new Error("of the server"))
      }, wrap)
      const exit = yield* Effect.flatMap(Transport.Transport, ({ call }) => call(Api.getServerCapabilities, {})).pipe(
        Effect.provide(context),
        Effect.exit,
      )
      expect(Exit.isFailure(exit) && exit.cause._tag).toBe("Die")
      expect(calls).toBe(1)
    }),
  )

  it.scoped(
    "response headers are case-insensitive, and results share no memory with the response of an in-process server",
    () =>
      Effect.gen(function* () {
        const answers: Array<Exchange.Answer> = []
        const { sampler } = yield* rig((request, handle) =>
          Effect.map(handle(request), ({ body, headers, status }) => {
            const answer = {
              status,
              headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toUpperCase(), value])),
              body,
            }
            if (isPoll(request)) answers.push(answer)
            return answer
          }),
        )
        const { sequences } = yield* sampler.sample(sample)
        const logprobs = sequences.flatMap(({ logprobs }) => Option.toArray(logprobs))
        expect(logprobs.map(({ length }) => length)).toEqual([4])
        const [answer] = answers
        expect(answer?.body).toBeInstanceOf(Uint8Array)
        const before = Buffer.from(answer?.body as Uint8Array).toString("hex")
        for (const values of logprobs) values.fill(42)
        expect(Buffer.from(answer?.body as Uint8Array).toString("hex")).toBe(before)
      }),
  )
})

describe("sample requests", () => {
  it.scoped("a sample request with an unknown field is rejected, even after a similar valid request", () =>
    Effect.gen(function* () {
      const { sampler } = yield* rig((request, handle) => handle(request))
      const odd = { ...sample, samplingParams: { maxTokens: 9 } }
      for (const _ of [1, 2]) {
        expect(yield* Effect.flip(sampler.sample(odd))).toMatchObject({
          _tag: "InvalidInput",
          path: "sample.samplingParams",
        })
        yield* sampler.sample(sample)
      }
    }),
  )
})

describe("closing the client", () => {
  it.scoped("closing the client leaves no timer behind after immediately answered heartbeats", () =>
    Effect.gen(function* () {
      const { asleep, clock: counting } = yield* CountingClock.make
      let beats = 0
      const { scope } = yield* Effect.withClock(
        rig((request, handle) => {
          if (request.path.includes("heartbeat")) beats++
          return handle(request)
        }),
        counting,
      )
      yield* TestClock.adjust("35 seconds")
      expect(beats).toBe(3)
      expect(asleep()).toBeGreaterThan(0)
      yield* Scope.close(scope, Exit.void)
      yield* TestClock.adjust(0)
      expect(asleep()).toBe(0)
    }),
  )

  it.scoped("closing the client ends all samples immediately, even if one request is slow to interrupt", () =>
    Effect.gen(function* () {
      let isSlow = false
      const { sampler, scope } = yield* rig((request, handle) => {
        if (isSlow && request.path.includes("asample"))
          return Effect.uninterruptible(Effect.sleep("3 seconds")).pipe(Effect.zipRight(handle(request)))
        return isPoll(request)
          ? Effect.succeed({ status: 408, headers: {}, body: `{"type":"try_again","queue_state":"active"}` })
          : handle(request)
      }, forked)
      const polling = yield* Effect.fork(Effect.flip(sampler.sample(sample)))
      yield* TestClock.adjust("1 second")
      isSlow = true
      const sending = yield* Effect.fork(Effect.flip(sampler.sample(sample)))
      yield* TestClock.adjust(10)
      const closing = yield* Effect.fork(Scope.close(scope, Exit.void))
      yield* TestClock.adjust(10)
      // Neither sample waited for the slow request.
      expect([yield* Fiber.poll(polling), yield* Fiber.poll(sending)].map(Option.isSome)).toEqual([true, true])
      expect([(yield* Fiber.join(polling))._tag, (yield* Fiber.join(sending))._tag]).toEqual([
        "ClientClosed",
        "ClientClosed",
      ])
      yield* TestClock.adjust("10 seconds")
      yield* Fiber.join(closing)
    }),
  )
})
