/**
 * Unpacks a checkpoint archive (tar, optionally compressed with gzip). The archive is not trusted: entries cannot
 * escape the target directory, and size and entry limits are enforced.
 *
 * @since 0.1.0
 */
import type { PlatformError } from "@effect/platform/Error"
import * as FileSystem from "@effect/platform/FileSystem"
import * as Path from "@effect/platform/Path"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import * as Random from "effect/Random"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { fileFailed } from "./internal/files/FileErrors.ts"
import { gunzipIfNeeded } from "./internal/files/Gunzip.ts"
import { type Item, type Kind, TarReader } from "./internal/files/Tar.ts"
import { transduce } from "./internal/util/Transduce.ts"
import { type FileFailed, InvalidInput } from "./TinkerError.ts"

/**
 * Limits for {@link unpack}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /**
   * The maximum total size of all files in bytes, e.g. the size reported by the server.
   *
   * @default 64 GiB
   */
  readonly maxBytes?: number | undefined
  /**
   * The maximum number of files and directories.
   *
   * @default 10_000
   */
  readonly maxEntries?: number | undefined
}

/**
 * The result of {@link unpack}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Unpacked {
  readonly directory: string
  /** The files in archive order. Paths are relative to the directory and use forward slashes. */
  readonly files: ReadonlyArray<{ readonly path: string; readonly bytes: number }>
}

/**
 * The archive is damaged or contains something that must not be unpacked. No partial output remains.
 *
 * @since 0.1.0
 * @category errors
 */
export class ArchiveRefused extends Schema.TaggedError<ArchiveRefused>("effect-tinker/Archive/ArchiveRefused")(
  "ArchiveRefused",
  {
    reason: Schema.Literal(
      "AbsolutePath",
      "OutsidePath",
      "BadName",
      "Link",
      "Device",
      "UnknownKind",
      "Duplicate",
      "TooLarge",
      "TooManyEntries",
      "Corrupt",
    ),
    /** The name of the entry, if known. */
    entry: Schema.String,
    detail: Schema.String,
  },
) {
  /** @since 0.1.0 */
  override get message(): string {
    const entry = this.entry === "" ? "" : ` at ${JSON.stringify(this.entry.slice(0, 200))}`
    return `archive refused (${this.reason})${entry}: ${this.detail}`
  }
}

/**
 * The errors that {@link unpack} can fail with.
 *
 * @since 0.1.0
 * @category errors
 */
export type UnpackError = ArchiveRefused | FileFailed | InvalidInput

/**
 * Unpacks a file or a stream of bytes into a directory that is empty or does not exist yet. The directory appears under
 * its final name only when it is complete; a failure leaves nothing behind.
 *
 * @since 0.1.0
 * @category unpacking
 */
export const unpack = <E = never, R = never>(
  archive: string | Stream.Stream<Uint8Array, E, R>,
  directory: string,
  options: Options = {},
): Effect.Effect<Unpacked, UnpackError | E, FileSystem.FileSystem | Path.Path | R> =>
  Effect.gen(function* () {
    const { maxBytes = 64 * 1024 ** 3, maxEntries = 10_000 } = options
    for (const [name, limit] of Object.entries({ maxBytes, maxEntries })) {
      if (!(limit >= 0))
        return yield* new InvalidInput({ path: `unpack.options.${name}`, problem: "expected a non-negative number" })
    }
    if (directory === "") return yield* new InvalidInput({ path: "unpack.directory", problem: "must not be empty" })
    const fs = yield* FileSystem.FileSystem
    const { dirname, join, resolve } = yield* Path.Path
    const target = resolve(directory)
    const failed = fileFailed(target)

    const present = yield* fs.readDirectory(target).pipe(
      Effect.catchIf(
        (error) => error._tag === "SystemError" && error.reason === "NotFound",
        () => Effect.succeed([]),
      ),
      Effect.mapError(failed),
    )
    if (present.length > 0)
      return yield* new InvalidInput({ path: "unpack.directory", problem: "the directory is not empty" })

    const bytes: Stream.Stream<Uint8Array, E | FileFailed, R> =
      typeof archive === "string" ? Stream.mapError(fs.stream(archive), fileFailed(archive)) : archive

    const unpacked = (into: string) =>
      Effect.gen(function* () {
        const files: Array<Unpacked["files"][number]> = []
        yield* Effect.scoped(
          Effect.flatMap(
            writer(fs, (path) => join(into, ...path), { maxBytes, maxEntries }, files),
            (take) =>
              gunzipIfNeeded(bytes, () => refused("Corrupt", "", "invalid gzip data")).pipe(
                transduce(() => new TarReader((entry, detail) => refused("Corrupt", entry, detail))),
                Stream.runForEach(take),
              ),
          ),
        )
        return { directory, files }
      })

    // A rename is durable only after its parent directory is synced. Not every system can do that, so failures are
    // ignored.
    const syncParent = Effect.ignore(
      Effect.scoped(Effect.flatMap(fs.open(dirname(target), { flag: "r" }), ({ sync }) => sync)),
    )
    return yield* Effect.acquireUseRelease(
      Effect.gen(function* () {
        yield* fs.makeDirectory(dirname(target), { recursive: true })
        const into = `${target}.${(yield* Random.nextIntBetween(0, 2 ** 32)).toString(16)}.unpacking`
        yield* fs.makeDirectory(into)
        return into
      }).pipe(Effect.mapError(failed)),
      (into) =>
        unpacked(into).pipe(
          Effect.zipLeft(Effect.mapError(fs.rename(into, target), failed)),
          Effect.zipLeft(syncParent),
        ),
      (into, exit) =>
        Exit.isSuccess(exit) ? Effect.void : Effect.ignore(fs.remove(into, { recursive: true, force: true })),
    )
  })

const refused = (reason: ArchiveRefused["reason"], entry: string, detail: string) =>
  new ArchiveRefused({ reason, entry, detail })

type Limits = Required<{ readonly [K in keyof Options]: number }>

/** The reasons for refusing each kind of entry that is neither a file nor a directory. */
const kinds: Readonly<Record<Exclude<Kind, "File" | "Directory">, readonly [ArchiveRefused["reason"], string]>> = {
  Link: ["Link", "links are not unpacked"],
  Device: ["Device", "devices are not unpacked"],
  Other: ["UnknownKind", "neither a file nor a directory"],
}

/** Splits an entry name into path segments below the directory; the directory itself has none. */
const partsOf = (name: string): Either.Either<ReadonlyArray<string>, ArchiveRefused> => {
  const refuse = (reason: ArchiveRefused["reason"], detail: string) => Either.left(refused(reason, name, detail))
  if (/^([/\\]|[A-Za-z]:)/.test(name)) return refuse("AbsolutePath", "the path is absolute")
  const parts = name.split("/").filter((part) => part !== "" && part !== ".")
  if (name.split(/[/\\]/).includes("..")) return refuse("OutsidePath", "the path leaves the directory")
  // Backslashes are separators on some systems, and control characters are not valid in names.
  // oxlint-disable-next-line no-control-regex
  if (/[\\\u0000-\u001f]/.test(name)) return refuse("BadName", "the name contains a forbidden character")
  return parts.some((part) => part.length > 255) ? refuse("BadName", "the name is too long") : Either.right(parts)
}

/** Checks whether two entries claim the same path. */
const isTaken = (error: PlatformError): boolean =>
  error._tag === "SystemError" && (error.reason === "AlreadyExists" || error.reason === "BadResource")

/** Writes archive items in sequence with at most one file open. */
const writer = (
  fs: FileSystem.FileSystem,
  place: (path: ReadonlyArray<string>) => string,
  limits: Limits,
  files: Array<Unpacked["files"][number]>,
) =>
  Effect.gen(function* () {
    let [entries, total] = [0, 0]
    let open: { readonly file: FileSystem.File; readonly scope: Scope.CloseableScope; left: number } | undefined
    const close = Effect.suspend(() => {
      const scope = open?.scope
      open = undefined
      return scope === undefined ? Effect.void : Scope.close(scope, Exit.void)
    })
    yield* Effect.addFinalizer(() => close)

    const begin = ({ kind, name, size }: Extract<Item, { readonly _tag: "Entry" }>) =>
      Effect.gen(function* () {
        entries++
        if (entries > limits.maxEntries)
          return yield* refused("TooManyEntries", name, `more than ${limits.maxEntries} entries`)
        if (kind !== "File" && kind !== "Directory") return yield* refused(kinds[kind][0], name, kinds[kind][1])
        const parts = yield* partsOf(name)
        total += size
        if (total > limits.maxBytes) return yield* refused("TooLarge", name, `more than ${limits.maxBytes} bytes`)
        if (kind === "Directory") {
          if (size > 0) return yield* refused("Corrupt", name, "a directory cannot contain data")
          return yield* create(name, fs.makeDirectory(place(parts), { recursive: true }))
        }
        if (parts.length === 0) return yield* refused("BadName", name, "the name is empty")
        yield* create(name, fs.makeDirectory(place(parts.slice(0, -1)), { recursive: true }))
        const scope = yield* Scope.make()
        // `wx` never writes through an existing file or link.
        const opened = Effect.onError(fs.open(place(parts), { flag: "wx" }).pipe(Scope.extend(scope)), (cause) =>
          Scope.close(scope, Exit.failCause(cause)),
        )
        open = { file: yield* create(name, opened), scope, left: size }
        files.push({ path: parts.join("/"), bytes: size })
        return size === 0 ? yield* end : undefined
      })

    const create = <A>(name: string, effect: Effect.Effect<A, PlatformError>) =>
      Effect.mapError(effect, (error) =>
        isTaken(error) ? refused("Duplicate", name, "the path already exists") : fileFailed(name)(error),
      )

    const end = Effect.suspend(() =>
      open === undefined
        ? Effect.void
        : Effect.zipRight(Effect.mapError(open.file.sync, fileFailed(files.at(-1)?.path ?? "")), close),
    )

    const append = (bytes: Uint8Array) =>
      Effect.suspend(() => {
        if (open === undefined || bytes.length === 0) return Effect.void
        open.left -= bytes.length
        const written = Effect.mapError(open.file.writeAll(bytes), fileFailed(files.at(-1)?.path ?? ""))
        return open.left === 0 ? Effect.zipRight(written, end) : written
      })

    return (item: Item): Effect.Effect<void, ArchiveRefused | FileFailed> =>
      item._tag === "Entry" ? begin(item) : append(item.bytes)
  })
