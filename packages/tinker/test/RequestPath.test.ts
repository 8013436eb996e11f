/** A tracer, metrics, a test clock and a wrapped HTTP client observe a request. None of them changes its path. */
import { HttpClient, HttpClientResponse } from "@effect/platform"
import { describe, expect, it } from "@effect/vitest"
import { Clock, Effect, Exit, Fiber, FiberId, Option, Redacted, Schedule, TestClock, Tracer } from "effect"
import { TinkerConfig, type TinkerError } from "effect-tinker"
import * as HttpDirect from "effect-tinker/http/HttpDirect"
import * as Api from "effect-tinker/protocol/Api"
import * as Transport from "effect-tinker/Transport"

type AnyFiber = Fiber.RuntimeFiber<unknown, unknown>

/** The `@internal` form of `call`, which the published types don't show. */
interface Starting {
  readonly start: (
    fiber: AnyFiber,
    endpoint: typeof Api.health,
    input: object,
    options: Transport.CallOptions | undefined,
    onExit: (exit: Exit.Exit<unknown, TinkerError.TinkerError>) => void,
  ) => () => Effect.Effect<unknown>
}
const startOf = (transport: Transport.Service): Starting["start"] => (transport as unknown as Starting).start

const utf8 = new TextEncoder()

/** Answers depend on the URL and the number of requests to it. */
class Script {
  readonly seen: Array<string> = []
  private readonly counts = new Map<string, number>()

  answer({ body, headers, method, url }: HttpDirect.Outgoing): HttpDirect.Incoming {
    const shown = headers.flatMap((value, at) =>
      at % 2 === 1 && !/idempotency|traceparent/.test(headers[at - 1] ?? "") ? [`${headers[at - 1]}: ${value}`] : [],
    )
    this.seen.push([`${method} ${url}`, ...shown, String(body)].join("\n"))
    const count = (this.counts.get(url) ?? 0) + 1
    this.counts.set(url, count)
    const reply = (status: number, value: unknown, more: Record<string, string> = {}): HttpDirect.Incoming => ({
      status,
      headers: more,
      body: utf8.encode(JSON.stringify(value)),
    })
    if (url.endsWith("/client/config")) return reply(200, {})
    if (url.endsWith("/get_info")) return count < 3 ? reply(503, {}) : reply(200, { model_id: "m", model_data: {} })
    if (url.endsWith("/get_server_capabilities")) return reply(307, {}, { location: "/elsewhere" })
    if (url.endsWith("/elsewhere")) return reply(404, { detail: "no" })
    return reply(200, { status: "ok" }, count === 2 ? { "x-deprecation-note": "soon" } : {})
  }
}

/** Answers before `send` returns. */
const direct = (script: Script): HttpClient.HttpClient =>
  HttpDirect.offer(
    HttpClient.make(() => Effect.dieMessage("execute")),
    (request, done) => {
      done({ _tag: "Answered", answer: script.answer(request) })
      return () => {}
    },
  )

/** Answers through `execute` alone, like `fetch` or a wrapped client. */
const executed = (script: Script): HttpClient.HttpClient =>
  HttpClient.make((request) =>
    Effect.sync(() => {
      const { body, headers, status } = script.answer({
        method: request.method as HttpDirect.Outgoing["method"],
        url: request.url,
        purpose: "session",
        headers: Object.entries(request.headers)
          .filter(([name]) => name !== "content-length")
          .flat(),
        body: request.body._tag === "Uint8Array" ? new TextDecoder().decode(request.body.body) : undefined,
      })
      return HttpClientResponse.fromWeb(
        request,
        new Response(Uint8Array.from(body), {
          status,
          headers: headers as Record<string, string>,
        }),
      )
    }),
  )

const keeping = (names: Array<string>) =>
  Tracer.make({
    context: (f) => f(),
    span: (name, parent, context, links, startTime, kind) => {
      names.push(name)
      return {
        _tag: "Span",
        name,
        spanId: "0123456789abcdef",
        traceId: "0123456789abcdef0123456789abcdef",
        parent: Option.orElse(parent, () => Option.none()),
        context,
        links,
        status: { _tag: "Started", startTime },
        attributes: new Map(),
        sampled: true,
        kind,
        end: () => {},
        attribute: () => {},
        addLinks: () => {},
        event: (event) => void names.push(event),
      }
    },
  })

/** Returns the effect's exit and the number of fibers created while it ran. */
const counted = <A, E>(effect: Effect.Effect<A, E>) =>
  Effect.gen(function* () {
    const before = FiberId.unsafeMake().id
    const exit = yield* Effect.exit(effect)
    return { exit, fibers: FiberId.unsafeMake().id - before - 1 }
  })

const make = (client: HttpClient.HttpClient, values: TinkerConfig.Values = {}) =>
  Transport.make.pipe(
    Effect.provideService(HttpClient.HttpClient, client),
    Effect.provide(TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make("tml-a"), ...values })),
    Effect.map(({ transport }) => transport),
    // The first requests fetch the flags, choose the token, and start the timer that all deadlines share.
    Effect.tap((transport) => transport.call(Api.heartbeat, { sessionId: "s" })),
    Effect.tap((transport) => transport.call(Api.health, {})),
  )

/** One program with every kind of step: success, deprecation, retries, a redirect, a failure. */
const program = (client: (script: Script) => HttpClient.HttpClient, values?: TinkerConfig.Values) =>
  Effect.gen(function* () {
    const script = new Script()
    const transport = yield* make(client(script), values)
    const exchanges = (from: number) => script.seen.length - from
    const step = <A>(effect: Effect.Effect<A, TinkerError.TinkerError>) =>
      Effect.gen(function* () {
        const from = script.seen.length
        const { exit, fibers } = yield* counted(effect)
        const end = Exit.isSuccess(exit) ? "success" : exit.cause._tag === "Fail" ? exit.cause.error._tag : "defect"
        return { end, fibers, exchanges: exchanges(from) }
      })
    const steps = {
      deprecated: yield* step(transport.call(Api.health, {})),
      happy: yield* step(transport.call(Api.health, {})),
      retried: yield* step(transport.call(Api.getInfo, { modelId: "m" }, { retryPolicy: Schedule.recurs(5) })),
      refused: yield* step(transport.call(Api.getServerCapabilities, {})),
    }
    return { seen: script.seen, steps }
  }).pipe(Effect.scoped)

const expected = {
  deprecated: { end: "success", fibers: 1, exchanges: 1 },
  happy: { end: "success", fibers: 0, exchanges: 1 },
  // One fiber for each pause.
  retried: { end: "success", fibers: 2, exchanges: 3 },
  refused: { end: "NotFound", fibers: 0, exchanges: 2 },
}

describe("the path of a request", () => {
  it.effect("a request without an observer sends the expected exchanges and creates the expected fibers", () =>
    Effect.gen(function* () {
      const { seen, steps } = yield* program(direct)
      expect(steps).toEqual(expected)
      expect(seen.length).toBe(10)
    }),
  )

  it.effect("a tracer does not change the path of a request", () =>
    Effect.gen(function* () {
      const names: Array<string> = []
      const plain = yield* program(direct)
      expect(yield* Effect.withTracer(program(direct), keeping(names))).toEqual(plain)
      expect(names).toContain("tinker.get_info")
      expect(names.filter((name) => name === "tinker.attempt_failed").length).toBe(3)
    }),
  )

  it.effect("metrics do not change the path of a request", () =>
    Effect.gen(function* () {
      expect(yield* program(direct, { metrics: true })).toEqual(yield* program(direct))
    }),
  )

  it.effect("a request takes the same path with a test clock and a live clock", () =>
    Effect.gen(function* () {
      expect(yield* Effect.withClock(program(direct), Clock.make())).toEqual(yield* program(direct))
    }),
  )

  it.live("a request takes the same path through any HTTP client, with two more fibers per exchange", () =>
    Effect.gen(function* () {
      const names: Array<string> = []
      const plain = yield* program(direct)
      for (const { seen, steps } of [
        yield* program(executed),
        yield* program((script) => HttpClient.mapRequest(executed(script), (request) => request)),
        yield* Effect.withTracer(program(executed, { metrics: true }), keeping(names)),
      ]) {
        expect(seen).toEqual(plain.seen)
        for (const [name, { end, exchanges, fibers }] of Object.entries(plain.steps)) {
          expect([name, steps[name as keyof typeof steps]]).toEqual([
            name,
            // One fiber runs `execute`; the platform uses another to read a web response.
            { end, exchanges, fibers: fibers + 2 * exchanges },
          ])
        }
      }
    }),
  )
})

describe("requests answered asynchronously", () => {
  /** Holds every answer until it is released. */
  const held = () => {
    const script = new Script()
    const waiting: Array<() => void> = []
    let cancelled = 0
    const client = HttpDirect.offer(
      HttpClient.make(() => Effect.dieMessage("execute")),
      (request, done) => {
        const answer = () => done({ _tag: "Answered", answer: script.answer(request) })
        if (request.url.endsWith("/client/config") || script.seen.length < 3) answer()
        else waiting.push(answer)
        return () => void cancelled++
      },
    )
    return { client, waiting, cancelled: () => cancelled }
  }

  it.scopedLive("a request answered asynchronously needs no fiber and calls back once", () =>
    Effect.gen(function* () {
      const { client, waiting } = held()
      const start = startOf(yield* make(client))
      const exits: Array<string> = []
      const send = Effect.withFiberRuntime<void>((fiber) => {
        start(fiber, Api.health, {}, undefined, ({ _tag }) => exits.push(_tag))
        return Effect.void
      })
      // The first waiting request starts the timer for its deadline.
      yield* send
      const { fibers } = yield* counted(Effect.repeatN(send, 99))
      expect([fibers, exits.length, waiting.length]).toEqual([0, 0, 101])
      for (const answer of waiting) answer()
      expect([exits.length, new Set(exits)]).toEqual([101, new Set(["Success"])])
    }),
  )

  it.scoped("a stopped request does not call back", () =>
    Effect.gen(function* () {
      const { cancelled, client, waiting } = held()
      const start = startOf(yield* make(client))
      const exits: Array<unknown> = []
      const stop = yield* Effect.withFiberRuntime<() => Effect.Effect<unknown>>((fiber) =>
        Effect.succeed(start(fiber, Api.health, {}, undefined, (exit) => exits.push(exit))),
      )
      yield* stop()
      expect(cancelled()).toBe(1)
      for (const answer of waiting) answer()
      yield* TestClock.adjust("1 hour")
      yield* stop()
      expect([exits.length, cancelled()]).toEqual([0, 1])
    }),
  )
})

describe("retries", () => {
  it.scoped("retries without a delay do not grow the stack, and mayRetry is called before each of them", () =>
    Effect.gen(function* () {
      let asked = 0
      const client = HttpDirect.offer(
        HttpClient.make(() => Effect.dieMessage("execute")),
        ({ url }, done) => {
          const isUp = url.endsWith("/client/config") || asked === 0 || asked >= 20_000
          done({ _tag: "Answered", answer: { status: isUp ? 200 : 503, headers: {}, body: utf8.encode("{}") } })
          return () => {}
        },
      )
      const transport = yield* Transport.make.pipe(
        Effect.provideService(HttpClient.HttpClient, client),
        Effect.provide(TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make("tml-a") })),
        Effect.map(({ transport }) => transport),
      )
      asked = 1
      const exit = yield* Effect.exit(
        transport.call(
          Api.heartbeat,
          { sessionId: "s" },
          {
            retryPolicy: Schedule.forever,
            mayRetry: () => Effect.sync(() => ++asked > 0),
          },
        ),
      )
      expect([exit._tag, asked]).toEqual(["Success", 20_000])
    }),
  )

  it.scoped("a retry delay uses the clock of the caller's fiber", () =>
    Effect.gen(function* () {
      const script = new Script()
      const transport = yield* make(direct(script))
      const from = script.seen.length
      const fiber = yield* Effect.fork(
        transport.call(Api.getInfo, { modelId: "m" }, { retryPolicy: Schedule.spaced("10 seconds") }),
      )
      const sent: Array<number> = []
      for (const pause of [0, 9_999, 1, 9_999, 1]) {
        yield* TestClock.adjust(pause)
        sent.push(script.seen.length - from)
      }
      expect(sent).toEqual([1, 1, 2, 2, 3])
      yield* Fiber.join(fiber)
    }),
  )
})
