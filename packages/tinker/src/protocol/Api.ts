/**
 * Defines every endpoint of the Tinker API as a value. Clients send them, servers handle them, and tests compare them
 * with the recorded wire format.
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
 * Returns the server's flags.
 *
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
 * The flags of a server that does not send any.
 *
 * @since 0.1.0
 * @category session
 */
export const defaultClientConfig: Session.ClientConfig = Schema.decodeSync(Session.ClientConfig)({})

/**
 * Returns the flags that may change during a session.
 *
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
 * Exchanges the credential for a JWT.
 *
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
 * Creates a session.
 *
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
 * Keeps a session alive.
 *
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
  // The body is the same for every heartbeat of a session, so it is encoded once.
  holes: {},
  body: Session.HeartbeatRequest,
  response: Session.HeartbeatResponse,
})

/**
 * Finishes a session.
 *
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
 * Returns the models that the server supports.
 *
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
 * Checks the health of the server.
 *
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
 * Sends telemetry events.
 *
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

// Training. Requests with a sequence number are marked as sequenced.

/** The sequence number, which differs in each request. */
const seqIdHole: Endpoint.Hole<number> = {
  empty: 0,
  mark: `"seq_id":0`,
  fill: (seqId) => (Number.isSafeInteger(seqId) && seqId >= 0 ? `"seq_id":${seqId}` : undefined),
}

const train = { method: "POST", purpose: "train", response: Futures.Accepted } as const

/**
 * Creates a model.
 *
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
 * Unloads a model on servers up to 0.25; newer ones end a model with its session.
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
 * Returns information about a model.
 *
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
 * Applies the accumulated gradients to the weights.
 *
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
 * Loads a checkpoint into an existing model.
 *
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
 * Loads a checkpoint into a new model; an alternative form of `load_weights`.
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
 * Saves weights for training.
 *
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
 * Saves weights for sampling.
 *
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
 * Saves weights for external use.
 *
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
 * Uploads a custom loss function.
 *
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
 * Runs a forward-backward pass, or a forward pass if `forwardOnly`.
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
 * Runs a forward-backward pass on servers that do not read protobuf.
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
 * Runs a forward pass on servers that do not read protobuf.
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
 * Creates a sampling session.
 *
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
 * Joins an existing sampling session.
 *
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
 * Submits a sample. The limiter handles rate limit responses (429), because it knows the other waiting samples.
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
 * Polls a result. The response is a result in JSON or protobuf, or states that there is none yet.
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
 * Polls the completed requests of a sampling session.
 *
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
 * Cancels a request.
 *
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

// Management. A header names the corresponding method of the reference SDK.

const rest = (method: string) =>
  ({ purpose: "rest", headers: { "x-sdk-version": version, "x-sdk-method": method } }) as const

const RunParams = lazy(() => Schema.Struct({ trainingRunId: Schema.String }))
const CheckpointParams = lazy(() => Schema.Struct({ trainingRunId: Schema.String, checkpointId: Schema.String }))

/**
 * Returns a training run.
 *
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
 * Lists training runs.
 *
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
 * Returns the properties that a model needs to load a checkpoint.
 *
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
 * Lists the checkpoints of a training run.
 *
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
 * Lists the checkpoints of all training runs.
 *
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
 * Returns signed URLs for the files of a checkpoint saved for external use.
 *
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
 * Returns the archive of a checkpoint on servers up to 0.25, as a redirect or as a URL.
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
 * Deletes a checkpoint.
 *
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
 * Makes a checkpoint public.
 *
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
 * Makes a checkpoint private.
 *
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
 * Sets or removes the lifetime of a checkpoint.
 *
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
 * Copies weights to another project.
 *
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
 * Returns a session.
 *
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
 * Lists the ids of sessions.
 *
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
 * Searches for sessions.
 *
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
 * Assigns a session to a project.
 *
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
 * Returns the state of a session's trace export.
 *
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
 * Returns a sampler.
 *
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
 * Returns the audit log.
 *
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
 * Returns usage events and their cost.
 *
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
 * Returns the current checkpoint storage usage.
 *
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
 * Returns information about the API key of the request.
 *
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
 * Deletes the API key of the request.
 *
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

/** A response takes as long as the model generates text. */
const talk = { ...openai, purpose: "sample", timeout: "10 minutes" } as const

const events = { headers: { accept: "text/event-stream" } } as const

/**
 * Returns a chat completion.
 *
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
 * Returns a chat completion as a stream of events.
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
 * Returns a text completion.
 *
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
 * Returns a text completion as a stream of events.
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
 * Lists the models that support these endpoints.
 *
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
