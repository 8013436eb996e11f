import { describe, expect, expectTypeOf, it } from "@effect/vitest"
import { DateTime, Either, Option, Schema } from "effect"
import * as Api from "effect-tinker/protocol/Api"
import * as Billing from "effect-tinker/protocol/schemas/Billing"
import * as Futures from "effect-tinker/protocol/schemas/Futures"
import * as Management from "effect-tinker/protocol/schemas/Management"
import * as Session from "effect-tinker/protocol/schemas/Session"
import * as Training from "effect-tinker/protocol/schemas/Training"
import * as Endpoint from "effect-tinker/protocol/Endpoint"
import * as ModelInput from "effect-tinker/ModelInput"
import { script } from "./wire.ts"

const body = <I, A>(endpoint: Endpoint.Endpoint<I, A>, input: I): unknown =>
  JSON.parse(String(Either.getOrThrow(Endpoint.render(endpoint, input)).body?.bytes))

describe("request fields that are not given", () => {
  const save = { modelId: "m", path: "p", seqId: 1 }

  it("a missing TTL is left out of a save, and null is rejected because it has no meaning there", () => {
    expect(body(Api.saveWeights, save)).not.toHaveProperty("ttl_seconds")
    expect(body(Api.saveWeights, { ...save, ttlSeconds: undefined })).not.toHaveProperty("ttl_seconds")
    expect(body(Api.saveWeights, { ...save, ttlSeconds: 0 })).toHaveProperty("ttl_seconds", 0)
    // @ts-expect-error null is not a TTL
    expect(Endpoint.render(Api.saveWeights, { ...save, ttlSeconds: null })._tag).toBe("Left")
  })

  it("setCheckpointTtl distinguishes null, which removes the TTL, from a number", () => {
    const checkpoint = { trainingRunId: "r", checkpointId: "weights/1" }
    expect(body(Api.setCheckpointTtl, { ...checkpoint, ttlSeconds: null })).toEqual({ ttl_seconds: null })
    expect(body(Api.setCheckpointTtl, { ...checkpoint, ttlSeconds: 5 })).toEqual({ ttl_seconds: 5 })
    // @ts-expect-error a TTL is required here
    expect(Endpoint.render(Api.setCheckpointTtl, checkpoint)._tag).toBe("Left")
  })

  it("finishSession sends null for a missing detail", () => {
    const finish = { sessionId: "s", reason: { type: "errored" as const } }
    expect(body(Api.finishSession, finish)).toEqual({ reason: { type: "errored" }, detail: null })
    expect(body(Api.finishSession, { ...finish, detail: undefined })).toHaveProperty("detail", null)
    expect(body(Api.finishSession, { ...finish, detail: "" })).toHaveProperty("detail", "")
  })

  it("defaults are sent for undefined fields, and false, zero and the empty list are kept", () => {
    const create = { sessionId: "s", modelSeqId: 0, baseModel: "m" }
    const lora = { rank: 32, train_unembed: true, train_mlp: true, train_attn: true }
    expect(body(Api.createModel, { ...create, loraConfig: undefined })).toHaveProperty("lora_config", lora)
    expect(body(Api.createModel, { ...create, loraConfig: { trainMlp: false, seed: 0 } })).toHaveProperty(
      "lora_config",
      { ...lora, train_mlp: false, seed: 0 },
    )
    expect(body(Api.createSession, { sdkVersion: "v", tags: [] })).toHaveProperty("tags", [])
  })

  it("a sample request disables log probabilities explicitly and distinguishes an empty stop list from none", () => {
    const sample = { samplingSessionId: "s", seqId: 0, prompt: ModelInput.empty }
    expect(body(Api.sample, sample)).toEqual({
      sampling_session_id: "s",
      seq_id: 0,
      prompt: { chunks: [] },
      sampling_params: { temperature: 1, top_k: -1, top_p: 1 },
      num_samples: 1,
      prompt_logprobs: false,
      topk_prompt_logprobs: 0,
      topk_sample_logprobs: 0,
      prompt_alt_tokens_k: 0,
      record_stability_info: false,
      type: "sample",
    })
    expect(body(Api.sample, { ...sample, samplingParams: { stop: [] } })).toHaveProperty("sampling_params.stop", [])
  })

  it("metadata is sent unchanged, whatever its keys", () => {
    const userMetadata = JSON.parse('{"__proto__": {"a": [1, null, {"constructor": "x"}]}}')
    expect(JSON.stringify(body(Api.saveWeights, { ...save, userMetadata }))).toContain(
      '"user_metadata":{"__proto__":{"a":[1,null,{"constructor":"x"}]}}',
    )
    for (const bad of [new Date(0), new Map([["a", 1]]), () => 1, [Number.NaN], [undefined], 1n])
      expect(
        Either.flip(Endpoint.render(Api.saveWeights, { ...save, userMetadata: { ok: 1, bad: bad as never } })),
      ).toMatchObject(Either.right({ path: expect.stringMatching(/^save_weights\.userMetadata\.bad/) }))
  })

  it("undefined metadata is not written", () => {
    expect(body(Api.saveWeights, { ...save, userMetadata: { a: 1, b: undefined } })).toHaveProperty("user_metadata", {
      a: 1,
    })
  })
})

describe("decoding requests on a server", () => {
  const decode = Schema.decodeUnknownSync(Training.CreateModelRequest)

  it("decoding a request fills in defaults, treats null as absent, and ignores unknown fields", () => {
    expect(
      decode({ session_id: "s", model_seq_id: 0, base_model: "m", user_metadata: null, type: "create_model", new: 1 }),
    ).toEqual({
      sessionId: "s",
      modelSeqId: 0,
      baseModel: "m",
      loraConfig: {},
      optimizerConfig: { type: "adamw" },
    })
  })

  it("decoding a request rejects another type", () => {
    expect(() => decode({ session_id: "s", model_seq_id: 0, base_model: "m", type: "load_weights" })).toThrow()
  })
})

describe("decoding responses", () => {
  it("responses are decoded like the recorded reference: wrong types are rejected, null and new fields are accepted", () => {
    const decode = Schema.decodeUnknownEither(Session.CreateSessionResponse)
    const answers = script("behaviours/http_response_validation.json").map(({ body }) => {
      // The content type is ignored: text that is valid JSON counts as JSON.
      try {
        return decode(typeof body === "string" ? JSON.parse(body) : body)._tag
      } catch {
        return "NotJson"
      }
    })
    expect(answers).toEqual(["Left", "Left", "Left", "NotJson", "Right", "Right", "Right", "Left", "Left"])
  })

  it("decoding keeps unknown queue states", () => {
    const decode = Schema.decodeUnknownSync(Futures.TryAgain)
    expect(decode({ type: "try_again", queue_state: "paused_for_lunch" }).queueState).toBe("paused_for_lunch")
    expect(decode({}).queueState).toBe("unknown")
    expect(decode({ queue_state: null, queue_state_reason: null })).toEqual({
      queueState: "unknown",
      requestId: Option.none(),
      queueStateReason: Option.none(),
    })
  })

  it("decoding accepts any value as the error of a failed future", () => {
    const decode = Schema.decodeUnknownEither(Futures.FailedFuture)
    const error = (error: unknown) => Either.map(decode({ error }), (failed) => failed.error)
    expect(error("out of memory")).toEqual(Either.right("out of memory"))
    expect(error({ code: 7 })).toEqual(Either.right('{"code":7}'))
    expect(error(null)).toEqual(Either.right("null"))
    expect(error(["a"])).toEqual(Either.right('["a"]'))
    expect(decode({ category: "user" })._tag).toBe("Left")
    expect(Either.map(decode({ error: "x" }), (failed) => failed.category)).toEqual(Either.right("unknown"))
  })

  it("decoding fills in missing fields", () => {
    const run = {
      training_run_id: "r",
      base_model: "m",
      model_owner: "o",
      is_lora: true,
      last_request_time: "2026-01-02T03:04:05Z",
    }
    expect(Schema.decodeUnknownSync(Management.TrainingRun)(run)).toMatchObject({
      corrupted: false,
      loraRank: Option.none(),
      lastCheckpoint: Option.none(),
      lastSamplerCheckpoint: Option.none(),
      userMetadata: Option.none(),
    })
    expect(Schema.decodeUnknownSync(Management.TrainingRun)({ ...run, corrupted: true }).corrupted).toBe(true)
    const checkpoint = { checkpoint_id: "c", checkpoint_type: "training", time: "2026-01-02", tinker_path: "p" }
    expect(Schema.decodeUnknownSync(Management.Checkpoint)(checkpoint).public).toBe(false)
    expect(
      Schema.decodeUnknownSync(Management.WeightsInfo)({ base_model: "m", is_lora: false }).optimizerConfig,
    ).toEqual({ type: "adamw" })
    expect(Schema.decodeUnknownSync(Billing.Usage)({ data: [] }).sessions).toEqual({})
    expect(
      Schema.decodeUnknownSync(Billing.AuditLogEntry)({ timestamp: "2026-01-02", event: "e" }).eventDetails,
    ).toEqual({})
    expect(Schema.decodeUnknownSync(Training.UnloadModelResult)({})).toEqual({
      modelId: Option.none(),
      status: Option.none(),
    })
    expect(Schema.decodeUnknownSync(Session.ClientConfig)({})).toEqual({
      pjwtAuthEnabled: false,
      credentialDefaultSource: "api_key",
      sampleDispatchBytesSemaphoreSize: 10_485_760,
      inflightResponseBytesSemaphoreSize: 52_428_800,
      parallelFwdbwdChunks: false,
      protoCompressFwdbwd: false,
      fwdbwdMaxChunkLen: 1024,
      fwdbwdMaxChunkBytesCount: 5_000_000,
      fwdbwdDispatchBytesSemaphoreSize: 50_000_000,
      billingExceptionMaxPauseDurationSec: 3600,
      sampleNoRetries: false,
      sampleEnableStuckDetection: true,
      sampleMaxConcurrentRequests: 2000,
      usePyqwestTransport: true,
      createModelViaLoadWeights: false,
      sampleUseRetrieveFutures: false,
      customLossServerSide: false,
      sampleJoinSamplingSession: false,
    })
    expect(Schema.decodeUnknownSync(Session.DynamicConfig)({})).toEqual({
      refreshIntervalSec: 300,
      sampleCancelEnabled: false,
      sampleCancelMaxBatchSize: 64,
    })
  })

  it("decoding keeps unknown variants, but rejects malformed known variants", () => {
    const decode = Schema.decodeUnknownEither(Billing.UsageInfo)
    const news = { type: "teleport", distance: 3 }
    expect(decode(news)).toEqual(Either.right({ type: "unknown", value: news }))
    expect(decode({ type: "training", token_count: "many" })._tag).toBe("Left")
    expect(decode({})._tag).toBe("Left")
    expect(
      Schema.decodeUnknownSync(Management.SessionStatus)({
        type: "failed",
        category: "internal",
        reason: { type: "request", request_id: "r", request_type: "OptimStep" },
        message: "m",
      }),
    ).toEqual({
      type: "failed",
      category: "internal",
      reason: { type: "request", requestId: "r", requestType: "OptimStep" },
      message: "m",
    })
  })

  it.each([
    ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000Z"],
    ["2026-01-02T03:04:05.123456Z", "2026-01-02T03:04:05.123Z"],
    ["2026-01-02T03:04:05", "2026-01-02T03:04:05.000Z"],
    ["2026-01-02T03:04:05.123456", "2026-01-02T03:04:05.123Z"],
    ["2026-01-02 03:04:05.5+02:00", "2026-01-02T01:04:05.500Z"],
    ["2026-01-02", "2026-01-02T00:00:00.000Z"],
  ])("%s is decoded as a time in UTC", (text, iso) => {
    const { expires } = Schema.decodeUnknownSync(Management.ExternalWeightsUrls)({ urls: {}, expires: text })
    expect(DateTime.formatIso(expires)).toBe(iso)
  })

  it("decoding rejects invalid times", () => {
    const decode = Schema.decodeUnknownEither(Management.ExternalWeightsUrls)
    expect(decode({ urls: {}, expires: "tomorrow" })._tag).toBe("Left")
    expect(decode({ urls: {}, expires: 1767323045 })._tag).toBe("Left")
    // Engines parse these as a time, but not as the intended one.
    for (const expires of ["1", "2026", "Jan 2 2026", "12-01-02", "+012026-01-02T00:00:00Z", "x2026-01-02"])
      expect(decode({ urls: {}, expires })._tag).toBe("Left")
  })

  it("a search cursor is returned unchanged", () => {
    const cursor = { last_created_at: "2026-01-02T03:04:05.123456+02:00", last_session_id: "s" }
    const { nextCursor } = Schema.decodeUnknownSync(Management.SearchSessionsResponse)({
      sessions: [],
      next_cursor: cursor,
    })
    expect(body(Api.searchSessions, { cursor: Option.getOrUndefined(nextCursor) })).toHaveProperty("cursor", cursor)
  })

  it("decoding accepts the metrics of every server: missing, null, empty, without a suffix, not a number", () => {
    const decode = (value: unknown) => Schema.decodeUnknownSync(Training.OptimStepResult)(value).metrics
    expect([decode({}), decode({ metrics: null }), decode({ metrics: {} })]).toEqual([{}, {}, {}])
    expect(decode({ metrics: { "skyrl.ai/grad_norm": 0.5, "loss:sum": null } })).toEqual({
      "skyrl.ai/grad_norm": 0.5,
      "loss:sum": Number.NaN,
    })
  })
})

describe("schema types", () => {
  it("schemas have the program's names on one side and the wire's names on the other", () => {
    type Sides = typeof Training.LoraConfig
    expectTypeOf<Sides["Type"]>().toEqualTypeOf<{
      readonly rank?: number | undefined
      readonly seed?: number | undefined
      readonly trainUnembed?: boolean | undefined
      readonly trainMlp?: boolean | undefined
      readonly trainAttn?: boolean | undefined
    }>()
    expectTypeOf<Sides["Encoded"]>().toEqualTypeOf<{
      readonly rank?: number
      readonly seed?: number | null
      readonly train_unembed?: boolean
      readonly train_mlp?: boolean
      readonly train_attn?: boolean
    }>()
    expectTypeOf<Endpoint.Input<typeof Api.setCheckpointTtl>>().toExtend<{
      readonly trainingRunId: string
      readonly checkpointId: string
      readonly ttlSeconds: number | null
    }>()
    expectTypeOf<Endpoint.Output<typeof Api.setCheckpointTtl>>().toEqualTypeOf<void>()
  })
})
