/**
 * A file that one process at a time holds. It names its holder, so that the lock of a process that was killed can be
 * taken over, by exactly one of those who try.
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
  /** When it started, in the system's own words; null where they can't be had. */
  started: Schema.NullOr(Schema.String),
  /** No two holders ever have the same. */
  nonce: Schema.String,
})
type Holder = typeof Holder.Type

const holderFrom = Schema.decodeUnknownEither(Schema.parseJson(Holder))

export interface Lock {
  readonly release: () => Promise<void>
}

/** Somebody else has it; says who. */
export interface Held {
  readonly by: string
}

/** Of this process, where the system does not tell when a process started: a number alone may be that of a dead one. */
const ours = new Set<string>()

export const acquire = async (path: string): Promise<Either.Either<Lock, Held>> => {
  const { pid } = globalThis.process
  const holder: Holder = {
    pid,
    host: hostname(),
    started: (await lookUp(pid)).started,
    nonce: randomBytes(8).toString("hex"),
  }
  // Complete before it is there: nobody ever reads half of it.
  const mine = `${path}.${holder.nonce}.new`
  try {
    const file = await open(mine, "wx", 0o600)
    try {
      await file.writeFile(JSON.stringify(holder))
      // It need not last, but if it does it must be legible.
      await file.sync()
    } finally {
      await file.close()
    }
    const held = await settle(path, mine)
    if (held !== undefined) return Either.left(held)
  } finally {
    await rm(mine, { force: true })
  }
  ours.add(holder.nonce)
  const release = async () => {
    ours.delete(holder.nonce)
    // Somebody may have deleted it by hand, and then it is another's.
    const now = await read(path)
    if (now !== undefined && Either.isRight(now) && now.right.nonce === holder.nonce) await rm(path, { force: true })
  }
  return Either.right({ release })
}

/** Puts one's own file in the place of the lock; undefined if that is done. */
const settle = async (path: string, mine: string): Promise<Held | undefined> => {
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
    // Only who has the lock named after the dead holder may replace the dead holder's, and it is had only once.
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
    return Either.mapLeft(holderFrom(text), () => ({ by: `nobody knows whom: delete ${path} if nobody uses it` }))
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined
    throw error
  }
}

const describe = (path: string, { host, pid }: Holder): string =>
  host === hostname() ? `process ${pid}` : `process ${pid} on ${host}: if that is gone, delete ${path}`

const isAlive = async ({ host, nonce, pid, started }: Holder): Promise<boolean> => {
  // Nothing can be known of another machine, and so nothing may be taken from it.
  if (host !== hostname()) return true
  const found = await lookUp(pid)
  if (!found.exists) return false
  // The number was given to another process since.
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
    // Its name comes first, in parentheses, and may hold anything.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
    const dead = fields[0] === "Z" || fields[0] === "X"
    return { exists: !dead, started: fields[19] ?? null }
  } catch {
    return { exists: answers(pid), started: null }
  }
}

const answers = (pid: number): boolean => {
  try {
    globalThis.process.kill(pid, 0)
    return true
  } catch (error) {
    return codeOf(error) !== "ESRCH"
  }
}
