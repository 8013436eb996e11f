/**
 * The wire format of the audit log, of usage and cost, and of checkpoint storage.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { lazy } from "../../internal/util/Lazy.ts"
import * as Wire from "../../internal/codec/Wire.ts"

/**
 * The query for the audit log.
 *
 * @since 0.1.0
 * @category audit
 */
export const AuditLogQuery = lazy(() =>
  Wire.struct({
    eventType: Wire.withDefault(Schema.Literal("all", "checkpoints", "projects", "teams", "organizations"), "all"),
    /** In the format `YYYY-MM-DD`. */
    day: Wire.omitted(Schema.String.pipe(Schema.pattern(/^\d{4}-\d{2}-\d{2}$/))),
  }),
)

/**
 * An entry of the audit log.
 *
 * @since 0.1.0
 * @category audit
 */
export const AuditLogEntry = lazy(() =>
  Wire.struct({
    timestamp: Wire.Timestamp,
    event: Schema.String,
    eventDetails: Wire.orElse(Wire.JsonObject, {}),
    modelId: Wire.maybe(Schema.String),
    tinkerPath: Wire.maybe(Schema.String),
    purpose: Wire.maybe(Schema.String),
  }),
)

/**
 * The type of {@link AuditLogEntry}.
 *
 * @since 0.1.0
 * @category audit
 */
export type AuditLogEntry = typeof AuditLogEntry.Type

/**
 * The audit log.
 *
 * @since 0.1.0
 * @category audit
 */
export const AuditLog = lazy(() => Wire.struct({ entries: Schema.Array(AuditLogEntry) }))

/**
 * The query for usage events.
 *
 * @since 0.1.0
 * @category usage
 */
export const UsageQuery = lazy(() => Wire.struct({ startingOn: Wire.Timestamp, endingBefore: Wire.Timestamp }))

/**
 * The kind and amount of usage.
 *
 * @since 0.1.0
 * @category usage
 */
export const UsageInfo = lazy(() =>
  Schema.Union(
    Wire.struct({ type: Schema.Literal("training"), tokenCount: Schema.Finite }),
    Wire.struct({ type: Schema.Literal("sampling_prefill"), cached: Schema.Boolean, tokenCount: Schema.Finite }),
    Wire.struct({ type: Schema.Literal("sampling_sample"), tokenCount: Schema.Finite }),
    Wire.struct({ type: Schema.Literal("checkpoint"), count: Schema.Finite }),
    Wire.struct({ type: Schema.Literal("storage"), gigabyteHours: Schema.Finite }),
    Wire.unknownType("training", "sampling_prefill", "sampling_sample", "checkpoint", "storage"),
  ),
)

/**
 * The type of {@link UsageInfo}.
 *
 * @since 0.1.0
 * @category usage
 */
export type UsageInfo = typeof UsageInfo.Type

/**
 * The usage in a period of time.
 *
 * @since 0.1.0
 * @category usage
 */
export const UsageEvent = lazy(() =>
  Wire.struct({
    bucketStart: Wire.Timestamp,
    bucketEnd: Wire.Timestamp,
    eventInfo: UsageInfo,
    baseModel: Wire.maybe(Schema.String),
    userId: Wire.maybe(Schema.String),
    userName: Wire.maybe(Schema.String),
    sessionId: Wire.maybe(Schema.String),
    projectId: Wire.maybe(Schema.String),
    estimatedCostUsd: Wire.maybe(Schema.Finite),
    effectiveRateUsdPerMillionTokens: Wire.maybe(Schema.Finite),
    effectiveRateUsdPerGigabyteMonth: Wire.maybe(Schema.Finite),
  }),
)

/**
 * The type of {@link UsageEvent}.
 *
 * @since 0.1.0
 * @category usage
 */
export type UsageEvent = typeof UsageEvent.Type

/**
 * Usage events; `sessions` is keyed by session id.
 *
 * @since 0.1.0
 * @category usage
 */
export const Usage = lazy(() =>
  Wire.struct({
    data: Schema.Array(UsageEvent),
    sessions: Wire.orElse(
      Schema.Record({ key: Schema.String, value: Wire.struct({ userMetadata: Wire.maybe(Wire.JsonObject) }) }),
      {},
    ),
    costDataThrough: Wire.maybe(Wire.Timestamp),
  }),
)

/**
 * The type of {@link Usage}.
 *
 * @since 0.1.0
 * @category usage
 */
export type Usage = typeof Usage.Type

/**
 * The query for checkpoint storage.
 *
 * @since 0.1.0
 * @category storage
 */
export const CheckpointStorageQuery = lazy(() => Wire.struct({ projectId: Wire.omitted(Schema.String) }))

/**
 * The checkpoint storage of a project or user.
 *
 * @since 0.1.0
 * @category storage
 */
export const CheckpointStorageEntry = lazy(() =>
  Wire.struct({
    projectId: Wire.maybe(Schema.String),
    orgUserUrn: Wire.maybe(Schema.String),
    userEmail: Wire.maybe(Schema.String),
    userName: Wire.maybe(Schema.String),
    checkpointCount: Schema.Finite,
    sizeBytes: Schema.Finite,
    sizeGigabytes: Schema.Finite,
    estimatedMonthlyCostUsd: Wire.maybe(Schema.Finite),
  }),
)

/**
 * The current checkpoint storage.
 *
 * @since 0.1.0
 * @category storage
 */
export const CheckpointStorage = lazy(() =>
  Wire.struct({
    effectiveRateUsdPerGigabyteMonth: Wire.maybe(Schema.Finite),
    data: Schema.Array(CheckpointStorageEntry),
  }),
)

/**
 * The type of {@link CheckpointStorage}.
 *
 * @since 0.1.0
 * @category storage
 */
export type CheckpointStorage = typeof CheckpointStorage.Type
