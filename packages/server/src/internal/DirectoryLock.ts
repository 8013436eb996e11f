/**
 * Lets one server at a time use a data directory. The lock is SQLite's exclusive lock on a file of its own, which the
 * operating system releases when the process ends, however it ends.
 */
import { type Client, createClient } from "@libsql/client"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { readFileSync, rmSync, writeFileSync } from "node:fs"
import { hostname } from "node:os"
import { join } from "node:path"
import host from "node:process"
import { ensureFile, fileMode, problemWith } from "./PrivateFiles.ts"

/** Reports that the lock could not be taken. */
export class LockError extends Data.TaggedError("LockError")<{ readonly message: string }> {}

/** The holder is named in a second file, because a locked database cannot be read. */
const holderFile = (directory: string): string => join(directory, "server.pid")

const holderOf = (directory: string): string => {
  try {
    return readFileSync(holderFile(directory), "utf8").trim()
  } catch {
    return "another process"
  }
}

const lock = async (directory: string) => {
  const path = join(directory, "lock.db")
  ensureFile(path)
  const client = createClient({ url: `file:${path}` })
  try {
    await client.execute("PRAGMA locking_mode = EXCLUSIVE")
    // The lock is taken by the first write and kept until the connection closes.
    await client.execute("PRAGMA user_version = 1")
    writeFileSync(holderFile(directory), `process ${host.pid} on ${hostname()}\n`, { mode: fileMode })
    return client
  } catch (cause) {
    client.close()
    throw cause
  }
}

/** Gives the lock back before the connection closes, because the client closes its connection only at some later time. */
const unlock = async (directory: string, client: Client): Promise<void> => {
  rmSync(holderFile(directory), { force: true })
  try {
    await client.execute("PRAGMA locking_mode = NORMAL")
    // The next access after the change of mode releases the lock.
    await client.execute("PRAGMA user_version")
  } catch {
    // The lock ends with the process.
  }
  client.close()
}

const lockError = (directory: string, cause: unknown): LockError =>
  new LockError({
    message:
      cause instanceof Error && Reflect.get(cause, "code") === "SQLITE_BUSY"
        ? `${directory} is in use by ${holderOf(directory)}; stop that server or use another directory`
        : (problemWith(directory, cause) ?? (cause instanceof Error ? cause.message : String(cause))),
  })

/** Locks a data directory until the scope closes; fails at once if another server uses it. */
export const acquire = (directory: string): Effect.Effect<void, LockError, Scope.Scope> =>
  Effect.asVoid(
    Effect.acquireRelease(
      Effect.tryPromise({ try: () => lock(directory), catch: (cause) => lockError(directory, cause) }),
      (client) => Effect.promise(() => unlock(directory, client)),
    ),
  )
