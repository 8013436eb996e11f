import { describe, expect, it } from "@effect/vitest"
import { Clock, DateTime, Duration, Effect, Either, Encoding, Layer, Option, Redacted, TestClock } from "effect"
import { RetryPolicy, TinkerConfig, type TinkerError } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import type * as Endpoint from "effect-tinker/protocol/Endpoint"
import * as Host from "effect-tinker/http/Host"
import * as Transport from "effect-tinker/Transport"
import * as HttpScript from "./support/HttpScript.ts"
import * as Recorded from "./support/Recorded.ts"
import * as VirtualTime from "./support/VirtualTime.ts"

const apiKey = Redacted.make("tml-secret-key")

type Requirements = Transport.Transport | HttpScript.HttpScript

const run = <A, E>(
  program: Effect.Effect<A, E, Requirements>,
  replies: Readonly<Record<string, ReadonlyArray<HttpScript.Reply>>>,
  values: TinkerConfig.Values = {},
) =>
  program.pipe(
    Effect.provide(
      Layer.provideMerge(
        Transport.layer,
        Layer.merge(TinkerConfig.layer({ baseUrl: "http://server", apiKey, ...values }), HttpScript.layer(replies)),
      ),
    ),
    VirtualTime.run,
  )

const call = <I, A>(endpoint: Endpoint.Endpoint<I, A>, input: NoInfer<I>) =>
  Effect.flatMap(Transport.Transport, (transport) => transport.call(endpoint, input))

const createSession = call(Api.createSession, { sdkVersion: "0.36.0" })
const getInfo = call(Api.getInfo, { modelId: "sess-0001:train:0" })
const requestsTo = (path: string) => Effect.map(HttpScript.HttpScript, (script) => script.to(path))

const jwtFor = (seconds: number, now = 0): string => {
  const part = (value: unknown) => Encoding.encodeBase64Url(JSON.stringify(value))
  return `${part({ alg: "none" })}.${part({ exp: now / 1000 + seconds })}.x`
}

/**
 * Checks the gaps between requests: recorded gaps follow the reference's formula, and ours match after a quick retry.
 */
const expectGaps = (
  ours: ReadonlyArray<number>,
  recorded: ReadonlyArray<number>,
  replies: Recorded.Behaviour["script"],
) => {
  expect(ours.length).toBe(recorded.length)
  for (let i = 1; i < ours.length; i++) {
    const headers = replies[i - 1]?.headers ?? {}
    const ms = headers["Retry-After-Ms"]
    const seconds = headers["Retry-After"]
    const asked = ms !== undefined ? Number(ms) : seconds !== undefined ? Number(seconds) * 1000 : undefined
    const range = (full: number): readonly [number, number] =>
      asked !== undefined && asked <= 60_000 ? [asked, asked] : [0.75 * full, full]
    const reference = Math.min(500 * 2 ** (i - 1), 10_000)
    const [low, high] = range(reference)
    const [least, most] = range(
      replies[i - 1]?.status === 429 ? reference : ([20, 250][i - 1] ?? Math.min(500 * 2 ** (i - 2), 10_000)),
    )
    const gap = (times: ReadonlyArray<number>) => (times[i] ?? Number.NaN) - (times[i - 1] ?? Number.NaN)
    expect(gap(ours)).toBeGreaterThanOrEqual(least)
    expect(gap(ours)).toBeLessThanOrEqual(Math.ceil(most))
    // The recording was measured on a busy machine.
    expect(gap(recorded)).toBeGreaterThan(low - 100)
    expect(gap(recorded)).toBeLessThan(high + 250)
  }
}

describe("recorded retries", () => {
  const files = [
    "behaviours/http_backoff_schedule.json",
    "behaviours/http_connection_dropped.json",
    "behaviours/http_retry_408_409.json",
    "behaviours/http_retry_5xx_backoff.json",
    "behaviours/http_retry_after_ms.json",
    "behaviours/http_retry_after_over_60_ignored.json",
    "behaviours/http_retry_after_seconds.json",
    "behaviours/http_x_should_retry_true.json",
  ] as const
  it.effect.each(files)("retries match the recording %s", (file) =>
    Effect.gen(function* () {
      const { expect: recorded, script } = Recorded.behaviour(file)
      const [requests, session] = yield* run(
        Effect.flatMap(createSession, (session) =>
          Effect.map(requestsTo("create_session"), (requests) => [requests, session] as const),
        ),
        Recorded.replies(script),
      )
      expect(session.sessionId).toBe(recorded.result)
      expectGaps(
        requests.map((request) => request.at),
        recorded.requests.map((request) => request.t * 1000),
        script,
      )
      requests.forEach((request, i) => {
        const expected = recorded.requests[i]
        expect(request.headers["x-stainless-retry-count"]).toBe(expected?.retryCount)
        expect(request.headers["x-stainless-read-timeout"]).toBe(expected?.readTimeout)
        expect(request.headers["x-api-key"]).toBe("tml-secret-key")
        expect(JSON.parse(request.body)).toEqual(expected?.body)
      })
      // One logical request has one idempotency key.
      expect(new Set(requests.map((request) => request.headers["x-idempotency-key"])).size).toBe(1)
    }),
  )

  it.effect("behaviours/http_retry_after_http_date.json: a Retry-After date is honored", () =>
    Effect.gen(function* () {
      const { script } = Recorded.behaviour("behaviours/http_retry_after_http_date.json")
      const start = Date.UTC(2026, 10, 16, 12, 0, 0, 700)
      yield* TestClock.setTime(start)
      const replies = Recorded.replies(script)
      const date = new Date(start + 3000).toUTCString()
      const [first, second] = replies["create_session"] ?? []
      const times = yield* run(
        Effect.zipRight(
          createSession,
          Effect.map(requestsTo("create_session"), (all) => all.map((one) => one.at)),
        ),
        { ...replies, create_session: [{ ...first, headers: { "Retry-After": date } }, { ...second }] },
      )
      // The date has whole seconds, so it can be up to a second earlier than intended.
      expect((times[1] ?? 0) - (times[0] ?? 0)).toBe(2300)
    }),
  )
})

const outcome = <A>(effect: Effect.Effect<A, TinkerError.TinkerError, Requirements>, path: string) =>
  Effect.flatMap(Effect.either(effect), (result) =>
    Effect.map(requestsTo(path), (requests) => ({
      requests,
      error: Either.getOrElse(Either.flip(result), () => undefined),
      value: Either.getOrElse(result, () => undefined),
    })),
  )

describe("recorded failures", () => {
  it.effect("behaviours/http_x_should_retry_false.json: x-should-retry: false prevents a retry", () =>
    Effect.gen(function* () {
      const { script } = Recorded.behaviour("behaviours/http_x_should_retry_false.json")
      const { error, requests } = yield* run(outcome(createSession, "create_session"), Recorded.replies(script))
      expect(requests.length).toBe(1)
      expect(error).toMatchObject({ _tag: "Unavailable", reason: "ServerError", detail: "no", attempts: 1 })
    }),
  )

  it.effect("behaviours/http_retries_exhausted.json: the error after the last retry has the number of attempts", () =>
    Effect.gen(function* () {
      const { script } = Recorded.behaviour("behaviours/http_retries_exhausted.json")
      const { error, requests } = yield* run(outcome(createSession, "create_session"), Recorded.replies(script), {
        retryPolicy: RetryPolicy.make({ maxRetries: 2 }),
      })
      expect(requests.length).toBe(3)
      expect(error).toMatchObject({ _tag: "Unavailable", status: Option.some(500), detail: "x", attempts: 3 })
      expect(error?.message).toMatch(
        /^create_session failed on the server \(HTTP 500\) after 3 attempts in \d+ms[^:]*: x$/,
      )
    }),
  )

  it.effect("behaviours/http_timeout.json: a timeout is retried and then reported", () =>
    Effect.gen(function* () {
      const { script } = Recorded.behaviour("behaviours/http_timeout.json")
      const { error, requests } = yield* run(outcome(createSession, "create_session"), Recorded.replies(script), {
        attemptTimeout: "500 millis",
        retryPolicy: RetryPolicy.make({ maxRetries: 1 }),
      })
      expect(requests.map((request) => request.headers["x-stainless-read-timeout"])).toEqual(["0.5", "0.5"])
      expect(error).toMatchObject({ _tag: "Unavailable", reason: "Timeout", attempts: 2 })
    }),
  )

  it.effect("behaviours/http_error_classes.json: each status has the recorded error class, detail and body", () =>
    Effect.gen(function* () {
      const { expect: recorded, script } = Recorded.behaviour("behaviours/http_error_classes.json")
      expect(recorded.errors?.length).toBe(script.length)
      for (const [i, answer] of script.entries()) {
        const { error } = yield* run(outcome(call(Api.health, {}), "healthz"), Recorded.replies([answer]))
        const expected = recorded.errors?.[i]
        // The reference has no class of its own for 408, 410 and similar statuses.
        const tag =
          expected?.$error === "APIStatusError"
            ? answer.status === 408
              ? "Unavailable"
              : "RequestRejected"
            : Recorded.tagOf[expected?.$error ?? ""]
        expect(error, `${answer.status}`).toMatchObject({ _tag: tag, status: Option.some(answer.status) })
        expect(error, `${answer.status}`).toMatchObject({ body: Option.fromNullable(expected?.body || undefined) })
      }
    }),
  )

  it.effect("behaviours/http_error_classes.json: a validation error is described in one line", () =>
    Effect.gen(function* () {
      const { script } = Recorded.behaviour("behaviours/http_error_classes.json")
      const listed = script.filter((answer) => answer.status === 422)[1]
      const { error } = yield* run(outcome(call(Api.health, {}), "healthz"), Recorded.replies(listed ? [listed] : []))
      expect(error?.message).toBe("healthz was rejected (HTTP 422): body.x: field required")
    }),
  )

  it.effect("behaviours/http_response_validation.json: invalid responses are rejected as recorded", () =>
    Effect.gen(function* () {
      const { expect: recorded, script } = Recorded.behaviour("behaviours/http_response_validation.json")
      for (const [i, answer] of script.entries()) {
        const expected = recorded.outcomes?.[i]
        const replies = Recorded.replies([answer])
        const repeated = Object.fromEntries(
          Object.entries(replies).map(([path, all]) => [path, all.map((reply) => ({ ...reply, forever: true }))]),
        )
        const { error, value } = yield* run(outcome(createSession, "create_session"), repeated)
        // The reference returns None for `null` where a model is declared.
        if (expected?.case === "null body") expect(error?._tag).toBe("UnexpectedResponse")
        else if (expected?.$error === undefined) expect(value?.sessionId, expected?.case).toBe("s")
        else expect(error?._tag, expected.case).toBe(Recorded.tagOf[expected.$error])
      }
    }),
  )

  it.effect("behaviours/holder_no_retry_4xx.json: a 4xx is not retried", () =>
    Effect.gen(function* () {
      const { script } = Recorded.behaviour("behaviours/holder_no_retry_4xx.json")
      const { error, requests } = yield* run(outcome(getInfo, "get_info"), Recorded.replies(script))
      expect(requests.length).toBe(1)
      expect(error).toMatchObject({ _tag: "RequestRejected", reason: "BadRequest", detail: "bad" })
    }),
  )
})

describe("intentional differences from the reference", () => {
  it.effect("behaviours/holder_retry_backoff.json: every layer honors x-should-retry: false", () =>
    Effect.gen(function* () {
      const { script } = Recorded.behaviour("behaviours/holder_retry_backoff.json")
      const { error, requests } = yield* run(outcome(getInfo, "get_info"), Recorded.replies(script))
      expect(requests.length).toBe(1)
      expect(error).toMatchObject({ _tag: "Unavailable", shouldRetry: Option.some(false) })
    }),
  )

  it.effect(
    "behaviours/holder_empty_400_is_connection_error.json: an empty 400 is retried on the common schedule with one key",
    () =>
      Effect.gen(function* () {
        const { expect: recorded, script } = Recorded.behaviour("behaviours/holder_empty_400_is_connection_error.json")
        const { requests, value } = yield* run(outcome(getInfo, "get_info"), Recorded.replies(script))
        expect(requests.length).toBe(recorded.totalRequests)
        expect(new Set(requests.map((request) => request.headers["x-idempotency-key"])).size).toBe(1)
        expect(value?.modelId).toBe("sess-0001:train:0")
      }),
  )

  it.effect.each([
    "behaviours/holder_400_chunked_without_content_length.json",
    "behaviours/holder_400_gzip.json",
    "behaviours/holder_400_gzip_httpx.json",
  ] as const)("%s: a 400 with a detail is final, whatever its transfer encoding", (file) =>
    Effect.gen(function* () {
      const { error, requests } = yield* run(
        outcome(getInfo, "get_info"),
        Recorded.replies(Recorded.behaviour(file).script),
      )
      expect(requests.length).toBe(1)
      expect(error).toMatchObject({ _tag: "RequestRejected", reason: "BadRequest", detail: "bad" })
    }),
  )

  it.effect("behaviours/client_config_404.json: a server without flags has the defaults", () =>
    Effect.gen(function* () {
      const { script } = Recorded.behaviour("behaviours/client_config_404.json")
      const session = yield* run(createSession, {
        ...Recorded.replies(script),
        create_session: [{ body: { session_id: "s" } }],
      })
      expect(session.sessionId).toBe("s")
    }),
  )
})

describe("billing pauses", () => {
  it.effect("behaviours/holder_402_pause.json: a 402 is retried every five seconds with one idempotency key", () =>
    Effect.gen(function* () {
      const { script } = Recorded.behaviour("behaviours/holder_402_pause.json")
      const { requests, value } = yield* run(outcome(getInfo, "get_info"), Recorded.replies(script))
      expect(requests.map((request) => request.at)).toEqual([0, 5000, 10_000].map((at) => at + (requests[0]?.at ?? 0)))
      expect(new Set(requests.map((request) => request.headers["x-idempotency-key"])).size).toBe(1)
      expect(value?.modelId).toBe("sess-0001:train:0")
    }),
  )

  it.effect("behaviours/holder_402_pause_exceeded.json: the server's flag limits the billing pause", () =>
    Effect.gen(function* () {
      const { expect: recorded, script } = Recorded.behaviour("behaviours/holder_402_pause_exceeded.json")
      const { error, requests } = yield* run(outcome(getInfo, "get_info"), {
        ...Recorded.replies(script),
        "client/config": [{ body: { billing_exception_max_pause_duration_sec: 3 } }],
      })
      expect(requests.length).toBe(recorded.totalRequests)
      expect(error).toMatchObject({ _tag: "BillingPaused", detail: "billing", attempts: 2 })
    }),
  )

  it.effect("a configured billing pause overrides the server's, and a start-up call does not wait", () =>
    Effect.gen(function* () {
      const stop = { status: 402, body: { detail: "billing" }, forever: true }
      const paused = yield* run(
        outcome(getInfo, "get_info"),
        { "client/config": [{ body: {} }], get_info: [stop] },
        { retryPolicy: RetryPolicy.make({ billingPause: "12 seconds" }) },
      )
      expect(paused.requests.length).toBe(4)
      expect(paused.error?._tag).toBe("BillingPaused")
      const started = yield* run(outcome(createSession, "create_session"), {
        "client/config": [{ body: {} }],
        create_session: [stop],
      })
      expect(started.requests.length).toBe(1)
    }),
  )
})

describe("start-up and credentials", () => {
  it.effect("behaviours/client_config_500.json: a failed flag request is retried with one idempotency key", () =>
    Effect.gen(function* () {
      const { script } = Recorded.behaviour("behaviours/client_config_500.json")
      const { requests } = yield* run(outcome(createSession, "client/config"), {
        ...Recorded.replies(script),
        create_session: [{ body: { session_id: "s" } }],
      })
      expect(requests.length).toBe(2)
      expect(new Set(requests.map((request) => request.headers["x-idempotency-key"])).size).toBe(1)
    }),
  )

  it.effect(
    "vectors/client_config.json, vectors/base_url_prefix.json, vectors/cloudflare_headers.json: start-up is as recorded",
    () =>
      Effect.gen(function* () {
        const { response } = Recorded.vector("vectors/client_config.json")
        const seen = yield* run(
          Effect.zipRight(
            call(Api.getServerCapabilities, {}),
            Effect.map(HttpScript.HttpScript, (script) => script.seen),
          ),
          {
            "client/config": [{ body: response.body }],
            get_server_capabilities: [{ body: Recorded.vector("vectors/base_url_prefix.json").response.body }],
          },
          {
            baseUrl: "http://server/services/tinker-prod//",
            cloudflareAccess: { clientId: Redacted.make("cf-id"), clientSecret: Redacted.make("cf-secret") },
          },
        )
        expect(seen.map((request) => request.path)).toEqual([
          "/services/tinker-prod/api/v1/client/config",
          "/services/tinker-prod/api/v1/get_server_capabilities",
        ])
        const cloudflare = Recorded.vector("vectors/cloudflare_headers.json").request.headers
        for (const request of seen) {
          expect(request.headers).toMatchObject({
            "cf-access-client-id": cloudflare["cf-access-client-id"],
            "cf-access-client-secret": cloudflare["cf-access-client-secret"],
          })
        }
      }),
  )

  it.effect("vectors/health_check.json: every request has the recorded header names", () =>
    Effect.gen(function* () {
      const recorded = Recorded.vector("vectors/health_check.json")
      const [health, request] = yield* run(
        Effect.zip(
          call(Api.health, {}),
          Effect.map(HttpScript.HttpScript, (script) => script.seen[0]),
        ),
        { healthz: [{ body: recorded.response.body }] },
      )
      expect(health).toEqual({ status: "ok" })
      expect(request?.path).toBe(recorded.request.path)
      // The values are our own; the names are the reference's. The HTTP client chooses the encodings.
      const names = Object.keys(recorded.request.headers).filter((name) => name !== "accept-encoding")
      expect(Object.keys(request?.headers ?? {}).toSorted()).toEqual(names.toSorted())
      expect(request?.headers["user-agent"]).toBe("effect-tinker/0.1.0")
      expect(request?.body).toBe("")
    }),
  )

  it.effect("every request except GET has a content type and an idempotency key, even without a body", () =>
    Effect.gen(function* () {
      const requests = yield* run(
        Effect.zipRight(
          call(Api.deleteCheckpoint, { trainingRunId: "run", checkpointId: "weights/0001" }),
          requestsTo("run/checkpoints/weights/0001"),
        ),
        { "client/config": [{ body: {} }], "run/checkpoints/weights/0001": [{}] },
      )
      expect(requests[0]).toMatchObject({ method: "DELETE", body: "", purpose: "rest" })
      expect(requests[0]?.headers["content-type"]).toBe("application/json")
      expect(requests[0]?.headers["x-idempotency-key"]).toMatch(/^effect-tinker-[\da-f-]{36}$/)
    }),
  )

  const jwt = jwtFor(3600)
  const withJwt = (
    token: ReadonlyArray<HttpScript.Reply>,
    rest: Record<string, ReadonlyArray<HttpScript.Reply>> = {},
  ) => ({
    "client/config": [{ body: { pjwt_auth_enabled: true } }],
    "auth/token": token,
    create_session: [{ body: { session_id: "s" }, forever: true }],
    ...rest,
  })
  const keys = Effect.map(HttpScript.HttpScript, ({ seen }) =>
    seen.map((request) => [Recorded.pathOf(`X ${request.path}`), request.headers["x-api-key"]]),
  )

  it.effect(
    "vectors/auth_token_exchange.json, vectors-0.25.0/jwt_bootstrap.json: the API key is exchanged for a token as recorded",
    () =>
      Effect.gen(function* () {
        const recorded = Recorded.vector("vectors/auth_token_exchange.json")
        const seen = yield* run(
          Effect.zipRight(
            createSession,
            Effect.map(HttpScript.HttpScript, (script) => script.seen),
          ),
          withJwt([{ body: { jwt } }]),
        )
        expect(seen.map((request) => request.headers["x-api-key"])).toEqual(["tml-secret-key", "tml-secret-key", jwt])
        const exchange = seen[1]
        const expected = recorded.exchanges.find(({ request }) => request.path.endsWith("auth/token"))?.request
        expect([exchange?.method, exchange?.path]).toEqual([expected?.method, expected?.path])
        expect(JSON.parse(exchange?.body ?? "")).toEqual(expected?.body)
        const [, older] = Recorded.vector("vectors-0.25.0/jwt_bootstrap.json").exchanges
        expect([exchange?.method, exchange?.path]).toEqual([older?.request.method, older?.request.path])
      }),
  )

  it.effect("behaviours/jwt_api_key_passthrough.json: a JWT given as the API key is exchanged too", () =>
    Effect.gen(function* () {
      const own = jwtFor(60)
      const seen = yield* run(Effect.zipRight(createSession, keys), withJwt([{ body: { jwt } }]), {
        apiKey: Redacted.make(own),
      })
      expect(seen).toEqual([
        ["client/config", own],
        ["auth/token", own],
        ["create_session", jwt],
      ])
    }),
  )

  it.effect("behaviours/jwt_exchange_401.json: a rejected token exchange is reported as Unauthorized", () =>
    Effect.gen(function* () {
      const { script } = Recorded.behaviour("behaviours/jwt_exchange_401.json")
      const { error } = yield* run(outcome(createSession, "auth/token"), Recorded.replies(script))
      expect(error).toMatchObject({ _tag: "Unauthorized", operation: "auth/token", detail: "bad key" })
    }),
  )

  it.effect(
    "behaviours/jwt_exchange_500_retried.json: a failed token exchange is retried with one idempotency key",
    () =>
      Effect.gen(function* () {
        const { script } = Recorded.behaviour("behaviours/jwt_exchange_500_retried.json")
        const replies = Recorded.replies(script)
        const { requests } = yield* run(outcome(createSession, "auth/token"), replies)
        expect(requests.map((request) => request.headers["x-stainless-retry-count"])).toEqual(["0", "1", "2"])
        expect(new Set(requests.map((request) => request.headers["x-idempotency-key"])).size).toBe(1)
      }),
  )

  it.effect("behaviours/jwt_ttl_below_300_hot_loop.json: short-lived tokens do not cause an exchange per request", () =>
    Effect.gen(function* () {
      // A request every second for a minute, with tokens that are valid for 100 s, for 5 s, and already expired.
      for (const [life, atMost] of [
        [100, 2],
        [5, 13],
        [-10, 13],
      ] as const) {
        const exchanges = yield* run(
          Effect.gen(function* () {
            yield* Effect.repeatN(Effect.zipRight(createSession, Effect.sleep("1 second")), 60)
            return (yield* requestsTo("auth/token")).length
          }),
          withJwt([{ body: { jwt: jwtFor(life) }, forever: true }]),
        )
        expect(exchanges, `life ${life}`).toBeLessThanOrEqual(atMost)
      }
    }),
  )

  it.effect("a hundred concurrent requests share one token exchange", () =>
    Effect.gen(function* () {
      const exchanges = yield* run(
        Effect.zipRight(
          Effect.all(
            Array.from({ length: 100 }, () => createSession),
            { concurrency: "unbounded" },
          ),
          requestsTo("auth/token"),
        ),
        withJwt([{ body: { jwt }, delaySeconds: 1 }]),
      )
      expect(exchanges.length).toBe(1)
    }),
  )

  it.effect("interrupting the request that started a token exchange does not affect the others", () =>
    Effect.gen(function* () {
      const session = yield* run(
        Effect.gen(function* () {
          const first = yield* Effect.fork(createSession)
          yield* Effect.yieldNow()
          const second = yield* Effect.fork(createSession)
          yield* Effect.sleep("500 millis")
          yield* first.interruptAsFork(yield* Effect.fiberId)
          return yield* second
        }),
        withJwt([{ body: { jwt }, delaySeconds: 1 }]),
      )
      expect(session.sessionId).toBe("s")
    }),
  )

  it.effect("a 401 with a JWT forces one token exchange and one resend", () =>
    Effect.gen(function* () {
      const fresh = jwtFor(7200)
      const seen = yield* run(
        Effect.zipRight(createSession, keys),
        withJwt([{ body: { jwt } }, { body: { jwt: fresh } }], {
          create_session: [{ status: 401, body: {} }, { body: { session_id: "s" } }],
        }),
      )
      expect(seen.slice(1)).toEqual([
        ["auth/token", "tml-secret-key"],
        ["create_session", jwt],
        ["auth/token", "tml-secret-key"],
        ["create_session", fresh],
      ])
      const refused = yield* run(
        outcome(createSession, "create_session"),
        withJwt([{ body: { jwt } }, { body: { jwt: fresh } }], {
          create_session: [{ status: 401, body: {}, forever: true }],
        }),
      )
      expect(refused.requests.length).toBe(2)
      expect(refused.error?._tag).toBe("Unauthorized")
    }),
  )

  it.effect("requests rejected together share one forced token exchange", () =>
    Effect.gen(function* () {
      const fresh = jwtFor(7200)
      const { exchanges, results } = yield* run(
        Effect.gen(function* () {
          const results = yield* Effect.all(
            Array.from({ length: 5 }, () => Effect.either(createSession)),
            { concurrency: "unbounded" },
          )
          return { results, exchanges: (yield* requestsTo("auth/token")).length }
        }),
        withJwt([{ body: { jwt } }, { body: { jwt: fresh }, delaySeconds: 1 }], {
          create_session: [
            ...Array.from({ length: 5 }, () => ({ status: 401, body: {} })),
            { body: { session_id: "s" }, forever: true },
          ],
        }),
      )
      expect(results.map(Either.isRight)).toEqual([true, true, true, true, true])
      expect(exchanges).toBe(2)
    }),
  )

  it.effect("a server that rejects every token does not cause an exchange per request", () =>
    Effect.gen(function* () {
      const exchanges = yield* run(
        Effect.gen(function* () {
          for (let second = 0; second < 10; second++) {
            yield* Effect.either(createSession)
            yield* Effect.sleep("1 second")
          }
          return (yield* requestsTo("auth/token")).length
        }),
        withJwt([{ body: { jwt }, forever: true }], { create_session: [{ status: 401, body: {}, forever: true }] }),
      )
      // The first exchange, and a forced one every five seconds.
      expect(exchanges).toBe(3)
    }),
  )

  it.effect("a request with a stale token waits at most five seconds for a failing token exchange", () =>
    Effect.gen(function* () {
      const waits = yield* run(
        Effect.gen(function* () {
          const timed = Effect.gen(function* () {
            const before = yield* Clock.currentTimeMillis
            yield* createSession
            return (yield* Clock.currentTimeMillis) - before
          })
          yield* createSession
          yield* Effect.sleep(Duration.seconds(3550))
          return [yield* timed, yield* timed]
        }).pipe(Effect.zip(keys)),
        withJwt([{ body: { jwt } }, { delaySeconds: 1000, body: {} }, { status: 503, forever: true }]),
      )
      expect(waits[0].every((wait) => wait <= 5000)).toBe(true)
      expect(waits[1].filter(([path]) => path === "create_session").map(([, key]) => key)).toEqual([jwt, jwt, jwt])
    }),
  )

  it.effect("a failed token renewal is not retried immediately", () =>
    Effect.gen(function* () {
      const exchanges = yield* run(
        Effect.gen(function* () {
          yield* createSession
          yield* Effect.sleep("56 minutes")
          for (let second = 0; second < 25; second++) {
            yield* createSession
            yield* Effect.sleep("1 second")
          }
          return (yield* requestsTo("auth/token")).length
        }),
        withJwt([{ body: { jwt } }, { status: 403, body: {}, forever: true }]),
      )
      // The first exchange, then renewals at 0, 10 and 20 s.
      expect(exchanges).toBe(4)
    }),
  )

  it.effect("retries of the token exchange and of the request do not multiply", () =>
    Effect.gen(function* () {
      const { error, exchanges, requests } = yield* run(
        Effect.zipWith(outcome(createSession, "create_session"), requestsTo("auth/token"), (all, { length }) => ({
          ...all,
          exchanges: length,
        })),
        withJwt([{ status: 503, forever: true }]),
      )
      // One budget of 300 s, and not one for each attempt of the request.
      expect(exchanges).toBeGreaterThan(30)
      expect(exchanges).toBeLessThan(50)
      expect(requests.length).toBe(0)
      expect(error).toMatchObject({ _tag: "Unavailable", operation: "auth/token" })
    }),
  )

  it.effect("a 401 with an API key is reported immediately", () =>
    Effect.gen(function* () {
      const { error, requests } = yield* run(outcome(createSession, "create_session"), {
        "client/config": [{ body: {} }],
        create_session: [{ status: 401, body: { detail: "no" } }],
      })
      expect(requests.length).toBe(1)
      expect(error?.message).toBe("create_session was not authorized (HTTP 401): check the API key: no")
    }),
  )

  it.effect("a token near its expiry is renewed in the background, and the old one is used while renewal fails", () =>
    Effect.gen(function* () {
      const now = DateTime.unsafeMake(0).epochMillis
      const next = jwtFor(7200, now)
      const seen = yield* run(
        Effect.gen(function* () {
          yield* createSession
          yield* Effect.sleep("56 minutes")
          yield* createSession // Starts the renewal, which fails, and uses the old token.
          yield* Effect.sleep("30 seconds")
          yield* createSession // Starts the next renewal.
          yield* Effect.sleep("1 second")
          yield* createSession
          return yield* keys
        }),
        withJwt([{ body: { jwt } }, { status: 403, body: {} }, { body: { jwt: next } }]),
      )
      expect(seen.filter(([path]) => path === "create_session").map(([, key]) => key)).toEqual([jwt, jwt, jwt, next])
    }),
  )

  const host = (output: Effect.Effect<string, string>, file = Option.none<string>()): Layer.Layer<Host.Host> =>
    Layer.succeed(Host.Host, {
      platform: { os: "Linux", arch: "x64", runtime: "test", runtimeVersion: "1" },
      runCommand: () => Effect.map(output, Redacted.make),
      readFile: () => Effect.succeed(file),
      zstd: Effect.succeedNone,
      hash: () => Option.none(),
    })
  const command: TinkerConfig.Values = { apiKey: undefined, credentialCommand: Redacted.make("give-key") }

  it.effect(
    "behaviours/credential_cmd_without_jwt.json: a credential command fails with a server that issues no token",
    () =>
      Effect.gen(function* () {
        const { expect: recorded } = Recorded.behaviour("behaviours/credential_cmd_without_jwt.json")
        const { error, requests } = yield* run(
          outcome(createSession, "client/config"),
          { "client/config": [{ body: {} }] },
          command,
        ).pipe(Effect.provide(host(Effect.succeed("tml-from-command"))))
        expect(requests.map((request) => request.headers["x-api-key"])).toEqual(["tml-from-command"])
        expect(error?._tag).toBe(Recorded.tagOf[recorded.error?.$error ?? ""])
      }),
  )

  it.effect("a credential command runs for each token exchange, and a server can require it", () =>
    Effect.gen(function* () {
      let runs = 0
      const output = Effect.sync(() => `tml-run-${++runs}`)
      const seen = yield* run(
        Effect.zipRight(createSession, keys),
        {
          ...withJwt([{ body: { jwt } }]),
          "client/config": [{ body: { pjwt_auth_enabled: true, credential_default_source: "credential_cmd" } }],
        },
        { credentialCommand: Redacted.make("give-key") },
      ).pipe(Effect.provide(host(output)))
      expect(seen).toEqual([
        ["client/config", "tml-secret-key"],
        ["auth/token", "tml-run-1"],
        ["create_session", jwt],
      ])
    }),
  )

  it.effect("a credential command runs once per logical request, however often that is retried", () =>
    Effect.gen(function* () {
      let runs = 0
      const output = Effect.sync(() => `tml-run-${++runs}`)
      const { requests } = yield* run(
        outcome(call(Api.health, {}), "healthz"),
        { healthz: [{ status: 503 }, { status: 503 }, { body: { status: "ok" } }] },
        command,
      ).pipe(Effect.provide(host(output)))
      expect(requests.map((request) => request.headers["x-api-key"])).toEqual(["tml-run-1", "tml-run-1", "tml-run-1"])
      expect(runs).toBe(1)
    }),
  )

  it.effect("a credential command that fails or prints an invalid credential is a typed error without its output", () =>
    Effect.gen(function* () {
      const failed = yield* run(outcome(createSession, "client/config"), {}, command).pipe(
        Effect.provide(host(Effect.fail("ended with code 1; printed tml-secret"))),
      )
      expect(failed.error).toMatchObject({ _tag: "Unauthorized", reason: "CredentialCommand" })
      expect(failed.error?.message).not.toContain("tml-secret")
      const odd = yield* run(outcome(createSession, "client/config"), {}, command).pipe(
        Effect.provide(host(Effect.succeed("hunter2"))),
      )
      expect(odd.error?.message).toMatch(/^TINKER_CREDENTIAL_CMD \(its output\): must start with 'tml-'/)
      expect(odd.requests.length).toBe(0)
    }),
  )

  it.effect("a stored key is used without a key or command, and a missing key fails at construction", () =>
    Effect.gen(function* () {
      const stored: TinkerConfig.Values = { apiKey: undefined, credentialsFile: "/home/me/.tinker/credentials.json" }
      const file = JSON.stringify({
        version: 1,
        default: "k1",
        keys: { k1: { type: "manual", key: "tml-stored", name: "n" } },
      })
      const seen = yield* run(
        Effect.zipRight(createSession, keys),
        { "client/config": [{ body: {} }], create_session: [{ body: { session_id: "s" } }] },
        stored,
      ).pipe(Effect.provide(host(Effect.fail("unused"), Option.some(file))))
      expect(seen.map(([, key]) => key)).toEqual(["tml-stored", "tml-stored"])
      const missing = yield* Effect.flip(
        run(createSession, {}, stored).pipe(Effect.provide(host(Effect.fail("unused")))),
      )
      expect(missing.message).toMatch(/^TINKER_API_KEY: not set.*tinker auth login/)
      const broken = yield* Effect.flip(
        run(createSession, {}, stored).pipe(
          Effect.provide(host(Effect.fail("unused"), Option.some(`{"default":"k1","keys":{"k1":"tml-leak"}}`))),
        ),
      )
      expect(broken.message).toBe("/home/me/.tinker/credentials.json: not a valid credentials file")
    }),
  )
})

describe("the retry budget", () => {
  it.effect("the retry budget is a time budget: a server may be away for four minutes", () =>
    Effect.gen(function* () {
      const away = Array.from({ length: 28 }, () => ({ status: 503 }))
      const { requests, value } = yield* run(outcome(createSession, "create_session"), {
        "client/config": [{ body: {} }],
        create_session: [...away, { body: { session_id: "s" } }],
      })
      expect(value?.sessionId).toBe("s")
      const [first, last] = [requests[0]?.at ?? 0, requests.at(-1)?.at ?? 0]
      expect(last - first).toBeGreaterThan(180_000)
    }),
  )

  it.effect("the retry budget ends after 300 s with a server that answers at once", () =>
    Effect.gen(function* () {
      const { error, requests } = yield* run(outcome(createSession, "create_session"), {
        "client/config": [{ body: {} }],
        create_session: [{ status: 503, forever: true }],
      })
      expect(error).toMatchObject({ _tag: "Unavailable", attempts: requests.length })
      const [first, last] = [requests[0]?.at ?? 0, requests.at(-1)?.at ?? 0]
      expect(last - first).toBeLessThanOrEqual(300_000)
      expect(last - first).toBeGreaterThan(285_000)
    }),
  )

  it.effect("the retry budget ends after 300 s, and an attempt after 60 s", () =>
    Effect.gen(function* () {
      const { error, requests } = yield* run(outcome(createSession, "create_session"), {
        "client/config": [{ body: {} }],
        create_session: [{ delaySeconds: 1000, forever: true }],
      })
      // 60 s per attempt and at most 7.5 s of delays between the first five: the fifth is the last to start within
      // 300 s.
      expect(requests.length).toBe(5)
      expect(error).toMatchObject({ _tag: "Unavailable", reason: "Timeout" })
      expect(error && "elapsed" in error ? Duration.toSeconds(error.elapsed) : 0).toBeLessThanOrEqual(308)
    }),
  )

  it.effect("a conflict over a sequence number is not retried unless the server asks for it", () =>
    Effect.gen(function* () {
      const optimStep = call(Api.saveWeights, { modelId: "m", path: "p", seqId: 1 })
      const once = yield* run(outcome(optimStep, "save_weights"), {
        "client/config": [{ body: {} }],
        save_weights: [{ status: 409, body: { detail: "seq" } }],
      })
      expect(once.requests.length).toBe(1)
      expect(once.error).toMatchObject({ _tag: "RequestRejected", reason: "Conflict" })
      const asked = yield* run(outcome(optimStep, "save_weights"), {
        "client/config": [{ body: {} }],
        save_weights: [{ status: 409, headers: { "x-should-retry": "true" } }, { body: { request_id: "r" } }],
      })
      expect(asked.value?.requestId).toBe("r")
    }),
  )
})
