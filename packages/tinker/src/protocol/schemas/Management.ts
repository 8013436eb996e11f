/**
 * The wire format of training runs, checkpoints, sessions and samplers in the REST endpoints.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { lazy } from "../../internal/util/Lazy.ts"
import * as Wire from "../../internal/codec/Wire.ts"
import { adamw, OptimizerConfig } from "../../Optimizer.ts"

/**
 * Resources owned by the key's owner, or all resources that the key may access.
 *
 * @since 0.1.0
 * @category queries
 */
export const AccessScope = Schema.Literal("owned", "accessible")

/**
 * The type of {@link AccessScope}.
 *
 * @since 0.1.0
 * @category queries
 */
export type AccessScope = typeof AccessScope.Type

/**
 * The query of endpoints that accept only an access scope.
 *
 * @since 0.1.0
 * @category queries
 */
export const ScopeQuery = lazy(() => Wire.struct({ accessScope: Wire.withDefault(AccessScope, "owned") }))

/**
 * The query for listing training runs.
 *
 * @since 0.1.0
 * @category queries
 */
export const ListTrainingRunsQuery = lazy(() =>
  Wire.struct({
    limit: Wire.withDefault(Schema.NonNegativeInt, 20),
    offset: Wire.withDefault(Schema.NonNegativeInt, 0),
    accessScope: Wire.withDefault(AccessScope, "owned"),
    projectId: Wire.omitted(Schema.String),
  }),
)

/**
 * The query for listing the checkpoints of all runs.
 *
 * @since 0.1.0
 * @category queries
 */
export const ListUserCheckpointsQuery = lazy(() =>
  Wire.struct({
    limit: Wire.withDefault(Schema.NonNegativeInt, 100),
    offset: Wire.withDefault(Schema.NonNegativeInt, 0),
  }),
)

/**
 * The query for listing sessions.
 *
 * @since 0.1.0
 * @category queries
 */
export const ListSessionsQuery = lazy(() =>
  Wire.struct({
    limit: Wire.withDefault(Schema.NonNegativeInt, 20),
    offset: Wire.withDefault(Schema.NonNegativeInt, 0),
    accessScope: Wire.withDefault(AccessScope, "owned"),
  }),
)

/**
 * The position of a page in the list.
 *
 * @since 0.1.0
 * @category queries
 */
export const Cursor = lazy(() =>
  Wire.struct({ offset: Schema.Finite, limit: Schema.Finite, totalCount: Schema.Finite }),
)

/**
 * A checkpoint.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const Checkpoint = lazy(() =>
  Wire.struct({
    /** The folder and name, e.g. `weights/0001`. */
    checkpointId: Schema.String,
    checkpointType: Wire.open("training", "sampler", "external"),
    time: Wire.Timestamp,
    tinkerPath: Schema.String,
    sizeBytes: Wire.maybe(Schema.Finite),
    public: Wire.orElse(Schema.Boolean, false),
    expiresAt: Wire.maybe(Wire.Timestamp),
    userMetadata: Wire.maybe(Wire.JsonObject),
  }),
)

/**
 * The type of {@link Checkpoint}.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export type Checkpoint = typeof Checkpoint.Type

/**
 * One page of checkpoints.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const CheckpointsPage = lazy(() =>
  Wire.struct({ checkpoints: Schema.Array(Checkpoint), cursor: Wire.maybe(Cursor) }),
)

/**
 * The type of {@link CheckpointsPage}.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export type CheckpointsPage = typeof CheckpointsPage.Type

/**
 * Sets the lifetime of a checkpoint; null removes the limit.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const SetCheckpointTtlRequest = lazy(() => Wire.struct({ ttlSeconds: Schema.NullOr(Schema.NonNegativeInt) }))

/**
 * Signed URLs of a checkpoint's files by file name.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const ExternalWeightsUrls = lazy(() =>
  Wire.struct({
    urls: Schema.Record({ key: Schema.String, value: Schema.String }),
    expires: Wire.Timestamp,
  }),
)

/**
 * The type of {@link ExternalWeightsUrls}.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export type ExternalWeightsUrls = typeof ExternalWeightsUrls.Type

/**
 * The URL of a checkpoint archive, from servers that return it as JSON.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const CheckpointArchive = lazy(() => Wire.struct({ url: Schema.String, expires: Wire.maybe(Wire.Timestamp) }))

/**
 * Copies weights to a project.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const CopyWeightsRequest = lazy(() =>
  Wire.struct({
    sourcePath: Schema.String,
    destinationProjectId: Wire.omitted(Schema.String),
    ttlSeconds: Wire.omitted(Schema.NonNegativeInt),
  }),
)

/**
 * The path of the copied weights.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const CopyWeightsResponse = lazy(() => Wire.struct({ tinkerPath: Schema.String }))

/**
 * The type of {@link CopyWeightsResponse}.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export type CopyWeightsResponse = typeof CopyWeightsResponse.Type

/**
 * Requests the properties of a checkpoint.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const WeightsInfoRequest = lazy(() => Wire.struct({ tinkerPath: Schema.String }))

/**
 * The properties that a model needs to load a checkpoint.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const WeightsInfo = lazy(() =>
  Wire.struct({
    baseModel: Schema.String,
    isLora: Schema.Boolean,
    loraRank: Wire.maybe(Schema.Finite),
    trainUnembed: Wire.maybe(Schema.Boolean),
    trainMlp: Wire.maybe(Schema.Boolean),
    trainAttn: Wire.maybe(Schema.Boolean),
    optimizerConfig: Wire.orElse(OptimizerConfig, adamw),
  }),
)

/**
 * The type of {@link WeightsInfo}.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export type WeightsInfo = typeof WeightsInfo.Type

/**
 * A training run.
 *
 * @since 0.1.0
 * @category training runs
 */
export const TrainingRun = lazy(() =>
  Wire.struct({
    trainingRunId: Schema.String,
    baseModel: Schema.String,
    modelOwner: Schema.String,
    isLora: Schema.Boolean,
    corrupted: Wire.orElse(Schema.Boolean, false),
    loraRank: Wire.maybe(Schema.Finite),
    lastRequestTime: Wire.Timestamp,
    lastCheckpoint: Wire.maybe(Checkpoint),
    lastSamplerCheckpoint: Wire.maybe(Checkpoint),
    userMetadata: Wire.maybe(Wire.JsonObject),
  }),
)

/**
 * The type of {@link TrainingRun}.
 *
 * @since 0.1.0
 * @category training runs
 */
export type TrainingRun = typeof TrainingRun.Type

/**
 * One page of training runs.
 *
 * @since 0.1.0
 * @category training runs
 */
export const TrainingRunsPage = lazy(() => Wire.struct({ trainingRuns: Schema.Array(TrainingRun), cursor: Cursor }))

/**
 * The type of {@link TrainingRunsPage}.
 *
 * @since 0.1.0
 * @category training runs
 */
export type TrainingRunsPage = typeof TrainingRunsPage.Type

/**
 * The training runs and samplers of a session.
 *
 * @since 0.1.0
 * @category sessions
 */
export const SessionInfo = lazy(() =>
  Wire.struct({
    trainingRunIds: Schema.Array(Schema.String),
    samplerIds: Schema.Array(Schema.String),
    userMetadata: Wire.maybe(Wire.JsonObject),
    displayName: Wire.maybe(Schema.String),
  }),
)

/**
 * The type of {@link SessionInfo}.
 *
 * @since 0.1.0
 * @category sessions
 */
export type SessionInfo = typeof SessionInfo.Type

/**
 * One page of session ids.
 *
 * @since 0.1.0
 * @category sessions
 */
export const SessionsPage = lazy(() => Wire.struct({ sessions: Schema.Array(Schema.String) }))

/**
 * The type of {@link SessionsPage}.
 *
 * @since 0.1.0
 * @category sessions
 */
export type SessionsPage = typeof SessionsPage.Type

/**
 * Assigns a session to a project.
 *
 * @since 0.1.0
 * @category sessions
 */
export const AssignProjectRequest = lazy(() => Wire.struct({ projectId: Schema.String }))

/**
 * The position of a search. The time stays in the server's text form, because rounding it to milliseconds would change
 * the position.
 *
 * @since 0.1.0
 * @category session search
 */
export const SearchCursor = lazy(() => Wire.struct({ lastCreatedAt: Schema.String, lastSessionId: Schema.String }))

/**
 * The type of {@link SearchCursor}.
 *
 * @since 0.1.0
 * @category session search
 */
export type SearchCursor = typeof SearchCursor.Type

/**
 * Restricts a search to sessions of certain owners.
 *
 * @since 0.1.0
 * @category session search
 */
export const SearchOwner = lazy(() =>
  Schema.Union(
    Wire.struct({ type: Schema.Literal("own") }),
    Wire.struct({ type: Schema.Literal("accessible") }),
    Wire.struct({
      type: Schema.Literal("user"),
      ownerUrns: Schema.Array(Schema.String).pipe(Schema.minItems(1), Schema.maxItems(10)),
    }),
  ),
)

/**
 * Restricts a search to sessions with a certain status.
 *
 * @since 0.1.0
 * @category session search
 */
export const SearchStatus = lazy(() =>
  Schema.Union(
    Wire.struct({ type: Schema.Literal("active", "cancelled", "failed") }),
    Wire.struct({ type: Schema.Literal("client_finished"), reasons: Wire.omitted(Schema.Array(Schema.String)) }),
  ),
)

/**
 * A search for sessions.
 *
 * @since 0.1.0
 * @category session search
 */
export const SearchSessionsRequest = lazy(() =>
  Wire.struct({
    sessionId: Wire.omitted(Schema.String),
    projectIds: Wire.omitted(Schema.Array(Schema.String)),
    userMetadata: Wire.withDefault(Wire.JsonObject, {}),
    displayName: Wire.omitted(Schema.String),
    owner: Wire.withDefault(SearchOwner, { type: "own" }),
    statuses: Wire.omitted(Schema.Array(SearchStatus)),
    limit: Wire.withDefault(Schema.Int.pipe(Schema.between(1, 200)), 50),
    cursor: Wire.omitted(SearchCursor),
  }),
)

/**
 * The cause of a failed session.
 *
 * @since 0.1.0
 * @category session search
 */
export const FailureReason = lazy(() =>
  Schema.Union(
    Wire.struct({ type: Schema.Literal("request"), requestId: Schema.String, requestType: Schema.String }),
    Wire.struct({ type: Schema.Literal("training_run"), trainingRunId: Schema.String }),
    Wire.struct({ type: Schema.Literal("sampling_session"), samplingSessionId: Schema.String }),
    Wire.unknownType("request", "training_run", "sampling_session"),
  ),
)

/**
 * The status of a session.
 *
 * @since 0.1.0
 * @category session search
 */
export const SessionStatus = lazy(() =>
  Schema.Union(
    Wire.struct({ type: Schema.Literal("active") }),
    Wire.struct({ type: Schema.Literal("cancelled"), detail: Wire.maybe(Schema.String) }),
    Wire.struct({
      type: Schema.Literal("client_finished"),
      reason: Wire.struct({ type: Wire.open("success", "errored", "interrupted") }),
      detail: Wire.maybe(Schema.String),
    }),
    Wire.struct({
      type: Schema.Literal("failed"),
      category: Wire.open("user", "internal"),
      reason: FailureReason,
      message: Schema.String,
    }),
    Wire.unknownType("active", "cancelled", "client_finished", "failed"),
  ),
)

/**
 * The type of {@link SessionStatus}.
 *
 * @since 0.1.0
 * @category session search
 */
export type SessionStatus = typeof SessionStatus.Type

/**
 * A session in a search result.
 *
 * @since 0.1.0
 * @category session search
 */
export const SessionSummary = lazy(() =>
  Wire.struct({
    sessionId: Schema.String,
    createdAt: Wire.Timestamp,
    owner: Schema.String,
    projectId: Schema.String,
    checkpointsCount: Schema.Finite,
    status: Wire.maybe(SessionStatus),
    displayName: Wire.maybe(Schema.String),
    userMetadata: Wire.maybe(Wire.JsonObject),
    checkpointStorageBytes: Wire.maybe(Schema.Finite),
  }),
)

/**
 * The type of {@link SessionSummary}.
 *
 * @since 0.1.0
 * @category session search
 */
export type SessionSummary = typeof SessionSummary.Type

/**
 * One page of a search result.
 *
 * @since 0.1.0
 * @category session search
 */
export const SearchSessionsResponse = lazy(() =>
  Wire.struct({
    sessions: Schema.Array(SessionSummary),
    nextCursor: Wire.maybe(SearchCursor),
  }),
)

/**
 * The type of {@link SearchSessionsResponse}.
 *
 * @since 0.1.0
 * @category session search
 */
export type SearchSessionsResponse = typeof SearchSessionsResponse.Type

/**
 * A sampler.
 *
 * @since 0.1.0
 * @category samplers
 */
export const SamplerInfo = lazy(() =>
  Wire.struct({
    samplerId: Schema.String,
    baseModel: Schema.String,
    modelPath: Wire.maybe(Schema.String),
  }),
)

/**
 * The type of {@link SamplerInfo}.
 *
 * @since 0.1.0
 * @category samplers
 */
export type SamplerInfo = typeof SamplerInfo.Type

/**
 * The state of a trace export.
 *
 * @since 0.1.0
 * @category sessions
 */
export const TraceExport = lazy(() =>
  Wire.struct({
    status: Wire.open("pending", "ready", "failed"),
    url: Wire.maybe(Schema.String),
    error: Wire.maybe(Schema.String),
  }),
)

/**
 * The type of {@link TraceExport}.
 *
 * @since 0.1.0
 * @category sessions
 */
export type TraceExport = typeof TraceExport.Type
