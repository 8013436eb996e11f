/**
 * Decides what an error means for the request that ended with it. Retries, sequence numbers, samples, polls, the
 * limiter and telemetry all read this module, so that no two of them disagree about a status.
 */
import * as Option from "effect/Option"
import type { FutureError, RequestError, TinkerError, TrainingError } from "../../TinkerError.ts"

/**
 * - `NotSent`: no byte of the request reached the server.
 * - `Rejected`: the server read the request and refused it.
 * - `Conflict`: the server answered 409: the sequence number, or a name, is taken.
 * - `Uncertain`: the server may or may not have acted on the request.
 * - `Throttled`: the server answered 429 and did nothing.
 * - `BillingPaused`: the server answered 402 and did nothing.
 * - `Failed`: the server accepted the request, tried it and failed.
 * - `Expired`: the server accepted the request and no longer has its result.
 * - `Abandoned`: the client stopped waiting for the result; the server's verdict is not known.
 */
export type Meaning =
  | "NotSent"
  | "Rejected"
  | "Conflict"
  | "Uncertain"
  | "Throttled"
  | "BillingPaused"
  | "Failed"
  | "Expired"
  | "Abandoned"

/** Returns what an error means for its request. */
export const meaningOf = (error: TrainingError): Meaning => {
  switch (error._tag) {
    case "Unavailable":
      return error.reason === "Connect" ? "NotSent" : "Uncertain"
    case "UnexpectedResponse":
      return "Uncertain"
    case "RequestRejected":
      return error.reason === "Conflict" ? "Conflict" : "Rejected"
    case "Forbidden":
    case "NotFound":
      return "Rejected"
    case "Unauthorized":
      // Other reasons are failures to obtain a credential at all.
      return error.reason === "Refused" ? "Rejected" : "NotSent"
    case "RateLimited":
      return "Throttled"
    case "BillingPaused":
      return "BillingPaused"
    case "RequestFailed":
      return error.reason === "PollerDied" ? "Abandoned" : "Failed"
    case "PromiseExpired":
      return "Expired"
    case "Stalled":
    case "DeadlineExceeded":
      return "Abandoned"
    case "InvalidConfig":
    case "InvalidInput":
    case "ClientClosed":
    case "SessionLost":
    case "JournalFailed":
    case "SequenceBroken":
      return "NotSent"
  }
}

/**
 * Checks whether sending the same request again may get another response. `x-should-retry` decides first. Whether a
 * second request is safe depends on the request and is not decided here.
 *
 * @since 0.1.0
 * @category classification
 */
export const isRetryable = (error: TinkerError): boolean => {
  switch (error._tag) {
    case "InvalidConfig":
    case "InvalidInput":
    case "ClientClosed":
      return false
    default:
      return Option.getOrElse(error.shouldRetry, () => isTransient(error))
  }
}

const isTransient = (error: RequestError): boolean => {
  switch (error._tag) {
    case "RateLimited":
    case "Unavailable":
      return true
    case "RequestRejected":
      return error.reason === "Conflict"
    case "UnexpectedResponse":
      return isUnreadable(error)
    case "Unauthorized":
    case "Forbidden":
    case "NotFound":
    case "BillingPaused":
      return false
  }
}

/**
 * Checks whether a response was cut off, altered or replaced on its way (an empty body, a proxy's page, a flipped byte),
 * so that the next one may be readable.
 */
export const isUnreadable = (error: TrainingError): boolean =>
  error._tag === "UnexpectedResponse" && error.reason !== "TooLarge" && error.reason !== "Redirect"

/**
 * Checks whether a response has the right form and still not the content that the API describes. That is rarely an
 * accident, so that few retries have to show it.
 */
export const isMisfit = (error: TrainingError): boolean =>
  error._tag === "UnexpectedResponse" && (error.reason === "Schema" || error.reason === "NotProtobuf")

/** How often a request is repeated after responses that do not fit. */
export const maxMisfitRetries = 3

/** Checks whether the server refused the credential of the request. */
export const isRefusedCredential = (error: TinkerError): boolean =>
  error._tag === "Unauthorized" && error.reason === "Refused"

/** Checks whether the server itself asks for a retry. */
export const asksForRetry = (error: TrainingError): boolean =>
  "shouldRetry" in error && Option.contains(error.shouldRetry, true)

/**
 * Checks whether billing blocks the account. Waiting helps, on a budget of its own, unless the server says whether to
 * retry.
 *
 * @since 0.1.0
 * @category classification
 */
export const isBillingStop = (error: TinkerError): boolean =>
  error._tag === "BillingPaused" && Option.isNone(error.shouldRetry)

/**
 * Checks whether the caller has to change something: bad configuration or input, any 4xx but 408, and failed results
 * of category `user`.
 *
 * @since 0.1.0
 * @category classification
 */
export const isUserError = (error: FutureError): boolean => {
  switch (error._tag) {
    case "InvalidConfig":
    case "InvalidInput":
    case "Unauthorized":
    case "Forbidden":
    case "NotFound":
    case "RequestRejected":
    case "RateLimited":
    case "BillingPaused":
      return true
    case "Unavailable":
      return error.reason === "EmptyBadRequest"
    case "UnexpectedResponse":
    case "ClientClosed":
    case "RequestFailed":
    case "PromiseExpired":
    case "Stalled":
    case "DeadlineExceeded":
    case "SessionLost":
      return false
  }
}

/** Checks whether the server may object to the encoding of a request rather than to its content. */
export const mayDislikeEncoding = (error: TrainingError): boolean =>
  error._tag === "RequestRejected" &&
  (error.reason === "UnsupportedMediaType" || error.reason === "BadRequest" || error.reason === "Unprocessable")

/** Checks whether a server that only reads JSON may have failed on a protobuf body instead of refusing it. */
export const mayFailOnEncoding = (error: TrainingError): boolean =>
  error._tag === "Unavailable" && error.reason === "ServerError"

/** Checks whether the server may have ended the session: it answered 410, or no longer has the result. */
export const mayHaveEndedSession = (error: TrainingError): boolean =>
  error._tag === "PromiseExpired" || (error._tag === "RequestRejected" && error.reason === "Gone")

/** Checks whether the client itself is finished, and not only the request. */
export const endsClient = (error: TrainingError): boolean =>
  error._tag === "SequenceBroken" ||
  error._tag === "SessionLost" ||
  error._tag === "ClientClosed" ||
  error._tag === "JournalFailed"

/** Checks whether the server pronounced on an accepted request: its result, or that there will be none. */
export const isFinalResult = (error: FutureError): boolean => {
  switch (meaningOf(error)) {
    case "Failed":
    case "Expired":
    case "Conflict":
      return true
    case "Rejected":
      // A refused credential shows nothing about the awaited request.
      return error._tag === "RequestRejected" || error._tag === "NotFound"
    default:
      return false
  }
}

/** Checks whether an accepted request was not carried out. An expired or abandoned result does not show that. */
export const isFailedResult = (error: FutureError): boolean => {
  const meaning = meaningOf(error)
  return meaning === "Failed" || meaning === "Rejected" || meaning === "Conflict"
}

/** Returns the queue state that a caller sees while a request waits because of this error. */
export const queueStateOf = (error: TrainingError): "paused_rate_limit" | "paused_billing" | "unreachable" => {
  switch (meaningOf(error)) {
    case "Throttled":
      return "paused_rate_limit"
    case "BillingPaused":
      return "paused_billing"
    default:
      return "unreachable"
  }
}
