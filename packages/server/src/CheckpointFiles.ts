/**
 * Stores weight files, either below a directory or in memory. On disk, a file is written under a temporary name,
 * flushed and renamed, so a file under its final name is always complete. Only the user of the process can read them.
 * A file on disk has a checksum: writing returns it, reading expects it.
 *
 * @since 0.1.0
 */
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import { randomUUID, webcrypto } from "node:crypto"
import { existsSync } from "node:fs"
import { chmod, mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises"
import { dirname, join } from "node:path"
import { directoryMode, fileMode } from "./internal/PrivateFiles.ts"

/**
 * Reports a weight file that could not be read, written, listed or removed.
 *
 * @since 0.1.0
 * @category errors
 */
export class FileError extends Data.TaggedError("FileError")<{ readonly key: string; readonly cause: unknown }> {
  /** @since 0.1.0 */
  override get message(): string {
    return `${this.key}: ${this.cause instanceof Error ? this.cause.message : String(this.cause)}`
  }
}

/**
 * Reports a weight file whose bytes are no longer those that were written.
 *
 * @since 0.1.0
 * @category errors
 */
export class DamagedFile extends Data.TaggedError("DamagedFile")<{ readonly key: string }> {
  /** @since 0.1.0 */
  override get message(): string {
    return `${this.key} is damaged: its SHA-256 is not that of the bytes that were written`
  }
}

/**
 * Identifies a file by a list of path segments; a segment may contain any characters.
 *
 * @since 0.1.0
 * @category models
 */
export type Key = ReadonlyArray<string>

/**
 * Reads and writes weight files.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** Writes a file and returns its checksum; undefined in memory, where nothing can damage it. */
  readonly write: (key: Key, bytes: Uint8Array) => Effect.Effect<string | undefined, FileError>
  /** Reads a file. Compares its bytes with the checksum, unless that is undefined. */
  readonly read: (key: Key, checksum: string | undefined) => Effect.Effect<Uint8Array, FileError | DamagedFile>
  /** Removes a file; does nothing if it does not exist. */
  readonly remove: (key: Key) => Effect.Effect<void, FileError>
  /** Lists the last segment of every key that starts with the given segments. */
  readonly list: (key: Key) => Effect.Effect<ReadonlyArray<string>, FileError>
}

const textOf = (key: Key): string => key.join("/")

/**
 * Creates a store that keeps its files in memory.
 *
 * @since 0.1.0
 * @category constructors
 */
export const memory = (): Service => {
  const files = new Map<string, Uint8Array>()
  return {
    write: (key, bytes) =>
      Effect.as(
        Effect.sync(() => files.set(textOf(key), bytes)),
        undefined,
      ),
    read: (key) => {
      const bytes = files.get(textOf(key))
      return bytes === undefined ? new FileError({ key: textOf(key), cause: "file not found" }) : Effect.succeed(bytes)
    },
    remove: (key) => Effect.sync(() => void files.delete(textOf(key))),
    list: (key) =>
      Effect.sync(() => {
        const folder = `${textOf(key)}/`
        return [...files.keys()].flatMap((name) => (name.startsWith(folder) ? [name.slice(folder.length)] : []))
      }),
  }
}

/** Encodes a key segment as a file name that cannot point outside its directory. */
const safe = (name: string): string => encodeURIComponent(name).replaceAll(".", "%2E").replaceAll("*", "%2A")

/** Flushes a directory, so that a rename in it survives a power failure. */
const flushDirectory = async (path: string): Promise<void> => {
  const handle = await open(path, "r")
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Returns the SHA-256 in hexadecimal, computed outside the thread that answers requests. */
const checksumOf = async (bytes: Uint8Array): Promise<string> =>
  Buffer.from(await webcrypto.subtle.digest("SHA-256", bytes)).toString("hex")

const temporary = ".part-"

const writeAtomically = async (path: string, bytes: Uint8Array): Promise<void> => {
  await mkdir(dirname(path), { recursive: true, mode: directoryMode })
  const part = join(dirname(path), `${temporary}${randomUUID()}`)
  try {
    const handle = await open(part, "wx", fileMode)
    try {
      await handle.writeFile(bytes)
      await handle.sync()
    } finally {
      await handle.close()
    }
    await rename(part, path)
  } catch (cause) {
    await rm(part, { force: true })
    throw cause
  }
  await flushDirectory(dirname(path))
}

const namesIn = async (path: string): Promise<ReadonlyArray<string>> =>
  existsSync(path) ? (await readdir(path)).map(decodeURIComponent) : []

/** Removes temporary files that a killed process left behind, and makes everything else private. */
const tidy = async (root: string): Promise<void> => {
  await mkdir(root, { recursive: true, mode: directoryMode })
  await chmod(root, directoryMode)
  for (const entry of await readdir(root, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name)
    if (entry.isFile() && entry.name.startsWith(temporary)) await rm(path, { force: true })
    else if (entry.isFile()) await chmod(path, fileMode)
    else if (entry.isDirectory()) await chmod(path, directoryMode)
  }
}

/**
 * Creates a store below `root`, creating the directory if needed. Removes incomplete files that a killed process left
 * behind.
 *
 * @since 0.1.0
 * @category constructors
 */
export const directory = (root: string): Effect.Effect<Service, FileError> => {
  const attempt = <A>(key: Key, run: (path: string) => Promise<A>) =>
    Effect.tryPromise({
      try: () => run(join(root, ...key.map(safe))),
      catch: (cause) => new FileError({ key: textOf(key), cause }),
    })
  return Effect.as(
    attempt([], () => tidy(root)),
    {
      write: (key, bytes) =>
        Effect.uninterruptible(
          attempt(key, async (path) => {
            const checksum = await checksumOf(bytes)
            await writeAtomically(path, bytes)
            return checksum
          }),
        ),
      read: (key, checksum) =>
        Effect.filterOrFail(
          attempt(key, async (path) => {
            const bytes = await readFile(path)
            return { bytes, isIntact: checksum === undefined || (await checksumOf(bytes)) === checksum }
          }),
          ({ isIntact }) => isIntact,
          () => new DamagedFile({ key: textOf(key) }),
        ).pipe(Effect.map(({ bytes }) => bytes)),
      remove: (key) => attempt(key, (path) => rm(path, { force: true })),
      list: (key) => attempt(key, namesIn),
    },
  )
}
