/** Transforms a stream with a stateful reader. Values are emitted before the reader ends or fails. */
import * as Channel from "effect/Channel"
import * as Chunk from "effect/Chunk"
import * as Either from "effect/Either"
import * as Stream from "effect/Stream"

export interface Step<B, E> {
  readonly values: ReadonlyArray<B>
  /** Ends the stream; nothing more is read. */
  readonly ended?: Either.Either<void, E> | undefined
}

export interface Reader<A, B, E> {
  readonly feed: (chunk: Chunk.Chunk<A>) => Step<B, E>
  /** Called when the input ends. */
  readonly end: () => Step<B, E>
}

const write = <B>(values: ReadonlyArray<B>): Channel.Channel<Chunk.Chunk<B>> =>
  values.length === 0 ? Channel.void : Channel.write(Chunk.unsafeFromArray(values))

const finish = <E>(ended: Either.Either<void, E> | undefined): Channel.Channel<never, unknown, E> =>
  ended !== undefined && Either.isLeft(ended) ? Channel.fail(ended.left) : Channel.void

/** Creates a new reader for each run of the stream. */
export const transduce =
  <A, B, E2>(make: () => Reader<A, B, E2>) =>
  <E, R>(self: Stream.Stream<A, E, R>): Stream.Stream<B, E | E2, R> =>
    Stream.suspend(() => {
      const reader = make()
      const read: Channel.Channel<Chunk.Chunk<B>, Chunk.Chunk<A>, E | E2, E, unknown, unknown> = Channel.readWithCause({
        onInput: (chunk: Chunk.Chunk<A>) => {
          const { ended, values } = reader.feed(chunk)
          return Channel.flatMap(write(values), () => (ended === undefined ? read : finish(ended)))
        },
        onFailure: Channel.failCause,
        onDone: () => {
          const { ended, values } = reader.end()
          return Channel.zipRight(write(values), finish(ended))
        },
      })
      return Stream.pipeThroughChannel(self, read)
    })
