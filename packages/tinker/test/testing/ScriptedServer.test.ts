import { describe, expect, it } from "@effect/vitest"
import { Clock, Effect, Either, FastCheck, Fiber, Option, Stream, TestClock } from "effect"
import { ApiFuture, RetryPolicy } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import * as Session from "effect-tinker/Session"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import * as Rig from "./rig.ts"

const { kinds } = ApiFuture
const { ScriptedServer: Server } = ScriptedServer

const { failure } = Rig

describe("ScriptedServer sessions", () => {
  it.effect("a scripted session is created, kept alive and finished", () =>
    Effect.gen(function* () {
      const seen = yield* Rig.run(
        Effect.gen(function* () {
          const server = yield* Server
          yield* Effect.sleep("35 seconds")
          expect(yield* server.sessions).toEqual([
            { id: "sess-0001", heartbeats: 3, lastHeartbeat: 30_000, state: "active" },
          ])
          return server
        }),
        { messages: { info: "hello" }, dynamicFlags: { refresh_interval_sec: 25 } },
      )
      expect((yield* seen.sessions).map(({ state }) => state)).toEqual(["success"])
      expect((yield* seen.requests).map(({ operation }) => operation)).toEqual([
        "client/config",
        "client/dynamic_config",
        "create_session",
        "session_heartbeat",
        "session_heartbeat",
        "client/dynamic_config",
        "session_heartbeat",
        "sessions/finish",
      ])
    }),
  )

  it.effect("a scripted server sends flags and messages", () =>
    Rig.run(
      Effect.gen(function* () {
        const session = yield* Session.Session
        expect(session.flags.fwdbwdMaxChunkLen).toBe(7)
        expect((yield* session.dynamic).sampleCancelEnabled).toBe(false)
        const created = yield* Rig.call(Api.createSession, { sdkVersion: "1" })
        expect(created.warningMessage).toEqual(Option.some("soon"))
        const server = yield* Server
        yield* server.configure({ dynamicFlags: { sample_cancel_enabled: true } })
        yield* Effect.sleep("6 minutes")
        expect((yield* session.dynamic).sampleCancelEnabled).toBe(true)
      }),
      { flags: { fwdbwd_max_chunk_len: 7 }, dynamicFlags: "missing", messages: { warning: "soon" } },
    ),
  )

  it.effect("a scripted server works with TestClock", () =>
    Effect.gen(function* () {
      const server = yield* Server
      const modelId = yield* Rig.createModel()
      const step = yield* Effect.fork(Effect.flatMap(Rig.submitStep(modelId, 1), Rig.stepped))
      yield* TestClock.adjust("9 seconds")
      expect(Option.isNone(yield* Fiber.poll(step))).toBe(true)
      expect(yield* Rig.applied).toEqual([])
      yield* TestClock.adjust("1 second")
      yield* Fiber.join(step)
      expect(yield* Rig.applied).toEqual([1])
      expect((yield* server.sessions).map(({ heartbeats }) => heartbeats)).toEqual([1])
    }).pipe(Effect.provide(Rig.layer({ work: ({ operation }) => (operation === "optim_step" ? "10 seconds" : 0) }))),
  )

  it.effect("ten hours with rate limits and outages pass instantly in virtual time", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const session = yield* Session.Session
        const modelId = yield* Rig.createModel()
        // A step every 10 minutes, each with half a minute of work.
        yield* Effect.forEach(
          Array.from({ length: 60 }, (_, i) => i + 1),
          (seq) =>
            Effect.zipRight(Effect.flatMap(Rig.submitStep(modelId, seq), Rig.stepped), Effect.sleep("10 minutes")),
          { discard: true },
        )
        expect(yield* Rig.applied).toEqual(Array.from({ length: 60 }, (_, i) => i + 1))
        const now = yield* Clock.currentTimeMillis
        expect(now).toBeGreaterThan(10 * 3_600_000)
        expect(
          Option.isNone((yield* Stream.runHead(session.heartbeats)).pipe(Option.flatMap(({ failure }) => failure))),
        ).toBe(true)
        // Rejected heartbeats don't count; unanswered ones do.
        const [state] = yield* server.sessions
        const refused = (yield* server.requestsTo("session_heartbeat")).filter(({ answered }) => answered !== 200)
        expect(refused.length).toBeGreaterThan(3)
        expect(state?.heartbeats).toBe(Math.floor(now / 10_000) - refused.length)
      }),
      {
        work: ({ operation }) => (operation === "optim_step" ? "30 seconds" : 0),
        faults: [
          { after: "1 hour", for: "3 minutes", status: 429, headers: { "retry-after": "20" } },
          { after: "3 hours", for: "2 minutes", status: 503 },
          // Shorter than the minimum duration of ten retries.
          { after: "7 hours", for: "40 seconds", drop: "before" },
        ],
      },
    ),
  )
})

describe("ScriptedServer sequence numbers", () => {
  it.effect(
    "dedupe mode: an equal request with a used number is the same request, and a different one is a conflict",
    () =>
      Rig.run(
        Effect.gen(function* () {
          const modelId = yield* Rig.createModel()
          const first = yield* Rig.submitStep(modelId, 1)
          expect(yield* Rig.submitStep(modelId, 1)).toEqual(first)
          expect(yield* failure(Rig.submitStep(modelId, 1, 1))).toBe("RequestRejected Conflict")
          expect(yield* failure(Rig.submitStep(modelId, 0))).toBe("RequestRejected Conflict")
          yield* Rig.stepped(first)
          expect(yield* Rig.submitStep(modelId, 1)).toEqual(first)
          expect((yield* Rig.model).weights.steps).toBe(1)
        }),
      ),
  )

  it.effect("dedupe mode: later numbers wait for the first", () =>
    Rig.run(
      Effect.gen(function* () {
        const modelId = yield* Rig.createModel()
        const { attach } = yield* ApiFuture.Futures
        const second = yield* attach(kinds.forwardBackward, (yield* Rig.submitPass(modelId, 2)).requestId)
        const third = yield* attach(kinds.optimStep, (yield* Rig.submitStep(modelId, 3)).requestId)
        yield* Effect.sleep("5 minutes")
        expect(yield* second.poll).toEqual(Option.none())
        expect(yield* Rig.model).toMatchObject({ applied: [], held: [2, 3] })
        yield* Rig.submitPass(modelId, 1, Rig.prepare(Rig.datum(5, 6)))
        yield* second.await
        yield* third.await
        expect(yield* Rig.applied).toEqual([1, 2, 3])
        expect(yield* Rig.model).toMatchObject({ held: [], gradient: 0, weights: { steps: 1 } })
      }),
    ),
  )

  it.effect("nextOnly mode: only the next number is accepted, and only a success uses it", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const modelId = yield* Rig.createModel()
        const conflict = yield* Effect.flip(Rig.submitStep(modelId, 2))
        expect(conflict).toMatchObject({ reason: "Conflict", detail: "Sequence conflict: expected 1, got 2" })
        yield* Effect.flatMap(Rig.submitStep(modelId, 1), Rig.stepped)
        expect(yield* failure(Rig.submitStep(modelId, 1))).toBe("RequestRejected Conflict")
        // The failed request leaves its number unused.
        yield* server.fault({ on: "optim_step", failFuture: { error: "no memory", category: "server" } })
        expect(yield* failure(Effect.flatMap(Rig.submitStep(modelId, 2), Rig.stepped))).toBe("RequestFailed Server")
        expect(yield* failure(Rig.submitStep(modelId, 3))).toBe("RequestRejected Conflict")
        yield* Effect.flatMap(Rig.submitStep(modelId, 2), Rig.stepped)
        expect(yield* Rig.applied).toEqual([1, 2])
      }),
      { mode: "nextOnly" },
    ),
  )

  it.effect("nextOnly mode: numbers are accepted in order while earlier requests run, until one fails", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const modelId = yield* Rig.createModel()
        yield* server.fault({ on: "optim_step", nth: 2, failFuture: { error: "no memory", category: "server" } })
        const accepted = yield* Effect.forEach([1, 2, 3], (seq) => Rig.submitStep(modelId, seq))
        expect(yield* failure(Rig.submitStep(modelId, 5))).toBe("RequestRejected Conflict")
        const results = yield* Effect.forEach(accepted, (one) => Effect.either(Rig.stepped(one)))
        expect(results.map(Either.isRight)).toEqual([true, false, false])
        expect(Option.getOrThrow(Either.getLeft(results[2] ?? Either.right({ metrics: {} })))).toMatchObject({
          reason: "Conflict",
          detail: "Sequence conflict: expected 2, got 3",
        })
        yield* Effect.flatMap(Rig.submitStep(modelId, 2), Rig.stepped)
        expect(yield* Rig.applied).toEqual([1, 2])
      }),
      { mode: "nextOnly", work: "10 seconds" },
    ),
  )

  it.effect("anything mode: every number is accepted", () =>
    Rig.run(
      Effect.gen(function* () {
        const modelId = yield* Rig.createModel()
        for (const seq of [3, 1, 1]) yield* Effect.flatMap(Rig.submitStep(modelId, seq), Rig.stepped)
        expect(yield* Rig.applied).toEqual([3, 1, 1])
      }),
      { mode: "anything" },
    ),
  )

  it.effect("a scripted server forgets old requests if the number to keep is given", () =>
    Rig.run(
      Effect.gen(function* () {
        const modelId = yield* Rig.createModel()
        const first = yield* Rig.submitStep(modelId, 1)
        for (let seq = 2; seq <= 50; seq++) yield* Effect.flatMap(Rig.submitStep(modelId, seq), Rig.stepped)
        const { requests } = yield* Server
        expect((yield* requests).length).toBeLessThanOrEqual(10)
        expect((yield* Rig.applied).length).toBeLessThanOrEqual(10)
        expect((yield* Rig.applied).at(-1)).toBe(50)
        expect((yield* Rig.model).weights.steps).toBe(50)
        expect(yield* failure(Rig.stepped(first))).toBe("NotFound")
      }),
      { keep: 5 },
    ),
  )

  const rejected = { on: "optim_step", nth: 2, status: 400, body: { detail: "no" } } as const

  it.effect.each(["dedupe", "nextOnly"] as const)("%s mode: a rejected request leaves its number unused", (mode) =>
    Rig.run(
      Effect.gen(function* () {
        const modelId = yield* Rig.createModel()
        yield* Rig.submitStep(modelId, 1)
        expect(yield* failure(Rig.submitStep(modelId, 2))).toBe("RequestRejected BadRequest")
        yield* Effect.flatMap(Rig.submitStep(modelId, 2, 1), Rig.stepped)
        expect(yield* Rig.applied).toEqual([1, 2])
      }),
      { mode, faults: [rejected] },
    ),
  )

  it.effect.each(["dedupe", "nextOnly"] as const)(
    "%s mode: a rejected request uses its number if rejectedUsesNumber is set",
    (mode) =>
      Rig.run(
        Effect.gen(function* () {
          const modelId = yield* Rig.createModel()
          yield* Rig.submitStep(modelId, 1)
          expect(yield* failure(Rig.submitStep(modelId, 2))).toBe("RequestRejected BadRequest")
          expect(yield* failure(Rig.submitStep(modelId, 2, 1))).toBe("RequestRejected Conflict")
          yield* Effect.flatMap(Rig.submitStep(modelId, 3), Rig.stepped)
          expect(yield* Rig.applied).toEqual([1, 3])
        }),
        { mode, rejectedUsesNumber: true, faults: [rejected], work: mode === "nextOnly" ? "10 seconds" : 0 },
      ),
  )

  it.effect("dedupe mode: a used-up number releases the requests that wait for it", () =>
    Rig.run(
      Effect.gen(function* () {
        const modelId = yield* Rig.createModel()
        const later = yield* Rig.submitStep(modelId, 2)
        expect(yield* failure(Rig.submitStep(modelId, 1))).toBe("RequestRejected BadRequest")
        yield* Rig.stepped(later)
        expect(yield* Rig.applied).toEqual([2])
      }),
      { rejectedUsesNumber: true, faults: [rejected], work: "10 seconds" },
    ),
  )

  it.effect("each scripted model has its own sequence numbers", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const [a, b] = [yield* Rig.createModel(0), yield* Rig.createModel(1)]
        for (const modelId of [a, b]) yield* Rig.submitStep(modelId, 1)
        expect((yield* server.models).map(({ applied, id }) => [id, applied.length])).toEqual([
          ["sess-0001:train:0", 1],
          ["sess-0001:train:1", 1],
        ])
        expect(yield* failure(Rig.submitStep("sess-0001:train:2", 1))).toBe("NotFound")
      }),
    ),
  )
})

describe("ScriptedServer faults", () => {
  it.effect("a status fault replaces the server's response and headers", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const modelId = yield* Rig.createModel()
        const fault = yield* server.fault({
          on: "optim_step",
          status: 503,
          body: "busy",
          headers: { "retry-after": "7", "x-should-retry": "true" },
        })
        yield* Effect.flatMap(Rig.submitStep(modelId, 1), Rig.stepped)
        const [first, second] = yield* server.requestsTo("optim_step")
        expect([first?.answered, second?.answered]).toEqual([503, 200])
        expect((second?.at ?? 0) - (first?.at ?? 0)).toBe(7_000)
        expect(second?.bytes).toEqual(first?.bytes)
        expect(yield* fault.fired).toBe(1)
        yield* server.fault({ on: "optim_step", status: 422, body: { detail: "bad" } })
        expect(yield* Effect.flip(Rig.submitStep(modelId, 2))).toMatchObject({ reason: "Unprocessable", detail: "bad" })
        expect(yield* Rig.applied).toEqual([1])
      }),
    ),
  )

  it.effect.each([
    ["before", "Connect", []],
    ["underway", "Disconnected", []],
    ["after", "Disconnected", [1]],
  ] as const)("a drop fault loses the connection: %s", ([drop, reason, applied]) =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const modelId = yield* Rig.createModel()
        yield* server.fault({ on: "optim_step", drop, for: "6 minutes" })
        expect(yield* failure(Rig.submitStep(modelId, 1))).toBe(`Unavailable ${reason}`)
        expect(yield* Rig.applied).toEqual(applied)
        const answers = (yield* server.requestsTo("optim_step")).map(({ answered }) => answered)
        expect(answers).toEqual(answers.map(() => drop))
        // The connection and the number work again.
        yield* Effect.sleep("2 minutes")
        yield* Effect.flatMap(Rig.submitStep(modelId, 1), Rig.stepped)
        expect(yield* Rig.applied).toEqual([1])
      }),
    ),
  )

  it.effect("a hang fault never answers, so the client times out", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const modelId = yield* Rig.createModel()
        yield* server.fault({ on: "optim_step", hang: true })
        yield* Effect.flatMap(Rig.submitStep(modelId, 1), Rig.stepped)
        const [first, second] = yield* server.requestsTo("optim_step")
        expect(first?.answered).toBe(undefined)
        expect((second?.at ?? 0) - (first?.at ?? 0)).toBeGreaterThanOrEqual(60_000)
        expect(yield* Rig.applied).toEqual([1])
      }),
    ),
  )

  it.effect("a delay fault applies the request immediately and answers late", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const modelId = yield* Rig.createModel()
        yield* server.fault({ on: "optim_step", delay: "20 seconds" })
        yield* server.fault({ on: "optim_step", delay: "20 seconds", status: 400, body: { detail: "no" } })
        const before = yield* Clock.currentTimeMillis
        const fiber = yield* Effect.fork(Rig.submitStep(modelId, 1))
        yield* Effect.sleep("1 second")
        expect(yield* Rig.applied).toEqual([1])
        yield* Fiber.join(fiber)
        expect((yield* Clock.currentTimeMillis) - before).toBe(20_000)
        yield* Effect.flip(Rig.submitStep(modelId, 2))
        expect((yield* Clock.currentTimeMillis) - before).toBe(40_000)
      }),
    ),
  )

  it.effect("a garbage fault is a successful response with an invalid body", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const modelId = yield* Rig.createModel()
        yield* server.fault({ on: "optim_step", garbage: "<html>", for: "6 minutes" })
        expect(yield* failure(Rig.submitStep(modelId, 1))).toBe("UnexpectedResponse NotJson")
        expect(yield* Rig.applied).toEqual([])
      }),
    ),
  )

  it.effect("a failFuture fault accepts the request and fails its result", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const modelId = yield* Rig.createModel()
        const outcomes = [
          [{ error: "bad", category: "user" }, "RequestRejected UserCategory"],
          [{ error: "bad", category: "server" }, "RequestFailed Server"],
          [{ error: "bad" }, "RequestFailed Unknown"],
          [{ status: 422, detail: "bad" }, "RequestRejected Unprocessable"],
          [{ status: 404, detail: "bad" }, "NotFound"],
        ] as const
        for (const [index, [failFuture, expected]] of outcomes.entries()) {
          yield* server.fault({ on: "forward_backward", failFuture })
          const accepted = yield* Rig.submitPass(modelId, index + 1)
          const error = yield* Effect.flip(Rig.passed(accepted))
          expect("reason" in error ? `${error._tag} ${error.reason}` : error._tag).toBe(expected)
          expect(error).toMatchObject({ detail: "bad" })
        }
        // The numbers are used, but nothing was applied.
        expect(yield* Rig.model).toMatchObject({ applied: [], gradient: 0 })
        yield* Effect.flatMap(Rig.submitStep(modelId, outcomes.length + 1), Rig.stepped)
      }),
    ),
  )

  it.effect("an expireFuture fault applies the request and loses its result", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const modelId = yield* Rig.createModel()
        yield* server.fault({ on: "optim_step", expireFuture: true })
        expect(yield* failure(Effect.flatMap(Rig.submitStep(modelId, 1), Rig.stepped))).toBe("PromiseExpired")
        expect(yield* Rig.applied).toEqual([1])
      }),
    ),
  )

  it.effect.each(["408", "try_again"] as const)(
    "a stateFor fault reports a queue state and its reason, by %s",
    (pending) =>
      Rig.run(
        Effect.gen(function* () {
          const server = yield* Server
          const { attach } = yield* ApiFuture.Futures
          const modelId = yield* Rig.createModel()
          yield* server.fault({
            on: "optim_step",
            stateFor: { queueState: "paused_capacity", reason: "no machine", duration: "2 minutes" },
          })
          const { requestId } = yield* Rig.submitStep(modelId, 1)
          const future = yield* attach(kinds.optimStep, requestId)
          const states = yield* Stream.runCollect(future.queueState)
          yield* future.await
          expect([...states].map(({ reason, since, state }) => [state, Option.getOrNull(reason), since])).toEqual([
            ["submitted", null, 0],
            ["paused_capacity", "no machine", 30_000],
          ])
          expect(yield* Clock.currentTimeMillis).toBe(120_000)
          expect(
            (yield* server.requestsTo("retrieve_future")).map(({ answered, at }) => [answered, at]),
          ).toContainEqual([pending === "408" ? 408 : 200, 60_000])
        }),
        { pending },
      ),
  )

  it.effect("an endSession fault ends everything in the session, and nothing else", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const session = yield* Session.Session
        const modelId = yield* Rig.createModel()
        const running = yield* Rig.submitStep(modelId, 1)
        const other = yield* Rig.call(Api.createSession, { sdkVersion: "1" })
        yield* server.fault({ on: "session_heartbeat", endSession: true })
        expect(yield* failure(session.lost)).toBe("SessionLost Gone")
        expect(yield* failure(Rig.submitStep(modelId, 2))).toBe("RequestRejected Gone")
        expect(
          yield* failure(Rig.call(Api.retrieveFuture, { requestId: running.requestId, allowMetadataOnly: true })),
        ).toBe("RequestRejected Gone")
        yield* Rig.call(Api.heartbeat, { sessionId: other.sessionId })
        yield* server.endSession()
        expect(yield* failure(Rig.call(Api.heartbeat, { sessionId: other.sessionId }))).toBe("RequestRejected Gone")
        // Work in progress is not applied.
        yield* Effect.sleep("1 minute")
        expect(yield* Rig.applied).toEqual([])
      }),
      { work: ({ operation }) => (operation === "optim_step" ? "30 seconds" : 0) },
    ),
  )

  it.effect("rateLimit answers 429 with retry-after for a while", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const modelId = yield* Rig.createModel()
        const storm = yield* server.rateLimit({ for: "1 minute", on: "optim_step", retryAfter: "25 seconds" })
        yield* Rig.submitStep(modelId, 1)
        expect((yield* server.requestsTo("optim_step")).map(({ answered, at }) => [answered, at])).toEqual([
          [429, 0],
          [429, 25_000],
          [429, 50_000],
          [200, 75_000],
        ])
        expect(yield* storm.fired).toBe(3)
      }),
    ),
  )

  it.effect("faults apply to their requests in order, as often as configured", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const modelId = yield* Rig.createModel()
        const second = yield* server.fault({ on: "optim_step", nth: 2, times: 2, status: 400, body: "second" })
        const odd = yield* server.fault({ on: ({ seq }) => seq === 5, status: 400, body: "five", times: 2 })
        const rest = yield* server.fault({ on: "optim_step", nth: 2, status: 400, body: "rest", times: 100 })
        const answers = yield* Effect.forEach([1, 2, 3, 4, 5, 5, 6], (seq) =>
          Effect.match(Rig.submitStep(modelId, seq), {
            onFailure: (error) => ("detail" in error ? error.detail : error._tag),
            onSuccess: () => "ok",
          }),
        )
        expect(answers).toEqual(["ok", "second", "second", "rest", "five", "five", "rest"])
        expect(yield* Effect.all([second.fired, odd.fired, rest.fired])).toEqual([2, 2, 2])
        yield* rest.remove
        yield* Rig.submitStep(modelId, 6)
      }),
    ),
  )

  it.effect("faults apply only within their window", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        yield* server.fault({ on: "healthz", after: "1 minute", for: "1 minute", status: 400, body: "no" })
        const healthy = Effect.isSuccess(Rig.call(Api.health, {}))
        const seen = yield* Effect.forEach([0, 59, 1, 59, 1], (seconds) =>
          Effect.zipRight(Effect.sleep(seconds * 1000), healthy),
        )
        expect(seen).toEqual([true, true, false, false, true])
      }),
    ),
  )
})

describe("ScriptedServer training", () => {
  it.effect("scripted training returns log probabilities for every target and the matching loss", () =>
    Rig.run(
      Effect.gen(function* () {
        const modelId = yield* Rig.createModel()
        const { metrics, outputs, outputType } = yield* Effect.flatMap(Rig.submitPass(modelId, 1), Rig.passed)
        expect(outputType).toBe("TorchLossReturn")
        expect(outputs.map(({ logprobs }) => logprobs?.shape)).toEqual([[3], [2]])
        const logprobs = outputs.map(({ logprobs }) => [...(logprobs?.data ?? [])].map(Number))
        for (const value of logprobs.flat()) {
          expect(value).toBeLessThan(0)
          expect(value).toBeGreaterThan(-10)
        }
        const weights = [
          [1, 0.1, 1],
          [1, 0.1],
        ]
        const loss = logprobs.flatMap((row, i) => row.map((logprob, j) => -logprob * (weights[i]?.[j] ?? Number.NaN)))
        expect(metrics["loss:sum"]).toBeCloseTo(
          loss.reduce((a, b) => a + b, 0),
          5,
        )
      }),
    ),
  )

  it.effect.prop(
    "scripted training gives the same weights in both encodings and however the data are split",
    {
      datums: FastCheck.array(FastCheck.array(FastCheck.nat(1000), { minLength: 2, maxLength: 5 }), {
        minLength: 1,
        maxLength: 4,
      }),
      cut: FastCheck.nat(4),
    },
    ({ cut, datums }) =>
      Rig.run(
        Effect.gen(function* () {
          const data = datums.map((tokens) => Rig.datum(...tokens))
          const server = yield* Server
          const train = (number: number, wire: "protobuf" | "json", parts: ReadonlyArray<typeof data>) =>
            Effect.gen(function* () {
              const modelId = yield* Rig.createModel(number)
              const outputs = yield* Effect.forEach(
                parts.filter((part) => part.length > 0),
                (part, i) => Effect.flatMap(Rig.submitPass(modelId, i + 1, Rig.prepare(...part), wire), Rig.passed),
              )
              const { length } = outputs
              yield* Effect.flatMap(Rig.submitStep(modelId, length + 1), Rig.stepped)
              return outputs.flatMap(({ outputs }) => outputs)
            })
          const whole = yield* train(0, "protobuf", [data])
          expect(yield* train(1, "json", [data])).toEqual(whole)
          expect(yield* train(2, "protobuf", [data.slice(0, cut), data.slice(cut)])).toEqual(whole)
          const weights = (yield* server.models).map(({ weights }) => weights)
          expect(weights).toEqual([weights[0], weights[0], weights[0]])
          // Different data give different weights.
          yield* train(3, "protobuf", [[...data, Rig.datum(1, 2)]])
          expect((yield* server.models)[3]?.weights).not.toEqual(weights[0])
        }),
      ),
    { fastCheck: { numRuns: 10 } },
  )

  it.effect("scripted training depends on the order of steps, and a forward pass changes nothing", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const other = Rig.prepare(Rig.datum(4, 4, 4))
        const train = (number: number, batches: ReadonlyArray<typeof Rig.batch>, forward: boolean) =>
          Effect.gen(function* () {
            const modelId = yield* Rig.createModel(number)
            let seq = 0
            for (const batch of batches) {
              if (forward)
                yield* Effect.flatMap(Rig.submitForward(modelId, ++seq, batch), (pass) =>
                  Rig.result(kinds.forward, pass),
                )
              if (forward)
                yield* Effect.flatMap(Rig.submitForward(modelId, ++seq, batch, "json"), (pass) =>
                  Rig.result(kinds.forward, pass),
                )
              yield* Effect.flatMap(Rig.submitPass(modelId, ++seq, batch), Rig.passed)
              yield* Effect.flatMap(Rig.submitStep(modelId, ++seq), Rig.stepped)
            }
          })
        yield* train(0, [Rig.batch, other], false)
        yield* train(1, [Rig.batch, other], true)
        yield* train(2, [other, Rig.batch], false)
        const [a, b, c] = yield* server.models
        expect(a?.weights.steps).toBe(2)
        expect(b?.weights).toEqual(a?.weights)
        expect(b?.applied.map(({ operation }) => operation).slice(0, 4)).toEqual([
          "forward",
          "forward",
          "forward_backward",
          "optim_step",
        ])
        expect(c?.weights).not.toEqual(a?.weights)
        expect(b?.hash).not.toBe(a?.hash)
      }),
    ),
  )

  it.effect("scripted training returns the metrics of the script", () =>
    Rig.run(
      Effect.gen(function* () {
        const modelId = yield* Rig.createModel()
        const pass = yield* Effect.flatMap(Rig.submitPass(modelId, 1), Rig.passed)
        const step = yield* Effect.flatMap(Rig.submitStep(modelId, 2), Rig.stepped)
        expect(pass.metrics).toMatchObject({ "steps:sum": 0, "data:sum": 2, "seq:sum": 1 })
        expect(step.metrics).toEqual({ "steps:sum": 1, "data:sum": 0, "seq:sum": 2 })
      }),
      { metrics: ({ data, seq, steps }) => ({ "steps:sum": steps, "data:sum": data, "seq:sum": seq }) },
    ),
  )

  it.effect.each([0, 10_000])("a script that throws fails the request, after %d ms", (work) =>
    Rig.run(
      Effect.gen(function* () {
        const modelId = yield* Rig.createModel()
        const accepted = yield* Rig.submitStep(modelId, 1)
        const error = yield* Effect.flip(Rig.stepped(accepted))
        expect(error).toMatchObject({ reason: "Server", detail: expect.stringContaining("too much") })
      }),
      {
        work,
        metrics: () => {
          throw new RangeError("too much")
        },
      },
    ),
  )

  it.effect("a scripted model works on one request after the other", () =>
    Rig.run(
      Effect.gen(function* () {
        const modelId = yield* Rig.createModel()
        const accepted = yield* Effect.forEach([1, 2, 3], (seq) => Rig.submitStep(modelId, seq))
        const times = yield* Effect.forEach(
          accepted,
          (one) => Effect.zipRight(Rig.stepped(one), Clock.currentTimeMillis),
          { concurrency: "unbounded" },
        )
        expect(times).toEqual([60_000, 110_000, 160_000])
      }),
      { work: ({ operation }) => (operation === "create_model" ? "10 seconds" : "50 seconds") },
    ),
  )

  it.effect("a large scripted result is first answered with its size", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const modelId = yield* Rig.createModel()
        yield* Effect.flatMap(Rig.submitPass(modelId, 1), Rig.passed)
        const polls = yield* server.requestsTo("retrieve_future")
        expect(polls.map(({ json }) => json)).toEqual([
          { request_id: "1", allow_metadata_only: true },
          { request_id: "2", allow_metadata_only: true },
          { request_id: "2", allow_metadata_only: false },
        ])
      }),
      { metadataAbove: 100, requestIds: "decimal" },
    ),
  )
})

const sessionId = "sess-0001"

describe("ScriptedServer weights", () => {
  /** Two steps, with something between them. */
  const twoSteps = (
    between: (modelId: string) => Effect.Effect<{ readonly modelId: string; readonly seq: number }, unknown, Rig.Rig>,
  ) =>
    Effect.gen(function* () {
      const first = yield* Rig.createModel(0)
      yield* Rig.submitPass(first, 1)
      yield* Effect.flatMap(Rig.submitStep(first, 2), Rig.stepped)
      const { modelId, seq } = yield* between(first)
      yield* Rig.submitPass(modelId, seq)
      yield* Effect.flatMap(Rig.submitStep(modelId, seq + 1), Rig.stepped)
      const models = yield* (yield* Server).models
      return models.find(({ id }) => id === modelId)?.weights
    })

  const save = (modelId: string, seqId: number, overwrite = false) =>
    Effect.flatMap(Rig.call(Api.saveWeights, { modelId, path: "here", seqId, overwrite }), (accepted) =>
      Rig.result(kinds.saveWeights, accepted),
    )

  const resumed = (optimizer: boolean) =>
    twoSteps((modelId) =>
      Effect.gen(function* () {
        const { path } = yield* save(modelId, 3)
        expect(path).toBe("tinker://sess-0001:train:0/weights/here")
        const second = yield* Rig.createModel(1)
        const loaded = yield* Rig.call(Api.loadWeights, { modelId: second, seqId: 1, path, optimizer })
        yield* Rig.result(kinds.loadWeights, loaded)
        return { modelId: second, seq: 2 }
      }),
    )

  it.effect("training continues unchanged after scripted weights are saved and loaded", () =>
    Effect.gen(function* () {
      const straight = yield* Rig.run(twoSteps((modelId) => Effect.succeed({ modelId, seq: 3 })))
      expect(straight?.steps).toBe(2)
      expect(yield* Rig.run(resumed(true))).toEqual(straight)
      // The optimizer state is part of the weights.
      expect(yield* Rig.run(resumed(false))).not.toEqual(straight)
    }),
  )

  it.effect("a new scripted model can be created from saved weights", () =>
    Effect.gen(function* () {
      const straight = yield* Rig.run(twoSteps((modelId) => Effect.succeed({ modelId, seq: 3 })))
      const loaded = yield* Rig.run(
        twoSteps((modelId) =>
          Effect.gen(function* () {
            const { path } = yield* save(modelId, 3)
            const accepted = yield* Rig.call(Api.loadWeightsAsModel, {
              sessionId,
              modelSeqId: 7,
              path,
              optimizer: true,
            })
            yield* Rig.result(kinds.loadWeights, accepted)
            const info = yield* Rig.call(Api.getInfo, { modelId: "sess-0001:train:7" })
            expect(info.modelName).toEqual(Option.some(Rig.baseModel))
            return { modelId: "sess-0001:train:7", seq: 1 }
          }),
        ),
      )
      expect(loaded).toEqual(straight)
    }),
  )

  it.effect("scripted weights have info, are listed by name, and are NotFound if missing", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const modelId = yield* Rig.createModel()
        const { path } = yield* save(modelId, 1)
        expect(yield* failure(save(modelId, 2))).toBe("RequestRejected UserCategory")
        yield* save(modelId, 3, true)
        const info = yield* Rig.call(Api.getWeightsInfo, { tinkerPath: path })
        expect(info).toMatchObject({ baseModel: Rig.baseModel, isLora: true, loraRank: Option.some(32) })
        expect(yield* failure(Rig.call(Api.getWeightsInfo, { tinkerPath: `${path}x` }))).toBe("NotFound")
        const lost = yield* Rig.call(Api.loadWeights, { modelId, seqId: 4, path: `${path}x`, optimizer: false })
        expect(yield* failure(Rig.result(kinds.loadWeights, lost))).toBe("RequestRejected UserCategory")
        const external = yield* Rig.call(Api.saveWeightsExternal, { modelId, seqId: 5, path: "out" })
        expect((yield* Rig.result(kinds.saveWeightsExternal, external)).path).toBe(
          "tinker://sess-0001:train:0/external_weights/out",
        )
        expect((yield* server.checkpoints).map(({ kind, path }) => [kind, path])).toEqual([
          ["training", path],
          ["external", "tinker://sess-0001:train:0/external_weights/out"],
        ])
      }),
    ),
  )

  it.effect("a scripted model can be unloaded", () =>
    Rig.run(
      Effect.gen(function* () {
        const modelId = yield* Rig.createModel()
        const unloaded = yield* Rig.call(Api.unloadModel, { modelId })
        yield* Rig.result(kinds.unloadModel, unloaded)
        expect(yield* failure(Rig.submitStep(modelId, 1))).toBe("NotFound")
        expect(yield* failure(Rig.call(Api.getInfo, { modelId }))).toBe("NotFound")
      }),
    ),
  )

  it.effect("a failed createModel creates no model, and a repeated one creates it once", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        yield* server.fault({ on: "create_model", failFuture: { error: "full", category: "server" } })
        expect(yield* failure(Rig.createModel())).toBe("RequestFailed Server")
        expect(yield* server.models).toEqual([])
        const again = yield* Rig.call(Api.createModel, { sessionId, modelSeqId: 1, baseModel: Rig.baseModel })
        expect(yield* Rig.call(Api.createModel, { sessionId, modelSeqId: 1, baseModel: Rig.baseModel })).toEqual(again)
        expect(
          yield* failure(
            Rig.call(
              Api.createModel,
              { sessionId, modelSeqId: 1, baseModel: "other" },
              { retryPolicy: RetryPolicy.none },
            ),
          ),
        ).toBe("RequestRejected Conflict")
        expect((yield* server.models).length).toBe(1)
      }),
    ),
  )
})
