/**
 * Decodes server-sent events according to the WHATWG standard, regardless of how the bytes are split. An event is
 * emitted as soon as its terminating empty line arrives; an incomplete event at the end of the stream is dropped.
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
 * A server-sent event.
 *
 * @since 0.1.0
 * @category models
 */
export interface Event {
  /** The name of the event, or `message` if the server sent none. */
  readonly event: string
  /** The data lines, joined by line feeds. */
  readonly data: string
  /** The last id sent with this or an earlier event; empty if none. */
  readonly id: string
  /** The reconnection delay last sent by the server. This module does not reconnect. */
  readonly retry: Option.Option<Duration.Duration>
}

/**
 * An event exceeds the size limit. Earlier events were emitted.
 *
 * @since 0.1.0
 * @category errors
 */
export class SseError extends Schema.TaggedError<SseError>("effect-tinker/http/Sse/SseError")("SseError", {
  reason: Schema.Literal("EventTooLarge"),
  /** The limit in bytes. */
  limit: Schema.Number,
}) {
  /** @since 0.1.0 */
  override get message(): string {
    return `an event is larger than ${this.limit} bytes`
  }
}

/**
 * Options of {@link decode}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /**
   * The maximum size of an incomplete event in bytes.
   *
   * @default 8 MiB
   */
  readonly maxEventBytes?: number | undefined
}

/**
 * Decodes a body of type `text/event-stream`.
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
