/**
 * Implements a lock file that one process at a time can hold. It names its holder, so that the lock of a killed process
 * can be taken over by exactly one of the contenders.
 */
import { randomBytes } from "node:crypto"
import { link, open, readFile, rename, rm } from "node:fs/promises"
import { hostname } from "node:os"
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import { codeOf } from "./Files.ts"

const Holder = Schema.Struct({
  pid: Schema.Int,
  host: Schema.String,
  /** Start time of the process, in the format of the operating system; null if unavailable. */
  started: Schema.NullOr(Schema.String),
  /** Unique for every holder. */
  nonce: Schema.String,
})
type Holder = typeof Holder.Type

const holderFrom = Schema.decodeUnknownEither(Schema.parseJson(Holder))

export interface Lock {
  readonly release: () => Promise<void>
}

/** The lock is held by another process. */
export interface Held {
  readonly by: string
}

/** Nonces of the locks of this process. Without start times, a process id alone may belong to a dead process. */
const ours = new Set<string>()

export const acquire = async (path: string): Promise<Either.Either<Lock, Held>> => {
  const { pid } = globalThis.process
  const holder: Holder = {
    pid,
    host: hostname(),
    started: (await lookUp(pid)).started,
    nonce: randomBytes(8).toString("hex"),
  }
  // Written before it is linked, so that the lock file is never incomplete.
  const mine = `${path}.${holder.nonce}.new`
  try {
    const file = await open(mine, "wx", 0o600)
    try {
      await file.writeFile(JSON.stringify(holder))
      // The file need not survive a crash, but if it does, it must be readable.
      await file.sync()
    } finally {
      await file.close()
    }
    const held = await take(path, mine)
    if (held !== undefined) return Either.left(held)
  } finally {
    await rm(mine, { force: true })
  }
  ours.add(holder.nonce)
  const release = async () => {
    ours.delete(holder.nonce)
    // The file may have been deleted manually and then belongs to another holder.
    const now = await read(path)
    if (now !== undefined && Either.isRight(now) && now.right.nonce === holder.nonce) await rm(path, { force: true })
  }
  return Either.right({ release })
}

/** Links the own file as the lock; returns undefined on success. */
const take = async (path: string, mine: string): Promise<Held | undefined> => {
  for (;;) {
    try {
      await link(mine, path)
      return undefined
    } catch (error) {
      if (codeOf(error) !== "EEXIST") throw error
    }
    const found = await read(path)
    if (found === undefined) continue
    if (Either.isLeft(found)) return found.left
    const holder = found.right
    if (await isAlive(holder)) return { by: describe(path, holder) }
    // To replace a dead holder's lock, a process must first hold the lock named after it, which only one can.
    const claim = await acquire(`${path}.${holder.nonce}`)
    if (Either.isLeft(claim)) return claim.left
    try {
      const now = await read(path)
      if (now === undefined || Either.isLeft(now) || now.right.nonce !== holder.nonce) continue
      await rename(mine, path)
      return undefined
    } finally {
      await claim.right.release()
    }
  }
}

const read = async (path: string): Promise<Either.Either<Holder, Held> | undefined> => {
  try {
    const text = await readFile(path, "utf8")
    return Either.mapLeft(holderFrom(text), () => ({ by: `an unknown process; delete ${path} if it is not in use` }))
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined
    throw error
  }
}

const describe = (path: string, { host, pid }: Holder): string =>
  host === hostname() ? `process ${pid}` : `process ${pid} on ${host}; if that process no longer exists, delete ${path}`

const isAlive = async ({ host, nonce, pid, started }: Holder): Promise<boolean> => {
  // The state of a process on another machine is unknown, so its lock must not be taken over.
  if (host !== hostname()) return true
  const found = await lookUp(pid)
  if (!found.exists) return false
  // A different start time means that the process id was reused.
  if (started !== null && found.started !== null) return started === found.started
  return pid !== globalThis.process.pid || ours.has(nonce)
}

interface Found {
  readonly exists: boolean
  readonly started: string | null
}

const lookUp = async (pid: number): Promise<Found> => {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, "latin1")
    // The process name comes first, in parentheses, and may contain any characters.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
    const dead = fields[0] === "Z" || fields[0] === "X"
    return { exists: !dead, started: fields[19] ?? null }
  } catch {
    return { exists: exists(pid), started: null }
  }
}

const exists = (pid: number): boolean => {
  try {
    globalThis.process.kill(pid, 0)
    return true
  } catch (error) {
    return codeOf(error) !== "ESRCH"
  }
}
