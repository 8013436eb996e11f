/**
 * Unpacks the archive of a checkpoint: tar, compressed with gzip or not. An archive from elsewhere is not trusted: it
 * writes below its directory or not at all, and never more than is allowed.
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
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** The most bytes that all files together may have, e.g. what the server told as the size. Default: 64 GiB. */
  readonly maxBytes?: number | undefined
  /** Files and directories. Default: 10,000. */
  readonly maxEntries?: number | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Unpacked {
  readonly directory: string
  /** In the order of the archive, by their path below the directory, with slashes. */
  readonly files: ReadonlyArray<{ readonly path: string; readonly bytes: number }>
}

/**
 * The archive is damaged, or not one that may be unpacked. Nothing of it is left.
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
    /** The name of the entry, as far as it is known. */
    entry: Schema.String,
    detail: Schema.String,
  },
) {
  /** @since 0.1.0 */
  override get message(): string {
    const entry = this.entry === "" ? "" : ` at ${JSON.stringify(this.entry.slice(0, 200))}`
    return `the archive is refused [${this.reason}]${entry}: ${this.detail}`
  }
}

/**
 * @since 0.1.0
 * @category errors
 */
export type UnpackError = ArchiveRefused | FileFailed | InvalidInput

/**
 * Unpacks a file, or bytes as they come, into a directory that does not exist yet or is empty. It gets its name when
 * everything is in it; when something fails, nothing is left.
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
      if (!(limit >= 0)) return yield* new InvalidInput({ path: `unpack.options.${name}`, problem: "is no limit" })
    }
    if (directory === "") return yield* new InvalidInput({ path: "unpack.directory", problem: "is empty" })
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
    if (present.length > 0) return yield* new InvalidInput({ path: "unpack.directory", problem: "is not empty" })

    const bytes: Stream.Stream<Uint8Array, E | FileFailed, R> =
      typeof archive === "string" ? Stream.mapError(fs.stream(archive), fileFailed(archive)) : archive

    const unpacked = (into: string) =>
      Effect.gen(function* () {
        const files: Array<Unpacked["files"][number]> = []
        yield* Effect.scoped(
          Effect.flatMap(
            writer(fs, (path) => join(into, ...path), { maxBytes, maxEntries }, files),
            (take) =>
              gunzipIfNeeded(bytes, () => refused("Corrupt", "", "it can't be decompressed")).pipe(
                transduce(() => new TarReader((entry, detail) => refused("Corrupt", entry, detail))),
                Stream.runForEach(take),
              ),
          ),
        )
        return { directory, files }
      })

    // A new name is durable only when its directory is; not every system can sync one.
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

/** Why an entry of this kind is not unpacked. */
const kinds: Readonly<Record<Exclude<Kind, "File" | "Directory">, readonly [ArchiveRefused["reason"], string]>> = {
  Link: ["Link", "links are not unpacked"],
  Device: ["Device", "devices are not unpacked"],
  Other: ["UnknownKind", "it is neither a file nor a directory"],
}

/** The parts of a path below the directory; none for the directory itself. */
const partsOf = (name: string): Either.Either<ReadonlyArray<string>, ArchiveRefused> => {
  const refuse = (reason: ArchiveRefused["reason"], detail: string) => Either.left(refused(reason, name, detail))
  if (/^([/\\]|[A-Za-z]:)/.test(name)) return refuse("AbsolutePath", "it begins at a root")
  const parts = name.split("/").filter((part) => part !== "" && part !== ".")
  if (name.split(/[/\\]/).includes("..")) return refuse("OutsidePath", "it leads out of the directory")
  // What is a separator on some systems, or can't be a part of a name on any.
  // oxlint-disable-next-line no-control-regex
  if (/[\\\u0000-\u001f]/.test(name)) return refuse("BadName", "it holds a character that no name should")
  return parts.some((part) => part.length > 255) ? refuse("BadName", "it is too long") : Either.right(parts)
}

/** Two entries that want the same place. */
const isTaken = (error: PlatformError): boolean =>
  error._tag === "SystemError" && (error.reason === "AlreadyExists" || error.reason === "BadResource")

/** Takes the items of an archive one after the other, and has at most one file open. */
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
        if (entries > limits.maxEntries) return yield* refused("TooManyEntries", name, `more than ${limits.maxEntries}`)
        if (kind !== "File" && kind !== "Directory") return yield* refused(kinds[kind][0], name, kinds[kind][1])
        const parts = yield* partsOf(name)
        total += size
        if (total > limits.maxBytes) return yield* refused("TooLarge", name, `more than ${limits.maxBytes} bytes`)
        if (kind === "Directory") {
          if (size > 0) return yield* refused("Corrupt", name, "a directory has no bytes")
          return yield* create(name, fs.makeDirectory(place(parts), { recursive: true }))
        }
        if (parts.length === 0) return yield* refused("BadName", name, "it is empty")
        yield* create(name, fs.makeDirectory(place(parts.slice(0, -1)), { recursive: true }))
        const scope = yield* Scope.make()
        // Never through something that is there already.
        const opened = Effect.onError(fs.open(place(parts), { flag: "wx" }).pipe(Scope.extend(scope)), (cause) =>
          Scope.close(scope, Exit.failCause(cause)),
        )
        open = { file: yield* create(name, opened), scope, left: size }
        files.push({ path: parts.join("/"), bytes: size })
        return size === 0 ? yield* end : undefined
      })

    const create = <A>(name: string, effect: Effect.Effect<A, PlatformError>) =>
      Effect.mapError(effect, (error) =>
        isTaken(error) ? refused("Duplicate", name, "something else has its place") : fileFailed(name)(error),
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
