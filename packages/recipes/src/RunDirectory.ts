/**
 * Keeps a training run in a directory: `journal`, `config.json`, `events.jsonl`, `metrics.jsonl`, `checkpoints.jsonl`.
 * One process at a time can open a run; another one fails with `JournalFailed` and `Locked`.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as FileJournal from "@effect-tinker/node/FileJournal"
import type { JournalFailed } from "effect-tinker/TinkerError"
import { randomBytes } from "node:crypto"
import { mkdir, open, readFile, rename, rm } from "node:fs/promises"
import { join } from "node:path"
import { RunStoreFailed } from "./RunError.ts"
import { RunStore, type Service } from "./RunStore.ts"

/**
 * Opens the run in a directory until the scope closes, and creates the directory if needed.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (directory: string): Effect.Effect<Service, JournalFailed | RunStoreFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const attempt = <A>(reason: "Read" | "Write", file: string, run: (path: string) => Promise<A>) =>
      Effect.tryPromise({
        try: () => run(join(directory, file)),
        catch: (cause) => {
          const detail = cause instanceof Error ? cause.message : String(cause)
          return new RunStoreFailed({
            reason,
            run: directory,
            file: file === "" ? "the directory" : file,
            detail,
            cause,
          })
        },
      })
    yield* attempt("Write", "", (path) => mkdir(path, { recursive: true }))
    const journal = yield* FileJournal.make(join(directory, "journal"))
    const writing = yield* Effect.makeSemaphore(1)
    const exclusively = <A>(effect: Effect.Effect<A, RunStoreFailed>) =>
      Effect.uninterruptible(writing.withPermits(1)(effect))
    return {
      name: directory,
      journal,
      read: (file) => attempt("Read", file, async (path) => Option.fromNullable(await textOf(path))),
      write: (file, text) => exclusively(attempt("Write", file, (path) => replace(path, text))),
      lines: (file) => attempt("Read", file, async (path) => completeLines((await textOf(path)) ?? "")),
      append: (file, lines) =>
        lines.length === 0 ? Effect.void : exclusively(attempt("Write", file, (path) => appendLines(path, lines))),
    }
  })

/**
 * Provides the run in a directory.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (directory: string): Layer.Layer<RunStore, JournalFailed | RunStoreFailed> =>
  Layer.scoped(RunStore, make(directory))

const textOf = async (path: string): Promise<string | undefined> => {
  try {
    return await readFile(path, "utf8")
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined
    throw error
  }
}

const completeLines = (text: string): ReadonlyArray<string> => text.split("\n").slice(0, -1)

/** Writes the new content beside the file first, so that a crash leaves one of the two. */
const replace = async (path: string, text: string): Promise<void> => {
  const beside = `${path}.${randomBytes(4).toString("hex")}.new`
  try {
    const file = await open(beside, "wx")
    try {
      await file.writeFile(text)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(beside, path)
  } catch (error) {
    await rm(beside, { force: true })
    throw error
  }
}

/** A line that a crash cut off is removed before the next one is written. */
const appendLines = async (path: string, lines: ReadonlyArray<string>): Promise<void> => {
  const file = await open(path, "a+")
  try {
    const { size } = await file.stat()
    const end = await endOfLines(file, size)
    if (end < size) await file.truncate(end)
    await file.appendFile(lines.map((line) => `${line}\n`).join(""))
    await file.datasync()
  } finally {
    await file.close()
  }
}

/** Returns the length of a file without the incomplete line at its end. */
const endOfLines = async (file: Awaited<ReturnType<typeof open>>, size: number): Promise<number> => {
  const window = 64 * 1024
  for (let end = size; end > 0; end -= window) {
    const start = Math.max(0, end - window)
    const { buffer } = await file.read(Buffer.alloc(end - start), 0, end - start, start)
    const at = buffer.lastIndexOf(0x0a)
    if (at >= 0) return start + at + 1
  }
  return 0
}
