/** Tries to break in: with the ids of another tenant on every endpoint of `Api`, with paths, and with forged tokens. */
import { mkdtempSync, readdirSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import * as Api from "effect-tinker/protocol/Api"
import type * as Endpoint from "effect-tinker/protocol/Endpoint"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import * as Auth from "../src/internal/Auth.js"
import * as Raw from "./support/Raw.ts"
import { name as baseModel } from "./support/StandInModel.ts"

type AnyEndpoint = Endpoint.Endpoint<never, unknown>

/** All endpoints by name; a new one is tested without further ado. */
const endpoints = Object.entries(Api).filter(
  (entry): entry is [string, (typeof entry)[1] & AnyEndpoint] =>
    typeof entry[1] === "object" && entry[1] !== null && "operation" in entry[1],
)

/** Endpoints that answer everybody, about the caller's own data only. Every other one must refuse foreign ids. */
const forEverybody = new Set([
  "authToken",
  "clientConfig",
  "createSession",
  "dynamicConfig",
  "getApiKey",
  "getAuditLog",
  "getBillingUsage",
  "getCheckpointStorage",
  "getServerCapabilities",
  "health",
  "listModels",
  "listSessions",
  "listTrainingRuns",
  "listUserCheckpoints",
  "searchSessions",
  "telemetry",
])

/** Endpoints that this server always refuses. */
const unsupported = new Set(["createCustomLoss", "deleteApiKey"])

/** Endpoints that end something; the owner calls them last. */
const destructive = ["deleteCheckpoint", "unloadModel", "finishSession"]

const marker = "marker-of-a"
const keys = { apiKeys: [Redacted.make("tml-a"), Redacted.make("tml-b")], jwt: "1 hour" as const }

const prompt = { chunks: [{ type: "encoded_text", tokens: [1] }] }

/** Creates everything that a tenant can have. */
const scene = ({ model, post, result, session }: Raw.Raw) =>
  Effect.gen(function* () {
    const created = { sdk_version: "1", user_metadata: { note: marker }, display_name: marker, project_id: "project-a" }
    const sessionId: string = (yield* post("create_session", created)).body.session_id
    const modelId = yield* model(sessionId)
    for (const [i, operation] of ["save_weights", "save_weights_for_sampler", "save_weights_external"].entries())
      yield* result(yield* post(operation, { model_id: modelId, seq_id: i + 1, path: "one" }))
    const sampling = { session_id: sessionId, sampling_session_seq_id: 0, base_model: baseModel }
    const samplerId: string = (yield* post("create_sampling_session", sampling)).body.sampling_session_id
    const sample = yield* post("asample", {
      sampling_session_id: samplerId,
      seq_id: 0,
      prompt,
      sampling_params: { max_tokens: 2 },
      num_samples: 1,
    })
    yield* result(sample)
    const requestId: string = sample.body.request_id
    // The other tenant is not new, either.
    yield* session
    return { sessionId, modelId, samplerId, requestId }
  })

type Scene = Effect.Effect.Success<ReturnType<typeof scene>>

/** A body with every field that any endpoint reads; fields that an endpoint does not know are ignored. */
const bodyFor = ({ path, root }: AnyEndpoint, { modelId, requestId, samplerId, sessionId }: Scene, seq: number) => {
  const pass = Raw.pass(modelId, seq).forward_backward_input
  return {
    session_id: sessionId,
    ...(path !== "load_weights" && { model_id: modelId }),
    sampling_session_id: samplerId,
    request_id: requestId,
    source_path: `tinker://${modelId}/weights/one`,
    tinker_path: `tinker://${modelId}/weights/one`,
    model_path: `tinker://${modelId}/sampler_weights/one`,
    model: `tinker://${modelId}/sampler_weights/one`,
    path: path === "load_weights" ? `tinker://${modelId}/weights/one` : `name${seq}`,
    target: { type: "sampling_session", sampling_session_id: samplerId, cloned_sampler_id: 0 },
    seq_id: seq,
    model_seq_id: seq,
    ...(path !== "save_weights_for_sampler" && { sampling_session_seq_id: seq }),
    custom_loss_seq_id: seq,
    ...(path !== "create_sampling_session" && { base_model: baseModel }),
    sdk_version: "1",
    project_id: "stolen",
    reason: { type: "success" },
    detail: null,
    ttl_seconds: 3600,
    optimizer: false,
    allow_metadata_only: false,
    prev_cursor: 0,
    timeout: 0,
    prompt: root === "api/v1" ? prompt : "a",
    messages: [{ role: "user", content: "a" }],
    max_tokens: 1,
    sampling_params: { max_tokens: 1 },
    num_samples: 1,
    adam_params: Raw.step(modelId, seq).adam_params,
    forward_input: pass,
    forward_backward_input: pass,
    events: [],
    platform: "test",
    process_uuid: "test",
    name: "n",
    inputs: [],
    graph: { format: 1, nodes: [] },
  }
}

const pathFor = ({ path, root }: AnyEndpoint, params: Readonly<Record<string, string>>): string => {
  const filled = path.replaceAll(/:(\w+)\*?/g, (_, name: string) => params[name] ?? "x")
  return `/${root}/${filled}`
}

const paramsOf = ({ modelId, samplerId, sessionId }: Scene) => ({
  sessionId,
  trainingRunId: modelId,
  samplerId,
  checkpointId: "weights/one",
  name: "one",
})

const send = ({ ask }: Raw.Raw, endpoint: AnyEndpoint, at: Scene, seq: number, key: string) =>
  ask(
    endpoint.method,
    pathFor(endpoint, paramsOf(at)) +
      (endpoint.query === undefined
        ? ""
        : `?project_id=project-a&access_scope=accessible&starting_on=1970-01-01&ending_before=2030-01-01&day=1970-01-01`),
    endpoint.method === "GET" || endpoint.method === "DELETE" ? undefined : bodyFor(endpoint, at, seq),
    { "x-api-key": key, authorization: `Bearer ${key}` },
  )

/** What the owner can see, without the times of the last requests. */
const viewOf = ({ ask }: Raw.Raw, { modelId, sessionId }: Scene) =>
  Effect.map(
    Effect.forEach(
      ["sessions", `sessions/${sessionId}`, "training_runs", `training_runs/${modelId}/checkpoints`, "checkpoints"],
      (path) => ask("GET", path),
    ),
    (replies) => JSON.stringify(replies.map(({ body }) => body)).replaceAll(/"last_request_time":"[^"]*"/g, ""),
  )

describe("another tenant's ids", () => {
  it.effect("every endpoint of Api refuses the ids of another tenant, reveals and changes nothing of it", () =>
    Effect.gen(function* () {
      const raw = yield* Raw.make(keys)
      const at = yield* scene(raw)
      const before = yield* viewOf(raw, at)
      for (const [i, [name, endpoint]] of endpoints.entries()) {
        const { body, status } = yield* send(raw, endpoint, at, 100 + i, "tml-b")
        const text = JSON.stringify(body) ?? ""
        if (forEverybody.has(name)) expect([name, status]).toEqual([name, 200])
        else expect([name, [400, 403, 404].includes(status)]).toEqual([name, true])
        expect([name, text.includes(marker)]).toEqual([name, false])
        if (status < 400) for (const id of Object.values(at)) expect([name, text.includes(id)]).toEqual([name, false])
      }
      expect(yield* viewOf(raw, at)).toBe(before)
    }).pipe(Effect.scoped, VirtualTime.run),
  )

  it.effect("every endpoint of Api refuses the checkpoints of another tenant together with the caller's own ids", () =>
    Effect.gen(function* () {
      const raw = yield* Raw.make(keys)
      const at = yield* scene(raw)
      const before = yield* viewOf(raw, at)
      const own = yield* raw.post("create_session", { sdk_version: "1" }, { "x-api-key": "tml-b" })
      const sessionId: string = own.body.session_id
      const reading: Array<string> = []
      for (const [i, [name, endpoint]] of endpoints.entries()) {
        if (endpoint.path.includes(":")) continue
        const { body, status } = yield* send(raw, endpoint, { ...at, sessionId }, 100 + i, "tml-b")
        expect([name, (JSON.stringify(body) ?? "").includes(marker)]).toEqual([name, false])
        if (status === 404 && JSON.stringify(body).includes("weights/one")) reading.push(name)
      }
      expect(reading.toSorted()).toEqual([
        "chatCompletions",
        "completions",
        "copyWeights",
        "createSamplingSession",
        "getWeightsInfo",
        "loadWeights",
        "loadWeightsAsModel",
        "streamChatCompletions",
        "streamCompletions",
      ])
      expect(yield* viewOf(raw, at)).toBe(before)
    }).pipe(Effect.scoped, VirtualTime.run),
  )

  it.effect("the same requests are well-formed: their owner is not refused", () =>
    Effect.gen(function* () {
      const raw = yield* Raw.make(keys)
      const at = yield* scene(raw)
      const order = endpoints.toSorted(([a], [b]) => destructive.indexOf(a) - destructive.indexOf(b))
      let seq = 4
      for (const [name, endpoint] of order) {
        if (unsupported.has(name)) continue
        const { body, status } = yield* send(raw, endpoint, at, seq++, "tml-a")
        expect([name, status < 400 ? "answered" : body]).toEqual([name, "answered"])
      }
    }).pipe(Effect.scoped, VirtualTime.run),
  )

  it.effect("every endpoint but the health check refuses a missing, wrong, empty or partial key with 401", () =>
    Effect.gen(function* () {
      const raw = yield* Raw.make(keys)
      const at = yield* scene(raw)
      for (const [name, endpoint] of endpoints)
        for (const key of ["", "tml-", "tml-A", "tml-a ", "tml-ab", "x".repeat(10_000), "a.b.c"]) {
          if (name === "health" || unsupported.has(name)) continue
          expect([name, key, (yield* send(raw, endpoint, at, 50, key)).status]).toEqual([name, key, 401])
        }
    }).pipe(Effect.scoped, VirtualTime.run),
  )
})

describe("paths", () => {
  const traversals = [
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/etc/passwd",
    "..\\..\\x",
    "%00",
    "%ff",
    "%",
    "a%0d%0ab",
    ".",
  ]

  it.live("path parameters with traversals are never found, and never cause an internal error", () =>
    Effect.gen(function* () {
      const raw = yield* Raw.make(keys)
      const at = yield* scene(raw)
      for (const [name, endpoint] of endpoints) {
        if (!endpoint.path.includes(":")) continue
        for (const bad of traversals) {
          const params = Object.fromEntries(Object.keys(paramsOf(at)).map((key) => [key, bad]))
          const body = endpoint.method === "GET" || endpoint.method === "DELETE" ? undefined : bodyFor(endpoint, at, 50)
          const { status } = yield* raw.ask(endpoint.method, pathFor(endpoint, params), body)
          expect([name, bad, [400, 403, 404, 405].includes(status)]).toEqual([name, bad, true])
        }
      }
      for (const path of ["/api/v1/../../etc/passwd", "/files/a/b/c", "/files/../../x/y", "//", "/api/v1/", "*"])
        expect([path, [403, 404].includes((yield* raw.ask("GET", path)).status)]).toEqual([path, true])
    }).pipe(Effect.scoped),
  )

  it.live("checkpoint names that point outside the data directory are refused, and no file appears there", () =>
    Effect.gen(function* () {
      const parent = yield* Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), "tinker-break-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true })),
      )
      const { model, post, session } = yield* Raw.make({ dataDirectory: join(parent, "data") })
      const id = yield* model(yield* session)
      for (const [i, name] of [
        "../x",
        "..",
        "/etc/x",
        "a/../../x",
        "a\\..\\x",
        "a\u0000",
        ".x",
        "",
        "x".repeat(200),
      ].entries())
        expect([name, (yield* post("save_weights", { model_id: id, seq_id: i + 1, path: name })).status]).toEqual([
          name,
          400,
        ])
      expect(readdirSync(parent)).toEqual(["data"])
    }).pipe(Effect.scoped),
  )
})

describe("credentials", () => {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url")

  it.effect("forged, unsigned, changed and expired tokens get 401", () =>
    Effect.gen(function* () {
      const { ask, post } = yield* Raw.make(keys)
      const jwt: string = (yield* post("auth/token", {})).body.jwt
      const [header = "", claims = "", signature = ""] = jwt.split(".")
      const status = (token: string) =>
        Effect.map(ask("GET", "sessions", undefined, { "x-api-key": token }), (reply) => reply.status)
      expect(yield* status(jwt)).toBe(200)
      const other = part({
        ...JSON.parse(Buffer.from(claims, "base64url").toString()),
        sub: "tml:user:key-b",
        exp: 9e9,
      })
      for (const token of [
        `${header}.${other}.${signature}`,
        `${part({ alg: "none" })}.${other}.`,
        `${part({ alg: "none" })}.${claims}.${signature}`,
        `${header}.${claims}.`,
        `${header}.${claims}.${signature.slice(1)}`,
        `${header}.${claims}.${signature}.x`,
      ])
        expect([token, yield* status(token)]).toEqual([token, 401])
      yield* Effect.sleep("61 minutes")
      expect(yield* status(jwt)).toBe(401)
    }).pipe(Effect.scoped, VirtualTime.run),
  )

  it.effect("a signature of a token is not valid for a download, and the other way round", () =>
    Effect.gen(function* () {
      const raw = yield* Raw.make(keys)
      const { modelId } = yield* scene(raw)
      const { ask, post } = raw
      const jwt: string = (yield* post("auth/token", {})).body.jwt
      const [header = "", claims = "", signature = ""] = jwt.split(".")
      const what = Buffer.from(`${header}.${claims}`).toString("base64url")
      expect((yield* ask("GET", `/files/${what}/${signature}/x`)).status).toBe(403)
      const archive = yield* ask("GET", `training_runs/${modelId}/checkpoints/weights/one/archive`)
      const url = new URL(archive.headers["location"] ?? "")
      const [, , signed = "", mark = ""] = url.pathname.split("/")
      expect((yield* ask("GET", url.pathname)).status).toBe(200)
      const changed = Buffer.from(Buffer.from(signed, "base64url").toString().replace(/\d+$/, "9999999999999"))
      expect((yield* ask("GET", `/files/${changed.toString("base64url")}/${mark}/x`)).status).toBe(403)
      yield* Effect.sleep("16 minutes")
      expect((yield* ask("GET", url.pathname)).status).toBe(403)
    }).pipe(Effect.scoped, VirtualTime.run),
  )

  it("a key is compared with every accepted key, whether or not an earlier one matches", () => {
    const read: Array<string> = []
    const hashes = new Proxy(Auth.hashesOf(["tml-a", "tml-b", "tml-c"].map((key) => Redacted.make(key))), {
      get: (target, name, receiver) => {
        if (typeof name === "string" && /^\d+$/.test(name)) read.push(name)
        return Reflect.get(target, name, receiver)
      },
    })
    for (const [key, isKnown] of [
      ["tml-a", true],
      ["tml-c", true],
      ["tml-x", false],
      ["", false],
    ] as const) {
      read.length = 0
      expect(Auth.isKnown(hashes, key)).toBe(isKnown)
      expect([key, read]).toEqual([key, ["0", "1", "2"]])
    }
  })
})
