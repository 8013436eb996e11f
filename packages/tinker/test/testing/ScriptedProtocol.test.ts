import { readdirSync } from "node:fs"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Either, Layer, Option, Predicate, Redacted } from "effect"
import { ApiFuture, SampleResult, TinkerConfig, TrainingResult } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import * as Transport from "effect-tinker/Transport"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import * as Recorded from "../support/Recorded.ts"
import * as Rig from "./rig.ts"

const { kinds } = ApiFuture
const { ScriptedServer: Server } = ScriptedServer
const { failure } = Rig

describe("ScriptedServer options", () => {
  it.effect("a scripted JSON server rejects a pass in protobuf and accepts the same number in JSON", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const modelId = yield* Rig.createModel()
        expect(yield* failure(Rig.submitPass(modelId, 1))).toBe("RequestRejected UnsupportedMediaType")
        yield* Effect.flatMap(Rig.submitPass(modelId, 1, Rig.batch, "json"), Rig.passed)
        yield* server.configure({ wireStatus: 422 })
        expect(yield* failure(Rig.submitForward(modelId, 2))).toBe("RequestRejected Unprocessable")
        const forward = yield* Rig.submitForward(modelId, 2, Rig.batch, "json")
        yield* Rig.result(kinds.forward, forward)
      }),
      { wire: "json", results: "json" },
    ),
  )

  it.effect("a scripted protobuf server rejects a pass in JSON and has no separate path for forward passes", () =>
    Rig.run(
      Effect.gen(function* () {
        const modelId = yield* Rig.createModel()
        expect(yield* failure(Rig.submitPass(modelId, 1, Rig.batch, "json"))).toBe(
          "RequestRejected UnsupportedMediaType",
        )
        expect(yield* failure(Rig.submitForward(modelId, 1, Rig.batch, "json"))).toBe("NotFound")
        yield* Rig.submitForward(modelId, 1)
      }),
      { wire: "protobuf" },
    ),
  )

  const post = (path: string, body: unknown, headers: Readonly<Record<string, string>> = {}) =>
    Effect.flatMap(Server, ({ handle }) =>
      handle({
        method: "POST",
        path: `/api/v1/${path}`,
        headers: { "content-type": "application/json", ...headers },
        body:
          typeof body === "string" ? new TextEncoder().encode(body) : new TextEncoder().encode(JSON.stringify(body)),
      }),
    )

  const parsed = ({ body }: ScriptedServer.Answer): unknown =>
    JSON.parse(typeof body === "string" ? body : new TextDecoder().decode(body))

  it.effect("a scripted server without a field rejects it with a validation error", () =>
    Effect.gen(function* () {
      yield* post("create_session", { sdk_version: "1" })
      const model = { session_id: "sess-0001", model_seq_id: 0, base_model: "m" }
      const refused = yield* post("create_model", { ...model, optimizer_config: { type: "adamw" } })
      expect(refused.status).toBe(422)
      expect(parsed(refused)).toEqual({
        detail: [
          {
            type: "extra_forbidden",
            loc: ["body", "optimizer_config"],
            msg: "Extra inputs are not permitted",
            input: { type: "adamw" },
          },
        ],
      })
      expect((yield* post("create_model", model)).status).toBe(200)
    }).pipe(Effect.provide(ScriptedServer.layer({ unknownFields: ["optimizer_config"] }))),
  )

  it.effect("a strict scripted server rejects unknown fields, and others ignore them", () =>
    Effect.gen(function* () {
      const beat = post("session_heartbeat", { session_id: "sess-0001", mood: "good" })
      yield* post("create_session", { sdk_version: "1" })
      expect((yield* beat).status).toBe(200)
      yield* Effect.flatMap(Server, ({ configure }) => configure({ strict: true }))
      const refused = yield* beat
      expect(refused.status).toBe(422)
      expect(parsed(refused)).toMatchObject({
        detail: [{ type: "extra_forbidden", loc: ["body", "mood"], input: "good" }],
      })
      // The fields that the SDK sends are known.
      expect(
        (yield* post("create_model", {
          session_id: "sess-0001",
          model_seq_id: 0,
          base_model: "m",
          lora_config: { rank: 1 },
          optimizer_config: { type: "adamw" },
          type: "create_model",
        })).status,
      ).toBe(200)
    }).pipe(Effect.provide(ScriptedServer.layer())),
  )

  it.effect("a scripted server validates heartbeats as their schema does", () =>
    Effect.gen(function* () {
      const { configure, sessions } = yield* Server
      yield* post("create_session", { sdk_version: "1" })
      const beats = [
        { session_id: "sess-0001", type: "session_heartbeat" },
        { session_id: "sess-0001", type: null },
        { session_id: "sess-0001", type: "session_heartbeat", mood: "good" },
        { session_id: "sess-0001", type: "another" },
        { session_id: "sess-0002", type: "session_heartbeat" },
        { session_id: 1, type: "session_heartbeat" },
        ["sess-0001"],
      ]
      const statuses = Effect.forEach(beats, (body) => Effect.map(post("session_heartbeat", body), (a) => a.status))
      expect(yield* statuses).toEqual([200, 200, 200, 422, 404, 422, 422])
      yield* configure({ strict: true })
      expect(yield* statuses).toEqual([200, 200, 422, 422, 404, 422, 422])
      yield* configure({ unknownFields: ["type"] })
      expect(yield* statuses).toEqual([422, 422, 422, 422, 422, 422, 422])
      expect((yield* sessions).map(({ heartbeats }) => heartbeats)).toEqual([5])
      expect(parsed(yield* post("session_heartbeat", { session_id: "sess-0001" }))).toEqual({
        type: "session_heartbeat",
      })
    }).pipe(Effect.provide(ScriptedServer.layer())),
  )

  it.effect("a scripted server describes what is wrong with a body", () =>
    Effect.gen(function* () {
      expect(parsed(yield* post("session_heartbeat", {}))).toEqual({
        detail: [{ type: "missing", loc: ["body", "session_id"], msg: "Field required", input: null }],
      })
      expect(parsed(yield* post("session_heartbeat", { session_id: 7 }))).toMatchObject({
        detail: [{ type: "value_error", loc: ["body", "session_id"], input: 7 }],
      })
      const statuses = yield* Effect.forEach(
        [
          post("session_heartbeat", "{"),
          post("session_heartbeat", { session_id: "nobody" }),
          post("nowhere", {}),
          post("forward_backward", "x", { "content-type": "application/x-protobuf" }),
          post("forward_backward", "x", { "content-type": "application/x-protobuf", "content-encoding": "zstd" }),
          post("retrieve_future", { request_id: "nobody", allow_metadata_only: true }),
        ],
        Effect.map(({ status }) => status),
      )
      expect(statuses).toEqual([422, 404, 404, 422, 415, 404])
    }).pipe(Effect.provide(ScriptedServer.layer())),
  )

  it.effect("a scripted server accepts requests with the configured status and ids", () =>
    Effect.forEach(
      [
        [200, "decimal", "1"],
        [201, "uuid", "00000000-0000-4000-8000-000000000001"],
        [202, "name", "req-0001"],
      ] as const,
      ([acceptedStatus, requestIds, id]) =>
        Rig.run(
          Effect.gen(function* () {
            const server = yield* Server
            yield* Rig.createModel()
            const modelId = "sess-0001:train:0"
            yield* Rig.submitPass(modelId, 1)
            yield* Rig.submitStep(modelId, 2)
            const requests = yield* server.requests
            const submitted = requests.filter(({ operation }) =>
              ["create_model", "forward_backward", "optim_step"].includes(operation ?? ""),
            )
            expect(submitted.map(({ answered }) => answered)).toEqual([acceptedStatus, acceptedStatus, acceptedStatus])
            expect(requests.find(({ operation }) => operation === "create_session")?.answered).toBe(200)
            expect((yield* server.requestsTo("retrieve_future"))[0]?.json).toMatchObject({ request_id: id })
          }),
          { acceptedStatus, requestIds },
        ),
    ),
  )

  it.effect("a scripted server checks keys, and tokens that expire", () => {
    const ask = Effect.all([Rig.call(Api.health, {}), Rig.call(Api.getServerCapabilities, {})])
    const layer = (key: string, options: ScriptedServer.Options) =>
      Transport.layer.pipe(
        Layer.provideMerge(
          Layer.merge(
            TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make(key) }),
            ScriptedServer.layer(options),
          ),
        ),
      )
    return Effect.gen(function* () {
      const keys = { apiKeys: ["tml-good"] }
      yield* Effect.provide(ask, layer("tml-good", keys))
      expect(yield* failure(Effect.provide(ask, layer("tml-bad", keys)))).toBe("Unauthorized Refused")
      yield* Effect.gen(function* () {
        const server = yield* Server
        yield* ask
        yield* Effect.sleep("3 hours")
        yield* ask
        const tokens = (yield* server.requests).map(({ headers }) => headers["x-api-key"] ?? "")
        const first = tokens.at(-1) ?? ""
        expect(first.startsWith("eyJ")).toBe(true)
        // Long after its expiry the token is rejected.
        yield* Effect.sleep("2 hours")
        const late = yield* server.handle({
          method: "GET",
          path: "/api/v1/get_server_capabilities",
          headers: { "x-api-key": first },
          body: new Uint8Array(0),
        })
        expect(late.status).toBe(401)
        expect((yield* server.requestsTo("auth/token")).length).toBeGreaterThan(1)
      }).pipe(Effect.provide(layer("tml-good", { ...keys, flags: { pjwt_auth_enabled: true } })))
    }).pipe(VirtualTime.run)
  })

  it.effect("a scripted server reports its capabilities and accepts telemetry", () =>
    Rig.run(
      Effect.gen(function* () {
        const { supportedModels } = yield* Rig.call(Api.getServerCapabilities, {})
        expect(supportedModels.map(({ modelName }) => modelName)).toEqual([Option.some("tiny")])
        expect(yield* Rig.call(Api.health, {})).toEqual({ status: "ok" })
        const telemetry = { events: [], platform: "x", sdkVersion: "1", sessionId: "s", processUuid: "p" }
        expect(yield* Rig.call(Api.telemetry, telemetry)).toEqual({ status: "accepted" })
      }),
      { supportedModels: [{ model_name: "tiny" }] },
    ),
  )

  it.effect("scripted servers share no state", () =>
    Effect.gen(function* () {
      const [first, second] = yield* Effect.all([ScriptedServer.make(), ScriptedServer.make()])
      yield* Effect.provideService(post("create_session", { sdk_version: "1" }), Server, first)
      expect([(yield* first.sessions).length, (yield* second.sessions).length]).toEqual([1, 0])
    }).pipe(Effect.scoped),
  )
})

interface Exchange {
  readonly request: {
    readonly method: string
    readonly path: string
    readonly headers: Readonly<Record<string, string>>
    readonly bodyText?: string
    readonly bodyBase64?: string
  }
  readonly response: {
    readonly status: number
    readonly headers: Readonly<Record<string, string>>
    readonly body?: unknown
  }
}

/** Recorded conversations of the reference SDK with a server; some have one request, some none. */
const recordings = readdirSync(new URL("../../../../test/wire/vectors", import.meta.url)).map((file) => {
  const vector: unknown = Recorded.vector(`vectors/${file}` as `vectors/${string}.json`)
  const { exchanges, request, response } = vector as Partial<Exchange> & {
    readonly exchanges?: ReadonlyArray<Exchange>
  }
  return exchanges ?? (request && response ? [{ request, response }] : [])
})

const encoder = new TextEncoder()
const decoder = new TextDecoder()

const bytesOf = ({ bodyBase64, bodyText }: Exchange["request"]): Uint8Array =>
  bodyBase64 === undefined ? encoder.encode(bodyText ?? "") : Buffer.from(bodyBase64, "base64")

/** Creates what a recorded request refers to; the names match because the server numbers the same way. */
const prepareFor = (server: ScriptedServer.Service, request: Exchange["request"]) =>
  Effect.gen(function* () {
    const create = (path: string, body: object) =>
      server.handle({
        method: "POST",
        path: `/api/v1/${path}`,
        headers: {},
        body: encoder.encode(JSON.stringify(body)),
      })
    const session = { session_id: "sess-0001", base_model: "Qwen/Qwen3-8B" }
    const text = `${request.path} ${decoder.decode(bytesOf(request))}`
    const [, model] = /sess-0001:train:(\d+)/.exec(text) ?? []
    if (model !== undefined) yield* create("create_model", { ...session, model_seq_id: Number(model) })
    const [, sampler] = /sess-0001:sample:(\d+)/.exec(text) ?? []
    if (sampler !== undefined)
      yield* create("create_sampling_session", { ...session, sampling_session_seq_id: Number(sampler) })
  })

/** The keys of an object; a sampler has the path of its weights only if it has one. */
const keysOf = (value: unknown): ReadonlyArray<string> =>
  Predicate.isRecord(value) ? Object.keys(value).filter((key) => key !== "model_path") : []

const results: Readonly<Record<string, (bytes: Uint8Array) => Either.Either<unknown, unknown>>> = {
  Forward: TrainingResult.fromProtobuf,
  ForwardBackward: TrainingResult.fromProtobuf,
  Sample: SampleResult.fromProtobuf,
}

// Weights of another server, unknown to this one.
const isForeign = (request: Exchange["request"]) => decoder.decode(bytesOf(request)).includes("tinker://run-1/")

/** Plays a recorded client against a server; returns the operations it used and reports wrong answers. */
const replay = (exchanges: ReadonlyArray<Exchange>) =>
  Effect.gen(function* () {
    const server = yield* ScriptedServer.make({
      mode: "anything",
      hold: 0,
      messages: { info: "i", warning: "w", error: "e" },
    })
    const ids = new Map<unknown, string>()
    const foreign = new Set<string>()
    const seen: Array<string> = []
    yield* server.handle({
      method: "POST",
      path: "/api/v1/create_session",
      headers: {},
      body: encoder.encode('{"sdk_version":"1"}'),
    })
    for (const { request, response } of exchanges) {
      const { headers, method, path } = request
      // A server that does not announce zstd is not sent it.
      if (headers["content-encoding"] !== undefined) continue
      yield* prepareFor(server, request)
      const isPoll = path.endsWith("/retrieve_future") || path.endsWith("/cancel_future")
      const asked: unknown = isPoll ? JSON.parse(request.bodyText ?? "") : undefined
      const id = Predicate.isRecord(asked) ? ids.get(asked["request_id"]) : undefined
      if (isPoll && (id === undefined || foreign.has(id))) continue
      const body = isPoll ? encoder.encode(JSON.stringify({ ...Object(asked), request_id: id })) : bytesOf(request)
      const answer = yield* server.handle({ method, path, headers, body })
      const { operation } = (yield* server.requests).at(-1) ?? {}
      // Not all of the API is scripted.
      if (operation === undefined || response.status !== 200) continue
      if (isForeign(request) && answer.status === 404) continue
      if (answer.status !== 200) expect.fail(`${operation}: ${answer.status} ${String(answer.body)}`)
      seen.push(operation)
      const type = headers["x-tinker-request-type"] ?? ""
      if (results[type] !== undefined && isPoll) {
        expect(answer.headers["content-type"]).toBe("application/x-protobuf")
        expect(Either.isRight(results[type](answer.body as Uint8Array))).toBe(true)
        continue
      }
      const answerBody: unknown = JSON.parse(String(answer.body))
      if (!operation.startsWith("client/") && type !== "OptimStep")
        expect([operation, type, keysOf(answerBody)]).toEqual([
          operation,
          type,
          expect.arrayContaining([...keysOf(response.body)]),
        ])
      if (Predicate.isRecord(answerBody) && Predicate.isRecord(response.body) && "request_id" in response.body) {
        ids.set(response.body["request_id"], String(answerBody["request_id"]))
        if (isForeign(request)) foreign.add(String(answerBody["request_id"]))
      }
    }
    return seen
  }).pipe(Effect.scoped)

describe("recorded requests to a scripted server", () => {
  it.effect("a scripted server understands recorded requests and answers in the same shape", () =>
    Effect.gen(function* () {
      const seen = (yield* Effect.forEach(recordings, replay)).flat()
      expect(seen.length).toBeGreaterThan(200)
      expect([...new Set(seen)].toSorted()).toEqual([
        "asample",
        "auth/token",
        "cancel_future",
        "client/config",
        "client/dynamic_config",
        "create_model",
        "create_sampling_session",
        "create_session",
        "forward_backward",
        "get_info",
        "get_server_capabilities",
        "healthz",
        "join_sampling_session",
        "load_weights",
        "optim_step",
        "retrieve_future",
        "retrieve_futures",
        "samplers/get",
        "save_weights",
        "save_weights_external",
        "save_weights_for_sampler",
        "session_heartbeat",
        "sessions/finish",
        "telemetry",
      ])
    }),
  )
})
