/**
 * Server-sent events, by the rules of the WHATWG: bytes in, complete events out, however the bytes were cut. An event
 * is given as soon as the empty line after it is there; one that the end of the stream cuts off is dropped.
 *
 * @since 0.1.0
 */
import * as Chunk from "effect/Chunk"
import type * as Duration from "effect/Duration"
import * as Either from "effect/Either"
import type * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Stream from "effect/Stream"
import { SseParser } from "../internal/chat/SseParser.ts"
import { type Reader, transduce } from "../internal/util/Transduce.ts"

/**
 * @since 0.1.0
 * @category models
 */
export interface Event {
  /** `message` if the server gave no name. */
  readonly event: string
  /** The lines of its data, joined by line feeds. */
  readonly data: string
  /** The last id that the server told, with this event or an earlier one; empty if none. */
  readonly id: string
  /** How long the server last asked to wait before a reconnection. Nothing here reconnects. */
  readonly retry: Option.Option<Duration.Duration>
}

/**
 * One event is bigger than was allowed. What came before it was given.
 *
 * @since 0.1.0
 * @category errors
 */
export class SseError extends Schema.TaggedError<SseError>("effect-tinker/http/Sse/SseError")("SseError", {
  reason: Schema.Literal("EventTooLarge"),
  /** In bytes. */
  limit: Schema.Number,
}) {
  /** @since 0.1.0 */
  override get message(): string {
    return `an event is bigger than ${this.limit} bytes`
  }
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** The most bytes that are kept of an event that is not complete yet. Default: 8 MiB. */
  readonly maxEventBytes?: number | undefined
}

/**
 * Reads a body of type `text/event-stream`.
 *
 * @since 0.1.0
 * @category decoding
 */
export const decode =
  ({ maxEventBytes = 8 * 1024 * 1024 }: Options = {}) =>
  <E, R>(bytes: Stream.Stream<Uint8Array, E, R>): Stream.Stream<Event, E | SseError, R> =>
    transduce((): Reader<Uint8Array, Event, SseError> => {
      const parser = new SseParser(maxEventBytes)
      return {
        feed: (chunk) => {
          const fits = Chunk.every(chunk, (piece) => parser.feed(piece))
          const tooLarge = () => Either.left(new SseError({ reason: "EventTooLarge", limit: maxEventBytes }))
          return { values: parser.take(), ended: fits ? undefined : tooLarge() }
        },
        end: () => ({ values: [] }),
      }
    })(bytes)
