/**
 * Start-up, the session and its end: client configuration, heartbeat, what the server can do.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { lazy } from "../../internal/util/Lazy.ts"
import * as Wire from "../../internal/codec/Wire.ts"

/**
 * @since 0.1.0
 * @category config
 */
export const ClientConfigRequest = lazy(() => Wire.struct({ sdkVersion: Schema.String }))

/**
 * The server's flags. A server that sends none of them means these defaults.
 *
 * @since 0.1.0
 * @category config
 */
export const ClientConfig = lazy(() =>
  Wire.struct({
    pjwtAuthEnabled: Wire.orElse(Schema.Boolean, false),
    credentialDefaultSource: Wire.orElse(Wire.open("api_key", "credential_cmd"), "api_key"),
    sampleDispatchBytesSemaphoreSize: Wire.orElse(Schema.Finite, 10_485_760),
    inflightResponseBytesSemaphoreSize: Wire.orElse(Schema.Finite, 52_428_800),
    /** Only a server that says so is trusted to put pieces in order that come out of order. */
    parallelFwdbwdChunks: Wire.orElse(Schema.Boolean, false),
    protoCompressFwdbwd: Wire.orElse(Schema.Boolean, false),
    fwdbwdMaxChunkLen: Wire.orElse(Schema.Finite, 1024),
    fwdbwdMaxChunkBytesCount: Wire.orElse(Schema.Finite, 5_000_000),
    fwdbwdDispatchBytesSemaphoreSize: Wire.orElse(Schema.Finite, 50_000_000),
    billingExceptionMaxPauseDurationSec: Wire.orElse(Schema.Finite, 3600),
    sampleNoRetries: Wire.orElse(Schema.Boolean, false),
    sampleEnableStuckDetection: Wire.orElse(Schema.Boolean, true),
    sampleMaxConcurrentRequests: Wire.orElse(Schema.Finite, 2000),
    usePyqwestTransport: Wire.orElse(Schema.Boolean, true),
    createModelViaLoadWeights: Wire.orElse(Schema.Boolean, false),
    sampleUseRetrieveFutures: Wire.orElse(Schema.Boolean, false),
    customLossServerSide: Wire.orElse(Schema.Boolean, false),
    sampleJoinSamplingSession: Wire.orElse(Schema.Boolean, false),
  }),
)

/**
 * @since 0.1.0
 * @category config
 */
export type ClientConfig = typeof ClientConfig.Type

/**
 * The flags that may change while a session lives, and how often to ask for them.
 *
 * @since 0.1.0
 * @category config
 */
export const DynamicConfig = lazy(() =>
  Wire.struct({
    refreshIntervalSec: Wire.orElse(Schema.Finite, 300),
    sampleCancelEnabled: Wire.orElse(Schema.Boolean, false),
    sampleCancelMaxBatchSize: Wire.orElse(Schema.Finite, 64),
  }),
)

/**
 * @since 0.1.0
 * @category config
 */
export type DynamicConfig = typeof DynamicConfig.Type

/**
 * @since 0.1.0
 * @category session
 */
export const CreateSessionRequest = lazy(() =>
  Wire.struct({
    tags: Wire.withDefault(Schema.Array(Schema.String), []),
    userMetadata: Wire.withDefault(Wire.JsonObject, {}),
    sdkVersion: Schema.String,
    projectId: Wire.omitted(Schema.String),
    displayName: Wire.omitted(Schema.String),
    type: Wire.constant("create_session"),
  }),
)

/**
 * The messages are for the user, at the level their names say.
 *
 * @since 0.1.0
 * @category session
 */
export const CreateSessionResponse = lazy(() =>
  Wire.struct({
    sessionId: Schema.String,
    infoMessage: Wire.maybe(Schema.String),
    warningMessage: Wire.maybe(Schema.String),
    errorMessage: Wire.maybe(Schema.String),
    type: Wire.constant("create_session"),
  }),
)

/**
 * @since 0.1.0
 * @category session
 */
export const HeartbeatRequest = lazy(() =>
  Wire.struct({
    sessionId: Schema.String,
    type: Wire.constant("session_heartbeat"),
  }),
)

/**
 * @since 0.1.0
 * @category session
 */
export const HeartbeatResponse = lazy(() => Wire.struct({ type: Wire.constant("session_heartbeat") }))

/**
 * @since 0.1.0
 * @category session
 */
export const FinishReason = Schema.Literal("success", "errored", "interrupted")

/**
 * @since 0.1.0
 * @category session
 */
export type FinishReason = typeof FinishReason.Type

/**
 * No detail is told as null.
 *
 * @since 0.1.0
 * @category session
 */
export const FinishSessionRequest = lazy(() =>
  Wire.struct({
    reason: Wire.struct({ type: FinishReason }),
    detail: Wire.withDefault(Schema.NullOr(Schema.String), null),
  }),
)

/**
 * @since 0.1.0
 * @category capabilities
 */
export const SupportedModel = lazy(() =>
  Wire.struct({
    modelName: Wire.maybe(Schema.String),
    maxContextLength: Wire.maybe(Schema.Finite),
    trainable: Wire.maybe(Schema.Boolean),
    sampleable: Wire.maybe(Schema.Boolean),
  }),
)

/**
 * @since 0.1.0
 * @category capabilities
 */
export type SupportedModel = typeof SupportedModel.Type

/**
 * @since 0.1.0
 * @category capabilities
 */
export const ServerCapabilities = lazy(() => Wire.struct({ supportedModels: Schema.Array(SupportedModel) }))

/**
 * @since 0.1.0
 * @category capabilities
 */
export type ServerCapabilities = typeof ServerCapabilities.Type

/**
 * @since 0.1.0
 * @category capabilities
 */
export const Health = lazy(() => Wire.struct({ status: Wire.open("ok") }))
