import { describe, expect, it } from "@effect/vitest"
import { DateTime, Either, Option, Redacted, Schema } from "effect"
import * as Api from "effect-tinker/protocol/Api"
import { TelemetryEvent } from "effect-tinker/protocol/schemas/Telemetry"
import * as Endpoint from "effect-tinker/protocol/Endpoint"
import * as ModelInput from "effect-tinker/ModelInput"
import * as Optimizer from "effect-tinker/Optimizer"
import * as TensorData from "effect-tinker/TensorData"
import { replay } from "./replay.ts"
import { exchanges } from "./wire.ts"

const session = { sessionId: "sess-0001" }
const model = { modelId: "sess-0001:train:0" }
const run = { trainingRunId: "run-1" }
const weights = { ...run, checkpointId: "weights/0001" }
const path = "tinker://run-1/weights/0001"
const first = (requestId: string) => ({ requestId, allowMetadataOnly: true })

describe("session", () => {
  replay("vectors/client_dynamic_config.json", Api.dynamicConfig, { sdkVersion: "0.36.0" }, (config) =>
    expect(config).toEqual({ refreshIntervalSec: 300, sampleCancelEnabled: false, sampleCancelMaxBatchSize: 64 }),
  )
  replay("vectors/create_session_minimal.json", Api.createSession, { sdkVersion: "0.36.0" }, (created) =>
    expect(created).toEqual({
      sessionId: "sess-0001",
      infoMessage: Option.none(),
      warningMessage: Option.none(),
      errorMessage: Option.none(),
    }),
  )
  replay(
    "vectors/create_session_full.json",
    Api.createSession,
    {
      sdkVersion: "0.36.0",
      tags: ["b", "a"],
      userMetadata: { run: "x" },
      projectId: "proj-1",
      displayName: "nightly",
    },
    (created) => {
      expect(created.warningMessage).toEqual(Option.some("w"))
      expect(created.errorMessage).toEqual(Option.none())
    },
  )
  replay("vectors/session_heartbeat.json", Api.heartbeat, session)
  replay("vectors/session_finish.json", Api.finishSession, { ...session, reason: { type: "success" } })
  replay("vectors/get_server_capabilities.json", Api.getServerCapabilities, {}, ({ supportedModels }) =>
    expect(supportedModels.map((model) => model.maxContextLength)).toEqual([Option.some(32768), Option.none()]),
  )
  replay("vectors-0.25.0/bootstrap.json", Api.clientConfig, { sdkVersion: "0.25.0" }, (flags) =>
    expect(flags).toMatchObject({ pjwtAuthEnabled: false, parallelFwdbwdChunks: false, fwdbwdMaxChunkLen: 1024 }),
  )
  replay("vectors-0.25.0/bootstrap.json", Api.dynamicConfig, { sdkVersion: "0.25.0" })
  replay("vectors-0.25.0/bootstrap.json", Api.createSession, { sdkVersion: "0.25.0" })
  replay("vectors-0.25.0/jwt_bootstrap.json", Api.clientConfig, { sdkVersion: "0.25.0" }, (flags) =>
    expect(flags.pjwtAuthEnabled).toBe(true),
  )
  replay("vectors-0.25.0/jwt_bootstrap.json", Api.authToken, {}, ({ jwt }) => expect(Redacted.value(jwt)).toBe("<JWT>"))
})

describe("training", () => {
  const create = { ...session, baseModel: "Qwen/Qwen3-8B" }
  replay("vectors/create_lora_training_client_defaults.json", Api.createModel, { ...create, modelSeqId: 0 }, (future) =>
    expect(future).toEqual({ requestId: "req-0001", modelId: Option.none(), sampleSequenceIds: Option.none() }),
  )
  replay("vectors/create_lora_training_client_defaults.json", Api.retrieveFuture, first("req-0001"))
  replay("vectors/create_lora_training_client_dimuon.json", Api.createModel, {
    ...create,
    modelSeqId: 2,
    optimizerConfig: { type: "dimuon", version: 1 },
  })
  it("vectors-0.25.0/create_lora_training_client.json: createModel leaves out the newer field", () => {
    const [recorded] = exchanges("vectors-0.25.0/create_lora_training_client.json")
    const without = new Set(["optimizer_config"])
    const rendered = Either.getOrThrow(Endpoint.render(Api.createModel, { ...create, modelSeqId: 0 }, { without }))
    expect(JSON.parse(String(rendered.body?.bytes))).toEqual(recorded?.request.body)
  })
  replay("vectors/get_info.json", Api.getInfo, model, (info) => {
    expect(info.modelData.tokenizerId).toEqual(Option.some("Qwen/Qwen3-8B:abc123"))
    expect(info.optimizerConfig).toEqual({ type: "adamw" })
  })
  const lora = { rank: 16, trainUnembed: false }
  const token = Redacted.make("tml-other-key")
  const legacy = "vectors/create_training_client_from_state_legacy.json"
  replay(legacy, Api.getWeightsInfo, { tinkerPath: path })
  replay(legacy, Api.createModel, { ...create, modelSeqId: 3, loraConfig: lora })
  replay(legacy, Api.loadWeights, { modelId: "sess-0001:train:3", seqId: 1, path, optimizer: false })
  const optimizer = "vectors/create_training_client_from_state_with_optimizer_legacy.json"
  replay(optimizer, Api.createModel, {
    ...create,
    baseModel: "Qwen/Qwen3-8B-long",
    userMetadata: { a: "b" },
    modelSeqId: 4,
    loraConfig: lora,
  })
  replay(optimizer, Api.loadWeights, { modelId: "sess-0001:train:4", seqId: 1, path, optimizer: true })
  replay("vectors/create_training_client_from_state_access_token.json", Api.loadWeights, {
    modelId: "sess-0001:train:5",
    seqId: 1,
    path,
    optimizer: false,
    weightsAccessToken: token,
  })
  replay("vectors/create_training_client_from_state_via_load.json", Api.loadWeightsAsModel, {
    ...create,
    modelSeqId: 0,
    userMetadata: { a: "b" },
    path,
    optimizer: false,
    optimizerConfig: { type: "adamw" },
    weightsAccessToken: token,
  })
  replay("vectors/create_training_client_from_state_with_optimizer_via_load.json", Api.loadWeightsAsModel, {
    ...session,
    modelSeqId: 1,
    path,
    optimizer: true,
  })
  replay("vectors/load_state.json", Api.loadWeights, { ...model, seqId: 29, path, optimizer: false })
  replay("vectors/load_state_with_optimizer.json", Api.loadWeights, {
    ...model,
    seqId: 30,
    path,
    optimizer: true,
    weightsAccessToken: token,
  })
  replay("vectors/save_state_defaults.json", Api.saveWeights, { ...model, path: "ck-1", seqId: 23 })
  replay("vectors/save_state_full.json", Api.saveWeights, {
    ...model,
    path: "ck-1",
    seqId: 24,
    ttlSeconds: 3600,
    overwrite: true,
    userMetadata: { a: "b" },
  })
  replay("vectors-0.25.0/save_state.json", Api.saveWeights, { ...model, path: "ck", seqId: 3, ttlSeconds: 3600 })
  replay("vectors/save_weights_for_sampler_named.json", Api.saveWeightsForSampler, {
    ...model,
    path: "s-1",
    seqId: 25,
  })
  replay("vectors/save_weights_for_sampler_named_full.json", Api.saveWeightsForSampler, {
    ...model,
    path: "s-1",
    seqId: 26,
    ttlSeconds: 7200,
    userMetadata: { a: "b" },
  })
  replay("vectors-0.25.0/save_weights_for_sampler.json", Api.saveWeightsForSampler, { ...model, path: "s", seqId: 4 })
  replay("vectors/save_weights_and_get_sampling_client.json", Api.saveWeightsForSampler, {
    ...model,
    samplingSessionSeqId: 0,
    seqId: 27,
  })
  replay("vectors/cli_checkpoint_download_training.json", Api.saveWeightsExternal, {
    ...model,
    path: "download",
    seqId: 2,
    ttlSeconds: 3600,
  })
  replay("vectors-0.25.0/unload_model.json", Api.unloadModel, model)

  replay("vectors/optim_step_adam_defaults.json", Api.optimStep, {
    ...model,
    seqId: 20,
    ...Optimizer.toParams(Optimizer.adam()),
  })
  replay("vectors-0.25.0/optim_step.json", Api.optimStep, {
    ...model,
    seqId: 2,
    ...Optimizer.toParams(Optimizer.adam()),
  })
  replay("vectors/optim_step_adam_full.json", Api.optimStep, {
    ...model,
    seqId: 21,
    adamParams: Optimizer.adam({
      learningRate: 0.001,
      beta1: 0.8,
      beta2: 0.99,
      eps: 1e-8,
      weightDecay: 0.01,
      gradClipNorm: 1,
    }),
  })
  replay("vectors/optim_step_dimuon.json", Api.optimStep, {
    ...model,
    seqId: 22,
    ...Optimizer.toParams(Optimizer.dimuon({ learningRate: 0.001 })),
  })

  const ref = (ref: string) => ({ ref })
  const node = (op: string, name: string, target: string, ...args: ReadonlyArray<Record<string, never> | object>) => ({
    op,
    name,
    target,
    args: JSON.parse(JSON.stringify(args)),
    kwargs: {},
  })
  replay("vectors/create_custom_loss_server_side.json", Api.createCustomLoss, {
    ...session,
    customLossSeqId: 0,
    name: "neg_ll",
    inputs: [
      { name: "logprobs", rank: 1 },
      { name: "weights", rank: 1 },
    ],
    graph: {
      nodes: [
        node("placeholder", "logprobs", "logprobs"),
        node("placeholder", "weights", "weights"),
        node("call_function", "mul", "operator.mul", ref("logprobs"), ref("weights")),
        node("call_method", "sum_1", "sum", ref("mul")),
        node("call_function", "neg", "operator.neg", ref("sum_1")),
        node("call_function", "exp", "torch.exp", ref("logprobs")),
        node("call_method", "mean", "mean", ref("exp")),
        node("output", "output", "output", {
          tuple: [ref("neg"), { dict: { "custom/neg_ll:sum": ref("neg"), "custom/m:mean": ref("mean") } }],
        }),
      ],
    },
  })
})

describe("sampling and futures", () => {
  replay(
    "vectors/create_sampling_client_base_model.json",
    Api.createSamplingSession,
    { ...session, samplingSessionSeqId: 2, baseModel: "Qwen/Qwen3-8B" },
    (created) => expect(created.samplingSessionId).toBe("sess-0001:sample:2"),
  )
  replay("vectors/create_sampling_client_model_path.json", Api.createSamplingSession, {
    ...session,
    samplingSessionSeqId: 1,
    modelPath: "tinker://run-1/sampler_weights/s-1",
  })
  const sampling = { samplingSessionId: "sess-0001:sample:0" }
  replay("vectors/join_sampling_session.json", Api.joinSamplingSession, sampling, (joined) =>
    expect(joined.clientCounter).toBe(7),
  )
  replay("vectors/cancel_future.json", Api.cancelFuture, { requestId: "req-0001" })
  const target = { ...sampling, clonedSamplerId: 0 }
  replay("vectors/sample_retrieve_futures.json", Api.retrieveFutures, { target }, (answer) =>
    expect(answer.completions).toEqual([
      { state: "finished", requestId: "req-0001", responsePayloadUncompressedSize: Option.some(64) },
    ]),
  )
  replay(
    "vectors/sample_retrieve_futures.json",
    Api.retrieveFutures,
    { target, prevCursor: 1, retrievedRequestIds: ["req-0001"] },
    (answer) => expect(answer).toEqual({ completions: [], cursor: 2 }),
    1,
  )
  replay("vectors/sample_retrieve_futures.json", Api.retrieveFuture, {
    requestId: "req-0001",
    allowMetadataOnly: false,
  })
})

describe("samples", () => {
  const tokens = (...ids: ReadonlyArray<number>) => Either.getOrThrow(ModelInput.fromTokens(ids))
  const sample = (sampler: number, seqId: number) => ({
    samplingSessionId: `sess-0001:sample:${sampler}`,
    seqId,
    prompt: tokens(11, 12, 13, 14),
  })
  const two = { samplingParams: { maxTokens: 2 } }
  const four = (stop: string | ReadonlyArray<number>) => ({
    samplingParams: { maxTokens: 4, stop },
  })
  const scored = { promptLogprobs: true, samplingParams: { maxTokens: 1 } }

  replay("vectors/sample_defaults.json", Api.sample, sample(2, 0), (future) =>
    expect(future.sampleSequenceIds).toEqual(Option.some(["seq-0-0"])),
  )
  replay("vectors/sample_all_params.json", Api.sample, {
    ...sample(2, 1),
    numSamples: 2,
    samplingParams: {
      maxTokens: 16,
      seed: 42,
      stop: ["\n", "END"],
      temperature: 0.7,
      topK: 50,
      topP: 0.9,
    },
    promptLogprobs: true,
    topkPromptLogprobs: 2,
    topkSampleLogprobs: 2,
  })
  replay("vectors/sample_stop_string.json", Api.sample, { ...sample(2, 2), ...four("\n") })
  replay("vectors/sample_stop_tokens.json", Api.sample, { ...sample(2, 3), ...four([198, 2]) })
  replay("vectors/sample_stop_empty.json", Api.sample, { ...sample(2, 4), ...four([]) })
  replay("vectors/sample_response_topk.json", Api.sample, {
    ...sample(2, 5),
    ...two,
    promptLogprobs: true,
    topkPromptLogprobs: 2,
    topkSampleLogprobs: 2,
  })
  replay("vectors/sample_target_prompt_logprobs_sparse.json", Api.sample, {
    ...sample(2, 7),
    ...two,
    targetPromptLogprobs: Either.getOrThrow(
      TensorData.int64([6], { shape: [3, 4], sparse: { crowIndices: [0, 0, 0, 1], colIndices: [2] } }),
    ),
  })
  it("vectors/sample_target_prompt_logprobs_bad_dtype.json: targets of the wrong type are rejected", () => {
    const input = { ...sample(2, 0), targetPromptLogprobs: Either.getOrThrow(TensorData.float32([[1]])) }
    expect(Either.flip(Endpoint.render(Api.sample, input)).pipe(Either.getOrThrow).message).toBe(
      "asample.targetPromptLogprobs: Expected a two-dimensional int64 tensor of token ids",
    )
    expect(exchanges("vectors/sample_target_prompt_logprobs_bad_dtype.json")).toEqual([])
  })
  replay("vectors/sample_prompt_alt_tokens.json", Api.sample, { ...sample(2, 8), ...two, promptAltTokensK: 2 })
  replay("vectors/sample_prompt_alt_tokens_missing.json", Api.sample, { ...sample(2, 9), ...two, promptAltTokensK: 2 })
  replay("vectors/sample_prompt_logprobs_last_n.json", Api.sample, {
    ...sample(2, 10),
    ...scored,
    promptLogprobsLastN: 2,
  })
  replay("vectors/compute_logprobs.json", Api.sample, { ...sample(2, 14), ...scored })
  replay("vectors/compute_logprobs_last_n.json", Api.sample, { ...sample(2, 15), ...scored, promptLogprobsLastN: 1 })
  replay("vectors/sample_record_stability_info.json", Api.sample, {
    ...sample(3, 0),
    ...two,
    recordStabilityInfo: true,
  })
  replay("vectors/sample_missing_sequence_ids.json", Api.sample, sample(2, 13), (future) =>
    expect(future.sampleSequenceIds).toEqual(Option.none()),
  )
  const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
  replay("vectors/sample_multimodal.json", Api.sample, {
    ...sample(2, 12),
    ...two,
    prompt: ModelInput.make(
      ...tokens(1).chunks,
      { type: "image", data: Buffer.from(png, "base64"), format: "png", expectedTokens: 4 },
      { type: "image_asset_pointer", format: "jpeg", location: "gs://bucket/x.jpg", expectedTokens: 9 },
      { type: "image_asset_pointer", format: "png", location: "gs://bucket/y.png" },
      ModelInput.dmel(Uint8Array.of(0, 2, 3, 4, ...new Uint8Array(12))),
    ),
  })
  replay("vectors/join_sampling_session.json", Api.sample, { ...sample(0, 7e9), ...two })
  replay("vectors/cancel_future.json", Api.sample, { ...sample(0, 0), ...two })
  replay("vectors/sample_retrieve_futures.json", Api.sample, { ...sample(0, 0), ...two })

  it("vectors-0.25.0/sample.json: sample leaves out the newer fields", () => {
    const [recorded] = exchanges("vectors-0.25.0/sample.json")
    const input = { ...sample(0, 0), ...two, prompt: tokens(1, 2), promptLogprobs: true }
    const without = new Set(["topk_sample_logprobs", "prompt_alt_tokens_k", "record_stability_info"])
    const rendered = Either.getOrThrow(Endpoint.render(Api.sample, input, { without }))
    expect(JSON.parse(String(rendered.body?.bytes))).toEqual(recorded?.request.body)
  })
})

describe("management", () => {
  replay("vectors/rest_get_training_run.json", Api.getTrainingRun, run, (run) => {
    expect(run.loraRank).toEqual(Option.some(32))
    expect(run.lastSamplerCheckpoint).toEqual(Option.none())
    // The recorded time has microseconds.
    expect(run.lastRequestTime).toEqual(DateTime.unsafeMake("2026-01-02T03:04:05.123Z"))
    expect(Option.map(run.lastCheckpoint, (checkpoint) => checkpoint.checkpointId)).toEqual(Option.some("weights/0001"))
  })
  replay("vectors/rest_get_training_run_by_tinker_path.json", Api.getTrainingRun, run)
  replay("vectors/rest_list_training_runs.json", Api.listTrainingRuns, {}, (page) =>
    expect(page.cursor).toEqual({ offset: 0, limit: 20, totalCount: 1 }),
  )
  replay("vectors/rest_list_training_runs_full.json", Api.listTrainingRuns, {
    limit: 5,
    offset: 10,
    accessScope: "accessible",
    projectId: "p 1/é",
  })
  replay("vectors-0.25.0/list_training_runs.json", Api.listTrainingRuns, {})
  replay("vectors/rest_get_weights_info_by_tinker_path.json", Api.getWeightsInfo, { tinkerPath: path }, (info) => {
    expect(info.trainUnembed).toEqual(Option.some(false))
    expect(info.trainAttn).toEqual(Option.none())
    expect(info.optimizerConfig).toEqual({ type: "adamw" })
  })
  replay("vectors/rest_list_checkpoints.json", Api.listCheckpoints, run, ({ checkpoints, cursor }) => {
    expect(cursor).toEqual(Option.none())
    expect(checkpoints).toEqual([
      {
        checkpointId: "weights/0001",
        checkpointType: "training",
        time: DateTime.unsafeMake("2026-01-02T03:04:05Z"),
        tinkerPath: path,
        sizeBytes: Option.some(1048576),
        public: false,
        expiresAt: Option.none(),
        userMetadata: Option.some({ k: "v" }),
      },
    ])
  })
  replay("vectors/rest_list_user_checkpoints.json", Api.listUserCheckpoints, {}, ({ cursor }) =>
    expect(Option.map(cursor, (cursor) => cursor.totalCount)).toEqual(Option.some(1)),
  )
  replay("vectors/rest_list_user_checkpoints_page.json", Api.listUserCheckpoints, { limit: 50, offset: 100 })
  replay("vectors/rest_get_external_weights_urls.json", Api.getExternalWeightsUrls, { ...run, name: "e" }, (answer) =>
    expect(Object.keys(answer.urls)).toEqual(["adapter_config.json", "adapter_model.safetensors"]),
  )
  replay("vectors/rest_delete_checkpoint.json", Api.deleteCheckpoint, weights)
  replay("vectors/rest_delete_checkpoint_from_tinker_path.json", Api.deleteCheckpoint, {
    ...run,
    checkpointId: "sampler_weights/s",
  })
  replay("vectors/rest_publish_checkpoint.json", Api.publishCheckpoint, weights)
  replay("vectors/rest_unpublish_checkpoint.json", Api.unpublishCheckpoint, weights)
  replay("vectors/rest_set_checkpoint_ttl.json", Api.setCheckpointTtl, { ...weights, ttlSeconds: 86400 })
  replay("vectors/rest_set_checkpoint_ttl_remove.json", Api.setCheckpointTtl, { ...weights, ttlSeconds: null })
  replay(
    "vectors/rest_copy_weights.json",
    Api.copyWeights,
    { sourcePath: path, destinationProjectId: "proj-2", ttlSeconds: 3600 },
    (copy) => expect(copy.tinkerPath).toBe("tinker://run-copy/weights/0001"),
  )
  replay("vectors/rest_assign_session_project.json", Api.assignSessionProject, { ...session, projectId: "proj-1" })
  replay("vectors/rest_search_sessions_defaults.json", Api.searchSessions, {}, ({ nextCursor, sessions }) => {
    expect(nextCursor).toEqual(Option.some({ lastCreatedAt: "2026-01-02T03:04:05Z", lastSessionId: "sess-0001" }))
    expect(sessions.map((session) => session.status)).toEqual([
      Option.some({ type: "client_finished", reason: { type: "success" }, detail: Option.none() }),
    ])
  })
  replay("vectors/rest_search_sessions_full.json", Api.searchSessions, {
    ...session,
    projectIds: ["proj-1"],
    userMetadata: { a: "b" },
    displayName: "nightly",
    owner: { type: "user", ownerUrns: ["u1"] },
    statuses: [{ type: "active" }, { type: "client_finished", reasons: ["success"] }],
    limit: 10,
    cursor: { lastCreatedAt: "2026-01-02T03:04:05Z", lastSessionId: "sess-0001" },
  })
  replay("vectors/rest_export_session_trace.json", Api.exportSessionTrace, session, (trace) =>
    expect(trace).toEqual({
      status: "ready",
      url: Option.some("https://storage.invalid/trace?sig=1"),
      error: Option.none(),
    }),
  )
  replay("vectors/rest_get_sampler.json", Api.getSampler, { samplerId: "sess-0001:sample:0" }, (sampler) =>
    expect(sampler.modelPath).toEqual(Option.none()),
  )
  replay("vectors-0.25.0/get_checkpoint_archive_url.json", Api.getCheckpointArchive, weights)
  replay("vectors-0.25.0/get_checkpoint_archive_url_503.json", Api.getCheckpointArchive, {
    ...run,
    checkpointId: "weights/0002",
  })
})

describe("administration", () => {
  replay("vectors/admin_audit_log.json", Api.getAuditLog, {}, ({ entries }) =>
    expect(entries).toEqual([
      {
        timestamp: DateTime.unsafeMake("2026-01-02T03:04:05Z"),
        event: "checkpoint_read",
        eventDetails: { actor: "u1" },
        modelId: Option.some("run-1"),
        tinkerPath: Option.some(path),
        purpose: Option.some("download"),
      },
    ]),
  )
  replay("vectors/admin_audit_log_day.json", Api.getAuditLog, { eventType: "checkpoints", day: "2026-01-02" })
  replay(
    "vectors/admin_billing_usage.json",
    Api.getBillingUsage,
    {
      startingOn: DateTime.unsafeMake("2026-01-01T00:00:00Z"),
      endingBefore: DateTime.unsafeMake("2026-01-02T00:00:00Z"),
    },
    (usage) => {
      expect(usage.data.map((event) => event.eventInfo)).toEqual([
        { type: "training", tokenCount: 500000 },
        { type: "sampling_prefill", cached: true, tokenCount: 7 },
        { type: "sampling_sample", tokenCount: 8 },
        { type: "checkpoint", count: 2 },
        { type: "storage", gigabyteHours: 1.25 },
      ])
      expect(usage.sessions).toEqual({ "sess-0001": { userMetadata: Option.some({ a: "b" }) } })
    },
  )
  replay("vectors/cli_billing_checkpoint_storage.json", Api.getCheckpointStorage, { projectId: "proj-1" }, (storage) =>
    expect(storage.data.map((entry) => entry.sizeGigabytes)).toEqual([1]),
  )
  replay("vectors/cli_auth_login.json", Api.getApiKey, {}, (key) =>
    expect(key.details).toEqual({ orgDetails: { name: "Org" }, userDetails: { email: "u@example.invalid" } }),
  )
  replay("vectors/cli_auth_logout_generated.json", Api.deleteApiKey, {})
})

describe("telemetry", () => {
  it("vectors/telemetry_fatal_user_error.json: telemetry encodes three of the four kinds of event", () => {
    const [recorded] = exchanges("vectors/telemetry_fatal_user_error.json")
    const event = (eventSessionIndex: number, severity: "INFO" | "WARNING") => ({
      eventId: "<UUID4>",
      eventSessionIndex,
      severity,
      timestamp: DateTime.unsafeMake(0),
    })
    const error = { detail: "no such model" }
    const message = "Error code: 404 - {'detail': 'no such model'}"
    const rendered = Endpoint.render(Api.telemetry, {
      platform: "Linux",
      sdkVersion: "0.36.0",
      sessionId: "sess-0001",
      processUuid: "<UUID4>",
      events: [
        { ...event(0, "INFO"), event: "SESSION_START" },
        {
          ...event(1, "WARNING"),
          event: "GENERIC_EVENT",
          eventName: "InternalClientHolder.execute_with_retries.exception",
          eventData: {
            func: "TrainingClient._get_info_submit.<locals>._get_info_async.<locals>._send_request",
            exception: message,
            exception_type: "NotFoundError",
            exception_stack: "<PYTHON_TRACEBACK>",
            status_code: 404,
            is_retryable: false,
            is_user_error: true,
            attempt_count: 0,
            start_time: "<FLOAT_SECONDS>",
            current_time: "<FLOAT_SECONDS>",
            elapsed_time: "<FLOAT_SECONDS>",
          },
        },
        {
          ...event(2, "WARNING"),
          event: "GENERIC_EVENT",
          eventName: "user_error",
          eventData: { error_type: "NotFoundError", message, status_code: 404, body: error },
        },
        { ...event(3, "INFO"), event: "SESSION_END", duration: "<H:MM:SS.ffffff>" },
      ],
    })
    const body = String(Either.getOrThrow(rendered).body?.bytes)
    expect(JSON.parse(body.replaceAll("1970-01-01T00:00:00Z", "<ISO8601_UTC>"))).toEqual(recorded?.request.body)
  })

  it("telemetry encodes the fourth kind of event, an unhandled exception", () => {
    expect(
      Schema.encodeSync(TelemetryEvent)({
        event: "UNHANDLED_EXCEPTION",
        eventId: "id",
        eventSessionIndex: 0,
        severity: "ERROR",
        timestamp: DateTime.unsafeMake("2026-01-02T03:04:05.678Z"),
        errorType: "Unavailable",
        errorMessage: "m",
      }),
    ).toEqual({
      event: "UNHANDLED_EXCEPTION",
      event_id: "id",
      event_session_index: 0,
      severity: "ERROR",
      timestamp: "2026-01-02T03:04:05.678Z",
      error_type: "Unavailable",
      error_message: "m",
    })
  })
})
