/**
 * The wire format of client configuration, sessions, heartbeats and server capabilities.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { lazy } from "../../internal/util/Lazy.ts"
import * as Wire from "../../internal/codec/Wire.ts"

/**
 * Requests the server's flags.
 *
 * @since 0.1.0
 * @category config
 */
export const ClientConfigRequest = lazy(() => Wire.struct({ sdkVersion: Schema.String }))

/**
 * The server's flags, with the defaults for those that are not sent.
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
    /** Whether the server reorders chunks that arrive out of order. Assumed only if the server states it. */
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
 * The type of {@link ClientConfig}.
 *
 * @since 0.1.0
 * @category config
 */
export type ClientConfig = typeof ClientConfig.Type

/**
 * The flags that may change during a session, and their refresh interval.
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
 * The type of {@link DynamicConfig}.
 *
 * @since 0.1.0
 * @category config
 */
export type DynamicConfig = typeof DynamicConfig.Type

/**
 * Creates a session.
 *
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
 * The id of a new session. The messages are for the user, at the level in their names.
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
 * Keeps a session alive.
 *
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
 * Confirms a heartbeat.
 *
 * @since 0.1.0
 * @category session
 */
export const HeartbeatResponse = lazy(() => Wire.struct({ type: Wire.constant("session_heartbeat") }))

/**
 * The reason why a session ended.
 *
 * @since 0.1.0
 * @category session
 */
export const FinishReason = Schema.Literal("success", "errored", "interrupted")

/**
 * The type of {@link FinishReason}.
 *
 * @since 0.1.0
 * @category session
 */
export type FinishReason = typeof FinishReason.Type

/**
 * Finishes a session. A missing detail is sent as null.
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
 * A model that the server supports.
 *
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
 * The type of {@link SupportedModel}.
 *
 * @since 0.1.0
 * @category capabilities
 */
export type SupportedModel = typeof SupportedModel.Type

/**
 * The models that the server supports.
 *
 * @since 0.1.0
 * @category capabilities
 */
export const ServerCapabilities = lazy(() => Wire.struct({ supportedModels: Schema.Array(SupportedModel) }))

/**
 * The type of {@link ServerCapabilities}.
 *
 * @since 0.1.0
 * @category capabilities
 */
export type ServerCapabilities = typeof ServerCapabilities.Type

/**
 * The health of the server.
 *
 * @since 0.1.0
 * @category capabilities
 */
export const Health = lazy(() => Wire.struct({ status: Wire.open("ok") }))
