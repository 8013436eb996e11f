/**
 * The reasons why an HTTP exchange failed, used as the `cause` of the `RequestError` and `ResponseError` of
 * `@effect/platform`. Defined here so that retry decisions recognize them regardless of the client.
 *
 * @since 0.1.0
 */
import * as Data from "effect/Data"
import * as Predicate from "effect/Predicate"

const words = (cause: unknown): string => {
  if (!(cause instanceof Error)) return String(cause)
  // Node reports several failed addresses as one AggregateError without a message.
  if (cause instanceof AggregateError && cause.message === "") return cause.errors.map(words).join("; ")
  return cause.message === "" ? cause.name : cause.message
}

/**
 * The request was not sent: connection refused, DNS, TLS, connect timeout, or no server to send it to.
 *
 * @since 0.1.0
 * @category errors
 */
export class NotSent extends Data.TaggedError("NotSent")<{ readonly cause: unknown }> {
  /** @since 0.1.0 */
  override get message(): string {
    return `not sent: ${words(this.cause)}`
  }
}

/**
 * The connection ended before the response was complete. The server may have received the request.
 *
 * @since 0.1.0
 * @category errors
 */
export class Disconnected extends Data.TaggedError("Disconnected")<{ readonly cause: unknown }> {
  /** @since 0.1.0 */
  override get message(): string {
    return `disconnected: ${words(this.cause)}`
  }
}

/**
 * The decoded body exceeds the client's limit.
 *
 * @since 0.1.0
 * @category errors
 */
export class InflatedTooLarge extends Data.TaggedError("InflatedTooLarge")<{ readonly limit: number }> {
  /** @since 0.1.0 */
  override get message(): string {
    return `the body is larger than ${this.limit} bytes`
  }
}

/**
 * The body does not match its content encoding.
 *
 * @since 0.1.0
 * @category errors
 */
export class CorruptBody extends Data.TaggedError("CorruptBody")<{
  readonly encoding: string
  readonly cause: unknown
}> {
  /** @since 0.1.0 */
  override get message(): string {
    return `invalid ${this.encoding} data: ${words(this.cause)}`
  }
}

/**
 * The body has a content encoding that the client did not request and cannot decode.
 *
 * @since 0.1.0
 * @category errors
 */
export class UnsupportedEncoding extends Data.TaggedError("UnsupportedEncoding")<{ readonly encoding: string }> {
  /** @since 0.1.0 */
  override get message(): string {
    return `unsupported content-encoding ${JSON.stringify(this.encoding.slice(0, 40))}`
  }
}

/**
 * The reasons why an HTTP exchange failed.
 *
 * @since 0.1.0
 * @category errors
 */
export type HttpFailure = NotSent | Disconnected | InflatedTooLarge | CorruptBody | UnsupportedEncoding

/**
 * Checks whether a value is an {@link HttpFailure}. Checks the tag, so that it also recognizes classes from another
 * copy of this package.
 *
 * @since 0.1.0
 * @category guards
 */
export const isHttpFailure = (u: unknown): u is HttpFailure =>
  u instanceof Error &&
  (Predicate.isTagged(u, "NotSent") ||
    Predicate.isTagged(u, "Disconnected") ||
    Predicate.isTagged(u, "InflatedTooLarge") ||
    Predicate.isTagged(u, "CorruptBody") ||
    Predicate.isTagged(u, "UnsupportedEncoding"))
