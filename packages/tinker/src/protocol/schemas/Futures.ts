/**
 * What every submit call answers, and how its result is asked for.
 *
 * @since 0.1.0
 */
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import { lazy } from "../../internal/util/Lazy.ts"
import * as Wire from "../../internal/codec/Wire.ts"

/**
 * The server took a request and will work on it. Ids are decimal numbers on some servers and UUIDs on others.
 *
 * @since 0.1.0
 * @category futures
 */
export const Accepted = lazy(() =>
  Wire.struct({
    requestId: Schema.String,
    modelId: Wire.maybe(Schema.String),
    /** One per sample; servers older than the field send none. */
    sampleSequenceIds: Wire.maybe(Schema.Array(Schema.String)),
  }),
)

/**
 * @since 0.1.0
 * @category futures
 */
export type Accepted = typeof Accepted.Type

/**
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
 * Why a request is waiting.
 *
 * @since 0.1.0
 * @category futures
 */
export const QueueState = Wire.open("active", "paused_rate_limit", "paused_capacity")

/**
 * @since 0.1.0
 * @category futures
 */
export type QueueState = typeof QueueState.Type

/**
 * Not yet: a 408, or a 200 with this `type`. A 408 may come with an empty body, so nothing is required.
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
 * @since 0.1.0
 * @category futures
 */
export type TryAgain = typeof TryAgain.Type

/**
 * The result is there, and this large; ask again with `allowMetadataOnly: false` when there is room for it.
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

/** The key alone says that a request failed; what servers put there is a text, or anything. */
const FailureText = lazy(() =>
  Schema.transformOrFail(Schema.Unknown, Schema.String, {
    strict: true,
    decode: (value, _, ast) =>
      ParseResult.try({
        try: () => (typeof value === "string" ? value : JSON.stringify(value)),
        catch: () => new ParseResult.Type(ast, value, "too deep to be read"),
      }),
    encode: (text) => ParseResult.succeed(text),
  }),
)

/**
 * The request was accepted and failed. Only the lower-case categories count; every other is as good as `unknown`.
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
    /** Seconds. */
    timeout: Wire.omitted(Schema.Finite),
  }),
)

/**
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
 * @since 0.1.0
 * @category futures
 */
export const CancelFutureRequest = lazy(() => Wire.struct({ requestId: Schema.String }))
