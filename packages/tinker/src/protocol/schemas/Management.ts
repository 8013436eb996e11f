/**
 * Training runs, checkpoints, sessions and samplers, as the REST endpoints list and change them.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { lazy } from "../../internal/util/Lazy.ts"
import * as Wire from "../../internal/codec/Wire.ts"
import { adamw, OptimizerConfig } from "../../Optimizer.ts"

/**
 * Only what the key's owner made, or all it may see.
 *
 * @since 0.1.0
 * @category queries
 */
export const AccessScope = Schema.Literal("owned", "accessible")

/**
 * @since 0.1.0
 * @category queries
 */
export type AccessScope = typeof AccessScope.Type

/**
 * @since 0.1.0
 * @category queries
 */
export const ScopeQuery = lazy(() => Wire.struct({ accessScope: Wire.withDefault(AccessScope, "owned") }))

/**
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
 * Where a page stands in the whole list.
 *
 * @since 0.1.0
 * @category queries
 */
export const Cursor = lazy(() =>
  Wire.struct({ offset: Schema.Finite, limit: Schema.Finite, totalCount: Schema.Finite }),
)

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const Checkpoint = lazy(() =>
  Wire.struct({
    /** Kind and name, e.g. `weights/0001`. */
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
 * @since 0.1.0
 * @category checkpoints
 */
export type Checkpoint = typeof Checkpoint.Type

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const CheckpointsPage = lazy(() =>
  Wire.struct({ checkpoints: Schema.Array(Checkpoint), cursor: Wire.maybe(Cursor) }),
)

/**
 * @since 0.1.0
 * @category checkpoints
 */
export type CheckpointsPage = typeof CheckpointsPage.Type

/**
 * A number sets the time to live, null removes it.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const SetCheckpointTtlRequest = lazy(() => Wire.struct({ ttlSeconds: Schema.NullOr(Schema.NonNegativeInt) }))

/**
 * Signed addresses of a checkpoint's files, by file name.
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
 * @since 0.1.0
 * @category checkpoints
 */
export type ExternalWeightsUrls = typeof ExternalWeightsUrls.Type

/**
 * Where a checkpoint is to be had as one file, for servers that say it as JSON.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const CheckpointArchive = lazy(() => Wire.struct({ url: Schema.String, expires: Wire.maybe(Wire.Timestamp) }))

/**
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
 * @since 0.1.0
 * @category checkpoints
 */
export const CopyWeightsResponse = lazy(() => Wire.struct({ tinkerPath: Schema.String }))

/**
 * @since 0.1.0
 * @category checkpoints
 */
export type CopyWeightsResponse = typeof CopyWeightsResponse.Type

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const WeightsInfoRequest = lazy(() => Wire.struct({ tinkerPath: Schema.String }))

/**
 * What a model must look like to load a checkpoint.
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
 * @since 0.1.0
 * @category checkpoints
 */
export type WeightsInfo = typeof WeightsInfo.Type

/**
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
 * @since 0.1.0
 * @category training runs
 */
export type TrainingRun = typeof TrainingRun.Type

/**
 * @since 0.1.0
 * @category training runs
 */
export const TrainingRunsPage = lazy(() => Wire.struct({ trainingRuns: Schema.Array(TrainingRun), cursor: Cursor }))

/**
 * @since 0.1.0
 * @category training runs
 */
export type TrainingRunsPage = typeof TrainingRunsPage.Type

/**
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
 * @since 0.1.0
 * @category sessions
 */
export type SessionInfo = typeof SessionInfo.Type

/**
 * @since 0.1.0
 * @category sessions
 */
export const SessionsPage = lazy(() => Wire.struct({ sessions: Schema.Array(Schema.String) }))

/**
 * @since 0.1.0
 * @category sessions
 */
export type SessionsPage = typeof SessionsPage.Type

/**
 * @since 0.1.0
 * @category sessions
 */
export const AssignProjectRequest = lazy(() => Wire.struct({ projectId: Schema.String }))

/**
 * Where a search goes on. The time stays the server's own text: cut to milliseconds it would name another place.
 *
 * @since 0.1.0
 * @category session search
 */
export const SearchCursor = lazy(() => Wire.struct({ lastCreatedAt: Schema.String, lastSessionId: Schema.String }))

/**
 * @since 0.1.0
 * @category session search
 */
export type SearchCursor = typeof SearchCursor.Type

/**
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
 * What made a session fail.
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
 * @since 0.1.0
 * @category session search
 */
export type SessionStatus = typeof SessionStatus.Type

/**
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
 * @since 0.1.0
 * @category session search
 */
export type SessionSummary = typeof SessionSummary.Type

/**
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
 * @since 0.1.0
 * @category session search
 */
export type SearchSessionsResponse = typeof SearchSessionsResponse.Type

/**
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
 * @since 0.1.0
 * @category samplers
 */
export type SamplerInfo = typeof SamplerInfo.Type

/**
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
 * @since 0.1.0
 * @category sessions
 */
export type TraceExport = typeof TraceExport.Type
