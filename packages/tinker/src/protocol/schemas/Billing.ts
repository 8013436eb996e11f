/**
 * What an administrator asks: the audit log, usage and its cost.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { lazy } from "../../internal/util/Lazy.ts"
import * as Wire from "../../internal/codec/Wire.ts"

/**
 * @since 0.1.0
 * @category audit
 */
export const AuditLogQuery = lazy(() =>
  Wire.struct({
    eventType: Wire.withDefault(Schema.Literal("all", "checkpoints", "projects", "teams", "organizations"), "all"),
    /** `YYYY-MM-DD`. */
    day: Wire.omitted(Schema.String.pipe(Schema.pattern(/^\d{4}-\d{2}-\d{2}$/))),
  }),
)

/**
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
 * @since 0.1.0
 * @category audit
 */
export type AuditLogEntry = typeof AuditLogEntry.Type

/**
 * @since 0.1.0
 * @category audit
 */
export const AuditLog = lazy(() => Wire.struct({ entries: Schema.Array(AuditLogEntry) }))

/**
 * @since 0.1.0
 * @category usage
 */
export const UsageQuery = lazy(() => Wire.struct({ startingOn: Wire.Timestamp, endingBefore: Wire.Timestamp }))

/**
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
 * @since 0.1.0
 * @category usage
 */
export type UsageInfo = typeof UsageInfo.Type

/**
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
 * @since 0.1.0
 * @category usage
 */
export type UsageEvent = typeof UsageEvent.Type

/**
 * `sessions` is keyed by session id.
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
 * @since 0.1.0
 * @category usage
 */
export type Usage = typeof Usage.Type

/**
 * @since 0.1.0
 * @category storage
 */
export const CheckpointStorageQuery = lazy(() => Wire.struct({ projectId: Wire.omitted(Schema.String) }))

/**
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
 * @since 0.1.0
 * @category storage
 */
export type CheckpointStorage = typeof CheckpointStorage.Type
