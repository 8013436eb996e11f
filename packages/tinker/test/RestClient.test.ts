import { describe, expect, it } from "@effect/vitest"
import {
  Cause,
  Chunk,
  DateTime,
  Duration,
  Effect,
  Either,
  Fiber,
  Inspectable,
  Layer,
  Logger,
  Option,
  Redacted,
  Stream,
  TestClock,
} from "effect"
import { AdminClient, Checkpoint, RestClient, ServiceClient, type TinkerError } from "effect-tinker"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import type * as HttpScript from "./support/HttpScript.ts"
import { layer, otherKey, run, sent } from "./support/Management.ts"
import type { Replies } from "./support/Replay.ts"

const path = "tinker://run-1/weights/0001"

const rest = RestClient.RestClient
const admin = AdminClient.AdminClient

/** Runs a method against these answers; returns its result and the requests it sent. */
const tried = <A, E>(
  method: (rest: RestClient.Service) => Effect.Effect<A, E>,
  replies: Replies = {},
  values: Parameters<typeof run>[2] = {},
) =>
  run(
    Effect.gen(function* () {
      const result = yield* Effect.either(Effect.flatMap(rest, method))
      return { result, requests: yield* sent }
    }),
    replies,
    values,
  )

const paths = (requests: ReadonlyArray<HttpScript.Seen>) => requests.map(({ method, path }) => `${method} ${path}`)
const ofRun = "/api/v1/training_runs/run-1/checkpoints"

describe("RestClient", () => {
  it.effect("RestClient fetches the flags, then the resource, and opens no session", () =>
    Effect.gen(function* () {
      const get = Effect.flatMap(rest, ({ getSession }) => getSession("s", { accessScope: "accessible" }))
      const body = { training_run_ids: ["r"], sampler_ids: [], display_name: "mine" }
      const answer = yield* run(get, { "sessions/s": [{ body }] })
      expect(answer).toEqual({
        trainingRunIds: ["r"],
        samplerIds: [],
        userMetadata: Option.none(),
        displayName: Option.some("mine"),
      })
    }),
  )

  it.effect("RestClient is available from ServiceClient and does not open its session", () =>
    Effect.gen(function* () {
      const listed = yield* Effect.gen(function* () {
        const service = yield* ServiceClient.ServiceClient
        const { sessions } = yield* service.rest.listSessions()
        return { sessions, query: (yield* sent).map(({ query }) => query) }
      }).pipe(Effect.provide(layer({ sessions: [{ body: { sessions: ["s"] } }] })))
      expect(listed).toEqual({
        sessions: ["s"],
        query: [
          [
            ["limit", "20"],
            ["offset", "0"],
            ["access_scope", "owned"],
          ],
        ],
      })
    }),
  )

  it.effect("each configuration gets its own RestClient", () =>
    Effect.gen(function* () {
      const keyOf = (key: string) =>
        run(
          Effect.zipRight(
            Effect.flatMap(rest, ({ listSessions }) => listSessions()),
            Effect.map(sent, (requests) => requests.map(({ headers }) => headers["x-api-key"])),
          ),
          { sessions: [{ body: { sessions: [] } }] },
          { apiKey: Redacted.make(key) },
        )
      expect(yield* Effect.all([keyOf("tml-first"), keyOf("tml-second")])).toEqual([["tml-first"], ["tml-second"]])
    }),
  )

  it.effect("an invalid checkpoint path sends no request, not even for the flags", () =>
    Effect.gen(function* () {
      const methods: ReadonlyArray<
        (rest: RestClient.Service, path: Checkpoint.Input) => Effect.Effect<unknown, { readonly _tag: string }>
      > = [
        (rest, path) => rest.getTrainingRunByPath(path),
        (rest, path) => rest.getWeightsInfo(path),
        (rest, path) => rest.deleteCheckpointByPath(path),
        (rest, path) => rest.publishCheckpoint(path),
        (rest, path) => rest.unpublishCheckpoint(path),
        (rest, path) => rest.setCheckpointTtl(path, "1 hour"),
        (rest, path) => rest.getExternalWeightsUrls(path),
        (rest, path) => rest.getCheckpointArchiveUrl(path),
        (rest, path) => rest.copyWeights(path, { projectId: "p" }),
      ]
      const unchecked = new Checkpoint.Path({ trainingRunId: "r", kind: "training", name: "a/b", form: "full" })
      for (const method of methods) {
        for (const bad of ["", "run-1", "tinker://run-1/0001", "tinker://run-1/weights/0001/publish", unchecked]) {
          const { requests, result } = yield* tried((rest) => method(rest, bad), { "client/config": [] })
          expect(result).toMatchObject({ _tag: "Left", left: { _tag: "InvalidInput" } })
          expect(requests).toEqual([])
        }
      }
    }),
  )

  it.effect("RestClient rejects ids that would lead to another path", () =>
    Effect.gen(function* () {
      for (const [run, checkpoint] of [
        ["", "weights/a"],
        ["..", "weights/a"],
        ["r", "weights/../.."],
        ["r", ""],
      ] as const) {
        const { requests, result } = yield* tried((rest) => rest.deleteCheckpoint(run, checkpoint))
        expect(result).toMatchObject({ _tag: "Left", left: { _tag: "InvalidInput" } })
        expect(requests).toEqual([])
      }
    }),
  )

  it.effect("RestClient accepts a checkpoint of a server with two-part paths", () =>
    Effect.gen(function* () {
      const short = yield* Checkpoint.fromServer("tinker://run-1/name")
      const deleted = yield* tried((rest) => rest.deleteCheckpointByPath(short), {
        "sampler_weights/name": [{ body: {} }],
      })
      expect(paths(deleted.requests)).toEqual([`DELETE ${ofRun}/sampler_weights/name`])
      const archived = yield* tried((rest) => rest.getCheckpointArchiveUrl(short), {
        "name/archive": [{ status: 302, headers: { location: "https://storage/x" } }],
      })
      expect(paths(archived.requests)).toEqual([`GET ${ofRun}/name/archive`])
      const info = yield* tried((rest) => rest.getWeightsInfo(short), {
        weights_info: [{ body: { base_model: "m", is_lora: true } }],
      })
      expect(JSON.parse(info.requests[0]?.body ?? "")).toEqual({ tinker_path: "tinker://run-1/name" })
    }),
  )

  it.effect("a checkpoint TTL is sent in whole seconds and must be positive and finite", () =>
    Effect.gen(function* () {
      const ttl = (value: Duration.DurationInput | null) =>
        tried((rest) => rest.setCheckpointTtl(path, value), { "0001/ttl": [{ body: {} }] })
      const bodies = (value: Duration.DurationInput | null) =>
        Effect.map(ttl(value), ({ requests }) => requests.map(({ body }) => body))
      expect(yield* bodies("1500 millis")).toEqual(['{"ttl_seconds":2}'])
      expect(yield* bodies(1)).toEqual(['{"ttl_seconds":1}'])
      expect(yield* bodies(null)).toEqual(['{"ttl_seconds":null}'])
      const untyped: ReadonlyArray<unknown> = [Duration.infinity, undefined, "soon", Number.NaN, -1, 0]
      for (const bad of untyped) {
        const { requests, result } = yield* ttl(bad as Duration.DurationInput)
        expect(result).toMatchObject({ _tag: "Left", left: { _tag: "InvalidInput", path: "checkpoints/ttl.ttl" } })
        expect(requests).toEqual([])
      }
    }),
  )

  it.effect("per-call options are passed to the transport", () =>
    Effect.gen(function* () {
      const { requests } = yield* tried(
        (rest) => rest.getTrainingRunByPath(path, {}, { headers: { "x-mine": "1" }, timeout: "5 seconds" }),
        { "training_runs/run-1": [{ status: 404 }] },
      )
      expect(requests.map(({ headers }) => headers)).toMatchObject([
        { "x-mine": "1", "x-sdk-method": "get_training_run_by_tinker_path", "x-stainless-read-timeout": "5" },
      ])
    }),
  )
})

describe("copyWeights", () => {
  const copied: HttpScript.Reply = { body: { tinker_path: "tinker://copy/weights/a" } }

  it.effect("copyWeights uses the configured project unless another is given", () =>
    Effect.gen(function* () {
      for (const [options, project] of [
        [{}, "configured"],
        [{ projectId: "other" }, "other"],
      ] as const) {
        const { requests } = yield* tried(
          (rest) => rest.copyWeights(path, options),
          { copy_weights: [copied] },
          { projectId: "configured" },
        )
        expect(requests.map(({ body }) => JSON.parse(body))).toEqual([
          { source_path: path, destination_project_id: project },
        ])
      }
    }),
  )

  it.effect("copyWeights uses one idempotency key for all attempts", () =>
    Effect.gen(function* () {
      const { requests, result } = yield* tried((rest) => rest.copyWeights(path, { projectId: "p" }), {
        copy_weights: [{ status: 500 }, { drop: "after" }, { status: 429 }, copied],
      })
      expect(result).toEqual(Either.right({ tinkerPath: "tinker://copy/weights/a" }))
      expect(requests.length).toBe(4)
      expect(new Set(requests.map(({ headers }) => headers["x-idempotency-key"])).size).toBe(1)
    }),
  )

  const repeating = (status: number): HttpScript.Reply => ({ status, body: { detail: `${otherKey} may not` } })

  it.effect("copyWeights sends the credential of the source next to its own, and redacts it in errors and logs", () =>
    Effect.gen(function* () {
      const said: Array<string> = []
      const listening = Logger.replace(
        Logger.defaultLogger,
        Logger.make(({ message }) => said.push(Inspectable.toStringUnknown(message))),
      )
      const error = yield* Effect.gen(function* () {
        const { copyWeights } = yield* rest
        const options = { projectId: "p", weightsAccessToken: Redacted.make(otherKey) }
        const error = yield* Effect.flip(copyWeights(path, options))
        const [request] = yield* sent
        expect(request?.headers).toMatchObject({
          "x-api-key": "tml-a-key",
          "x-tinker-weights-access-token": otherKey,
        })
        expect(request?.body).not.toContain(otherKey)
        return error
      }).pipe(
        Effect.provide(Layer.merge(layer({ copy_weights: [repeating(503), repeating(403)] }), listening)),
        VirtualTime.run,
      )
      expect(error).toMatchObject({ _tag: "Forbidden", detail: "<redacted> may not" })
      expect(said).toEqual([expect.stringContaining("<redacted> may not")])
      expect(JSON.stringify([error, said, Cause.pretty(Cause.fail(error))])).not.toContain(otherKey)
    }),
  )
})

describe("exportTrace", () => {
  const trace = "s/trace_export"
  const pending: HttpScript.Reply = { body: { status: "pending" } }
  const ready: HttpScript.Reply = { body: { status: "ready", url: "https://storage/t" } }

  it.effect("exportTrace polls every five seconds until the trace is ready", () =>
    Effect.gen(function* () {
      const fiber = yield* Effect.fork(Effect.flatMap(rest, ({ exportSessionTrace }) => exportSessionTrace("s")))
      const count = Effect.map(sent, (requests) => requests.length)
      yield* TestClock.adjust(0)
      expect(yield* count).toBe(1)
      yield* TestClock.adjust("4999 millis")
      expect(yield* count).toBe(1)
      yield* TestClock.adjust("1 millis")
      expect(yield* count).toBe(2)
      yield* TestClock.adjust("5 seconds")
      expect(yield* Fiber.join(fiber)).toBe("https://storage/t")
      yield* TestClock.adjust("1 hour")
      expect(yield* count).toBe(3)
    }).pipe(Effect.provide(layer({ [trace]: [pending, pending, ready] }))),
  )

  it.effect("exportTrace has a deadline, and its error contains the last known state", () =>
    Effect.gen(function* () {
      const { requests, result } = yield* tried((rest) => rest.exportSessionTrace("s", { deadline: "12 seconds" }), {
        [trace]: [{ body: { status: "queued" }, forever: true }],
      })
      expect(result).toMatchObject({
        _tag: "Left",
        left: {
          _tag: "DeadlineExceeded",
          requestType: "TraceExport",
          queueState: "queued",
          iterations: 3,
          age: Duration.seconds(12),
        },
      })
      expect(requests.length).toBe(3)
      const late = yield* tried((rest) => rest.exportSessionTrace("s"), { [trace]: [{ ...pending, forever: true }] })
      expect(late.result).toMatchObject({ _tag: "Left", left: { _tag: "DeadlineExceeded", age: Duration.hours(1) } })
    }),
  )

  it.effect("exportTrace keeps its deadline while a request hangs, and the deadline can be disabled", () =>
    Effect.gen(function* () {
      const hangs = { ...pending, delaySeconds: 50, forever: true }
      const { result } = yield* tried((rest) => rest.exportSessionTrace("s", { deadline: "20 seconds" }), {
        [trace]: [hangs],
      })
      expect(result).toMatchObject({ _tag: "Left", left: { _tag: "DeadlineExceeded", iterations: 0 } })
      const patient = yield* tried((rest) => rest.exportSessionTrace("s", { deadline: Duration.infinity }), {
        [trace]: [...Array.from({ length: 800 }, () => pending), ready],
      })
      expect(patient.result).toEqual(Either.right("https://storage/t"))
    }),
  )

  it.effect("exportTrace fails if the export failed or has no URL", () =>
    Effect.gen(function* () {
      const { result } = yield* tried((rest) => rest.exportSessionTrace("s"), {
        [trace]: [{ body: { status: "failed", error: "no access for tml-some-key" } }],
      })
      expect(result).toMatchObject({
        _tag: "Left",
        left: { _tag: "RequestFailed", operation: "sessions/trace_export", detail: "no access for <redacted>" },
      })
      const nowhere = yield* tried((rest) => rest.exportSessionTrace("s"), { [trace]: [{ body: { status: "ready" } }] })
      expect(nowhere.result).toMatchObject({ _tag: "Left", left: { _tag: "UnexpectedResponse" } })
      const bad = yield* tried((rest) => rest.exportSessionTrace("s", { deadline: "soon" as "1 second" }))
      expect(bad).toMatchObject({ requests: [], result: { left: { path: "sessions/trace_export.deadline" } } })
    }),
  )
})

describe("checkpoint archives", () => {
  const archive = "0001/archive"
  const ask = (...replies: ReadonlyArray<HttpScript.Reply>) =>
    tried((rest) => rest.getCheckpointArchiveUrl(path), { [archive]: replies })
  const redirect = (headers: Readonly<Record<string, string>>): HttpScript.Reply => ({ status: 302, headers })
  const inAQuarter = DateTime.unsafeMake("1970-01-01T00:15:00Z")

  it.effect("getCheckpointArchiveUrl returns the redirect target without following it", () =>
    Effect.gen(function* () {
      const { requests, result } = yield* ask(
        redirect({ location: "https://storage/a?sig=%2F+1", expires: "Thu, 01 Jan 1970 01:00:00 GMT" }),
      )
      expect(result).toEqual(
        Either.right({ url: "https://storage/a?sig=%2F+1", expires: DateTime.unsafeMake("1970-01-01T01:00:00Z") }),
      )
      expect(requests.length).toBe(1)
    }),
  )

  it.effect("a checkpoint archive URL expires after 15 minutes by default", () =>
    Effect.gen(function* () {
      for (const expires of [{}, { expires: "0" }, { expires: "-1" }, { expires: "what GMT" }]) {
        const { result } = yield* ask(redirect({ location: "https://storage/a", ...expires }))
        expect(result).toEqual(Either.right({ url: "https://storage/a", expires: inAQuarter }))
      }
    }),
  )

  it.effect("a checkpoint archive URL may be given as JSON or be on the same server", () =>
    Effect.gen(function* () {
      const asJson = yield* ask({ body: { url: "https://storage/a", expires: "2026-01-02T03:04:05Z" } })
      expect(asJson.result).toEqual(
        Either.right({ url: "https://storage/a", expires: DateTime.unsafeMake("2026-01-02T03:04:05Z") }),
      )
      const brief = yield* ask({ body: { url: "https://storage/a" } })
      expect(brief.result).toEqual(Either.right({ url: "https://storage/a", expires: inAQuarter }))
      const near = yield* ask(redirect({ location: "/files/a" }))
      expect(near.result).toEqual(Either.right({ url: "http://server/files/a", expires: inAQuarter }))
    }),
  )

  it.effect("getCheckpointArchiveUrl errors contain no URL", () =>
    Effect.gen(function* () {
      for (const reply of [
        redirect({ location: "file:///etc/secret-place" }),
        redirect({ location: "http://[secret-place" }),
        redirect({}),
        { body: { address: "https://secret-place" } },
        { body: "secret-place" },
      ]) {
        const { result } = yield* ask({ ...reply, forever: true })
        expect(result).toMatchObject({
          _tag: "Left",
          left: { _tag: "UnexpectedResponse", operation: "checkpoints/archive" },
        })
        expect(JSON.stringify(result)).not.toContain("secret-place")
      }
    }),
  )

  it.effect("getCheckpointArchiveUrl waits for an archive that is being built: six rounds, 30 seconds apart", () =>
    Effect.gen(function* () {
      const { requests, result } = yield* ask({ status: 503, forever: true })
      expect(result).toMatchObject({ _tag: "Left", left: { _tag: "Unavailable", status: Option.some(503) } })
      const firsts = requests.filter(({ headers }) => headers["x-stainless-retry-count"] === "0")
      expect(firsts.length).toBe(6)
      const pauses = firsts.slice(1).map((first) => first.at - (requests[requests.indexOf(first) - 1]?.at ?? 0))
      expect(pauses).toEqual([30_000, 30_000, 30_000, 30_000, 30_000])
    }),
  )

  it.effect("a checkpoint archive can become ready in a later round", () =>
    Effect.gen(function* () {
      const busy = Array.from({ length: 11 }, (): HttpScript.Reply => ({ status: 503 }))
      const { requests, result } = yield* ask(...busy, redirect({ location: "https://storage/a" }))
      expect(Either.map(result, ({ url }) => url)).toEqual(Either.right("https://storage/a"))
      expect(requests.length).toBe(12)
    }),
  )

  it.effect("getCheckpointArchiveUrl asks again after a response that was cut off or replaced on its way", () =>
    Effect.gen(function* () {
      const { requests, result } = yield* ask(
        { body: "<html>" },
        { body: "" },
        redirect({ location: "https://storage/a" }),
      )
      expect(Either.map(result, ({ url }) => url)).toEqual(Either.right("https://storage/a"))
      expect(requests.length).toBe(3)
      const never = yield* ask({ body: "<html>", forever: true })
      expect(never.result).toMatchObject({ _tag: "Left", left: { _tag: "UnexpectedResponse" } })
      expect(never.requests.length).toBe(4)
    }),
  )

  it.effect("getCheckpointArchiveUrl has a deadline and reports other errors immediately", () =>
    Effect.gen(function* () {
      const { result } = yield* tried((rest) => rest.getCheckpointArchiveUrl(path, { deadline: "3 minutes" }), {
        [archive]: [{ status: 503, forever: true }],
      })
      expect(result).toMatchObject({
        _tag: "Left",
        left: { _tag: "DeadlineExceeded", requestType: "CheckpointArchive", queueState: "building" },
      })
      const missing = yield* ask({ status: 404 })
      expect(missing.result).toMatchObject({ _tag: "Left", left: { _tag: "NotFound" } })
      expect(missing.requests.length).toBe(1)
    }),
  )
})

describe("whoami", () => {
  const jwt = (claims: unknown) => `eyJhbGciOiJub25lIn0.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.x`
  const issuing = { "client/config": [{ body: { pjwt_auth_enabled: true } }] }
  const whoamiWith = (replies: Replies, key?: string) =>
    tried(({ whoami }) => whoami, replies, key === undefined ? {} : { apiKey: Redacted.make(key) })
  const claims = { sub: "tml:organization_user:u1", org_id: "org-1", email: "ü@example.invalid", exp: 1e9 }
  const identity = {
    userUrn: "tml:organization_user:u1",
    orgUrn: Option.some("tml:organization:org-1"),
    email: Option.some("ü@example.invalid"),
  }

  it.effect("whoami reads the token without a request of its own", () =>
    Effect.gen(function* () {
      const { requests, result } = yield* whoamiWith({ ...issuing, "auth/token": [{ body: { jwt: jwt(claims) } }] })
      expect(result).toEqual(Either.right(identity))
      expect(requests).toEqual([])
      const { result: brief } = yield* whoamiWith({
        ...issuing,
        "auth/token": [{ body: { jwt: jwt({ sub: "u", email: "" }) } }],
      })
      expect(brief).toEqual(Either.right({ userUrn: "u", orgUrn: Option.none(), email: Option.none() }))
    }),
  )

  it.effect("whoami reads a JWT API key of the right issuer if the server issues no token", () =>
    Effect.gen(function* () {
      const { result } = yield* whoamiWith({}, jwt({ ...claims, iss: "passport-1" }))
      expect(result).toEqual(Either.right(identity))
      for (const key of [jwt({ ...claims, iss: "somebody" }), jwt(claims), "eyJnothing", "tml-a-key"]) {
        const { result } = yield* whoamiWith({}, key)
        expect(result).toMatchObject({ _tag: "Left", left: { _tag: "InvalidConfig", setting: "TINKER_API_KEY" } })
        expect(JSON.stringify(result)).not.toContain(key)
      }
    }),
  )

  it.effect("whoami fails if the token has no identity or cannot be obtained", () =>
    Effect.gen(function* () {
      const { result } = yield* whoamiWith({ ...issuing, "auth/token": [{ body: { jwt: jwt({ exp: 1 }) } }] })
      expect(result).toMatchObject({ _tag: "Left", left: { _tag: "UnexpectedResponse", operation: "auth/token" } })
      const { result: denied } = yield* whoamiWith({ ...issuing, "auth/token": [{ status: 401 }] })
      expect(denied).toMatchObject({ _tag: "Left", left: { _tag: "Unauthorized" } })
    }),
  )
})

describe("RestClient streams", () => {
  const all = <A, E, R>(stream: (rest: RestClient.Service) => Stream.Stream<A, E, R>) =>
    Effect.map(
      Effect.flatMap(rest, (rest) => Stream.runCollect(stream(rest))),
      Chunk.toReadonlyArray,
    )
  const queries = Effect.map(sent, (requests) => requests.map(({ query }) => Object.fromEntries(query)))

  const runsPage = (offset: number, ...ids: ReadonlyArray<string>): HttpScript.Reply => ({
    body: {
      training_runs: ids.map((training_run_id) => ({
        training_run_id,
        base_model: "m",
        model_owner: "o",
        is_lora: true,
        last_request_time: "2026-01-02T03:04:05Z",
      })),
      cursor: { offset, limit: 2, total_count: 3 },
    },
  })

  it.effect("training runs are streamed page by page with the same filters", () =>
    run(
      Effect.gen(function* () {
        const runs = yield* all(({ stream }) =>
          stream.listTrainingRuns({ pageSize: 2, accessScope: "accessible", projectId: "p" }),
        )
        expect(runs.map(({ trainingRunId }) => trainingRunId)).toEqual(["a", "b", "c"])
        const filters = { access_scope: "accessible", project_id: "p" }
        expect(yield* queries).toEqual([
          { limit: "2", offset: "0", ...filters },
          { limit: "2", offset: "2", ...filters },
        ])
      }),
      { training_runs: [runsPage(0, "a", "b"), runsPage(2, "c")] },
    ),
  )

  it.effect("a stream sends no request after the last item that is needed", () =>
    run(
      Effect.gen(function* () {
        const runs = yield* all(({ stream }) => Stream.take(stream.listTrainingRuns({ pageSize: 2 }), 2))
        expect(runs.length).toBe(2)
        expect((yield* sent).length).toBe(1)
      }),
      { training_runs: [runsPage(0, "a", "b")] },
    ),
  )

  it.effect("a stream fails with the error of a failed page after the items before it", () =>
    run(
      Effect.gen(function* () {
        const given: Array<string> = []
        const { stream } = yield* rest
        const error = yield* Effect.flip(
          Stream.runForEach(stream.listTrainingRuns({ pageSize: 2 }), ({ trainingRunId }) =>
            Effect.sync(() => given.push(trainingRunId)),
          ),
        )
        expect(error).toMatchObject({ _tag: "Forbidden", operation: "training_runs" })
        expect(given).toEqual(["a", "b"])
      }),
      { training_runs: [runsPage(0, "a", "b"), { status: 403 }] },
    ),
  )

  const checkpointsPage = (total: number | undefined, ...names: ReadonlyArray<string>): HttpScript.Reply => ({
    body: {
      checkpoints: names.map((name) => ({
        checkpoint_id: `weights/${name}`,
        checkpoint_type: "training",
        time: "2026-01-02T03:04:05Z",
        tinker_path: `tinker://r/weights/${name}`,
      })),
      ...(total === undefined ? {} : { cursor: { offset: 0, limit: 2, total_count: total } }),
    },
  })
  const names = Effect.map((list: ReadonlyArray<{ readonly checkpointId: string }>) =>
    list.map(({ checkpointId }) => checkpointId.slice("weights/".length)),
  )

  it.effect(
    "checkpoints of a run are streamed from one response, those of the user page by page, with or without a total",
    () =>
      run(
        Effect.gen(function* () {
          expect(yield* names(all(({ stream }) => stream.listCheckpoints("r")))).toEqual(["x", "y"])
          expect(yield* names(all(({ stream }) => stream.listUserCheckpoints({ pageSize: 2 })))).toEqual([
            "a",
            "b",
            "c",
          ])
          expect(yield* names(all(({ stream }) => stream.listUserCheckpoints({ offset: 5 })))).toEqual(["d"])
          expect((yield* queries).slice(1)).toEqual([
            { limit: "2", offset: "0" },
            { limit: "2", offset: "2" },
            { limit: "100", offset: "5" },
            { limit: "100", offset: "6" },
          ])
        }),
        {
          "r/checkpoints": [checkpointsPage(undefined, "x", "y")],
          "v1/checkpoints": [
            checkpointsPage(3, "a", "b"),
            checkpointsPage(3, "c"),
            checkpointsPage(undefined, "d"),
            checkpointsPage(undefined),
          ],
        },
      ),
  )

  it.effect("sessions are streamed without a total", () =>
    run(
      Effect.gen(function* () {
        expect(yield* all(({ stream }) => stream.listSessions({ pageSize: 2 }))).toEqual(["a", "b", "c"])
        expect((yield* queries).map(({ offset }) => offset)).toEqual(["0", "2", "3"])
      }),
      {
        sessions: [{ body: { sessions: ["a", "b"] } }, { body: { sessions: ["c"] } }, { body: { sessions: [] } }],
      },
    ),
  )

  it.effect("search results are streamed, and the cursor is sent back unchanged", () =>
    run(
      Effect.gen(function* () {
        const found = yield* all(({ stream }) => stream.searchSessions({ pageSize: 1, displayName: "nightly" }))
        expect(found.map(({ sessionId }) => sessionId)).toEqual(["s1", "s2"])
        const base = { user_metadata: {}, owner: { type: "own" }, display_name: "nightly", limit: 1 }
        const cursor = { last_created_at: "2026-01-02T03:04:05.123456+00:00", last_session_id: "s1" }
        expect((yield* sent).map(({ body }) => JSON.parse(body))).toEqual([base, { ...base, cursor }])
      }),
      {
        "sessions/search": [
          searchPage("s1", { last_created_at: "2026-01-02T03:04:05.123456+00:00", last_session_id: "s1" }),
          searchPage("s2"),
        ],
      },
    ),
  )

  it.effect("streams reject a page size above the limit", () =>
    run(
      Effect.gen(function* () {
        const search = all(({ stream }) => stream.searchSessions({ pageSize: 201 }))
        expect(yield* Effect.flip(search)).toMatchObject({ _tag: "InvalidInput", path: "sessions/search.limit" })
        const list = all(({ stream }) => stream.listSessions({ pageSize: 0 }))
        expect(yield* Effect.flip(list)).toMatchObject({ _tag: "InvalidInput", path: "sessions.pageSize" })
        expect(yield* sent).toEqual([])
      }),
      {},
    ),
  )
})

const searchPage = (session_id: string, next_cursor?: unknown): HttpScript.Reply => ({
  body: {
    sessions: [{ session_id, created_at: "2026-01-02T03:04:05Z", owner: "o", project_id: "p", checkpoints_count: 0 }],
    next_cursor,
  },
})

describe("AdminClient", () => {
  const asked = <A>(
    method: (admin: AdminClient.Service) => Effect.Effect<A, TinkerError.TinkerError>,
    replies: Replies,
  ) =>
    run(
      Effect.gen(function* () {
        const result = yield* Effect.either(Effect.flatMap(admin, method))
        return { result, queries: (yield* sent).map(({ query }) => query) }
      }),
      replies,
    )

  it.effect("AdminClient reports the storage of all projects or of one", () =>
    Effect.gen(function* () {
      const body = {
        effective_rate_usd_per_gigabyte_month: 0.02,
        data: [{ project_id: "p", checkpoint_count: 2, size_bytes: 10, size_gigabytes: 1 }],
      }
      for (const [options, query] of [
        [{}, []],
        [{ projectId: "p" }, [["project_id", "p"]]],
      ] as const) {
        const { queries, result } = yield* asked((admin) => admin.getCheckpointStorageUsage(options), {
          "checkpoints/current": [{ body }],
        })
        expect(queries).toEqual([query])
        expect(Either.map(result, ({ data }) => data.map(({ checkpointCount }) => checkpointCount))).toEqual(
          Either.right([2]),
        )
      }
    }),
  )

  it.effect("AdminClient uses UTC days, whatever the time zone of the given moment", () =>
    Effect.gen(function* () {
      const tokyo = DateTime.unsafeMakeZoned("2026-01-02T23:30:00Z", { timeZone: "Asia/Tokyo" })
      for (const day of ["2026-01-02", new Date("2026-01-02T23:59:59Z"), tokyo]) {
        const { queries } = yield* asked((admin) => admin.getAuditLog({ day }), { audit: [{ body: { entries: [] } }] })
        expect(queries).toEqual([
          [
            ["event_type", "all"],
            ["day", "2026-01-02"],
          ],
        ])
      }
    }),
  )

  it.effect("AdminClient rejects an invalid time before sending a request", () =>
    Effect.gen(function* () {
      const now = new Date(0)
      const bad = new Date("never")
      const text = "2026-01-02" as unknown as Date
      const cases: ReadonlyArray<
        readonly [string, (admin: AdminClient.Service) => Effect.Effect<unknown, TinkerError.TinkerError>]
      > = [
        ["audit.day", (admin) => admin.getAuditLog({ day: bad })],
        ["audit.day", (admin) => admin.getAuditLog({ day: "yesterday" })],
        ["billing/usage/events.startingOn", (admin) => admin.getBillingUsage({ startingOn: bad, endingBefore: now })],
        [
          "billing/usage/events.endingBefore",
          (admin) => admin.getBillingUsage({ startingOn: now, endingBefore: text }),
        ],
      ]
      for (const [path, method] of cases) {
        const { queries, result } = yield* asked(method, {})
        expect(result).toMatchObject({ _tag: "Left", left: { _tag: "InvalidInput", path } })
        expect(queries).toEqual([])
      }
    }),
  )

  it.effect("AdminClient sends a time with milliseconds only if it has any", () =>
    Effect.gen(function* () {
      const { queries } = yield* asked(
        (admin) => admin.getBillingUsage({ startingOn: new Date(1), endingBefore: new Date(1000) }),
        { "usage/events": [{ body: { data: [] } }] },
      )
      expect(queries).toEqual([
        [
          ["starting_on", "1970-01-01T00:00:00.001Z"],
          ["ending_before", "1970-01-01T00:00:01Z"],
        ],
      ])
    }),
  )
})
