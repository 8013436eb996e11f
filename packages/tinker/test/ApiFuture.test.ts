import { describe, expect, it } from "@effect/vitest"
import {
  Cause,
  Chunk,
  Context,
  Duration,
  Effect,
  Either,
  Exit,
  Fiber,
  Layer,
  Logger,
  Option,
  Redacted,
  Scope,
  Stream,
  Supervisor,
  TestClock,
} from "effect"
import { ApiFuture, TinkerConfig, TinkerError } from "effect-tinker"
import * as Session from "effect-tinker/Session"
import * as Transport from "effect-tinker/Transport"
import { inspect } from "node:util"
import * as HttpScript from "./support/HttpScript.ts"
import * as Recorded from "./support/Recorded.ts"
import * as VirtualTime from "./support/VirtualTime.ts"

type Replies = Record<string, ReadonlyArray<HttpScript.Reply>>

const layer = (replies: Replies) =>
  Layer.provideMerge(
    ApiFuture.layer,
    Layer.provideMerge(
      Session.layer(),
      Layer.provideMerge(
        Transport.layer,
        Layer.merge(
          TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make("tml-a") }),
          HttpScript.layer({
            "client/config": [{ body: {} }],
            "client/dynamic_config": [{ body: {}, forever: true }],
            create_session: [{ body: { session_id: "sess-0001" } }],
            session_heartbeat: [{ body: {}, forever: true }],
            "sess-0001/finish": [{ body: {}, forever: true }],
            ...replies,
          }),
        ),
      ),
    ),
  )

const quiet = Logger.remove(Logger.defaultLogger)

/** Attaches to a request whose polls get these replies and waits for its outcome. */
const run = <A>(
  kind: ApiFuture.Kind<A>,
  polls: ReadonlyArray<HttpScript.Reply>,
  options?: ApiFuture.Options,
  more: Replies = {},
) =>
  Effect.gen(function* () {
    const { attach } = yield* ApiFuture.Futures
    const future = yield* attach(kind, "req-0002", options)
    const result = yield* Effect.either(future.await)
    return { future, result, polls: (yield* HttpScript.HttpScript).to("retrieve_future") }
  }).pipe(Effect.provide(layer({ retrieve_future: polls, ...more })), VirtualTime.run, Effect.provide(quiet))

const gaps = (polls: ReadonlyArray<HttpScript.Seen>) =>
  polls.slice(1).map((poll, i) => poll.at - (polls[i]?.at ?? Number.NaN))

/** The polls in a recording, as replies. */
const pollsOf = (file: `behaviours/${string}.json`) => {
  const { expect: recorded, script } = Recorded.behaviour(file)
  const polls = script.filter((answer) => answer.for.endsWith("retrieve_future"))
  return {
    recorded,
    replies: polls.flatMap(({ headers, ...answer }) => {
      const [reply] = Recorded.replies([answer])["retrieve_future"] ?? []
      const bytes = answer.bodyBase64 === undefined ? undefined : Buffer.from(answer.bodyBase64, "base64")
      return reply === undefined ? [] : [{ ...reply, headers: headers ?? {}, ...(bytes && { body: bytes }) }]
    }),
    requests: recorded.requests.filter(({ request }) => request.endsWith("retrieve_future")),
  }
}

const { forwardBackward, optimStep } = ApiFuture.kinds

describe("recorded polling behavior", () => {
  it.effect.each([
    "behaviours/future_400_empty_body.json",
    "behaviours/future_429_backoff.json",
    "behaviours/future_connection_error_backoff.json",
    "behaviours/future_empty_object_ok.json",
    "behaviours/future_metadata_only.json",
    "behaviours/future_try_again_200.json",
    "behaviours/future_408_queue_state.json",
  ] as const)("polling matches the recording %s", (file) =>
    Effect.gen(function* () {
      const { recorded, replies, requests } = pollsOf(file)
      const { polls, result } = yield* run(optimStep, replies, { submittedIn: "250 millis" })
      const expected = (recorded.result as { readonly metrics: Record<string, number> | null }).metrics ?? {}
      expect(result).toEqual(Either.right({ metrics: expected }))
      expect(polls.length).toBe(requests.length)
      polls.forEach((poll, i) => {
        expect(JSON.parse(poll.body)).toEqual(requests[i]?.body)
        expect(poll.headers["x-tinker-request-iteration"]).toBe(String(i))
        expect(poll.headers["x-tinker-request-type"]).toBe("OptimStep")
        expect(poll.headers["x-tinker-create-promise-roundtrip-time"]).toBe(i === 0 ? "0.25" : undefined)
        expect(poll.headers["x-stainless-read-timeout"]).toBe("45")
        expect(poll.headers["accept"]).toBe("application/json")
      })
      // We wait as long as the reference does, after one nearly immediate retry and one early retry. Where the
      // reference retries immediately, we pause for at most a second.
      const waits = requests.slice(1).map(({ t }, i) => Math.round(t - (requests[i]?.t ?? Number.NaN)) * 1000)
      const isLimited = replies[0]?.status === 429
      gaps(polls).forEach((gap, i) => {
        if ((waits[i] ?? 0) === 0) expect(gap).toBeLessThanOrEqual(1000)
        else expect(gap).toBe(isLimited ? waits[i] : ([20, 250][i] ?? waits[i - 1]))
      })
    }),
  )

  it.effect.each([
    ["behaviours/future_404_fatal.json", "NotFound", "unknown"],
    ["behaviours/future_409_fatal.json", "RequestRejected", "conflict"],
    ["behaviours/future_410_training.json", "PromiseExpired", "gone"],
    ["behaviours/future_failed_category_casing.json", "RequestFailed", "boom"],
    ["behaviours/future_failed_no_category.json", "RequestFailed", "boom"],
    ["behaviours/future_failed_server.json", "RequestFailed", "boom"],
  ] as const)("polling stops with a final error: %s", ([file, tag, words]) =>
    Effect.gen(function* () {
      const { recorded, replies, requests } = pollsOf(file)
      const { polls, result } = yield* run(optimStep, replies)
      expect(polls.length).toBe(requests.length)
      expect(Either.flip(result)).toMatchObject({ right: { _tag: tag, detail: words } })
      const category = (recorded.error as { readonly category?: string }).category
      if (category !== undefined) {
        expect(Either.flip(result)).toMatchObject({ right: { reason: category === "server" ? "Server" : "Unknown" } })
      }
    }),
  )

  it.effect("a failure in the user category is reported as RequestRejected", () =>
    Effect.gen(function* () {
      const { result } = yield* run(optimStep, [{ body: { error: "bad shape", category: "user" } }])
      expect(Either.flip(result)).toMatchObject({ right: { _tag: "RequestRejected", reason: "UserCategory" } })
    }),
  )

  it.effect.each([
    ["behaviours/future_bad_proto.json", forwardBackward, "NotProtobuf", 3],
    ["behaviours/future_proto_for_json_type.json", optimStep, "NotProtobuf", 3],
    ["behaviours/future_json_invalid.json", optimStep, "Schema", 3],
    ["behaviours/future_metadata_only_twice.json", optimStep, "Schema", 0],
  ] as const)("an unreadable poll response is reported as UnexpectedResponse: %s", ([file, kind, reason, repeated]) =>
    Effect.gen(function* () {
      const { replies, requests } = pollsOf(file)
      const { polls, result } = yield* run<unknown>(
        kind,
        replies.map((reply) => ({ ...reply, forever: reply === replies.at(-1) })),
      )
      // The reference fails at the first one.
      expect(polls.length).toBe(requests.length + repeated)
      expect(Either.flip(result)).toMatchObject({
        right: { _tag: "UnexpectedResponse", reason, requestId: Option.some("req-0002") },
      })
    }),
  )
})

describe("intentional differences from the reference", () => {
  it.effect(
    "behaviours/future_400_budget_exceeded.json: a 400 with a detail is final immediately, and the error shows the detail",
    () =>
      Effect.gen(function* () {
        const { polls, result } = yield* run(optimStep, pollsOf("behaviours/future_400_budget_exceeded.json").replies)
        expect(polls.length).toBe(1)
        expect(Either.flip(result)).toMatchObject({ right: { _tag: "RequestRejected", detail: "x" } })
      }),
  )

  it.effect("behaviours/future_json_for_proto_type.json: a JSON response to a protobuf request is decoded", () =>
    Effect.gen(function* () {
      const { replies } = pollsOf("behaviours/future_json_for_proto_type.json")
      const { polls, result } = yield* run(forwardBackward, replies)
      expect(result).toEqual(Either.right({ outputType: "T", outputs: [], metrics: {} }))
      expect(polls[0]?.headers["accept"]).toBe("application/x-protobuf")
    }),
  )

  it.effect("polls back off when the server answers instantly or with a 5xx, and honor retry-after", () =>
    Effect.gen(function* () {
      const now = { body: { type: "try_again", queue_state: "active" } }
      const done = { body: {} }
      const instant = yield* run(optimStep, [now, now, now, now, now, now, done])
      expect(gaps(instant.polls)).toEqual([5, 10, 20, 40, 80, 160])
      const held = yield* run(optimStep, [{ ...now, delaySeconds: 40 }, { ...now, delaySeconds: 40 }, done])
      expect(gaps(held.polls)).toEqual([40_000, 40_000])
      const broken = { status: 500 }
      const sick = yield* run(optimStep, [broken, broken, broken, broken, broken, broken, broken, done])
      expect(gaps(sick.polls)).toEqual([20, 250, 2000, 4000, 8000, 16_000, 30_000])
      const busy = yield* run(optimStep, [{ status: 429, headers: { "retry-after": "7" } }, done])
      expect(gaps(busy.polls)).toEqual([7000])
    }),
  )
})

describe("waiting for a result", () => {
  const tryAgain = (state: string, reason?: string) => ({
    status: 408,
    body: { queue_state: state, queue_state_reason: reason },
    delaySeconds: 40,
  })

  it.effect("queueState streams the server's and the client's queue states and ends with the result", () =>
    Effect.gen(function* () {
      const { attach } = yield* ApiFuture.Futures
      const future = yield* attach(optimStep, "req")
      const states = yield* Stream.runCollect(future.queueState)
      expect(
        Chunk.toReadonlyArray(states).map(({ reason, since, state }) => [state, Option.isSome(reason), since]),
      ).toEqual([
        ["submitted", false, 0],
        ["active", false, 40_000],
        ["paused_capacity", true, 80_000],
        ["unreachable", true, 80_000],
        ["paused_rate_limit", true, 80_020],
        ["paused_billing", true, 87_020],
      ])
    }).pipe(
      Effect.provide(
        layer({
          retrieve_future: [
            tryAgain("active"),
            tryAgain("paused_capacity", "no room"),
            { status: 502, body: { detail: "bad gateway" } },
            { status: 429, headers: { "retry-after": "7" }, body: { detail: "slow down" } },
            { status: 402, body: { detail: "pay" } },
            { body: {} },
          ],
        }),
      ),
      VirtualTime.run,
      Effect.provide(quiet),
    ),
  )

  it.effect("a request that makes no progress fails with Stalled, with its age, poll count and last queue state", () =>
    Effect.gen(function* () {
      const { result } = yield* run(optimStep, [{ ...tryAgain("paused_capacity"), forever: true }])
      const error = Option.getOrThrow(Either.getLeft(result))
      expect(error).toMatchObject({ _tag: "Stalled", requestId: "req-0002", requestType: "OptimStep" })
      expect(error.message).toMatch(
        /^OptimStep \[request req-0002\] made no progress after 2h [\dms ]+ and \d+ polls; last queue state: paused_capacity$/,
      )
      expect("age" in error ? Duration.toHours(error.age) : 0).toBeCloseTo(2, 1)
    }),
  )

  it.effect("a future past its deadline fails with DeadlineExceeded, even during a poll", () =>
    Effect.gen(function* () {
      const { polls, result } = yield* run(optimStep, [{ ...tryAgain("active"), forever: true }], {
        deadline: "50 seconds",
      })
      expect(polls.length).toBe(2)
      expect(Either.flip(result)).toMatchObject({
        right: { _tag: "DeadlineExceeded", queueState: "active", age: Duration.seconds(50), iterations: 1 },
      })
    }),
  )

  it.effect("a billing pause fails with BillingPaused after the server's maximum pause", () =>
    Effect.gen(function* () {
      const { polls, result } = yield* run(
        optimStep,
        [{ status: 402, body: { detail: "pay" }, forever: true }],
        {},
        {
          "client/config": [{ body: { billing_exception_max_pause_duration_sec: 12 } }],
        },
      )
      expect(polls.length).toBe(4)
      expect(Either.flip(result)).toMatchObject({ right: { _tag: "BillingPaused", detail: "pay" } })
    }),
  )

  it.effect(
    "result downloads stay within the response byte budget, and a result larger than the budget downloads alone",
    () =>
      Effect.gen(function* () {
        const size = (bytes: number) => ({ body: { status: "complete_metadata", response_payload_size: bytes } })
        const slow = { body: {}, delaySeconds: 10 }
        const times = yield* Effect.gen(function* () {
          const { attach } = yield* ApiFuture.Futures
          const futures = yield* Effect.forEach(["a", "b", "c"], (id) => attach(optimStep, id))
          yield* ApiFuture.all(futures).await
          const { to } = yield* HttpScript.HttpScript
          return to("retrieve_future")
            .filter(({ body }) => body.includes("false"))
            .map(({ at }) => at)
        }).pipe(
          Effect.provide(
            layer({
              "client/config": [{ body: { inflight_response_bytes_semaphore_size: 100 } }],
              retrieve_future: [size(1000), size(50), size(50), slow, slow, slow],
            }),
          ),
          VirtualTime.run,
        )
        expect(times).toEqual([0, 10_000, 10_000])
      }),
  )

  it.effect("a paused request is logged at most once a minute", () =>
    Effect.gen(function* () {
      const lines: Array<string> = []
      yield* Effect.flatMap(ApiFuture.Futures, ({ attach }) =>
        Effect.flatMap(attach(optimStep, "r"), (future) => future.await),
      ).pipe(
        Effect.provide(
          layer({
            retrieve_future: [...Array.from({ length: 4 }, () => tryAgain("paused_capacity", "no room")), { body: {} }],
          }),
        ),
        VirtualTime.run,
        Effect.provide(
          Logger.replace(
            Logger.defaultLogger,
            Logger.make(({ message }) => void lines.push(String(message))),
          ),
        ),
      )
      const line = "Tinker: OptimStep waits, paused_capacity: no room"
      expect(lines).toEqual([line, line])
    }),
  )
})

describe("progress and stalls", () => {
  const active = { status: 408, body: { queue_state: "active" }, delaySeconds: 40 }

  it.effect("queue states count as progress, and failed polls do not", () =>
    Effect.gen(function* () {
      const flapping = Array.from({ length: 60 }, () => [active, { status: 502 }, { status: 408, body: {} }]).flat()
      const { result } = yield* run(optimStep, flapping, { stalledAfter: "20 minutes" })
      expect(Either.flip(result)).toMatchObject({ right: { _tag: "Stalled" } })
    }),
  )

  it.effect("a changed queue state reason counts as progress", () =>
    Effect.gen(function* () {
      const place = (reason: string) => ({
        status: 408,
        body: { queue_state: "paused_capacity", queue_state_reason: reason, request_id: 7, type: "other" },
        delaySeconds: 40,
      })
      const { future, result } = yield* run(
        optimStep,
        [place("position 900"), place("position 3"), place("position 2"), { body: {} }],
        { stalledAfter: "1 minute" },
      )
      expect(Either.isRight(result)).toBe(true)
      expect(future.requestId).toBe("req-0002")
    }),
  )

  it.effect("a result that is ready counts as progress, so a finished step is never dropped as stalled", () =>
    Effect.gen(function* () {
      const size = { body: { status: "complete_metadata", response_payload_size: 10 }, delaySeconds: 40 }
      const { result } = yield* run(optimStep, [size, { body: {} }], { stalledAfter: "30 seconds" })
      expect(result).toEqual(Either.right({ metrics: {} }))
    }),
  )

  it.effect("the stall timer does not run during a billing pause, which has its own budget", () =>
    Effect.gen(function* () {
      const unpaid = { status: 402, body: { detail: "pay" } }
      const long = { "client/config": [{ body: { billing_exception_max_pause_duration_sec: 120 } }] }
      const { result } = yield* run(optimStep, [{ ...unpaid, forever: true }], { stalledAfter: "1 minute" }, long)
      expect(Either.flip(result)).toMatchObject({ right: { _tag: "BillingPaused" } })
      // Server errors in between do not restart the billing budget.
      const mixed = Array.from({ length: 60 }, () => [unpaid, { status: 503 }]).flat()
      const alternating = yield* run(optimStep, mixed, { stalledAfter: Duration.infinity }, long)
      expect(Either.flip(alternating.result)).toMatchObject({ right: { _tag: "BillingPaused" } })
    }),
  )

  it.effect(
    "waiting for response bytes counts toward the stall limit, and a negative byte budget still admits requests",
    () =>
      Effect.gen(function* () {
        const size = { body: { status: "complete_metadata", response_payload_size: 50 } }
        const outcomes = yield* Effect.gen(function* () {
          const { attach } = yield* ApiFuture.Futures
          const slow = yield* attach(optimStep, "slow")
          const blocked = yield* attach(optimStep, "blocked", { stalledAfter: "10 seconds" })
          return yield* Effect.all([Effect.either(blocked.await), Effect.either(slow.await)])
        }).pipe(
          Effect.provide(
            layer({
              "client/config": [{ body: { inflight_response_bytes_semaphore_size: -1 } }],
              retrieve_future: [size, size, { body: {}, delaySeconds: 30 }],
            }),
          ),
          VirtualTime.run,
        )
        expect(Either.flip(outcomes[0])).toMatchObject({ right: { _tag: "Stalled", queueState: "waiting_for_room" } })
        expect(outcomes[1]).toEqual(Either.right({ metrics: {} }))
      }),
  )

  it.effect("response bytes are held while a result downloads, but not between retries of a failing server", () =>
    Effect.gen(function* () {
      const size = { body: { status: "complete_metadata", response_payload_size: 500 } }
      const asked = yield* Effect.gen(function* () {
        const { attach } = yield* ApiFuture.Futures
        const futures = yield* Effect.forEach(["a", "b"], (id) => attach(optimStep, id))
        yield* ApiFuture.all(futures).await
        const { to } = yield* HttpScript.HttpScript
        return to("retrieve_future").filter(({ body }) => body.includes("false"))
      }).pipe(
        Effect.provide(
          layer({
            "client/config": [{ body: { inflight_response_bytes_semaphore_size: 100 } }],
            retrieve_future: [size, size, { status: 503 }, { body: {} }, { body: {} }],
          }),
        ),
        VirtualTime.run,
      )
      // The second download starts immediately, while the first waits to retry after its 503.
      expect(asked.map(({ at }) => at - (asked[0]?.at ?? 0))).toEqual([0, 0, 20])
    }),
  )
})

describe("poll response bodies", () => {
  it.effect("a result is asked for again after a response that was cut off, replaced or altered on its way", () =>
    Effect.gen(function* () {
      const { polls, result } = yield* run(optimStep, [
        { body: "" },
        { body: "<html>502</html>" },
        { body: '{"metrics": {"lo' },
        { headers: { "content-encoding": "unknown" }, body: "x" },
        { body: { metrics: "altered" } },
        { body: { metrics: { loss: 1 } } },
      ])
      expect(polls.length).toBe(6)
      expect(result).toEqual(Either.right({ metrics: { loss: 1 } }))
    }),
  )

  it.effect("polling gives up after 300 s of unreadable responses", () =>
    Effect.gen(function* () {
      const { polls, result } = yield* run(optimStep, [{ body: "<html>", forever: true }])
      expect(Either.flip(result)).toMatchObject({ right: { _tag: "UnexpectedResponse", reason: "NotJson" } })
      const [first, last] = [polls[0]?.at ?? 0, polls.at(-1)?.at ?? 0]
      expect(last - first).toBeGreaterThanOrEqual(300_000)
      expect(last - first).toBeLessThan(331_000)
    }),
  )

  it.effect("secrets in a 200 response are redacted like those in an error response", () =>
    Effect.gen(function* () {
      for (const body of [
        { error: "bad key tml-secret-123456" },
        "plain tml-secret-123456",
        { metrics: "tml-secret-123456" },
      ]) {
        const { result } = yield* run(optimStep, [{ body, forever: true }])
        const error = Option.getOrThrow(Either.getLeft(result))
        expect(error.message).toContain("<redacted>")
        expect(JSON.stringify(error)).not.toContain("tml-secret")
      }
    }),
  )

  it.effect("a foreign JSON object is not the result of an update, and an empty one is", () =>
    Effect.gen(function* () {
      const foreign = yield* run(optimStep, [{ body: { detail: { a: [1] } } }, { body: { metrics: { loss: 1 } } }])
      expect(foreign.result).toEqual(Either.right({ metrics: { loss: 1 } }))
      for (const body of [{}, { type: "optim_step" }, { metrics: null }]) {
        expect((yield* run(optimStep, [{ body }])).result).toEqual(Either.right({ metrics: {} }))
      }
    }),
  )

  it.effect("each field of a poll response is read independently of the others", () =>
    Effect.gen(function* () {
      const odd = yield* run(optimStep, [{ body: { error: { code: 7 }, category: 5 } }])
      expect(Either.flip(odd.result)).toMatchObject({ right: { _tag: "RequestFailed", detail: `{"code":7}` } })
      // A metadata response is never a result, even without a size.
      const bare = yield* run(optimStep, [
        { body: { status: "complete_metadata" } },
        { body: { metrics: { "loss:sum": 1 } } },
      ])
      expect(bare.result).toEqual(Either.right({ metrics: { "loss:sum": 1 } }))
      // Precedence when a body has several of these fields.
      const many = yield* run(optimStep, [
        { body: { type: "try_again", status: "complete_metadata", error: "x" } },
        { body: { status: "complete_metadata", error: "x" } },
        { body: { error: "x" } },
      ])
      expect(many.polls.map(({ body }) => JSON.parse(body).allow_metadata_only)).toEqual([true, true, false])
      expect(Either.flip(many.result)).toMatchObject({ right: { _tag: "RequestFailed", detail: "x" } })
    }),
  )
})

describe("results", () => {
  it.effect("a result is fetched once for any number of waiters, and poll reads it without a request", () =>
    Effect.gen(function* () {
      const { attach } = yield* ApiFuture.Futures
      const future = yield* attach(optimStep, "req")
      expect(yield* future.poll).toEqual(Option.none())
      const metrics = { metrics: { "loss:sum": 1 } }
      expect(yield* Effect.all([future.await, future.await, future.await], { concurrency: "unbounded" })).toEqual([
        metrics,
        metrics,
        metrics,
      ])
      expect(yield* future.await).toEqual(metrics)
      expect(yield* future.poll).toEqual(Option.some(metrics))
      expect((yield* HttpScript.HttpScript).to("retrieve_future").length).toBe(1)
    }).pipe(
      Effect.provide(layer({ retrieve_future: [{ body: { metrics: { "loss:sum": 1 } }, delaySeconds: 1 }] })),
      VirtualTime.run,
    ),
  )

  it.effect("futures can be mapped, zipped and combined with all", () =>
    Effect.gen(function* () {
      const { attach } = yield* ApiFuture.Futures
      const [a, b] = yield* Effect.all([attach(optimStep, "a"), attach(optimStep, "b")])
      const loss = (future: typeof a) => ApiFuture.map(future, ({ metrics }) => metrics["loss:sum"])
      const both = ApiFuture.zip(loss(a), loss(b))
      expect(yield* both.await).toEqual([1, 1])
      expect(both.requestIds).toEqual(["a", "b"])
      const named = ApiFuture.all({ pass: loss(a), update: b })
      expect(yield* named.await).toEqual({ pass: 1, update: { metrics: { "loss:sum": 1 } } })
      expect(yield* named.poll).toEqual(Option.some({ pass: 1, update: { metrics: { "loss:sum": 1 } } }))
      expect(yield* ApiFuture.all([loss(b), loss(a)]).await).toEqual([1, 1])
    }).pipe(
      Effect.provide(layer({ retrieve_future: [{ body: { metrics: { "loss:sum": 1 } }, forever: true }] })),
      VirtualTime.run,
    ),
  )
})

describe("combining futures", () => {
  const error = new TinkerError.RequestFailed({ operation: "x", reason: "Server", detail: "boom" })

  it.effect("ApiFuture.all fails as soon as one future fails, and a throwing map function is a defect", () =>
    Effect.gen(function* () {
      const { attach } = yield* ApiFuture.Futures
      const never = yield* attach(optimStep, "never")
      expect(yield* Effect.flip(ApiFuture.all([never, ApiFuture.fail(error)]).await)).toBe(error)
      const fatal = ApiFuture.map(ApiFuture.all([]), () => {
        throw new Error("in the caller's function")
      })
      expect(yield* Effect.exit(fatal.await)).toEqual(Exit.die(new Error("in the caller's function")))
    }).pipe(
      Effect.provide(layer({ retrieve_future: [{ body: { type: "try_again" }, forever: true }] })),
      VirtualTime.run,
    ),
  )

  it.effect("ApiFuture.all accepts an empty array and an empty record", () =>
    Effect.gen(function* () {
      expect(yield* ApiFuture.all([]).await).toEqual([])
      expect(yield* ApiFuture.all({}).await).toEqual({})
    }),
  )

  it.effect("ApiFuture.map and ApiFuture.zip work data-first and data-last", () =>
    Effect.gen(function* () {
      const one = ApiFuture.map(ApiFuture.all([]), () => 1)
      const two = ApiFuture.all([]).pipe(ApiFuture.map(() => 2))
      expect(yield* ApiFuture.zip(one, two).await).toEqual([1, 2])
      const both = one.pipe(
        ApiFuture.zip(two),
        ApiFuture.map(([a, b]) => a + b),
      )
      expect(yield* both.await).toBe(3)
      expect(yield* both.poll).toEqual(Option.some(3))
    }),
  )

  it("isApiFuture rejects copies and other values, and combining them throws a TypeError", () => {
    const future = ApiFuture.fail(error)
    expect(ApiFuture.isApiFuture(future)).toBe(true)
    expect(ApiFuture.isApiFuture(ApiFuture.all([future]))).toBe(true)
    const copy: unknown = { ...future, requestId: "", requestIds: [], await: future.await }
    expect([copy, null, undefined, "future", Effect.void].map(ApiFuture.isApiFuture)).toEqual(Array(5).fill(false))
    // As untyped code could call it.
    expect(() => ApiFuture.map(copy as typeof future, (value) => value)).toThrow(TypeError)
  })

  it.effect("a future prints its request ids and not its result", () =>
    Effect.gen(function* () {
      const { attach } = yield* ApiFuture.Futures
      const future = ApiFuture.all([yield* attach(optimStep, "a"), yield* attach(optimStep, "b")])
      yield* future.await
      expect(JSON.stringify(future)).toBe('{"_id":"ApiFuture","requestIds":["a","b"]}')
      expect(inspect(future)).not.toContain("loss:sum")
    }).pipe(
      Effect.provide(layer({ retrieve_future: [{ body: { metrics: { "loss:sum": 1 } }, forever: true }] })),
      VirtualTime.run,
    ),
  )
})

describe("ending waiters", () => {
  const endless = { retrieve_future: [{ delaySeconds: 40, status: 408, forever: true }] }

  /** Builds everything in its own scope, so that a test can close it while fibers are waiting. */
  const opened = (replies: Replies) =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const context = yield* Layer.buildWithScope(layer(replies), scope)
      return { context, scope, futures: Context.get(context, ApiFuture.Futures) }
    })

  it.effect("await fails with ClientClosed when the client's scope closes, and for futures attached afterwards", () =>
    Effect.gen(function* () {
      const { futures, scope } = yield* opened(endless)
      const future = yield* futures.attach(optimStep, "req")
      const waiting = yield* Effect.fork(Effect.flip(future.await))
      yield* TestClock.adjust("1 minute")
      yield* Scope.close(scope, Exit.void)
      expect(yield* Fiber.join(waiting)).toMatchObject({ _tag: "ClientClosed" })
      // A fiber forked into a closed scope never starts.
      const late = yield* futures.attach(optimStep, "late")
      expect(yield* Effect.flip(late.await)).toMatchObject({ _tag: "ClientClosed" })
    }),
  )

  it.effect("await fails with SessionLost when the session is lost", () =>
    Effect.gen(function* () {
      const { futures } = yield* opened({ ...endless, session_heartbeat: [{ status: 410, body: { detail: "bye" } }] })
      const future = yield* futures.attach(optimStep, "req")
      const waiting = yield* Effect.fork(Effect.flip(future.await))
      yield* TestClock.adjust("1 minute")
      expect(yield* Fiber.join(waiting)).toMatchObject({ _tag: "SessionLost", reason: "Gone", detail: "bye" })
    }),
  )

  it.effect("every waiter gets SessionLost when the scope closes right after the session is lost", () =>
    Effect.gen(function* () {
      const { futures, scope } = yield* opened({ ...endless, session_heartbeat: [{ status: 410, body: {} }] })
      const waiting = yield* Effect.forEach(Array.from({ length: 100 }), (_, i) =>
        Effect.flatMap(futures.attach(optimStep, `r${i}`), (future) => Effect.fork(Effect.flip(future.await))),
      )
      // The last waiter is notified first, while the others are still being ended.
      const first = waiting.at(-1)
      if (first === undefined) return expect.fail("there are no waiters")
      const closing = yield* Effect.fork(Effect.zipRight(Fiber.await(first), Scope.close(scope, Exit.void)))
      yield* TestClock.adjust("10 seconds")
      yield* Fiber.join(closing)
      const errors = yield* Effect.forEach(waiting, Fiber.join)
      expect(new Set(errors.map((error) => error._tag))).toEqual(new Set(["SessionLost"]))
    }),
  )

  it.effect("closing the scope stops a poller that was created in an uninterruptible region", () =>
    Effect.gen(function* () {
      const { context } = yield* opened(endless)
      const scope = yield* Scope.make()
      const futures = yield* Effect.uninterruptible(ApiFuture.make.pipe(Effect.provide(context), Scope.extend(scope)))
      const future = yield* futures.attach(optimStep, "req")
      const before = Context.get(context, HttpScript.HttpScript)
      yield* TestClock.adjust("1 minute")
      yield* Scope.close(scope, Exit.void)
      expect(yield* Effect.flip(future.await)).toMatchObject({ _tag: "ClientClosed" })
      // The transport is still open, so a leaked poller would keep polling.
      const count = before.to("retrieve_future").length
      yield* TestClock.adjust("10 minutes")
      expect(before.to("retrieve_future").length).toBe(count)
    }),
  )

  it.effect("await fails with PollerDied when a decoder throws", () =>
    Effect.gen(function* () {
      const { futures } = yield* opened({ retrieve_future: [{ body: {}, forever: true }] })
      const broken: typeof optimStep = {
        ...optimStep,
        fromJson: () => {
          throw new TypeError("broken decoder")
        },
      }
      const dead = yield* Effect.flip((yield* futures.attach(broken, "req")).await)
      expect(dead).toMatchObject({ _tag: "RequestFailed", reason: "PollerDied", requestId: Option.some("req") })
      expect(dead.message).toMatch(/broken decoder$/)
      const unprintable: typeof optimStep = {
        ...optimStep,
        fromJson: () => {
          throw {
            toString() {
              throw new Error("no words")
            },
            toJSON() {
              throw new Error("no words")
            },
          }
        },
      }
      const silent = yield* Effect.flip((yield* futures.attach(unprintable, "req")).await)
      expect(silent).toMatchObject({ _tag: "RequestFailed", reason: "PollerDied" })
    }),
  )

  it.effect("await fails with PollerDied when the polling fiber is interrupted", () =>
    Effect.gen(function* () {
      const { futures } = yield* opened(endless)
      const fibers = yield* Supervisor.track
      const future = yield* Effect.supervised(futures.attach(optimStep, "req"), fibers)
      const [poller] = yield* fibers.value
      expect(poller).toBeDefined()
      if (poller !== undefined) yield* Fiber.interrupt(poller)
      expect(yield* Effect.flip(future.await)).toMatchObject({ _tag: "RequestFailed", reason: "PollerDied" })
    }),
  )

  it.effect("interrupting one waiter does not affect the others", () =>
    Effect.gen(function* () {
      const { futures } = yield* opened({ retrieve_future: [{ body: {}, delaySeconds: 10 }] })
      const future = yield* futures.attach(optimStep, "req")
      const first = yield* Effect.fork(future.await)
      const second = yield* Effect.fork(future.await)
      yield* TestClock.adjust("1 second")
      const exit = yield* Fiber.interrupt(first)
      expect(Exit.isFailure(exit) && Cause.isInterruptedOnly(exit.cause)).toBe(true)
      yield* TestClock.adjust("10 seconds")
      expect(yield* Fiber.join(second)).toEqual({ metrics: {} })
    }),
  )

  it.effect("no polls are sent after the scope closes", () =>
    Effect.gen(function* () {
      const { context, futures, scope } = yield* opened(endless)
      yield* Effect.forEach(Array.from({ length: 20 }), (_, i) => futures.attach(optimStep, `r${i}`))
      yield* TestClock.adjust("1 minute")
      yield* Scope.close(scope, Exit.void)
      const script = Context.get(context, HttpScript.HttpScript)
      const before = script.seen.length
      yield* TestClock.adjust("1 hour")
      expect(script.seen.length).toBe(before)
    }),
  )
})
