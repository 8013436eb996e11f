/** Reads Parquet files through the file system service, one row group at a time. */
import type { PlatformError } from "@effect/platform/Error"
import type * as FileSystem from "@effect/platform/FileSystem"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Encoding from "effect/Encoding"
import * as Predicate from "effect/Predicate"
import * as Runtime from "effect/Runtime"
import * as Stream from "effect/Stream"
import { parquetMetadataAsync, parquetReadObjects } from "hyparquet"
import { compressors } from "hyparquet-compressors"
import { UnreadableFile } from "../DataError.ts"
import * as RandomAccess from "./RandomAccess.ts"

/** Turns a value into what JSON can hold. */
export const toJson = (value: unknown): unknown => {
  if (typeof value === "bigint") {
    const number = Number(value)
    return Number.isSafeInteger(number) ? number : value.toString()
  }
  if (value instanceof Date) return value.toISOString()
  if (value instanceof Uint8Array) return Encoding.encodeBase64(value)
  if (Array.isArray(value) || ArrayBuffer.isView(value)) return Array.from(value as Iterable<unknown>, toJson)
  return Predicate.isRecord(value)
    ? Object.fromEntries(Object.entries(value).map(([key, one]) => [key, toJson(one)]))
    : value
}

/** Streams the rows of a file as JSON values. */
export const read = (
  path: string,
  columns: ReadonlyArray<string> | undefined,
): Stream.Stream<unknown, PlatformError | UnreadableFile, FileSystem.FileSystem> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const bytes = yield* RandomAccess.open(path)
      const runtime = yield* Effect.runtime()
      let failure: PlatformError | undefined
      const file = {
        byteLength: bytes.size,
        slice: (start: number, end = bytes.size) =>
          Runtime.runPromise(
            runtime,
            bytes.read(start, end - start).pipe(
              Effect.tapError((error) =>
                Effect.sync(() => {
                  failure = error
                }),
              ),
              Effect.map((found) => found.buffer.slice(found.byteOffset, found.byteOffset + found.byteLength)),
            ),
          ) as Promise<ArrayBuffer>,
      }
      const call = <A>(run: () => Promise<A>) =>
        Effect.tryPromise({
          try: run,
          catch: (cause) =>
            failure ?? new UnreadableFile({ file: path, problem: `not readable as Parquet: ${String(cause)}`, cause }),
        })
      const metadata = yield* call(() => parquetMetadataAsync(file))
      let rowStart = 0
      const groups = metadata.row_groups.map((group) => {
        const range = { rowStart, rowEnd: rowStart + Number(group.num_rows) }
        rowStart = range.rowEnd
        return range
      })
      return Stream.fromIterable(groups).pipe(
        Stream.mapEffect((range) =>
          call(() =>
            parquetReadObjects({
              file,
              metadata,
              compressors,
              ...range,
              ...(columns === undefined ? {} : { columns: [...columns] }),
            }),
          ),
        ),
        Stream.flatMap((rows) => Stream.fromChunk(Chunk.unsafeFromArray<unknown>(rows.map(toJson)))),
      )
    }),
  )
