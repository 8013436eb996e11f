import { inspect } from "node:util"
import { describe, expect, it } from "@effect/vitest"
import {
  Cause,
  Chunk,
  Context,
  Effect,
  Exit,
  Fiber,
  Layer,
  Option,
  Logger,
  LogLevel,
  Redacted,
  Schedule,
  Schema,
  Scope,
  Stream,
  TestClock,
  Tracer,
} from "effect"
import { TinkerConfig } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import * as Endpoint from "effect-tinker/protocol/Endpoint"
import * as Transport from "effect-tinker/Transport"
import * as HttpScript from "./support/HttpScript.ts"
import * as VirtualTime from "./support/VirtualTime.ts"

const config = (values: TinkerConfig.Values = {}) =>
  TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make("tml-secret-key"), ...values })

const layer = (replies: Parameters<typeof HttpScript.layer>[0], values?: TinkerConfig.Values) =>
  Layer.provideMerge(
    Transport.layer,
    Layer.merge(config(values), HttpScript.layer({ "client/config": [{ body: {}, forever: true }], ...replies })),
  )

const session = { sdkVersion: "1" }

describe("one program with two configurations", () => {
  class TenantA extends Context.Tag("test/TenantA")<TenantA, Transport.Service>() {}
  class TenantB extends Context.Tag("test/TenantB")<TenantB, Transport.Service>() {}

  it.effect("each request carries the key of its own tenant", () =>
    Effect.gen(function* () {
      const tenant = <I, S>(tag: Context.Tag<I, S>, key: string) =>
        Layer.effect(tag, Transport.Transport as unknown as Effect.Effect<S, never, Transport.Transport>).pipe(
          Layer.provide(Transport.layer),
          Layer.provide(config({ apiKey: Redacted.make(key) })),
        )
      const both = Layer.merge(tenant(TenantA, "tml-tenant-a"), tenant(TenantB, "tml-tenant-b"))
      const keys = yield* Effect.gen(function* () {
        yield* (yield* TenantA).call(Api.createSession, session)
        yield* (yield* TenantB).call(Api.createSession, session)
        return (yield* HttpScript.HttpScript).to("create_session").map((request) => request.headers["x-api-key"])
      }).pipe(
        Effect.provide(
          Layer.provideMerge(
            both,
            HttpScript.layer({
              "client/config": [{ body: {}, forever: true }],
              create_session: [{ body: { session_id: "s" }, forever: true }],
            }),
          ),
        ),
      )
      expect(keys).toEqual(["tml-tenant-a", "tml-tenant-b"])
    }),
  )
})

describe("Transport.call", () => {
  it.effect("Transport.call sends nothing for invalid input", () =>
    Effect.gen(function* () {
      const { call } = yield* Transport.Transport
      const error = yield* Effect.flip(call(Api.getTrainingRun, { trainingRunId: ".." }))
      expect(error._tag).toBe("InvalidInput")
      expect((yield* HttpScript.HttpScript).seen).toEqual([])
    }).pipe(Effect.provide(layer({}))),
  )

  it.effect("Transport.call sends the caller's idempotency key, headers and timeout", () =>
    Effect.gen(function* () {
      const { call } = yield* Transport.Transport
      yield* call(Api.createSession, session, {
        idempotencyKey: "mine",
        headers: { "X-Extra": "1", "x-access": Redacted.make("hunter4") },
        timeout: "7 seconds",
      })
      yield* call(Api.createSession, session, { timeout: null })
      const [first, second] = (yield* HttpScript.HttpScript).to("create_session")
      expect(first?.headers).toMatchObject({
        "x-idempotency-key": "mine",
        "x-extra": "1",
        "x-access": "hunter4",
        "x-stainless-read-timeout": "7",
      })
      expect(second?.headers["x-stainless-read-timeout"]).toBeUndefined()
      expect([first?.purpose, second?.purpose]).toEqual(["session", "session"])
      expect(second?.headers["x-idempotency-key"]).not.toBe("mine")
    }).pipe(Effect.provide(layer({ create_session: [{ body: { session_id: "s" }, forever: true }] }))),
  )

  it.effect("Transport.call retries according to the caller's Schedule", () =>
    Effect.gen(function* () {
      const { call } = yield* Transport.Transport
      const once = Effect.flip(call(Api.createSession, session, { retryPolicy: Schedule.recurs(2) }))
      expect(yield* once).toMatchObject({ _tag: "Unavailable", attempts: 3 })
      const never = Effect.flip(call(Api.getInfo, { modelId: "m" }, { retryPolicy: Schedule.recurs(2) }))
      expect(yield* never).toMatchObject({ _tag: "NotFound", attempts: 1 })
    }).pipe(Effect.provide(layer({ create_session: [{ status: 500, forever: true }], get_info: [{ status: 404 }] }))),
  )
})

describe("call options", () => {
  it.effect("call options are validated before a request is sent", () =>
    Effect.gen(function* () {
      const { call } = yield* Transport.Transport
      const problem = (options: Transport.CallOptions) =>
        Effect.map(Effect.flip(call(Api.createSession, session, options)), (error) => `${error._tag} ${error.message}`)
      expect(yield* problem({ headers: { "x-a": "b\r\nc" } })).toBe(
        "InvalidInput create_session.options.headers.x-a: contains a character that is not allowed in a header",
      )
      expect(yield* problem({ headers: { "X-Api-Key": "tml-other" } })).toMatch(
        /^InvalidInput .*X-Api-Key: reserved for/,
      )
      expect(yield* problem({ idempotencyKey: "a\nb" })).toMatch(/^InvalidInput .*x-idempotency-key: contains/)
      expect(yield* problem({ timeout: "abc" as never })).toBe(
        "InvalidInput create_session.options.timeout: is not a duration",
      )
      expect((yield* HttpScript.HttpScript).seen).toEqual([])
    }).pipe(Effect.provide(layer({}))),
  )
})

describe("unusable responses", () => {
  const failure = (reply: HttpScript.Reply, values?: TinkerConfig.Values) =>
    Effect.flatMap(Transport.Transport, ({ call }) => Effect.flip(call(Api.createSession, session))).pipe(
      Effect.provide(layer({ create_session: [{ status: 503 }, { ...reply, forever: true }] }, values)),
      VirtualTime.run,
    )

  it.effect("a response that was cut off, replaced or altered on its way is asked for again", () =>
    Effect.gen(function* () {
      const bodies = ["", "<html>", '{"session_id": "a', { session_id: 5 }, { session_id: "s" }]
      const { sessionId } = yield* Effect.flatMap(Transport.Transport, ({ call }) =>
        call(Api.createSession, session),
      ).pipe(Effect.provide(layer({ create_session: bodies.map((body) => ({ body })) })), VirtualTime.run)
      expect(sessionId).toBe("s")
    }),
  )

  it.effect("UnexpectedResponse has the request id, attempts and time like every other error", () =>
    Effect.gen(function* () {
      const headers = { "x-request-id": "req-1" }
      for (const [reply, attempts] of [
        [{ body: "<html>" }, expect.any(Number)],
        [{ body: "" }, expect.any(Number)],
        [{ body: { session_id: 5 } }, 5],
        [{ status: 302, body: "" }, 2],
      ] as const) {
        const error = yield* failure({ ...reply, headers: { ...headers, location: "::" } })
        expect(error).toMatchObject({ _tag: "UnexpectedResponse", attempts, requestId: Option.some("req-1") })
      }
    }),
  )

  it.effect("errors stay short for a response of any length", () =>
    Effect.gen(function* () {
      const long = yield* failure({ body: { session_id: { text: "x".repeat(3_000_000) } } })
      expect(long.message.length).toBeLessThan(2000)
      const refused = yield* failure({ status: 422, body: { detail: "y".repeat(3_000_000) } })
      expect(refused.message.length).toBeLessThan(2000)
      expect(JSON.stringify(refused).length).toBeLessThan(100_000)
      const deep = yield* failure({ body: `{"session_id":"s","type":${"[".repeat(5000)}${"]".repeat(5000)}}` })
      expect(deep._tag).toBe("UnexpectedResponse")
    }),
  )

  it.effect("a response is TooLarge only if its status is successful, and an error status keeps its own type", () =>
    Effect.gen(function* () {
      const values = { maxResponseBytes: 1000 }
      expect(yield* failure({ body: "x".repeat(1001) }, values)).toMatchObject({ reason: "TooLarge" })
      expect(yield* failure({ status: 404, body: "x".repeat(1001) }, values)).toMatchObject({ _tag: "NotFound" })
    }),
  )
})

describe("raw responses", () => {
  it.effect("a raw response has a status, headers and a stream", () =>
    Effect.gen(function* () {
      const { raw } = yield* Transport.Transport
      const answer = yield* raw(Api.createSession, session)
      expect([answer.status, answer.headers["x-a"]]).toEqual([200, "b"])
      const chunks = yield* Stream.runCollect(Stream.decodeText(answer.stream))
      expect(Chunk.join(chunks, "")).toBe("free text")
    }).pipe(
      Effect.scoped,
      Effect.provide(layer({ create_session: [{ status: 503 }, { headers: { "x-a": "b" }, body: "free text" }] })),
      VirtualTime.run,
    ),
  )

  it.effect("a failed raw request has the same error as a call", () =>
    Effect.gen(function* () {
      const { raw } = yield* Transport.Transport
      expect(yield* Effect.flip(raw(Api.getInfo, { modelId: "m" }))).toMatchObject({ _tag: "NotFound", detail: "gone" })
    }).pipe(Effect.scoped, Effect.provide(layer({ get_info: [{ status: 404, body: { detail: "gone" } }] }))),
  )
})

describe("redirects", () => {
  const where = Endpoint.raw({
    operation: "where",
    path: "where/:name",
    purpose: "rest",
    redirect: "manual",
    params: Schema.Struct({ name: Schema.String }),
  })

  it.effect("redirects are returned without being followed on request", () =>
    Effect.gen(function* () {
      const { call } = yield* Transport.Transport
      const { headers, status } = yield* call(where, { name: "a" })
      expect([status, headers["location"]]).toEqual([302, "https://storage/archive?signature=x"])
      expect((yield* HttpScript.HttpScript).seen.map(({ url }) => url)).toEqual([
        "http://server/api/v1/client/config",
        "http://server/api/v1/where/a",
      ])
    }).pipe(
      Effect.provide(
        layer({ "where/a": [{ status: 302, headers: { location: "https://storage/archive?signature=x" } }] }),
      ),
    ),
  )

  const audit = { eventType: "all" } as const
  const sent = Effect.map(HttpScript.HttpScript, (script) =>
    script.seen.filter(({ path }) => !path.endsWith("client/config")),
  )

  it.effect("redirects keep the credential on the same origin and drop it on another", () =>
    Effect.gen(function* () {
      const { call } = yield* Transport.Transport
      yield* call(Api.getAuditLog, audit)
      const [first, same, other] = yield* sent
      expect(first?.headers["x-api-key"]).toBe("tml-secret-key")
      expect([same?.url, same?.headers["x-api-key"]]).toEqual(["http://server/signed/a.json?sig=1", "tml-secret-key"])
      expect(other?.url).toBe("http://storage/b.json")
      expect(other?.headers).toEqual({ accept: "application/json", "user-agent": "effect-tinker/0.1.0" })
    }).pipe(
      Effect.provide(
        layer(
          {
            audit: [{ status: 302, headers: { location: "/signed/a.json?sig=1" } }],
            "signed/a.json": [{ status: 302, headers: { location: "http://storage/b.json" } }],
            "b.json": [{ body: { entries: [] } }],
          },
          { headers: { "x-proxy-secret": "hunter2" } },
        ),
      ),
    ),
  )

  it.effect("redirects send a body only to the same origin, and never from https to http", () =>
    Effect.gen(function* () {
      const { call } = yield* Transport.Transport
      const redirect = yield* Effect.flip(call(Api.createSession, session))
      expect(redirect.message).toBe(
        "create_session: unexpected response (Redirect, HTTP 307): it leads to http://elsewhere, and only a GET may leave its origin: is that the base URL?",
      )
      const [, again] = (yield* call(Api.getInfo, { modelId: "m" }), yield* sent).filter(({ path }) =>
        path.endsWith("info"),
      )
      expect([again?.method, again?.body]).toEqual(["POST", `{"model_id":"m","type":"get_info"}`])
    }).pipe(
      Effect.provide(
        layer({
          create_session: [{ status: 307, headers: { location: "http://elsewhere/x" } }],
          get_info: [{ status: 308, headers: { location: "/v2/info" } }],
          "v2/info": [{ body: { model_id: "m", model_data: {} } }],
        }),
      ),
    ),
  )

  it.effect("redirects never turn a modifying request into a GET, whose response would look like success", () =>
    Effect.gen(function* () {
      const { call } = yield* Transport.Transport
      const finish = yield* Effect.flip(call(Api.finishSession, { sessionId: "s", reason: { type: "success" } }))
      expect(finish.message).toMatch(/\(Redirect, HTTP 302\): it leads to http:\/\/login.example/)
      const remove = yield* Effect.flip(call(Api.deleteApiKey, {}))
      expect(remove.message).toMatch(/it would turn a DELETE into a GET$/)
      expect((yield* sent).map(({ method }) => method)).toEqual(["POST", "DELETE"])
    }).pipe(
      Effect.provide(
        layer({
          "s/finish": [{ status: 302, headers: { location: "http://login.example/login" } }],
          "auth/apikey/me": [{ status: 301, headers: { location: "/elsewhere" } }],
        }),
      ),
    ),
  )

  it.effect("redirects fail if they loop, leave https, or have no valid target", () =>
    Effect.gen(function* () {
      const { call } = yield* Transport.Transport
      expect((yield* Effect.flip(call(Api.getAuditLog, audit))).message).toMatch(/more than 10 redirects$/)
      expect((yield* Effect.flip(call(Api.health, {}))).message).toMatch(/it leads from https: to http:$/)
    }).pipe(
      Effect.provide(
        layer(
          {
            audit: [{ status: 302, headers: { location: "/api/v1/audit" }, forever: true }],
            healthz: [{ status: 302, headers: { location: "http://server/x" } }],
          },
          { baseUrl: "https://server" },
        ),
      ),
    ),
  )
})

describe("secrets", () => {
  it.effect("secrets are in no error, log or span of a run that fails in every way", () =>
    Effect.gen(function* () {
      const secrets = ["tml-secret-key", "cf-hunter2", "proxy-hunter3", "call-hunter4", "access-hunter5"]
      const printed: Array<string> = []
      // The fiber context is not printed, and contains the script of this test.
      const print = (value: unknown) => inspect(value, { depth: null })
      const spans: Array<Tracer.Span> = []
      const tracer = Tracer.make({
        span: (name, parent, context, links, startTime, kind) => {
          const attributes = new Map<string, unknown>()
          const events: Array<unknown> = []
          const span: Tracer.Span = {
            _tag: "Span",
            name,
            spanId: "1",
            traceId: "1",
            parent,
            context,
            status: { _tag: "Started", startTime },
            attributes,
            links,
            sampled: true,
            kind,
            end: (_time, exit) => void events.push(exit),
            attribute: (key, value) => void attributes.set(key, value),
            event: (...event) => void events.push(event),
            addLinks: () => undefined,
          }
          spans.push(Object.assign(span, { events }))
          return span
        },
        context: (f) => f(),
      })
      const echoed = (count: number) => `you sent ${secrets.slice(0, count).join(" and ")}`
      const echo = echoed(4)
      const exits = yield* Effect.gen(function* () {
        const { call } = yield* Transport.Transport
        const load = call(Api.loadWeights, {
          modelId: "m",
          seqId: 1,
          path: "tinker://r/weights/1",
          optimizer: false,
          weightsAccessToken: Redacted.make("access-hunter5"),
        })
        const create = call(Api.createSession, session, { headers: { "x-a": Redacted.make("call-hunter4") } })
        const info = call(Api.getInfo, { modelId: "m" })
        const audit = call(Api.getAuditLog, { eventType: "all" })
        return yield* Effect.forEach(
          [create, create, create, info, audit, load],
          (one: Effect.Effect<unknown, unknown>) => Effect.exit(one),
        )
      }).pipe(
        Effect.provide(
          layer(
            {
              create_session: [
                { status: 500, body: { detail: echo }, headers: { "x-deprecation-note": echo } },
                { status: 422, body: echo },
                { status: 200, body: echo },
                { status: 200, body: { session_id: 5, note: secrets } },
              ],
              load_weights: [
                {
                  status: 422,
                  headers: { "x-request-id": "req tml-secret-key" },
                  body: { detail: [{ msg: "no", input: { weights_access_token: "access-hunter5" } }] },
                },
              ],
              get_info: [{ drop: "after" }, { status: 403, body: { detail: [{ loc: ["x"], msg: echoed(3) }] } }],
              audit: [{ status: 200, body: { entries: [] }, headers: { "x-deprecation-note": echoed(3) } }],
            },
            {
              headers: { "x-proxy": Redacted.make("proxy-hunter3") },
              cloudflareAccess: { clientId: Redacted.make("id"), clientSecret: Redacted.make("cf-hunter2") },
            },
          ),
        ),
        VirtualTime.run,
        Effect.withTracer(tracer),
        Logger.withMinimumLogLevel(LogLevel.All),
        Effect.provide(
          Logger.replace(
            Logger.defaultLogger,
            Logger.make((entry) => void printed.push(print({ ...entry, context: undefined }))),
          ),
        ),
      )
      for (const exit of exits) {
        if (Exit.isSuccess(exit)) continue
        printed.push(Cause.pretty(exit.cause), print(exit.cause), JSON.stringify(exit.cause))
      }
      printed.push(...spans.map((span) => print({ ...span, context: undefined })))
      expect(exits.filter(Exit.isFailure).length).toBe(5)
      expect(spans.map((span) => span.name)).toContain("tinker.create_session")
      expect(printed.length).toBeGreaterThan(15)
      const everything = printed.join("\n")
      expect(everything).toContain("<redacted>")
      for (const secret of secrets) expect(everything).not.toContain(secret)
    }),
  )
})

describe("redaction of secrets", () => {
  it.effect("redaction covers unusual keys, keys within text and the key behind a JWT, and keeps plain words", () =>
    Effect.gen(function* () {
      const key = "tml-AbC.d/E+f=SECRETTAIL"
      const jwt = "eyJhbGciOiJub25lIn0.eyJleHAiOjk5OTk5OTk5OTl9.sig-SECRETTAIL"
      const error = yield* Effect.flatMap(Transport.Transport, ({ call }) =>
        Effect.flip(call(Api.createSession, session)),
      ).pipe(
        Effect.provide(
          layer(
            {
              "client/config": [{ body: { pjwt_auth_enabled: true } }],
              "auth/token": [{ body: { jwt } }],
              create_session: [
                {
                  status: 403,
                  body: { detail: `key=${key}; %22tml-abcSECRETTAIL, api_tml-SECRETTAIL, ${jwt} in prod`, ok: true },
                },
              ],
            },
            { apiKey: Redacted.make(key), headers: { "x-env": "prod", "x-flag": "true" } },
          ),
        ),
      )
      expect(error.message).not.toContain("SECRETTAIL")
      expect(error.message).toMatch(/ in prod$/)
      expect(error).toMatchObject({ body: Option.some({ ok: true }) })
    }),
  )
})

describe("logs", () => {
  const lines = (values?: TinkerConfig.Values) =>
    Effect.gen(function* () {
      const seen: Array<readonly [string, string]> = []
      yield* Effect.flatMap(Transport.Transport, ({ call }) => call(Api.createSession, session)).pipe(
        Effect.provide(
          layer(
            {
              create_session: [
                { status: 503, body: { detail: "busy" } },
                { body: { session_id: "s" }, headers: { "x-deprecation-note": "old", "x-deprecation-level": "error" } },
              ],
            },
            values,
          ),
        ),
        VirtualTime.run,
        Effect.provide(
          Logger.replace(
            Logger.defaultLogger,
            Logger.make(({ logLevel, message }) => void seen.push([logLevel.label, String(message)])),
          ),
        ),
      )
      return seen
    })

  it.effect("the log has the reason for each retry and the announcements of the server", () =>
    Effect.gen(function* () {
      expect(yield* lines()).toEqual([
        ["WARN", "Tinker: create_session failed on the server (HTTP 503): busy"],
        ["ERROR", "create_session: old"],
      ])
      expect(yield* lines({ logLevel: LogLevel.Error })).toEqual([["ERROR", "create_session: old"]])
    }),
  )
})

describe("closing and interruption", () => {
  it.effect("closing the client's scope fails calls that wait for a token", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const context = yield* Layer.buildWithScope(layer({ "client/config": [{ body: {}, delaySeconds: 1000 }] }), scope)
      const { call } = Context.get(context, Transport.Transport)
      const waiting = yield* Effect.fork(call(Api.createSession, session))
      yield* TestClock.adjust("1 second")
      yield* Scope.close(scope, Exit.void)
      expect(yield* Effect.flip(Fiber.join(waiting))).toMatchObject({
        _tag: "ClientClosed",
        operation: "client/config",
      })
      expect(yield* Effect.flip(call(Api.createSession, session))).toMatchObject({ _tag: "ClientClosed" })
    }),
  )

  it.effect("closing the client's scope ends later calls and calls between retries", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const context = yield* Layer.buildWithScope(layer({ create_session: [{ status: 503, forever: true }] }), scope)
      const { call } = Context.get(context, Transport.Transport)
      const retrying = yield* Effect.fork(call(Api.createSession, session))
      yield* TestClock.adjust("1 second")
      const before = Context.get(context, HttpScript.HttpScript).to("create_session").length
      yield* Scope.close(scope, Exit.void)
      yield* TestClock.adjust("1 hour")
      expect(yield* Effect.flip(Fiber.join(retrying))).toMatchObject({ _tag: "ClientClosed" })
      expect(yield* Effect.flip(call(Api.createSession, session))).toMatchObject({ _tag: "ClientClosed" })
      expect(Context.get(context, HttpScript.HttpScript).to("create_session").length).toBe(before)
    }),
  )

  it.effect("closing the client's scope leaves a running request its timeout", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const silent = layer({ create_session: [{ delaySeconds: 100_000 }] })
      const context = yield* Layer.buildWithScope(silent, scope)
      const { call } = Context.get(context, Transport.Transport)
      const waiting = yield* Effect.fork(call(Api.createSession, session, { timeout: "30 seconds" }))
      yield* TestClock.adjust("1 second")
      yield* Scope.close(scope, Exit.void)
      yield* TestClock.adjust("28 seconds")
      expect(Option.isNone(yield* Fiber.poll(waiting))).toBe(true)
      // Plus the delay before a retry that does not happen.
      yield* TestClock.adjust("5 seconds")
      expect(Option.isSome(yield* Fiber.poll(waiting))).toBe(true)
      expect(yield* Effect.flip(Fiber.join(waiting))).toMatchObject({ _tag: "ClientClosed" })
    }),
  )

  it.effect("interrupting a caller interrupts its call", () =>
    Effect.gen(function* () {
      const { call } = yield* Transport.Transport
      const fiber = yield* Effect.fork(call(Api.createSession, session))
      yield* TestClock.adjust("1 second")
      const exit = yield* Fiber.interrupt(fiber)
      expect(Exit.isFailure(exit) && Cause.isInterruptedOnly(exit.cause)).toBe(true)
    }).pipe(Effect.provide(layer({ create_session: [{ delaySeconds: 1000 }] }))),
  )
})
