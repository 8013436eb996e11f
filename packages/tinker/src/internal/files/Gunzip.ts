/** Bytes that may be compressed: looks at the first two, and undoes gzip. */
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"

const isGzip = ([first, second]: ReadonlyArray<number>): boolean => first === 0x1f && second === 0x8b

// The types ask for memory that is not shared, which none of ours is.
const decompression = () => new DecompressionStream("gzip") as ReadableWritablePair<Uint8Array, Uint8Array>

/** What is decompressed at once, so that little of it is waiting. */
const pieceSize = 64 * 1024

const ignore = () => {}

const slices = (bytes: Uint8Array): ReadonlyArray<Uint8Array> =>
  Array.from({ length: Math.ceil(bytes.length / pieceSize) }, (_, i) =>
    bytes.subarray(i * pieceSize, (i + 1) * pieceSize),
  )

/**
 * Node's stream takes thousands of pieces before it says that it has enough. So it is given one only while somebody
 * waits for what comes out.
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
          // What is wrong with it is told to the reader, too.
          writer.close().catch(ignore)
        },
        onSome: (chunk) => {
          for (const bytes of chunk) waiting.push(...slices(bytes))
        },
      }),
    )

    /** Until it took the piece or gave something: it may be full of what came of it. */
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
