/**
 * Every endpoint of the Tinker API as a value. The client sends them, a server answers them, the tests compare them
 * with the recorded wire.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import * as Auth from "./schemas/Auth.ts"
import * as Billing from "./schemas/Billing.ts"
import * as Chat from "./schemas/Chat.ts"
import * as Futures from "./schemas/Futures.ts"
import * as Management from "./schemas/Management.ts"
import * as Sampling from "./schemas/Sampling.ts"
import * as Session from "./schemas/Session.ts"
import * as Telemetry from "./schemas/Telemetry.ts"
import * as Training from "./schemas/Training.ts"
import * as Endpoint from "./Endpoint.ts"
import * as ForwardBackward from "./ForwardBackward.ts"
import { lazy } from "../internal/util/Lazy.ts"
import * as ModelInput from "../ModelInput.ts"
import { version } from "./Version.ts"

// Start-up and session

const SessionParams = lazy(() => Schema.Struct({ sessionId: Schema.String }))

/**
 * @since 0.1.0
 * @category session
 */
export const clientConfig = Endpoint.json({
  operation: "client/config",
  method: "POST",
  path: "client/config",
  purpose: "session",
  auth: "credential",
  retry: "startup",
  body: Session.ClientConfigRequest,
  response: Session.ClientConfig,
})

/**
 * The flags of a server that sends none.
 *
 * @since 0.1.0
 * @category session
 */
export const defaultClientConfig: Session.ClientConfig = Schema.decodeSync(Session.ClientConfig)({})

/**
 * @since 0.1.0
 * @category session
 */
export const dynamicConfig = Endpoint.json({
  operation: "client/dynamic_config",
  method: "POST",
  path: "client/dynamic_config",
  purpose: "session",
  retry: "none",
  timeout: "10 seconds",
  body: Session.ClientConfigRequest,
  response: Session.DynamicConfig,
})

/**
 * @since 0.1.0
 * @category session
 */
export const authToken = Endpoint.json({
  operation: "auth/token",
  method: "POST",
  path: "auth/token",
  purpose: "session",
  auth: "credential",
  retry: "startup",
  body: Auth.AuthTokenRequest,
  response: Auth.AuthToken,
})

/**
 * @since 0.1.0
 * @category session
 */
export const createSession = Endpoint.json({
  operation: "create_session",
  method: "POST",
  path: "create_session",
  purpose: "session",
  retry: "startup",
  body: Session.CreateSessionRequest,
  response: Session.CreateSessionResponse,
})

/**
 * @since 0.1.0
 * @category session
 */
export const heartbeat = Endpoint.json({
  operation: "session_heartbeat",
  method: "POST",
  path: "session_heartbeat",
  purpose: "session",
  retry: "none",
  timeout: "10 seconds",
  // The same each time: written once.
  holes: {},
  body: Session.HeartbeatRequest,
  response: Session.HeartbeatResponse,
})

/**
 * @since 0.1.0
 * @category session
 */
export const finishSession = Endpoint.json({
  operation: "sessions/finish",
  method: "POST",
  path: "sessions/:sessionId/finish",
  purpose: "session",
  params: SessionParams,
  body: Session.FinishSessionRequest,
})

/**
 * @since 0.1.0
 * @category session
 */
export const getServerCapabilities = Endpoint.json({
  operation: "get_server_capabilities",
  method: "GET",
  path: "get_server_capabilities",
  purpose: "rest",
  response: Session.ServerCapabilities,
})

/**
 * @since 0.1.0
 * @category session
 */
export const health = Endpoint.json({
  operation: "healthz",
  method: "GET",
  path: "healthz",
  purpose: "rest",
  auth: "credential",
  response: Session.Health,
})

/**
 * @since 0.1.0
 * @category session
 */
export const telemetry = Endpoint.json({
  operation: "telemetry",
  method: "POST",
  path: "telemetry",
  purpose: "telemetry",
  retry: "none",
  timeout: "5 seconds",
  body: Telemetry.TelemetryRequest,
  response: Telemetry.TelemetryResponse,
})

// Training. A number in the request makes it sequenced.

/** Counted numbers, which are another one in each request. */
const seqIdHole: Endpoint.Hole<number> = {
  empty: 0,
  mark: `"seq_id":0`,
  fill: (seqId) => (Number.isSafeInteger(seqId) && seqId >= 0 ? `"seq_id":${seqId}` : undefined),
}

const train = { method: "POST", purpose: "train", response: Futures.Accepted } as const

/**
 * @since 0.1.0
 * @category training
 */
export const createModel = Endpoint.json({
  ...train,
  operation: "create_model",
  path: "create_model",
  retry: "startup",
  body: Training.CreateModelRequest,
})

/**
 * Servers up to 0.25 only; newer ones end a model with its session.
 *
 * @since 0.1.0
 * @category training
 */
export const unloadModel = Endpoint.json({
  ...train,
  operation: "unload_model",
  path: "unload_model",
  body: Training.UnloadModelRequest,
})

/**
 * @since 0.1.0
 * @category training
 */
export const getInfo = Endpoint.json({
  operation: "get_info",
  method: "POST",
  path: "get_info",
  purpose: "train",
  body: Training.GetInfoRequest,
  response: Training.ModelInfo,
})

/**
 * @since 0.1.0
 * @category training
 */
export const optimStep = Endpoint.json({
  ...train,
  operation: "optim_step",
  path: "optim_step",
  sequenced: true,
  body: Training.OptimStepRequest,
  holes: { seqId: seqIdHole },
})

/**
 * @since 0.1.0
 * @category training
 */
export const loadWeights = Endpoint.json({
  ...train,
  operation: "load_weights",
  path: "load_weights",
  sequenced: true,
  body: Training.LoadWeightsRequest,
})

/**
 * The other form of `load_weights`: it makes the model that it loads into.
 *
 * @since 0.1.0
 * @category training
 */
export const loadWeightsAsModel = Endpoint.json({
  ...train,
  operation: "load_weights",
  path: "load_weights",
  body: Training.LoadWeightsAsModelRequest,
})

/**
 * @since 0.1.0
 * @category training
 */
export const saveWeights = Endpoint.json({
  ...train,
  operation: "save_weights",
  path: "save_weights",
  sequenced: true,
  body: Training.SaveWeightsRequest,
})

/**
 * @since 0.1.0
 * @category training
 */
export const saveWeightsForSampler = Endpoint.json({
  ...train,
  operation: "save_weights_for_sampler",
  path: "save_weights_for_sampler",
  sequenced: true,
  body: Training.SaveWeightsForSamplerRequest,
})

/**
 * @since 0.1.0
 * @category training
 */
export const saveWeightsExternal = Endpoint.json({
  ...train,
  operation: "save_weights_external",
  path: "save_weights_external",
  sequenced: true,
  body: Training.SaveWeightsExternalRequest,
})

/**
 * @since 0.1.0
 * @category training
 */
export const createCustomLoss = Endpoint.json({
  ...train,
  operation: "create_custom_loss",
  path: "create_custom_loss",
  body: Training.CreateCustomLossRequest,
})

/**
 * `forwardOnly` makes it a forward pass.
 *
 * @since 0.1.0
 * @category training
 */
export const forwardBackward = Endpoint.bytes({
  ...train,
  operation: "forward_backward",
  path: "forward_backward",
  sequenced: true,
  contentType: "application/x-protobuf",
  encode: ForwardBackward.toProtobuf,
})

type Pass = Omit<ForwardBackward.Request, "forwardOnly">

const passJson = (forwardOnly: boolean) => (pass: Pass) =>
  Either.map(ForwardBackward.toJson({ ...pass, forwardOnly }), (json) => new TextEncoder().encode(JSON.stringify(json)))

/**
 * The same for servers that read no protobuf.
 *
 * @since 0.1.0
 * @category training
 */
export const forwardBackwardJson = Endpoint.bytes({
  ...train,
  operation: "forward_backward",
  path: "forward_backward",
  sequenced: true,
  contentType: "application/json",
  encode: passJson(false),
})

/**
 * The forward pass of servers that read no protobuf.
 *
 * @since 0.1.0
 * @category training
 */
export const forwardJson = Endpoint.bytes({
  ...train,
  operation: "forward",
  path: "forward",
  sequenced: true,
  contentType: "application/json",
  encode: passJson(true),
})

// Sampling

/**
 * @since 0.1.0
 * @category sampling
 */
export const createSamplingSession = Endpoint.json({
  operation: "create_sampling_session",
  method: "POST",
  path: "create_sampling_session",
  purpose: "session",
  retry: "startup",
  body: Sampling.CreateSamplingSessionRequest,
  response: Sampling.CreateSamplingSessionResponse,
})

/**
 * @since 0.1.0
 * @category sampling
 */
export const joinSamplingSession = Endpoint.json({
  operation: "join_sampling_session",
  method: "POST",
  path: "join_sampling_session",
  purpose: "session",
  body: Sampling.JoinSamplingSessionRequest,
  response: Sampling.JoinSamplingSessionResponse,
})

/**
 * Refusals (429) are the limiter's business: it knows what else waits.
 *
 * @since 0.1.0
 * @category sampling
 */
export const sample = Endpoint.json({
  operation: "asample",
  method: "POST",
  path: "asample",
  purpose: "sample",
  retry: "none",
  headers: { "x-tinker-sampling-backpressure": "1" },
  body: Sampling.SampleRequest,
  holes: {
    prompt: { empty: ModelInput.empty, mark: `{"chunks":[]}`, fill: ModelInput.textToJson },
    seqId: seqIdHole,
  },
  response: Futures.Accepted,
})

// Futures

/**
 * The answer may be a result in JSON or protobuf, or the word that there is none yet.
 *
 * @since 0.1.0
 * @category futures
 */
export const retrieveFuture = Endpoint.raw({
  operation: "retrieve_future",
  path: "retrieve_future",
  purpose: "retrieve",
  retry: "none",
  timeout: "45 seconds",
  body: Futures.RetrieveFutureRequest,
  holes: {
    requestId: {
      empty: "",
      mark: `"request_id":""`,
      fill: (id) => (typeof id === "string" ? `"request_id":${JSON.stringify(id)}` : undefined),
    },
  },
})

/**
 * @since 0.1.0
 * @category futures
 */
export const retrieveFutures = Endpoint.json({
  operation: "retrieve_futures",
  method: "POST",
  path: "retrieve_futures",
  purpose: "retrieve",
  retry: "none",
  timeout: "45 seconds",
  body: Futures.RetrieveFuturesRequest,
  response: Futures.RetrieveFuturesResponse,
})

/**
 * @since 0.1.0
 * @category futures
 */
export const cancelFuture = Endpoint.json({
  operation: "cancel_future",
  method: "POST",
  path: "cancel_future",
  purpose: "retrieve",
  retry: "none",
  timeout: "30 seconds",
  body: Futures.CancelFutureRequest,
})

// Management. The server is told which method of the reference SDK a call corresponds to.

const rest = (method: string) =>
  ({ purpose: "rest", headers: { "x-sdk-version": version, "x-sdk-method": method } }) as const

const RunParams = lazy(() => Schema.Struct({ trainingRunId: Schema.String }))
const CheckpointParams = lazy(() => Schema.Struct({ trainingRunId: Schema.String, checkpointId: Schema.String }))

/**
 * @since 0.1.0
 * @category training runs
 */
export const getTrainingRun = Endpoint.json({
  ...rest("get_training_run"),
  operation: "training_runs/get",
  method: "GET",
  path: "training_runs/:trainingRunId",
  params: RunParams,
  query: Management.ScopeQuery,
  response: Management.TrainingRun,
})

/**
 * @since 0.1.0
 * @category training runs
 */
export const listTrainingRuns = Endpoint.json({
  ...rest("list_training_runs"),
  operation: "training_runs",
  method: "GET",
  path: "training_runs",
  query: Management.ListTrainingRunsQuery,
  response: Management.TrainingRunsPage,
})

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const getWeightsInfo = Endpoint.json({
  ...rest("get_weights_info_by_tinker_path"),
  operation: "weights_info",
  method: "POST",
  path: "weights_info",
  body: Management.WeightsInfoRequest,
  response: Management.WeightsInfo,
})

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const listCheckpoints = Endpoint.json({
  ...rest("list_checkpoints"),
  operation: "training_runs/checkpoints",
  method: "GET",
  path: "training_runs/:trainingRunId/checkpoints",
  params: RunParams,
  response: Management.CheckpointsPage,
})

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const listUserCheckpoints = Endpoint.json({
  ...rest("list_user_checkpoints"),
  operation: "checkpoints",
  method: "GET",
  path: "checkpoints",
  query: Management.ListUserCheckpointsQuery,
  response: Management.CheckpointsPage,
})

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const getExternalWeightsUrls = Endpoint.json({
  ...rest("get_external_weights_urls"),
  operation: "checkpoints/external_weights_urls",
  method: "GET",
  path: "training_runs/:trainingRunId/checkpoints/external_weights/:name/external_weights_urls",
  params: lazy(() => Schema.Struct({ trainingRunId: Schema.String, name: Schema.String })),
  response: Management.ExternalWeightsUrls,
})

/**
 * Servers up to 0.25 only. They answer with a redirect to the archive, or with its address.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const getCheckpointArchive = Endpoint.raw({
  ...rest("get_checkpoint_archive_url"),
  operation: "checkpoints/archive",
  path: "training_runs/:trainingRunId/checkpoints/:checkpointId*/archive",
  redirect: "manual",
  params: CheckpointParams,
})

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const deleteCheckpoint = Endpoint.json({
  ...rest("delete_checkpoint"),
  operation: "checkpoints/delete",
  method: "DELETE",
  path: "training_runs/:trainingRunId/checkpoints/:checkpointId*",
  params: CheckpointParams,
})

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const publishCheckpoint = Endpoint.json({
  ...rest("publish_checkpoint_from_tinker_path"),
  operation: "checkpoints/publish",
  method: "POST",
  path: "training_runs/:trainingRunId/checkpoints/:checkpointId*/publish",
  params: CheckpointParams,
})

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const unpublishCheckpoint = Endpoint.json({
  ...rest("unpublish_checkpoint_from_tinker_path"),
  operation: "checkpoints/unpublish",
  method: "DELETE",
  path: "training_runs/:trainingRunId/checkpoints/:checkpointId*/publish",
  params: CheckpointParams,
})

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const setCheckpointTtl = Endpoint.json({
  ...rest("set_checkpoint_ttl_from_tinker_path"),
  operation: "checkpoints/ttl",
  method: "PUT",
  path: "training_runs/:trainingRunId/checkpoints/:checkpointId*/ttl",
  params: CheckpointParams,
  body: Management.SetCheckpointTtlRequest,
})

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const copyWeights = Endpoint.json({
  ...rest("copy_weights"),
  operation: "copy_weights",
  method: "POST",
  path: "copy_weights",
  body: Management.CopyWeightsRequest,
  response: Management.CopyWeightsResponse,
})

/**
 * @since 0.1.0
 * @category sessions
 */
export const getSession = Endpoint.json({
  ...rest("get_session"),
  operation: "sessions/get",
  method: "GET",
  path: "sessions/:sessionId",
  params: SessionParams,
  query: Management.ScopeQuery,
  response: Management.SessionInfo,
})

/**
 * @since 0.1.0
 * @category sessions
 */
export const listSessions = Endpoint.json({
  ...rest("list_sessions"),
  operation: "sessions",
  method: "GET",
  path: "sessions",
  query: Management.ListSessionsQuery,
  response: Management.SessionsPage,
})

/**
 * @since 0.1.0
 * @category sessions
 */
export const searchSessions = Endpoint.json({
  ...rest("search_sessions"),
  operation: "sessions/search",
  method: "POST",
  path: "sessions/search",
  body: Management.SearchSessionsRequest,
  response: Management.SearchSessionsResponse,
})

/**
 * @since 0.1.0
 * @category sessions
 */
export const assignSessionProject = Endpoint.json({
  ...rest("assign_session_project"),
  operation: "sessions/project",
  method: "PUT",
  path: "sessions/:sessionId/project",
  params: SessionParams,
  body: Management.AssignProjectRequest,
})

/**
 * @since 0.1.0
 * @category sessions
 */
export const exportSessionTrace = Endpoint.json({
  ...rest("export_session_trace"),
  operation: "sessions/trace_export",
  method: "GET",
  path: "sessions/:sessionId/trace_export",
  params: SessionParams,
  response: Management.TraceExport,
})

/**
 * @since 0.1.0
 * @category sampling
 */
export const getSampler = Endpoint.json({
  ...rest("get_sampler"),
  operation: "samplers/get",
  method: "GET",
  path: "samplers/:samplerId",
  params: lazy(() => Schema.Struct({ samplerId: Schema.String })),
  response: Management.SamplerInfo,
})

// Administration

/**
 * @since 0.1.0
 * @category administration
 */
export const getAuditLog = Endpoint.json({
  ...rest("get_audit_log"),
  operation: "audit",
  method: "GET",
  path: "audit",
  query: Billing.AuditLogQuery,
  response: Billing.AuditLog,
})

/**
 * @since 0.1.0
 * @category administration
 */
export const getBillingUsage = Endpoint.json({
  ...rest("get_billing_usage"),
  operation: "billing/usage/events",
  method: "GET",
  path: "billing/usage/events",
  query: Billing.UsageQuery,
  response: Billing.Usage,
})

/**
 * @since 0.1.0
 * @category administration
 */
export const getCheckpointStorage = Endpoint.json({
  ...rest("get_current_checkpoint_storage_usage"),
  operation: "billing/usage/checkpoints/current",
  method: "GET",
  path: "billing/usage/checkpoints/current",
  query: Billing.CheckpointStorageQuery,
  response: Billing.CheckpointStorage,
})

/**
 * @since 0.1.0
 * @category administration
 */
export const getApiKey = Endpoint.json({
  operation: "auth/apikey/me",
  method: "GET",
  path: "auth/apikey/me",
  purpose: "rest",
  auth: "credential",
  timeout: "30 seconds",
  response: Auth.ApiKey,
})

/**
 * @since 0.1.0
 * @category administration
 */
export const deleteApiKey = Endpoint.json({
  operation: "auth/apikey/me/delete",
  method: "DELETE",
  path: "auth/apikey/me",
  purpose: "rest",
  auth: "credential",
  timeout: "30 seconds",
})

// OpenAI-compatible

const openai = { root: "oai/api/v1", auth: "credential", scheme: "bearer" } as const

/** An answer takes as long as the model talks. */
const talk = { ...openai, purpose: "sample", timeout: "10 minutes" } as const

const events = { headers: { accept: "text/event-stream" } } as const

/**
 * @since 0.1.0
 * @category chat
 */
export const chatCompletions = Endpoint.json({
  ...talk,
  operation: "chat/completions",
  method: "POST",
  path: "chat/completions",
  body: Chat.ChatRequest,
  response: Chat.Reply,
})

/**
 * The same, answered by a stream of events.
 *
 * @since 0.1.0
 * @category chat
 */
export const streamChatCompletions = Endpoint.raw({
  ...talk,
  ...events,
  operation: "chat/completions",
  path: "chat/completions",
  body: Chat.StreamedChatRequest,
})

/**
 * @since 0.1.0
 * @category chat
 */
export const completions = Endpoint.json({
  ...talk,
  operation: "completions",
  method: "POST",
  path: "completions",
  body: Chat.CompletionRequest,
  response: Chat.Reply,
})

/**
 * The same, answered by a stream of events.
 *
 * @since 0.1.0
 * @category chat
 */
export const streamCompletions = Endpoint.raw({
  ...talk,
  ...events,
  operation: "completions",
  path: "completions",
  body: Chat.StreamedCompletionRequest,
})

/**
 * @since 0.1.0
 * @category chat
 */
export const listModels = Endpoint.json({
  ...openai,
  operation: "models",
  method: "GET",
  path: "models",
  purpose: "rest",
  response: Chat.Models,
})
