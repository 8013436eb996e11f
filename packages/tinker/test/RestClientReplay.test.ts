import { describe, expect, it } from "@effect/vitest"
import { DateTime, Effect, Either, Option, Redacted } from "effect"
import { AdminClient, RestClient } from "effect-tinker"
import * as HttpScript from "./support/HttpScript.ts"
import { otherKey, replayed, run, sent } from "./support/Management.ts"
import * as Recorded from "./support/Recorded.ts"
import * as Replay from "./support/Replay.ts"

const path = "tinker://run-1/weights/0001"

/** Each method sends the recorded request, decodes the recorded answer, and returns what the reference returns. */
const rest = <A, E>(
  file: Replay.VectorFile,
  method: (rest: RestClient.Service) => Effect.Effect<A, E>,
  check: (value: A) => void,
): void =>
  it.effect(`${file}: RestClient sends and decodes the recording`, () =>
    Effect.gen(function* () {
      const { recorded, requests, result } = yield* replayed(file, Effect.flatMap(RestClient.RestClient, method))
      expect(requests).toEqual(recorded)
      check(Either.getOrThrow(result))
    }),
  )

const admin = <A, E>(
  file: Replay.VectorFile,
  method: (admin: AdminClient.Service) => Effect.Effect<A, E>,
  check: (value: A) => void,
): void =>
  it.effect(`${file}: AdminClient sends and decodes the recording`, () =>
    Effect.gen(function* () {
      const { recorded, requests, result } = yield* replayed(file, Effect.flatMap(AdminClient.AdminClient, method))
      expect(requests).toEqual(recorded)
      check(Either.getOrThrow(result))
    }),
  )

/** The reference rejects these too, before sending a request. */
const refused = <A, E>(
  file: Replay.VectorFile,
  method: (rest: RestClient.Service) => Effect.Effect<A, E>,
  error: Readonly<Record<string, unknown>>,
): void =>
  it.effect(`${file}: RestClient rejects the input, as recorded`, () =>
    Effect.gen(function* () {
      const { recorded, requests, result } = yield* replayed(file, Effect.flatMap(RestClient.RestClient, method))
      expect([recorded, requests]).toEqual([[], []])
      expect(Either.flip(result).pipe(Either.getOrThrow)).toMatchObject({ _tag: "InvalidInput", ...error })
    }),
  )

const nothing = (value: void) => expect(value).toBeUndefined()

describe("training runs", () => {
  const check = (run: { readonly trainingRunId: string; readonly loraRank: Option.Option<number> }) => {
    expect(run.trainingRunId).toBe("run-1")
    expect(run.loraRank).toEqual(Option.some(32))
  }
  rest("vectors/rest_get_training_run.json", (rest) => rest.getTrainingRun("run-1"), check)
  rest("vectors/rest_get_training_run_by_tinker_path.json", (rest) => rest.getTrainingRunByPath(path), check)
  rest(
    "vectors/rest_list_training_runs.json",
    (rest) => rest.listTrainingRuns(),
    ({ cursor, trainingRuns: [run] }) => {
      expect(run?.trainingRunId).toBe("run-1")
      expect(cursor).toEqual({ offset: 0, limit: 20, totalCount: 1 })
    },
  )
  rest(
    "vectors/rest_list_training_runs_full.json",
    (rest) => rest.listTrainingRuns({ limit: 5, offset: 10, accessScope: "accessible", projectId: "p 1/é" }),
    ({ trainingRuns }) => expect(trainingRuns.length).toBe(1),
  )
  rest(
    "vectors-0.25.0/list_training_runs.json",
    (rest) => rest.listTrainingRuns(),
    ({ trainingRuns: [run] }) => expect(run?.baseModel).toBe("Qwen/Qwen3-8B"),
  )
})

describe("checkpoints", () => {
  const check = ({ checkpoints }: { readonly checkpoints: ReadonlyArray<{ readonly tinkerPath: string }> }) =>
    expect(checkpoints.map(({ tinkerPath }) => tinkerPath)).toEqual([path])
  rest(
    "vectors/rest_get_weights_info_by_tinker_path.json",
    (rest) => rest.getWeightsInfo(path),
    (info) => expect([info.baseModel, info.loraRank]).toEqual(["Qwen/Qwen3-8B", Option.some(16)]),
  )
  rest("vectors/rest_list_checkpoints.json", (rest) => rest.listCheckpoints("run-1"), check)
  rest("vectors/rest_list_user_checkpoints.json", (rest) => rest.listUserCheckpoints(), check)
  rest(
    "vectors/rest_list_user_checkpoints_page.json",
    (rest) => rest.listUserCheckpoints({ limit: 50, offset: 100 }),
    check,
  )
  rest("vectors/rest_delete_checkpoint.json", (rest) => rest.deleteCheckpoint("run-1", "weights/0001"), nothing)
  rest(
    "vectors/rest_delete_checkpoint_from_tinker_path.json",
    (rest) => rest.deleteCheckpointByPath("tinker://run-1/sampler_weights/s"),
    nothing,
  )
  rest("vectors/rest_publish_checkpoint.json", (rest) => rest.publishCheckpoint(path), nothing)
  rest("vectors/rest_unpublish_checkpoint.json", (rest) => rest.unpublishCheckpoint(path), nothing)
  rest("vectors/rest_set_checkpoint_ttl.json", (rest) => rest.setCheckpointTtl(path, "1 day"), nothing)
  rest("vectors/rest_set_checkpoint_ttl_remove.json", (rest) => rest.setCheckpointTtl(path, null), nothing)
  rest(
    "vectors/rest_get_external_weights_urls.json",
    (rest) => rest.getExternalWeightsUrls("tinker://run-1/external_weights/e"),
    ({ urls }) => expect(urls["adapter_config.json"]).toBe("https://storage.invalid/a?sig=1"),
  )
  refused("vectors/rest_get_external_weights_urls_bad.json", (rest) => rest.getExternalWeightsUrls(path), {
    path: "checkpoints/external_weights_urls.path",
    problem: "expected weights for external use, tinker://<training run>/external_weights/<name>",
  })
  refused("vectors/rest_bad_tinker_path.json", (rest) => rest.getTrainingRunByPath("tinker://run-1/other/0001"), {
    path: "training_runs/get.path",
  })

  rest(
    "vectors-0.25.0/get_checkpoint_archive_url.json",
    (rest) => rest.getCheckpointArchiveUrl(path),
    (archive) =>
      expect(archive).toEqual({
        url: "https://storage.invalid/a.tar?sig=1",
        expires: DateTime.unsafeMake("2098-01-01T00:00:00Z"),
      }),
  )
  rest(
    "vectors-0.25.0/get_checkpoint_archive_url_503.json",
    (rest) => rest.getCheckpointArchiveUrl("tinker://run-1/weights/0002"),
    (archive) =>
      expect(archive).toEqual({
        url: "https://storage.invalid/b.tar?sig=2",
        // One second, as the server asked, and 15 minutes.
        expires: DateTime.unsafeMake("1970-01-01T00:15:01Z"),
      }),
  )
})

describe("copies", () => {
  rest(
    "vectors/rest_copy_weights.json",
    (rest) =>
      rest.copyWeights(path, {
        projectId: "proj-2",
        ttl: "1 hour",
        weightsAccessToken: Redacted.make(otherKey),
      }),
    ({ tinkerPath }) => expect(tinkerPath).toBe("tinker://run-copy/weights/0001"),
  )
  refused("vectors/rest_copy_weights_no_project.json", (rest) => rest.copyWeights(path), {
    path: "copy_weights.projectId",
    problem: "missing, and no project is configured (TINKER_PROJECT_ID)",
  })

  // The reference retries although the server says not to; here the caller does, with the same key.
  it.effect("behaviours/copy_weights_idempotency.json: all attempts and a second call use one idempotency key", () =>
    run(
      Effect.gen(function* () {
        const { copyWeights } = yield* RestClient.RestClient
        const copy = copyWeights("tinker://r/weights/a", { projectId: "p" }, { idempotencyKey: "mine" })
        expect(yield* Effect.flip(copy)).toMatchObject({
          _tag: "Unavailable",
          shouldRetry: Option.some(false),
          attempts: 1,
        })
        expect(yield* copy).toEqual({ tinkerPath: "tinker://run-copy/weights/0001" })
        const requests = yield* sent
        expect(Replay.asBehaviour(requests)).toEqual(Replay.recordedBy("behaviours/copy_weights_idempotency.json"))
        expect(new Set(requests.map(({ headers }) => headers["x-idempotency-key"]))).toEqual(new Set(["mine"]))
      }),
      Replay.scriptOf("behaviours/copy_weights_idempotency.json"),
    ),
  )
})

describe("sessions", () => {
  rest("vectors/rest_assign_session_project.json", (rest) => rest.assignSessionProject("sess-0001", "proj-1"), nothing)
  const check = ({ sessions }: { readonly sessions: ReadonlyArray<{ readonly sessionId: string }> }) =>
    expect(sessions.map(({ sessionId }) => sessionId)).toEqual(["sess-0001"])
  rest("vectors/rest_search_sessions_defaults.json", (rest) => rest.searchSessions(), check)
  rest(
    "vectors/rest_search_sessions_full.json",
    (rest) =>
      rest.searchSessions({
        sessionId: "sess-0001",
        projectIds: ["proj-1"],
        userMetadata: { a: "b" },
        displayName: "nightly",
        owner: { type: "user", ownerUrns: ["u1"] },
        statuses: [{ type: "active" }, { type: "client_finished", reasons: ["success"] }],
        limit: 10,
        cursor: { lastCreatedAt: "2026-01-02T03:04:05Z", lastSessionId: "sess-0001" },
      }),
    check,
  )
  rest(
    "vectors/rest_export_session_trace.json",
    (rest) => rest.exportSessionTrace("sess-0001"),
    (url) => expect(url).toBe("https://storage.invalid/trace?sig=1"),
  )

  it.effect("behaviours/export_trace_polling.json: exportTrace polls as the reference does", () =>
    run(
      Effect.gen(function* () {
        const { exportSessionTrace } = yield* RestClient.RestClient
        const { error, requests } = Recorded.behaviour("behaviours/export_trace_polling.json").expect
        expect(error).toMatchObject({ message: "Trace export failed for session s1: boom" })
        expect(yield* Effect.flip(exportSessionTrace("s1"))).toMatchObject({ _tag: "RequestFailed", detail: "boom" })
        const seen = yield* sent
        expect(Replay.asBehaviour(seen)).toEqual(Replay.recordedBy("behaviours/export_trace_polling.json"))
        const [first = 0, second = 0] = seen.map(({ at }) => at)
        expect((second - first) / 1000).toBeCloseTo(requests[1]?.t ?? 0, 1)
      }),
      Replay.scriptOf("behaviours/export_trace_polling.json"),
    ),
  )

  rest(
    "vectors/rest_get_sampler.json",
    (rest) => rest.getSampler("sess-0001:sample:0"),
    (sampler) =>
      expect(sampler).toEqual({
        samplerId: "sess-0001:sample:0",
        baseModel: "Qwen/Qwen3-8B",
        modelPath: Option.none(),
      }),
  )
  rest(
    "vectors-0.25.0/unload_model.json",
    (rest) => rest.unloadModel("sess-0001:train:0"),
    ({ requestId }) => expect(requestId).toBe("req-0007"),
  )
})

describe("administration", () => {
  const check = ({ entries }: { readonly entries: ReadonlyArray<{ readonly event: string }> }) =>
    expect(entries.map(({ event }) => event)).toEqual(["checkpoint_read"])
  admin("vectors/admin_audit_log.json", (admin) => admin.getAuditLog(), check)
  admin(
    "vectors/admin_audit_log_day.json",
    (admin) => admin.getAuditLog({ eventType: "checkpoints", day: new Date("2026-01-02T12:00:00Z") }),
    check,
  )
  admin(
    "vectors/admin_billing_usage.json",
    (admin) =>
      admin.getBillingUsage({
        startingOn: new Date("2026-01-01T00:00:00Z"),
        endingBefore: DateTime.unsafeMakeZoned("2026-01-02T00:00:00Z", { timeZone: "Asia/Tokyo" }),
      }),
    ({ costDataThrough, data }) => {
      expect(data.length).toBe(5)
      expect(costDataThrough).toEqual(Option.some(DateTime.unsafeMake("2026-01-01T00:00:00Z")))
    },
  )

  it.effect(
    "behaviours/http_redirect_same_and_cross_origin.json: an audit log on another origin is fetched without the key",
    () =>
      run(
        Effect.gen(function* () {
          const { getAuditLog } = yield* AdminClient.AdminClient
          expect(yield* getAuditLog()).toEqual({ entries: [] })
          const { seen } = yield* HttpScript.HttpScript
          const requests = seen.slice(1)
          expect(requests.map(({ url }) => url)).toEqual([
            "http://server/api/v1/audit?event_type=all",
            "http://server/signed/audit.json?sig=1",
            "http://127.0.0.1:4242/other-origin.json",
          ])
          // The reference sends the key along.
          expect(requests.map(({ headers }) => headers["x-api-key"])).toEqual(["tml-a-key", "tml-a-key", undefined])
        }),
        {
          audit: [{ status: 302, headers: { location: "/signed/audit.json?sig=1" } }],
          "signed/audit.json": [{ status: 302, headers: { location: "http://127.0.0.1:4242/other-origin.json" } }],
          "other-origin.json": [{ body: { entries: [] } }],
        },
      ),
  )
})
