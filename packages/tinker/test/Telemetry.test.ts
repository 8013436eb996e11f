import { describe, expect, it } from "@effect/vitest"
import { Clock, Effect, Fiber, Layer, Redacted, Scope } from "effect"
import { Optimizer, ServiceClient, type TinkerConfig, TinkerError } from "effect-tinker"
import * as Session from "effect-tinker/Session"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import { ScriptedServer } from "effect-tinker/testing/ScriptedServer"
import * as Clients from "./support/Clients.ts"
import * as HttpScript from "./support/HttpScript.ts"
import * as Recorded from "./support/Recorded.ts"
import * as Replay from "./support/Replay.ts"

interface Event {
  readonly event: string
  readonly event_name?: string
  readonly event_session_index: number
  readonly severity: string
  readonly event_data?: Readonly<Record<string, unknown>>
  readonly error_type?: string
  readonly duration?: string
}

interface Batch {
  readonly events: ReadonlyArray<Event>
}

const accepted: HttpScript.Reply = { body: { status: "accepted" }, forever: true }
const apiKey = Redacted.make("tml-telemetry-key")

/** Runs a program with telemetry on, closes everything, and returns all requests. */
const sentBy = <A, E>(
  program: Effect.Effect<A, E, ServiceClient.ServiceClient | HttpScript.HttpScript | Scope.Scope>,
  replies: Replay.Replies = {},
  values: TinkerConfig.Values = {},
) =>
  Effect.gen(function* () {
    let seen: ReadonlyArray<HttpScript.Seen> = []
    const exit = yield* Replay.run(
      Effect.zipRight(
        Effect.map(HttpScript.HttpScript, (script) => void (seen = script.seen)),
        program,
      ),
      { telemetry: [accepted], ...replies },
      { apiKey, telemetry: true, ...values },
    ).pipe(Effect.exit)
    const requests = seen.filter(({ path }) => path.endsWith("/telemetry"))
    return { exit, seen, requests, batches: requests.map(({ body }) => JSON.parse(body) as Batch) }
  })

const session = Effect.flatMap(ServiceClient.ServiceClient, (service) => service.session)

const kindOf = ({ event, event_name }: Event) => event_name ?? event
const kinds = (batches: ReadonlyArray<Batch>) => batches.flatMap(({ events }) => events.map(kindOf))

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/

/** In the form of a recording. */
const normalized = (body: string): unknown =>
  JSON.parse(body, (key, value: unknown) => {
    if ((key === "event_id" || key === "process_uuid") && uuid.test(String(value))) return "<UUID4>"
    if (key === "timestamp" && /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(String(value))) return "<ISO8601_UTC>"
    if (key === "duration" && /^\d:\d\d:\d\d(\.\d{6})?$/.test(String(value))) return "<H:MM:SS.ffffff>"
    if (key === "platform") return "Linux"
    return value
  })

describe("recorded telemetry", () => {
  it.effect("vectors/telemetry_fatal_user_error.json: one batch at the end reports the caller's error", () =>
    Effect.gen(function* () {
      const file = "vectors/telemetry_fatal_user_error.json"
      const { request } = Recorded.vector(file)
      const { requests } = yield* sentBy(
        Effect.gen(function* () {
          const client = yield* Clients.lora()
          expect(yield* Effect.flip(client.getInfo)).toMatchObject({ _tag: "NotFound" })
        }),
        {
          create_model: [Replay.accepted("req-1")],
          retrieve_future: [{ body: { model_id: "sess-0001:train:0" } }],
          get_info: [{ status: 404, body: { detail: "no such model" } }],
        },
        { sdkVersion: "0.36.0" },
      )
      expect(requests.length).toBe(1)
      const [ours] = requests.map(Replay.asVector)
      const [theirs] = Replay.requestsOf(file)
      expect(ours).toMatchObject({ method: theirs?.method, path: theirs?.path })
      expect({ ...ours?.headers, "x-stainless-read-timeout": "5.0" }).toEqual(theirs?.headers)
      // One event per error, not one more for each layer it passes.
      const recorded = request.body as Batch
      const wanted = recorded.events.filter((event) => !kindOf(event).endsWith(".exception"))
      const body = normalized(requests[0]?.body ?? "") as Batch
      expect(body).toMatchObject({ ...recorded, events: expect.anything() })
      const comparable = ({ event_data, ...event }: Event) => ({
        ...event,
        event_session_index: expect.any(Number),
        ...(event_data === undefined
          ? {}
          : {
              error: Recorded.tagOf[String(event_data["error_type"])] ?? event_data["error_type"],
              status: event_data["status_code"],
            }),
      })
      expect(body.events.map(comparable)).toEqual(wanted.map(comparable))
      expect(body.events.map((event) => event.event_session_index)).toEqual([0, 1, 2])
      expect(body.events[1]?.event_data?.["message"]).toContain("no such model")
    }),
  )

  it.effect(
    "behaviours/telemetry_batching.json: 250 events are sent in three batches, and the session is finished",
    () =>
      Effect.gen(function* () {
        const { expect: recorded } = Recorded.behaviour("behaviours/telemetry_batching.json")
        const { batches, seen } = yield* sentBy(
          Effect.gen(function* () {
            const { telemetry } = yield* session
            // Including the two events of the session itself.
            for (let i = 0; i < 248; i++) telemetry.event("something", { i })
          }),
        )
        expect(batches.map(({ events }) => events.length)).toEqual(recorded.result)
        const indices = batches.flatMap(({ events }) => events.map((event) => event.event_session_index))
        expect(indices).toEqual(Array.from({ length: 250 }, (_, i) => i))
        const finish = seen.filter(({ path }) => path.endsWith("/finish"))
        expect(Replay.asBehaviour(finish)).toMatchObject(
          Replay.recordedBy("behaviours/telemetry_batching.json").map(({ request, body }) => ({ request, body })),
        )
      }),
  )

  it.effect.each(["behaviours/telemetry_retry.json", "behaviours/telemetry_wrong_answer.json"] as const)(
    "%s: a failed batch is resent after a second",
    (file) =>
      Effect.gen(function* () {
        const { expect: recorded } = Recorded.behaviour(file)
        const { requests } = yield* sentBy(
          Effect.gen(function* () {
            const openedAt = yield* Clock.currentTimeMillis
            yield* session
            yield* Effect.sleep("15 seconds")
            const { to } = yield* HttpScript.HttpScript
            expect(to("telemetry").length).toBe(recorded.totalRequests)
            expect(openedAt).toBe(0)
          }),
          { telemetry: [...(Replay.scriptOf(file)["telemetry"] ?? []), accepted] },
        )
        const ours = requests.slice(0, recorded.totalRequests)
        // The first flush is after ten seconds, as in the reference; times count from the first request.
        expect(ours.map(({ at }) => at)).toEqual([10_000, 11_000, 12_000])
        expect(recorded.requests.map(({ t }) => Math.round(t))).toEqual([0, 1, 2])
        expect(
          Replay.asBehaviour(ours.map((seen) => ({ ...seen, body: JSON.stringify(normalized(seen.body)) }))),
        ).toEqual(
          // One idempotency key, so that a server that received the batch can detect it.
          Replay.recordedBy(file).map((request) => ({ ...request, idempotencyKey: 0, readTimeout: "5" })),
        )
      }),
  )

  it.effect("behaviours/telemetry_future_error_event.json: a failed result is one event, without headers", () =>
    Effect.gen(function* () {
      const { events } = Recorded.behaviour("behaviours/telemetry_future_error_event.json").expect as unknown as Batch
      const { batches, requests } = yield* sentBy(
        Effect.gen(function* () {
          const client = yield* Clients.lora()
          const error = yield* Effect.flip(client.optimStep(Optimizer.adam()))
          expect(error._tag).toBe("NotFound")
        }),
        {
          create_model: [Replay.accepted("req-0001")],
          optim_step: [Replay.accepted("req-0002")],
          retrieve_future: [
            { body: { model_id: "sess-0001:train:0" } },
            { status: 408, body: { type: "try_again", request_id: "req-0002", queue_state: "active" } },
            { status: 404, body: { detail: "unknown" } },
          ],
        },
      )
      // A result that is not ready yet is not an error.
      expect(kinds(batches)).toEqual(events.map(kindOf).filter((kind) => !kind.startsWith("APIFuture.")))
      expect(batches[0]?.events[1]).toMatchObject({
        severity: "WARNING",
        event_data: { error_type: "NotFound", status_code: 404 },
      })
      const everything = requests.map(({ body }) => body).join("\n")
      expect(everything).toContain("unknown")
      expect(everything).not.toMatch(/header|x-api-key|tml-/)
    }),
  )
})

describe("Telemetry", () => {
  it.effect("telemetry is off unless the configuration enables it", () =>
    Effect.gen(function* () {
      const { requests, seen } = yield* sentBy(
        Effect.gen(function* () {
          const { telemetry } = yield* session
          telemetry.event("nothing")
          yield* Effect.sleep("1 minute")
        }),
        {},
        { telemetry: false },
      )
      expect(requests).toEqual([])
      expect(seen.length).toBeGreaterThan(3)
    }),
  )

  it.effect("telemetry distinguishes server errors from user errors", () =>
    Effect.gen(function* () {
      const { batches } = yield* sentBy(
        Effect.gen(function* () {
          const { telemetry } = yield* session
          telemetry.report(new TinkerError.RequestFailed({ operation: "optim_step", reason: "Server", detail: "oh" }))
          telemetry.report(new TinkerError.RateLimited({ operation: "asample" }))
          telemetry.report(new TinkerError.Unavailable({ operation: "asample", reason: "Timeout" }))
          telemetry.report(new TinkerError.ClientClosed({ operation: "asample" }))
          telemetry.report(new TinkerError.InvalidInput({ path: "data[0]", problem: "is secret" }))
        }),
      )
      expect(batches.flatMap(({ events }) => events.map((event) => `${kindOf(event)} ${event.severity}`))).toEqual([
        "SESSION_START INFO",
        "UNHANDLED_EXCEPTION ERROR",
        "user_error WARNING",
        "UNHANDLED_EXCEPTION ERROR",
        "SESSION_END INFO",
      ])
    }),
  )

  it.effect("telemetry reports failed submissions, failed samples and the duration of the session", () =>
    Effect.gen(function* () {
      const { batches } = yield* sentBy(
        Effect.gen(function* () {
          const client = yield* Clients.lora()
          yield* Effect.flip(client.optimStep(Optimizer.adam()))
          const sampler = yield* client.createSamplingClient("tinker://a/b")
          yield* Effect.flip(sampler.sample({ prompt: [1], params: { maxTokens: 1 } }))
          yield* Effect.sleep("90.5 seconds")
        }),
        {
          create_model: [Replay.accepted("req-1")],
          retrieve_future: [{ body: { model_id: "m" } }],
          optim_step: [{ status: 422, body: { detail: "bad" } }],
          create_sampling_session: [{ body: { sampling_session_id: "s" } }],
          asample: [{ status: 400, body: { detail: "bad" } }],
        },
      )
      expect(kinds(batches)).toEqual(["SESSION_START", "user_error", "user_error", "SESSION_END"])
      expect(batches.at(-1)?.events.at(-1)?.duration).toBe("0:01:30.500000")
    }),
  )

  it.effect("telemetry drops a batch after five attempts, counts it, and continues with the next", () =>
    Effect.gen(function* () {
      const { requests } = yield* sentBy(
        Effect.gen(function* () {
          const { telemetry } = yield* session
          yield* Effect.sleep("20 seconds")
          expect(yield* telemetry.dropped).toBe(1)
          telemetry.event("later")
        }),
        { telemetry: [...Array.from({ length: 5 }, () => ({ status: 500 })), accepted] },
      )
      expect(requests.map(({ at }) => at / 1_000)).toEqual([10, 11, 12, 13, 14, 20])
      expect(kinds([JSON.parse(requests.at(-1)?.body ?? "")])).toEqual(["later", "SESSION_END"])
    }),
  )

  it.effect("telemetry keeps at most 10,000 events and counts those it drops or can't encode", () =>
    Effect.gen(function* () {
      const cyclic: Record<string, never> = {}
      Object.assign(cyclic, { cyclic })
      const { batches } = yield* sentBy(
        Effect.gen(function* () {
          const { telemetry } = yield* session
          telemetry.event("cyclic", cyclic)
          telemetry.event("large", { text: "x".repeat(20_000) })
          for (let i = 0; i < 10_001; i++) telemetry.event("e")
          expect(yield* telemetry.dropped).toBe(4)
          yield* telemetry.flush
        }),
      )
      expect(batches.reduce((sum, { events }) => sum + events.length, 0)).toBe(10_001)
      expect(Math.max(...batches.map(({ events }) => events.length))).toBe(100)
    }),
  )

  it.effect("telemetry stops permanently if the server has no telemetry endpoint", () =>
    Effect.gen(function* () {
      const { requests } = yield* sentBy(
        Effect.gen(function* () {
          const { telemetry } = yield* session
          yield* Effect.sleep("30 seconds")
          telemetry.event("in vain")
          expect(yield* telemetry.dropped).toBe(2)
        }),
        { telemetry: [{ status: 404 }] },
      )
      expect(requests.length).toBe(1)
    }),
  )

  it.effect("a failing program does not wait for telemetry, and a successful one waits at most five seconds", () =>
    Effect.gen(function* () {
      const took = (program: Effect.Effect<void, string, ServiceClient.ServiceClient>) => {
        const timed = Effect.gen(function* () {
          const scope = yield* Scope.make()
          const layer = Clients.on(
            HttpScript.layer({
              "client/config": [{ body: {} }],
              "client/dynamic_config": [{ body: {}, forever: true }],
              create_session: [{ body: { session_id: "sess-0001" } }],
              "sess-0001/finish": [{ body: {}, forever: true }],
              telemetry: [{ ...accepted, delaySeconds: 60 }],
            }),
          )(Clients.clients({ telemetry: true }))
          const context = yield* Layer.buildWithScope(layer, scope)
          const exit = yield* Effect.exit(Effect.provide(Effect.zipRight(session, program), context))
          const before = yield* Clock.currentTimeMillis
          yield* Scope.close(scope, exit)
          return {
            took: (yield* Clock.currentTimeMillis) - before,
            script: yield* Effect.provide(HttpScript.HttpScript, context),
          }
        })
        return VirtualTime.run(timed)
      }
      const failed = yield* took(Effect.fail("no"))
      expect(failed.took).toBe(0)
      // A request already under way is still sent.
      expect(failed.script.to("telemetry").length).toBe(1)
      expect(failed.script.to("finish").length).toBe(1)
      expect((yield* took(Effect.void)).took).toBe(5_000)
    }),
  )

  it.effect("telemetry contains no credentials or headers, whatever an event contains", () =>
    Effect.gen(function* () {
      const secrets = ["tml-telemetry-key", "hunter-proxy", "tml-somebody-elses"]
      const { requests } = yield* sentBy(
        Effect.gen(function* () {
          const { telemetry } = yield* session
          telemetry.event("tml-somebody-elses", { a: { "hunter-proxy": ["the key tml-telemetry-key", 1] } })
          telemetry.report(
            new TinkerError.RequestFailed({ operation: "x", reason: "Unknown", detail: secrets.join(" ") }),
          )
          telemetry.report(new TinkerError.Forbidden({ operation: "x", detail: secrets.join(" ") }))
        }),
        {},
        { headers: { "x-proxy": Redacted.make("hunter-proxy") } },
      )
      const everything = requests.map(({ body }) => body).join("\n")
      expect(everything).toContain("<redacted>")
      for (const secret of [...secrets, "x-proxy", "x-api-key"]) expect(everything).not.toContain(secret)
    }),
  )

  it.effect("a working server accepts telemetry", () =>
    Effect.gen(function* () {
      const bodies = yield* Effect.gen(function* () {
        const server = yield* ScriptedServer
        yield* Effect.scoped(
          Effect.gen(function* () {
            const { telemetry } = yield* Session.make()
            telemetry.event("mine", { a: 1 })
            yield* telemetry.flush
            expect(yield* telemetry.dropped).toBe(0)
          }),
        )
        return yield* server.requestsTo("telemetry")
      }).pipe(Effect.provide(Clients.layer({}, { telemetry: true })), VirtualTime.run)
      expect(bodies.length).toBe(2)
    }),
  )

  it.effect("telemetry reports nothing for an interrupted sample", () =>
    Effect.gen(function* () {
      let reported: ReadonlyArray<string> = []
      yield* Effect.gen(function* () {
        const client = yield* Clients.lora()
        const sampler = yield* client.saveWeightsAndGetSamplingClient()
        const sample = sampler.sample({ prompt: [1], params: { maxTokens: 1 } })
        expect(yield* Effect.timeoutOption(sample, "1 second")).toMatchObject({ _tag: "None" })
        const fiber = yield* Effect.fork(sample)
        yield* Effect.sleep("1 second")
        yield* Fiber.interrupt(fiber)
        yield* Effect.sleep("1 minute")
        const requests = yield* (yield* ScriptedServer).requestsTo("telemetry")
        reported = kinds(requests.map(({ json }) => json as Batch))
      }).pipe(
        Effect.scoped,
        Effect.provide(
          Clients.layer({ work: ({ operation }) => (operation === "asample" ? "1 hour" : 0) }, { telemetry: true }),
        ),
        VirtualTime.run,
      )
      expect(reported).toEqual(["SESSION_START"])
    }),
  )
})
