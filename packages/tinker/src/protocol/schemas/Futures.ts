/**
 * The wire format of accepted requests and of polling for their results.
 *
 * @since 0.1.0
 */
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import { lazy } from "../../internal/util/Lazy.ts"
import * as Wire from "../../internal/codec/Wire.ts"

/**
 * Confirms that the server accepted a request. Ids are decimal numbers on some servers and UUIDs on others.
 *
 * @since 0.1.0
 * @category futures
 */
export const Accepted = lazy(() =>
  Wire.struct({
    requestId: Schema.String,
    modelId: Wire.maybe(Schema.String),
    /** One id per sample; omitted by older servers. */
    sampleSequenceIds: Wire.maybe(Schema.Array(Schema.String)),
  }),
)

/**
 * The type of {@link Accepted}.
 *
 * @since 0.1.0
 * @category futures
 */
export type Accepted = typeof Accepted.Type

/**
 * Polls the result of a request.
 *
 * @since 0.1.0
 * @category futures
 */
export const RetrieveFutureRequest = lazy(() =>
  Wire.struct({
    requestId: Schema.String,
    allowMetadataOnly: Schema.Boolean,
  }),
)

/**
 * The reason why a request is waiting.
 *
 * @since 0.1.0
 * @category futures
 */
export const QueueState = Wire.open("active", "paused_rate_limit", "paused_capacity")

/**
 * The type of {@link QueueState}.
 *
 * @since 0.1.0
 * @category futures
 */
export type QueueState = typeof QueueState.Type

/**
 * Reports that there is no result yet: a 408, or a 200 with this `type`. No field is required, because a 408 may have
 * an empty body.
 *
 * @since 0.1.0
 * @category futures
 */
export const TryAgain = lazy(() =>
  Wire.struct({
    type: Wire.constant("try_again"),
    requestId: Wire.maybe(Schema.String),
    queueState: Wire.orElse(QueueState, "unknown"),
    queueStateReason: Wire.maybe(Schema.String),
  }),
)

/**
 * The type of {@link TryAgain}.
 *
 * @since 0.1.0
 * @category futures
 */
export type TryAgain = typeof TryAgain.Type

/**
 * Reports that the result is available and its size; request it with `allowMetadataOnly: false` when there is room for
 * it.
 *
 * @since 0.1.0
 * @category futures
 */
export const CompleteMetadata = lazy(() =>
  Wire.struct({
    status: Schema.Literal("complete_metadata"),
    responsePayloadSize: Schema.Finite,
  }),
)

/** The presence of the key marks a failure; its value is a string on most servers but may be anything. */
const FailureText = lazy(() =>
  Schema.transformOrFail(Schema.Unknown, Schema.String, {
    strict: true,
    decode: (value, _, ast) =>
      ParseResult.try({
        try: () => (typeof value === "string" ? value : JSON.stringify(value)),
        catch: () => new ParseResult.Type(ast, value, "nested too deeply"),
      }),
    encode: (text) => ParseResult.succeed(text),
  }),
)

/**
 * Reports that an accepted request failed. Only the lower-case categories are known; any other counts as `unknown`.
 *
 * @since 0.1.0
 * @category futures
 */
export const FailedFuture = lazy(() =>
  Wire.struct({
    error: FailureText,
    category: Wire.orElse(Wire.open("unknown", "server", "user"), "unknown"),
  }),
)

/**
 * Polls the completed requests of a sampling session.
 *
 * @since 0.1.0
 * @category futures
 */
export const RetrieveFuturesRequest = lazy(() =>
  Wire.struct({
    target: Wire.struct({
      type: Wire.constant("sampling_session"),
      samplingSessionId: Schema.String,
      clonedSamplerId: Schema.Int,
    }),
    prevCursor: Wire.withDefault(Schema.Int, 0),
    retrievedRequestIds: Wire.withDefault(Schema.Array(Schema.String), []),
    /** In seconds. */
    timeout: Wire.omitted(Schema.Finite),
  }),
)

/**
 * A completed request.
 *
 * @since 0.1.0
 * @category futures
 */
export const Completion = lazy(() =>
  Wire.struct({
    state: Wire.open("finished", "failed"),
    requestId: Schema.String,
    responsePayloadUncompressedSize: Wire.maybe(Schema.Finite),
  }),
)

/**
 * The completed requests since a cursor.
 *
 * @since 0.1.0
 * @category futures
 */
export const RetrieveFuturesResponse = lazy(() =>
  Wire.struct({
    completions: Schema.Array(Completion),
    cursor: Schema.Finite,
  }),
)

/**
 * Cancels a request.
 *
 * @since 0.1.0
 * @category futures
 */
export const CancelFutureRequest = lazy(() => Wire.struct({ requestId: Schema.String }))
