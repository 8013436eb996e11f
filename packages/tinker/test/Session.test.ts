import { describe, expect, it } from "@effect/vitest"
import {
  Chunk,
  Context,
  Deferred,
  Effect,
  Encoding,
  Exit,
  Fiber,
  Layer,
  Logger,
  Option,
  Redacted,
  Schema,
  Scope,
  Stream,
  TestClock,
} from "effect"
import { TinkerConfig } from "effect-tinker"
import * as Session from "effect-tinker/Session"
import * as Transport from "effect-tinker/Transport"
import { DynamicConfig } from "effect-tinker/protocol/schemas/Session"
import * as HttpScript from "./support/HttpScript.ts"
import * as Recorded from "./support/Recorded.ts"
import * as VirtualTime from "./support/VirtualTime.ts"

const alive = { body: { type: "session_heartbeat" }, forever: true }

const layer = (
  replies: Record<string, ReadonlyArray<HttpScript.Reply>> = {},
  options?: Session.Options,
  values?: TinkerConfig.Values,
) =>
  Layer.provideMerge(
    Session.layer(options),
    Layer.provideMerge(
      Transport.layer,
      Layer.merge(
        TinkerConfig.layer({
          baseUrl: "http://server",
          apiKey: Redacted.make("tml-a"),
          sdkVersion: "0.36.0",
          ...values,
        }),
        HttpScript.layer({
          "client/config": [{ body: {} }],
          "client/dynamic_config": [{ body: {}, forever: true }],
          create_session: [{ body: { type: "create_session", session_id: "sess-0001" } }],
          session_heartbeat: [alive],
          "sess-0001/finish": [{ body: {}, forever: true }],
          ...replies,
        }),
      ),
    ),
  )

const requestsTo = (path: string) => Effect.map(HttpScript.HttpScript, (script) => script.to(path))
const bodies = (path: string) =>
  Effect.map(requestsTo(path), (requests) => requests.map((request) => JSON.parse(request.body) as unknown))

/** Runs a program with a session, closes everything, and returns all requests. */
const sentBy = <A, E>(
  program: Effect.Effect<A, E, Session.Session>,
  ...args: Parameters<typeof layer>
): Effect.Effect<HttpScript.Script, unknown> =>
  Effect.gen(function* () {
    const scope = yield* Scope.make()
    const context = yield* Layer.buildWithScope(layer(...args), scope)
    const exit = yield* Effect.exit(Effect.provide(program, context))
    yield* Scope.close(scope, exit)
    return yield* Effect.provide(HttpScript.HttpScript, context)
  }).pipe(VirtualTime.run)

describe("session start", () => {
  it.effect("vectors-0.25.0/bootstrap.json: a session fetches flags, then dynamic flags, then is created", () =>
    Effect.gen(function* () {
      const { exchanges } = Recorded.vector("vectors-0.25.0/bootstrap.json")
      const { seen } = yield* sentBy(Effect.void)
      expect(seen.slice(0, 3).map(({ path }) => path)).toEqual(exchanges.map(({ request }) => request.path))
    }),
  )

  it.effect.each([
    ["vectors/create_session_minimal.json", {}, {}],
    [
      "vectors/create_session_full.json",
      { userMetadata: { run: "x" }, displayName: "nightly" },
      { tags: ["b", "a"], projectId: "proj-1", headers: { "X-Extra": "1" } },
    ],
  ] as const)("session creation matches the recording %s", ([file, options, values]) =>
    Effect.gen(function* () {
      const { request, response } = Recorded.vector(file)
      const lines: Array<readonly [string, string]> = []
      const script = yield* sentBy(Effect.void, { create_session: [{ body: response.body }] }, options, values).pipe(
        Effect.provide(
          Logger.replace(
            Logger.defaultLogger,
            Logger.make(({ logLevel, message }) => void lines.push([logLevel.label, String(message)])),
          ),
        ),
      )
      const [created] = script.to("create_session")
      expect(JSON.parse(created?.body ?? "")).toEqual(request.body)
      expect(created?.headers["x-extra"]).toBe(request.headers["x-extra"])
      // Messages of the server at creation are logged at their level.
      const said = Object.entries(response.body as Record<string, string | null>).flatMap(([key, text]) =>
        key.endsWith("_message") && text !== null ? [[key.startsWith("i") ? "INFO" : "WARN", text]] : [],
      )
      expect(lines).toEqual(said)
    }),
  )

  it.effect("that can't be found names the base URL to check", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(
        Effect.provide(Session.Session, layer({ create_session: [{ status: 404, body: { detail: "nope" } }] })),
      )
      expect(error.message).toBe("create_session: not found (HTTP 404) at http://server: check the base URL: nope")
    }).pipe(VirtualTime.run),
  )

  it.effect(
    "behaviours/dynamic_config_404.json, vectors/client_dynamic_config.json: missing flags have their defaults",
    () =>
      Effect.gen(function* () {
        const { expect: recorded } = Recorded.behaviour("behaviours/dynamic_config_404.json")
        const { result } = Recorded.vector("vectors/client_dynamic_config.json")
        for (const reply of [{ status: 404, body: { detail: "nope" } }, { body: {} }]) {
          const dynamic = yield* Effect.flatMap(Session.Session, (session) => session.dynamic).pipe(
            Effect.provide(layer({ "client/dynamic_config": [reply] })),
            VirtualTime.run,
          )
          const encoded = yield* Schema.encode(DynamicConfig)(dynamic)
          expect({ $type: "ClientDynamicConfigResponse", ...encoded }).toEqual(result)
          expect(recorded.result).toEqual(result)
        }
      }),
  )

  it.effect("behaviours/dynamic_config_refresh_floor.json: flags are refreshed at most every 10 s", () =>
    Effect.gen(function* () {
      const { expect: recorded, script } = Recorded.behaviour("behaviours/dynamic_config_refresh_floor.json")
      const replies = script.map(({ body }) => ({ body }))
      const { to } = yield* sentBy(Effect.sleep("22 seconds"), { "client/dynamic_config": replies })
      const times = to("client/dynamic_config").map(({ at }) => Math.round(at / 1000))
      expect(times).toEqual(recorded.requests.map(({ t }) => Math.round(t)))
      expect(to("client/dynamic_config")[0]?.headers["x-stainless-read-timeout"]).toBe("10")
    }),
  )

  it.effect("a failed refresh keeps the known flags", () =>
    Effect.gen(function* () {
      const dynamic = yield* Effect.flatMap(Session.Session, (session) =>
        Effect.zipRight(Effect.sleep("11 seconds"), session.dynamic),
      ).pipe(
        Effect.provide(
          layer({
            "client/dynamic_config": [
              { body: { refresh_interval_sec: 1, sample_cancel_enabled: true } },
              { status: 500, forever: true },
            ],
          }),
        ),
        VirtualTime.run,
      )
      expect(dynamic.sampleCancelEnabled).toBe(true)
    }),
  )

  it.effect("a failure to start is reported and sends no finish request", () =>
    Effect.gen(function* () {
      const script = HttpScript.layer({
        "client/config": [{ body: {} }],
        "client/dynamic_config": [{ body: {} }],
        create_session: [{ status: 403, body: { detail: "no" } }],
      })
      const config = TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make("tml-a") })
      const [error, paths] = yield* Effect.gen(function* () {
        const error = yield* Effect.flip(Effect.scoped(Session.make()))
        return [error, (yield* HttpScript.HttpScript).seen.map(({ path }) => path)] as const
      }).pipe(Effect.provide(Layer.provideMerge(Transport.layer, Layer.merge(config, script))), VirtualTime.run)
      expect(error).toMatchObject({ _tag: "Forbidden", operation: "create_session" })
      expect(paths.at(-1)).toBe("/api/v1/create_session")
    }),
  )

  it.effect("session counters give out every number once under concurrency, each counter its own", () =>
    Effect.gen(function* () {
      const session = yield* Session.Session
      const models = yield* Effect.all(
        Array.from({ length: 100 }, () => Effect.zipLeft(session.nextModel, Effect.yieldNow())),
        { concurrency: "unbounded" },
      )
      expect(models.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 100 }, (_, i) => i))
      expect([yield* session.nextSampler, yield* session.nextSampler, yield* session.nextCustomLoss]).toEqual([0, 1, 0])
    }).pipe(Effect.provide(layer())),
  )
})

describe("session heartbeats", () => {
  it.effect(
    "vectors/session_heartbeat.json, behaviours/heartbeat_errors_continue.json: heartbeats continue after errors",
    () =>
      Effect.gen(function* () {
        const { expect: recorded, script } = Recorded.behaviour("behaviours/heartbeat_errors_continue.json")
        const { to } = yield* sentBy(Effect.sleep("32 seconds"), {
          session_heartbeat: script.map(({ body, status }) => ({ body, ...(status === undefined ? {} : { status }) })),
        })
        const beats = to("session_heartbeat")
        const created = to("create_session")[0]?.at ?? Number.NaN
        expect(beats.map(({ at }) => (at - created) / 1000)).toEqual([10, 20, 30])
        beats.forEach((beat, i) => {
          expect(JSON.parse(beat.body)).toEqual(recorded.requests[i]?.body)
          expect(beat.headers["x-stainless-read-timeout"]).toBe(recorded.requests[i]?.readTimeout)
        })
        expect(JSON.parse(beats[0]?.body ?? "")).toEqual(Recorded.vector("vectors/session_heartbeat.json").request.body)
      }),
  )

  it.effect("heartbeat failures appear in a stream", () =>
    Effect.gen(function* () {
      const { heartbeats } = yield* Session.Session
      const seen = yield* Stream.runCollect(Stream.take(heartbeats, 4))
      expect(Chunk.toReadonlyArray(seen).map(({ failure }) => Option.map(failure, (error) => error._tag))).toEqual([
        Option.none(),
        Option.some("Unavailable"),
        Option.some("Unavailable"),
        Option.none(),
      ])
    }).pipe(
      Effect.provide(layer({ session_heartbeat: [{ status: 500 }, { delaySeconds: 60 }, alive] })),
      VirtualTime.run,
    ),
  )

  it.effect("heartbeats continue after a defect and while no token can be obtained", () =>
    Effect.gen(function* () {
      // Running out of replies is a defect of the client.
      const defect = yield* sentBy(Effect.sleep("35 seconds"), { session_heartbeat: [] })
      expect(defect.to("session_heartbeat").length).toBe(3)
      const jwt = `${Encoding.encodeBase64Url("{}")}.${Encoding.encodeBase64Url(`{"exp":60}`)}.x`
      const reasons: Array<string> = []
      yield* sentBy(
        Effect.flatMap(Session.Session, ({ heartbeats, lost }) =>
          Effect.raceFirst(
            Stream.runForEach(heartbeats, ({ failure }) =>
              Effect.sync(() => reasons.push(Option.match(failure, { onNone: () => "ok", onSome: (e) => e.message }))),
            ),
            Effect.flip(lost),
          ),
        ),
        {
          "client/config": [{ body: { pjwt_auth_enabled: true } }],
          "auth/token": [{ body: { jwt } }, { delaySeconds: 1000, body: {}, forever: true }],
        },
        { sessionTimeout: "1 minute" },
      )
      // While the token is valid; then each heartbeat takes ten seconds, and the limit is reached.
      expect(reasons.slice(0, 2)).toEqual(["ok", "ok"])
      expect(reasons.slice(-2)).toEqual(["session_heartbeat timed out", "session_heartbeat timed out"])
    }),
  )

  it.effect("behaviours/heartbeat_410_stops.json: a 410 loses the session and notifies waiters", () =>
    Effect.gen(function* () {
      const { expect: recorded, script } = Recorded.behaviour("behaviours/heartbeat_410_stops.json")
      const errors: Array<unknown> = []
      const sent = yield* sentBy(
        Effect.flatMap(Session.Session, ({ lost }) =>
          Effect.zipRight(
            Effect.catchAll(lost, (error) => Effect.sync(() => errors.push(error))),
            Effect.sleep("22 seconds"),
          ),
        ),
        { session_heartbeat: script.map(({ body, status }) => ({ body, status: status ?? 0 })) },
      )
      expect(errors).toEqual([
        expect.objectContaining({ _tag: "SessionLost", sessionId: "sess-0001", reason: "Gone", detail: "finished" }),
      ])
      expect(sent.to("session_heartbeat").length).toBe(recorded.totalRequests)
      // A lost session is not finished.
      expect(sent.to("sess-0001/finish")).toEqual([])
    }),
  )

  it.effect("a silent session is logged after 120 s and is lost only if a limit is configured", () =>
    Effect.gen(function* () {
      const lines: Array<string> = []
      const silent = { session_heartbeat: [{ status: 503, forever: true }] }
      const logger = Logger.replace(
        Logger.defaultLogger,
        Logger.make(({ message }) => void lines.push(String(message))),
      )
      const lost = yield* Effect.flatMap(Session.Session, (session) => Effect.flip(session.lost)).pipe(
        Effect.provide(Layer.provideMerge(layer(silent, { sessionTimeout: "5 minutes" }), logger)),
        VirtualTime.run,
      )
      expect(lost).toMatchObject({ _tag: "SessionLost", reason: "Silent" })
      expect(lines.length).toBe(17)
      expect(lines[0]).toMatch(
        /^Tinker: no heartbeat response for session sess-0001 in 2m 10s: session_heartbeat failed/,
      )
      yield* Effect.flatMap(Session.Session, (session) =>
        Effect.raceFirst(Effect.exit(session.lost), Effect.sleep("1 hour")),
      ).pipe(
        Effect.map((end) => expect(end).toBeUndefined()),
        Effect.provide(Layer.provideMerge(layer(silent), logger)),
        VirtualTime.run,
      )
    }),
  )
})

describe("session finish", () => {
  it.effect("a session is finished when its program is interrupted or it was silent, but not when it is gone", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const context = yield* Layer.buildWithScope(layer(), scope)
      const program = yield* Effect.fork(Effect.provide(Effect.never, context))
      const exit = yield* Fiber.interrupt(program)
      yield* Scope.close(scope, exit)
      expect(yield* Effect.provide(bodies("sess-0001/finish"), context)).toEqual([
        { reason: { type: "interrupted" }, detail: null },
      ])
      const silent = yield* sentBy(
        Effect.flatMap(Session.Session, ({ lost }) => lost),
        { session_heartbeat: [{ status: 503, forever: true }] },
        { sessionTimeout: "1 minute" },
      )
      expect(silent.to("sess-0001/finish").length).toBe(1)
    }),
  )

  it.effect("finishing a session ends fibers that wait for its loss or watch its heartbeats", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const context = yield* Layer.buildWithScope(layer(), scope)
      const session = Context.get(context, Session.Session)
      const waiting = yield* Effect.fork(Effect.flip(session.lost))
      const watching = yield* Effect.fork(Stream.runDrain(session.heartbeats))
      yield* TestClock.adjust("1 second")
      yield* Scope.close(scope, Exit.void)
      expect(yield* Fiber.join(waiting)).toMatchObject({ _tag: "ClientClosed" })
      yield* Fiber.join(watching)
    }),
  )

  it.effect("interrupting a program while its session is created leaves no unfinished session", () =>
    Effect.gen(function* () {
      const slow = { create_session: [{ body: { session_id: "sess-0001" }, delaySeconds: 1 }] }
      // In steps of a few milliseconds around the answer: either nothing was created, or it is finished.
      for (const at of [500, 999, 1000, 1001]) {
        const scope = yield* Scope.make()
        const script = yield* Deferred.make<HttpScript.Script>()
        const building = yield* Effect.fork(
          Effect.onExit(
            Layer.buildWithScope(
              Layer.tap(layer(slow), (context) =>
                Deferred.succeed(script, Context.get(context, HttpScript.HttpScript)),
              ),
              scope,
            ),
            (exit) => Scope.close(scope, exit),
          ),
        )
        yield* TestClock.adjust(at)
        yield* Fiber.interrupt(building)
        const known = yield* Deferred.poll(script)
        if (Option.isSome(known)) expect((yield* known.value).to("sess-0001/finish").length).toBe(1)
      }
    }),
  )

  it.effect("vectors/session_finish.json: a session is finished with the reason why its scope closes", () =>
    Effect.gen(function* () {
      const { request } = Recorded.vector("vectors/session_finish.json")
      const finished = (program: Effect.Effect<unknown, unknown, Session.Session>) =>
        Effect.map(sentBy(program), ({ to }) => to("sess-0001/finish").map(({ body }) => JSON.parse(body) as unknown))
      expect(yield* finished(Effect.void)).toEqual([request.body])
      expect(yield* finished(Effect.fail({ _tag: "StepFailed" }))).toEqual([
        { reason: { type: "errored" }, detail: "StepFailed" },
      ])
      expect(yield* finished(Effect.die(new TypeError("private words")))).toEqual([
        { reason: { type: "errored" }, detail: "TypeError" },
      ])
      expect(yield* finished(Effect.interrupt)).toEqual([{ reason: { type: "interrupted" }, detail: null }])
    }),
  )

  it.effect(
    "behaviours/closed_client.json, behaviours/finish_never_without_close.json: a session is finished once, on close",
    () =>
      Effect.gen(function* () {
        const before = yield* Effect.zipRight(Session.Session, bodies("sess-0001/finish")).pipe(
          Effect.provide(layer()),
          VirtualTime.run,
        )
        expect(before).toEqual([])
        const dropped = Recorded.behaviour("behaviours/finish_never_without_close.json").expect
        expect(dropped.totalRequests).toBe(0)
        const closed = Recorded.behaviour("behaviours/closed_client.json").expect
        expect(closed.totalRequests).toBe(1)
        const scope = yield* Scope.make()
        const context = yield* Layer.buildWithScope(layer(), scope)
        yield* Scope.close(scope, Exit.void)
        yield* Scope.close(scope, Exit.void)
        expect(yield* Effect.provide(bodies("sess-0001/finish"), context)).toEqual([
          { reason: { type: "success" }, detail: null },
        ])
        // No session requests follow.
        yield* TestClock.adjust("1 hour")
        expect((yield* Effect.provide(requestsTo("session_heartbeat"), context)).length).toBe(0)
      }),
  )

  it.effect("an unresponsive server delays shutdown by at most 5 s", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      yield* Layer.buildWithScope(layer({ "sess-0001/finish": [{ delaySeconds: 1000, forever: true }] }), scope)
      const closing = yield* Effect.fork(Scope.close(scope, Exit.void))
      yield* TestClock.adjust("4 seconds")
      expect(Option.isNone(yield* Fiber.poll(closing))).toBe(true)
      yield* TestClock.adjust("2 seconds")
      expect(Option.isSome(yield* Fiber.poll(closing))).toBe(true)
    }),
  )
})
