/**
 * The bytes of weights: files below a directory, or memory. A file is written under another name, flushed and renamed,
 * so that under its own name it is always whole.
 *
 * @since 0.1.0
 */
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import { randomUUID } from "node:crypto"
import { existsSync } from "node:fs"
import { mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises"
import { dirname, join } from "node:path"

/**
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
 * A key is a list of names; each may hold anything.
 *
 * @since 0.1.0
 * @category models
 */
export type Key = ReadonlyArray<string>

/**
 * @since 0.1.0
 * @category models
 */
export interface Service {
  readonly write: (key: Key, bytes: Uint8Array) => Effect.Effect<void, FileError>
  readonly read: (key: Key) => Effect.Effect<Uint8Array, FileError>
  /** Of what is not there, nothing is removed. */
  readonly remove: (key: Key) => Effect.Effect<void, FileError>
  /** The last names of the keys that begin so. */
  readonly list: (key: Key) => Effect.Effect<ReadonlyArray<string>, FileError>
}

const textOf = (key: Key): string => key.join("/")

/**
 * @since 0.1.0
 * @category constructors
 */
export const memory = (): Service => {
  const files = new Map<string, Uint8Array>()
  return {
    write: (key, bytes) => Effect.sync(() => void files.set(textOf(key), bytes)),
    read: (key) => {
      const bytes = files.get(textOf(key))
      return bytes === undefined ? new FileError({ key: textOf(key), cause: "is not there" }) : Effect.succeed(bytes)
    },
    remove: (key) => Effect.sync(() => void files.delete(textOf(key))),
    list: (key) =>
      Effect.sync(() => {
        const folder = `${textOf(key)}/`
        return [...files.keys()].flatMap((name) => (name.startsWith(folder) ? [name.slice(folder.length)] : []))
      }),
  }
}

/** A name as a file name: nothing in it leads elsewhere. */
const safe = (name: string): string => encodeURIComponent(name).replaceAll(".", "%2E").replaceAll("*", "%2A")

/** The rename itself must reach the disk, too. */
const flushDirectory = async (path: string): Promise<void> => {
  const handle = await open(path, "r")
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

const temporary = ".part-"

const writeWhole = async (path: string, bytes: Uint8Array): Promise<void> => {
  await mkdir(dirname(path), { recursive: true })
  const part = join(dirname(path), `${temporary}${randomUUID()}`)
  try {
    const handle = await open(part, "wx")
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

/** What a killed process left half written. */
const sweep = async (root: string): Promise<void> => {
  await mkdir(root, { recursive: true })
  for (const entry of await readdir(root, { recursive: true, withFileTypes: true }))
    if (entry.isFile() && entry.name.startsWith(temporary))
      await rm(join(entry.parentPath, entry.name), { force: true })
}

/**
 * Below a directory, which is made. What was left half written by a process that was killed is removed.
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
    attempt([], () => sweep(root)),
    {
      write: (key, bytes) => Effect.uninterruptible(attempt(key, (path) => writeWhole(path, bytes))),
      read: (key) => attempt(key, (path) => readFile(path)),
      remove: (key) => attempt(key, (path) => rm(path, { force: true })),
      list: (key) => attempt(key, namesIn),
    },
  )
}
