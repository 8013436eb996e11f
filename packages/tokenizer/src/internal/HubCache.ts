/**
 * Caches files by content, with notes that record which content a name referred to. Both are written to a temporary
 * file and renamed, so that a partial file is never visible.
 */
import type { PlatformError } from "@effect/platform/Error"
import type * as FileSystem from "@effect/platform/FileSystem"
import type * as Path from "@effect/platform/Path"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import { TokenizerError } from "../TokenizerError.ts"

/** One file of a repository at a revision. */
export interface Place {
  readonly baseUrl: string
  readonly repository: string
  readonly revision: string
  readonly file: string
}

/** The state of a file at the last request. */
const Note = Schema.Struct({
  commit: Schema.optional(Schema.String),
  etag: Schema.optional(Schema.String),
  /** The hash of the contents; null if there is no such file. */
  sha256: Schema.NullOr(Schema.String),
})
export type Note = typeof Note.Type

const NoteJson = Schema.parseJson(Note)

export interface HubCache {
  readonly note: (place: Place) => Effect.Effect<Option.Option<Note>, TokenizerError>
  readonly setNote: (place: Place, note: Note) => Effect.Effect<void, TokenizerError>
  /** Returns the contents, or none if they are missing or do not match the hash. */
  readonly blob: (place: Place, sha256: string) => Effect.Effect<Option.Option<Uint8Array>, TokenizerError>
  /** Creates a temporary file, which is removed when the scope closes unless it was kept. */
  readonly scratch: (place: Place) => Effect.Effect<Scratch, TokenizerError, Scope.Scope>
}

export interface Scratch {
  readonly write: (bytes: Uint8Array) => Effect.Effect<void, TokenizerError>
  /** Flushes the file to disk and reads what was written. */
  readonly contents: Effect.Effect<Uint8Array, TokenizerError>
  /** Moves the file into the cache under its hash. */
  readonly keep: (sha256: string) => Effect.Effect<void, TokenizerError>
}

export const sha256 = (bytes: Uint8Array): Effect.Effect<string> =>
  Effect.map(
    Effect.promise(() => globalThis.crypto.subtle.digest("SHA-256", new Uint8Array(bytes))),
    (digest) => Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join(""),
  )

const isAbsent = (error: PlatformError) => error._tag === "SystemError" && error.reason === "NotFound"

export const make = (files: FileSystem.FileSystem, path: Path.Path, directory: string): HubCache => {
  const stored =
    (place: Place, what: string) =>
    <A, R>(effect: Effect.Effect<A, PlatformError, R>): Effect.Effect<A, TokenizerError, R> =>
      Effect.mapError(
        effect,
        (cause) =>
          new TokenizerError({
            reason: "Storage",
            tokenizer: place.repository,
            problem: `failed to ${what} the cache: ${cause.message}`,
            cause,
          }),
      )

  const nameOf = ({ baseUrl, file, repository, revision }: Place) =>
    sha256(new TextEncoder().encode(JSON.stringify([baseUrl, repository, revision, file])))
  const notePath = (place: Place) => Effect.map(nameOf(place), (name) => path.join(directory, "notes", `${name}.json`))
  const blobPath = (hash: string) => path.join(directory, "blobs", hash)

  const ifThere = <A>(effect: Effect.Effect<A, PlatformError>): Effect.Effect<Option.Option<A>, PlatformError> =>
    Effect.catchIf(Effect.asSome(effect), isAbsent, () => Effect.succeedNone)

  const scratch: HubCache["scratch"] = (place) =>
    Effect.gen(function* () {
      yield* files.makeDirectory(directory, { recursive: true })
      const folder = yield* files.makeTempDirectoryScoped({ directory, prefix: "part-" })
      const name = path.join(folder, "file")
      const file = yield* files.open(name, { flag: "w" })
      return {
        // The platform fails on empty writes.
        write: (bytes: Uint8Array) =>
          bytes.length === 0 ? Effect.void : stored(place, "write to")(file.writeAll(bytes)),
        contents: stored(place, "read")(Effect.zipRight(file.sync, files.readFile(name))),
        keep: (hash: string) =>
          stored(
            place,
            "write to",
          )(
            Effect.zipRight(
              files.makeDirectory(path.join(directory, "blobs"), { recursive: true }),
              files.rename(name, blobPath(hash)),
            ),
          ),
      }
    }).pipe(stored(place, "write to"))

  return {
    note: (place) =>
      notePath(place).pipe(
        Effect.flatMap((name) => ifThere(files.readFileString(name))),
        stored(place, "read"),
        // An unreadable note counts as missing, so the hub is asked again.
        Effect.map(Option.flatMap((text) => Schema.decodeOption(NoteJson)(text))),
      ),
    setNote: (place, note) =>
      Effect.scoped(
        Effect.gen(function* () {
          const name = yield* notePath(place)
          yield* files.makeDirectory(path.dirname(name), { recursive: true })
          const folder = yield* files.makeTempDirectoryScoped({ directory, prefix: "part-" })
          const part = path.join(folder, "note")
          yield* files.writeFileString(part, Schema.encodeSync(NoteJson)(note))
          yield* files.rename(part, name)
        }),
      ).pipe(stored(place, "write to")),
    blob: (place, hash) =>
      ifThere(files.readFile(blobPath(hash))).pipe(
        stored(place, "read"),
        Effect.flatMap(
          Option.match({
            onNone: () => Effect.succeedNone,
            onSome: (bytes) =>
              Effect.map(sha256(bytes), (actual) => (actual === hash ? Option.some(bytes) : Option.none())),
          }),
        ),
      ),
    scratch,
  }
}
