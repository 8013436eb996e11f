/**
 * Stores an incomplete download beside its final name: the bytes and the properties of the complete file, so that a
 * later run can resume.
 */
import * as FileSystem from "@effect/platform/FileSystem"
import * as Path from "@effect/platform/Path"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type { FileFailed } from "../../TinkerError.ts"
import { fileFailed } from "./FileErrors.ts"
import { lazy } from "../util/Lazy.ts"

/**
 * The properties of the complete file reported by the server. The URL is not included, because it may be secret and
 * changes.
 */
export const Whole = lazy(() =>
  Schema.parseJson(
    Schema.Struct({
      /** The value for `If-Range`; without it the download cannot be resumed. */
      validator: Schema.NullOr(Schema.String),
      size: Schema.NullOr(Schema.NonNegativeInt),
      checksums: Schema.Array(
        Schema.Struct({
          algorithm: Schema.Literal("sha512", "sha256", "crc32c", "crc32", "sha1", "md5"),
          value: Schema.String,
        }),
      ),
    }),
  ),
)

export type Whole = typeof Whole.Type

export const unknown: Whole = { validator: null, size: null, checksums: [] }

export interface PartialFile {
  /** The path of the partial data. */
  readonly path: string
  /** The data of an earlier run, if it can be resumed. */
  readonly found: Option.Option<{ readonly bytes: number; readonly whole: Whole }>
  readonly write: (bytes: Uint8Array) => Effect.Effect<void, FileFailed>
  /** Removes all data. */
  readonly clear: Effect.Effect<void, FileFailed>
  readonly note: (whole: Whole) => Effect.Effect<void, FileFailed>
  /** Streams the data written so far. */
  readonly read: Stream.Stream<Uint8Array, FileFailed>
  /** Flushes the data to disk. */
  readonly sync: Effect.Effect<void, FileFailed>
  /** Returns the actual size of the file, regardless of who wrote it. */
  readonly size: Effect.Effect<number, FileFailed>
}

export interface Place {
  readonly open: Effect.Effect<PartialFile, FileFailed, Scope.Scope>
  /** Renames the closed file to its final name. */
  readonly publish: Effect.Effect<void, FileFailed>
  readonly discard: Effect.Effect<void>
  /** Keeps the data if a later run can resume it, else removes it. */
  readonly leave: Effect.Effect<void>
}

export const at = (target: string): Effect.Effect<Place, never, FileSystem.FileSystem | Path.Path> =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const { dirname } = yield* Path.Path
    const [part, notes] = [`${target}.part`, `${target}.part.json`]
    const failed = fileFailed(target)
    const discard = Effect.ignore(Effect.zip(fs.remove(part, { force: true }), fs.remove(notes, { force: true })))

    const find = Effect.gen(function* () {
      const whole = yield* Effect.flatMap(fs.readFileString(notes), Schema.decode(Whole))
      const { size, type } = yield* fs.stat(part)
      const bytes = Number(size)
      const isUsable = type === "File" && bytes > 0 && whole.validator !== null && bytes <= (whole.size ?? bytes)
      return isUsable ? Option.some({ bytes, whole }) : Option.none()
    }).pipe(Effect.orElseSucceed(Option.none))

    const open = Effect.gen(function* () {
      yield* fs.makeDirectory(dirname(target), { recursive: true })
      const found = yield* find
      if (Option.isNone(found)) yield* discard
      const file = yield* fs.open(part, { flag: "a" })
      return {
        path: part,
        found,
        write: (bytes) => Effect.mapError(file.writeAll(bytes), failed),
        clear: Effect.mapError(file.truncate(0), failed),
        note: (whole) =>
          Schema.encode(Whole)(whole).pipe(
            Effect.orDie,
            Effect.flatMap((text) => fs.writeFileString(notes, text)),
            Effect.mapError(failed),
          ),
        read: Stream.mapError(fs.stream(part), failed),
        sync: Effect.mapError(file.sync, failed),
        size: Effect.mapBoth(file.stat, { onSuccess: ({ size }) => Number(size), onFailure: failed }),
      } satisfies PartialFile
    }).pipe(Effect.mapError(failed))

    // A rename is durable only after its directory is synced. Not every system can do that, so failures are ignored.
    const syncDirectory = Effect.ignore(
      Effect.scoped(Effect.flatMap(fs.open(dirname(target), { flag: "r" }), ({ sync }) => sync)),
    )
    const publish = fs
      .rename(part, target)
      .pipe(
        Effect.mapError(failed),
        Effect.zipRight(Effect.ignore(fs.remove(notes, { force: true }))),
        Effect.zipRight(syncDirectory),
      )
    const leave = Effect.flatMap(find, (found) => (Option.isSome(found) ? Effect.void : discard))
    return { open, publish, discard, leave }
  })
