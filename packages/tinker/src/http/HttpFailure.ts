/**
 * Why an HTTP exchange failed, in the words of a client that knows: the `cause` of the `RequestError` and
 * `ResponseError` of `@effect/platform`. Here, and not with the client, so that what decides about a retry can
 * recognise them whichever client is used.
 *
 * @since 0.1.0
 */
import * as Data from "effect/Data"
import * as Predicate from "effect/Predicate"

const words = (cause: unknown): string => {
  if (!(cause instanceof Error)) return String(cause)
  // Node tells several failed addresses as one AggregateError without a message of its own.
  if (cause instanceof AggregateError && cause.message === "") return cause.errors.map(words).join("; ")
  return cause.message === "" ? cause.name : cause.message
}

/**
 * No byte of the request left this machine: refused, DNS, TLS, connect time-out, or nobody to send it to.
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
 * The request was on a connection that ended before the whole answer was there. The server may have seen it.
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
 * The body is bigger than the client's limit, after decoding.
 *
 * @since 0.1.0
 * @category errors
 */
export class InflatedTooLarge extends Data.TaggedError("InflatedTooLarge")<{ readonly limit: number }> {
  /** @since 0.1.0 */
  override get message(): string {
    return `the body is bigger than ${this.limit} bytes`
  }
}

/**
 * The body is not what its content-encoding says.
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
    return `not valid ${this.encoding}: ${words(this.cause)}`
  }
}

/**
 * The body has a content-encoding that the client did not ask for and can't decode.
 *
 * @since 0.1.0
 * @category errors
 */
export class UnsupportedEncoding extends Data.TaggedError("UnsupportedEncoding")<{ readonly encoding: string }> {
  /** @since 0.1.0 */
  override get message(): string {
    return `can't decode content-encoding ${JSON.stringify(this.encoding.slice(0, 40))}`
  }
}

/**
 * @since 0.1.0
 * @category errors
 */
export type HttpFailure = NotSent | Disconnected | InflatedTooLarge | CorruptBody | UnsupportedEncoding

/**
 * By tag, so that it also holds for a class of another copy of this package.
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
