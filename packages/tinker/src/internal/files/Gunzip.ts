/** Decompresses gzip data, recognized by its first two bytes; other data is passed through. */
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"

const isGzip = ([first, second]: ReadonlyArray<number>): boolean => first === 0x1f && second === 0x8b

// The types require memory that is not shared, which is always the case here.
const decompression = () => new DecompressionStream("gzip") as ReadableWritablePair<Uint8Array, Uint8Array>

/** The size of the pieces to decompress, small to limit buffered output. */
const pieceSize = 64 * 1024

const ignore = () => {}

const slices = (bytes: Uint8Array): ReadonlyArray<Uint8Array> =>
  Array.from({ length: Math.ceil(bytes.length / pieceSize) }, (_, i) =>
    bytes.subarray(i * pieceSize, (i + 1) * pieceSize),
  )

/**
 * Decompresses data. Node's stream accepts thousands of pieces before it signals backpressure, so a piece is written
 * only while a consumer waits for output.
 */
const inflate = <E, R, E2>(
  next: Effect.Effect<Option.Option<Chunk.Chunk<Uint8Array>>, E, R>,
  corrupt: () => E2,
): Effect.Effect<Effect.Effect<Chunk.Chunk<Uint8Array>, Option.Option<E | E2>, R>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { readable, writable } = decompression()
    const reader = readable.getReader()
    const writer = writable.getWriter()
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        writer.abort().catch(ignore)
        reader.cancel().catch(ignore)
      }),
    )
    const waiting: Array<Uint8Array> = []
    let writing: Promise<void> | undefined
    let reading: ReturnType<typeof reader.read> | undefined
    let isThere = false
    let isEnded = false
    const attempt = <A>(promise: () => Promise<A>) =>
      Effect.tryPromise({ try: promise, catch: () => Option.some(corrupt()) })

    const read = () => {
      reading = reader.read()
      isThere = false
      const arrived = () => {
        isThere = true
      }
      reading.then(arrived, arrived)
      return reading
    }

    const take = attempt(() => reading ?? read()).pipe(
      Effect.flatMap(({ done, value }) => {
        reading = undefined
        return done ? Effect.fail(Option.none()) : Effect.succeed(Chunk.of(value))
      }),
    )

    const fill = Effect.map(
      Effect.mapError(next, Option.some),
      Option.match({
        onNone: () => {
          isEnded = true
          // Errors are also reported to the reader.
          writer.close().catch(ignore)
        },
        onSome: (chunk) => {
          for (const bytes of chunk) waiting.push(...slices(bytes))
        },
      }),
    )

    /** Waits until the piece is accepted or output is available, because the stream may be blocked by its output. */
    const settled = attempt(() => Promise.race([writing, reading]))

    const feed = Effect.suspend((): Effect.Effect<unknown, Option.Option<E | E2>, R> => {
      if (writing !== undefined) return settled
      const piece = waiting.shift()
      if (piece === undefined) return fill
      writing = writer.write(piece).then(() => {
        writing = undefined
      })
      return settled
    })

    const pull: Effect.Effect<Chunk.Chunk<Uint8Array>, Option.Option<E | E2>, R> = Effect.suspend(() => {
      if (reading === undefined) read()
      return isThere || isEnded ? take : Effect.zipRight(feed, pull)
    })
    return pull
  })

/** Decompresses the bytes if they are gzip data. `corrupt` creates the error for invalid data. */
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
      if (!isGzip(first)) return all
      let begun = false
      const fromHead = Effect.suspend(() => {
        if (begun) return next
        begun = true
        return Effect.succeedSome(head)
      })
      return Stream.fromPull(inflate(fromHead, corrupt))
    }),
  )
