/** Bytes that may be compressed: looks at the first two, and undoes gzip. */
import type * as Cause from "effect/Cause"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"

const isGzip = ([first, second]: ReadonlyArray<number>): boolean => first === 0x1f && second === 0x8b

// The types ask for memory that is not shared, which none of ours is.
const decompression = () => new DecompressionStream("gzip") as ReadableWritablePair<Uint8Array, Uint8Array>

const inflate = <E, R, E2>(
  bytes: Stream.Stream<Uint8Array, E, R>,
  corrupt: () => E2,
): Stream.Stream<Uint8Array, E | E2, R> =>
  Stream.unwrap(
    Effect.map(Effect.runtime<R>(), (runtime) => {
      // A web stream forgets the type of what went wrong before it.
      let before: Option.Option<Cause.Cause<E>> = Option.none()
      const noted = Stream.tapErrorCause(bytes, (cause) =>
        Effect.sync(() => {
          before = Option.some(cause)
        }),
      )
      const inflated = Stream.fromReadableStream(
        () => Stream.toReadableStreamRuntime(noted, runtime).pipeThrough(decompression()),
        corrupt,
      )
      return Stream.catchAll(inflated, (error): Stream.Stream<never, E | E2> =>
        Option.isSome(before) ? Stream.failCause(before.value) : Stream.fail(error),
      )
    }),
  )

/** `corrupt` makes the error of bytes that are not what they say. */
export const gunzipIfNeeded = <E, R, E2>(
  bytes: Stream.Stream<Uint8Array, E, R>,
  corrupt: () => E2,
): Stream.Stream<Uint8Array, E | E2, R> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const pull = yield* Stream.toPull(bytes)
      const next = Effect.catchAll(Effect.asSome(pull), (end): Effect.Effect<Option.Option<never>, E> =>
        Option.isSome(end) ? Effect.fail(end.value) : Effect.succeedNone,
      )
      let head = Chunk.empty<Uint8Array>()
      let first: ReadonlyArray<number> = []
      while (first.length < 2) {
        const chunk = yield* next
        if (Option.isNone(chunk)) break
        head = Chunk.appendAll(head, chunk.value)
        first = [...first, ...Chunk.toReadonlyArray(chunk.value).flatMap((piece) => [...piece.subarray(0, 2)])]
      }
      const all = Stream.concat(Stream.fromChunk(head), Stream.fromPull(Effect.succeed(pull)))
      return isGzip(first) ? inflate(all, corrupt) : all
    }),
  )
