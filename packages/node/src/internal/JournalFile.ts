/** A file that entries are added to, one after the other in the order of the calls. */
import { constants } from "node:fs"
import { type FileHandle, open as openFile, realpath, rename, rm } from "node:fs/promises"
import { basename, dirname, join } from "node:path"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import { JournalFailed } from "effect-tinker/TinkerError"
import * as TrainingJournal from "effect-tinker/TrainingJournal"
import * as FileLock from "./FileLock.ts"
import { codeOf, syncDirectory } from "./Files.ts"
import * as Frames from "./JournalFrames.ts"

/** What must not be forgotten even if the machine dies. Of the others, each one lost only means asking the server. */
const mustLast = ({ record }: TrainingJournal.Entry): boolean => {
  switch (record._tag) {
    case "Opened":
    case "Resumed":
    case "Intent":
    case "Checkpoint":
      return true
    case "Learnt":
    case "Acknowledged":
    case "Withdrawn":
    case "Settled":
      return false
  }
}

const corrupt = (path: string, { offset, problem }: Frames.Damage) =>
  new JournalFailed({ reason: "Corrupt", detail: `${path}, at byte ${offset}: ${problem}` })

const writeAll = async (file: FileHandle, frames: Frames.Frame, from: number): Promise<number> => {
  let position = from
  for (const bytes of frames) {
    for (let done = 0; done < bytes.length;) {
      const { bytesWritten } = await file.write(bytes, done, bytes.length - done, position)
      done += bytesWritten
      position += bytesWritten
    }
  }
  return position
}

const readAll = async (file: FileHandle, length: number): Promise<Buffer> => {
  const bytes = Buffer.alloc(length)
  let done = 0
  while (done < length) {
    const { bytesRead } = await file.read(bytes, done, length - done, done)
    if (bytesRead === 0) break
    done += bytesRead
  }
  return bytes.subarray(0, done)
}

/** Which requests are still of use, and how many bytes are of none. */
class Requests {
  waste = 0
  /** Where the frame of each lies, by its number. */
  private readonly kept = new Map<number, { readonly offset: number; readonly bytes: number }>()

  private outdatedBy(record: TrainingJournal.Record): Iterable<number> {
    if (record._tag === "Opened") return [...this.kept.keys()]
    return record._tag === "Intent" ? [record.seq] : Option.toArray(TrainingJournal.settles(record))
  }

  /** To be told of every entry, in order. */
  note(record: TrainingJournal.Record, offset: number, bytes: number): void {
    for (const seq of this.outdatedBy(record)) {
      this.waste += this.kept.get(seq)?.bytes ?? 0
      this.kept.delete(seq)
    }
    if (record._tag === "Intent" && bytes > 0) this.kept.set(record.seq, { offset, bytes })
  }

  /** Where those lie that are of use. */
  get offsets(): ReadonlySet<number> {
    return new Set(Array.from(this.kept.values(), ({ offset }) => offset))
  }

  /** They lie elsewhere now, and the others nowhere. */
  moved(to: ReadonlyMap<number, number>): void {
    for (const [seq, { bytes, offset }] of this.kept) this.kept.set(seq, { bytes, offset: to.get(offset) ?? offset })
    this.waste = 0
  }
}

export class JournalFile {
  /** The calls, one after the other; it never rejects. */
  private queue: Promise<unknown> = Promise.resolve()
  private readonly requests = new Requests()
  /** Where what is whole ends. */
  private end = 0
  /** Is there something behind it? */
  private torn = false
  /** Why nothing can be written any more. */
  private over: JournalFailed | undefined = undefined

  private readonly path: string
  private file: FileHandle
  private readonly lock: FileLock.Lock
  private wasteAllowed: number

  constructor(path: string, file: FileHandle, lock: FileLock.Lock, wasteBytes: number) {
    this.path = path
    this.file = file
    this.lock = lock
    this.wasteAllowed = wasteBytes
  }

  private enqueue<A>(job: () => Promise<A>): Promise<A> {
    const done = this.queue.then(job)
    this.queue = done.catch(() => undefined)
    return done
  }

  private async contents(length: number): Promise<Frames.Contents> {
    const bytes = await readAll(this.file, length)
    return Either.getOrThrowWith(Frames.read(bytes), (damage) => corrupt(this.path, damage))
  }

  private decode(place: Frames.Place): TrainingJournal.Entry {
    return Either.getOrThrowWith(Frames.decode(place), (damage) => corrupt(this.path, damage))
  }

  /** Finds out where it ends, and cuts off what is not whole. */
  async load(): Promise<void> {
    const { size } = await this.file.stat()
    const { end, places } = await this.contents(size)
    for (const place of places) this.requests.note(this.decode(place).record, place.offset, place.request.length)
    this.end = end
    if (end < size) await this.file.truncate(end)
    if (end === 0) this.end = await writeAll(this.file, [Frames.preamble], 0)
    if (this.end !== size) await this.file.sync()
    await syncDirectory(dirname(this.path))
  }

  append(entries: ReadonlyArray<TrainingJournal.Entry>): Promise<void> {
    const frames = entries.map(Frames.encode)
    return this.enqueue(async () => {
      if (this.over !== undefined) throw this.over
      if (this.torn) await this.cut()
      const end = await this.add(frames.flat(), entries.some(mustLast))
      let offset = this.end
      for (const [i, { record }] of entries.entries()) {
        const [, ...request] = frames[i] ?? []
        this.requests.note(record, offset, Frames.lengthOf(request))
        offset += Frames.lengthOf(frames[i] ?? [])
      }
      this.end = end
      const { waste } = this.requests
      // Behind whoever waits for this.
      if (waste > this.wasteAllowed && waste > end - waste) void this.enqueue(() => this.shrink())
    })
  }

  private async cut(): Promise<void> {
    await this.file.truncate(this.end)
    this.torn = false
  }

  /** All of it, or as good as none. */
  private async add(frame: Frames.Frame, mustLast: boolean): Promise<number> {
    this.torn = true
    try {
      const end = await writeAll(this.file, frame, this.end)
      if (mustLast) await this.sync()
      this.torn = false
      return end
    } catch (error) {
      // At once: what the caller believes not to be there must not be there after a restart.
      await this.cut().catch(() => undefined)
      throw error
    }
  }

  private async sync(): Promise<void> {
    try {
      await this.file.datasync()
    } catch (cause) {
      // What of it reached the disk can't be known any more, and a second try would only pretend.
      const detail = `${this.path} can't be relied on: ${cause instanceof Error ? cause.message : String(cause)}`
      this.over = new JournalFailed({ reason: "Write", detail, cause })
      throw this.over
    }
  }

  read(): Promise<ReadonlyArray<TrainingJournal.Entry>> {
    return this.enqueue(async () => {
      const { places } = await this.contents(this.end)
      const kept = this.requests.offsets
      return places.map((place) => {
        const entry = this.decode(place)
        return kept.has(place.offset) ? entry : { record: entry.record }
      })
    })
  }

  /** Writes the file anew without the requests that are of no use. If that can't be done now, it is done later. */
  private async shrink(): Promise<void> {
    if (this.over !== undefined) return
    const fresh = freshName(this.path)
    let file: FileHandle | undefined
    try {
      const { places } = await this.contents(this.end)
      const kept = this.requests.offsets
      const moved = new Map<number, number>()
      const frames: Array<Uint8Array> = [Frames.preamble]
      let length = Frames.preamble.length
      for (const place of places) {
        const frame = kept.has(place.offset) ? Frames.whole(place) : Frames.withoutRequest(place)
        moved.set(place.offset, length)
        frames.push(...frame)
        length += Frames.lengthOf(frame)
      }
      file = await openFile(fresh, createNew, 0o600)
      await writeAll(file, [Buffer.concat(frames)], 0)
      await file.sync()
      await rename(fresh, this.path)
      await this.file.close().catch(() => undefined)
      this.file = file
      this.end = length
      this.torn = false
      this.requests.moved(moved)
    } catch {
      this.wasteAllowed *= 2
      await file?.close().catch(() => undefined)
      await rm(fresh, { force: true }).catch(() => undefined)
      return
    }
    await this.settleName()
  }

  /** Until the new name is durable the old file may come back, without what is written from here on. */
  private async settleName(): Promise<void> {
    try {
      await syncDirectory(dirname(this.path))
    } catch (cause) {
      this.over = new JournalFailed({ reason: "Write", detail: `${this.path} can't be relied on`, cause })
    }
  }

  /** When all that was asked for is done. */
  close(): Promise<unknown> {
    return this.enqueue(async () => {
      const wasOver = this.over !== undefined
      this.over ??= new JournalFailed({ reason: "Write", detail: `${this.path} is closed` })
      if (!wasOver) await this.file.datasync().catch(() => undefined)
      await this.file.close().catch(() => undefined)
      await this.lock.release().catch(() => undefined)
    })
  }
}

const freshName = (path: string): string => `${path}.new`

const createNew = constants.O_RDWR | constants.O_CREAT | constants.O_TRUNC

/** The file itself, whatever name leads to it: by two names it is still one journal. */
const resolve = async (path: string): Promise<string> => {
  try {
    return await realpath(path)
  } catch (error) {
    if (codeOf(error) !== "ENOENT") throw error
    return join(await realpath(dirname(path)), basename(path))
  }
}

export const open = async (given: string, wasteBytes: number): Promise<JournalFile> => {
  const path = await resolve(given)
  const lock = await FileLock.acquire(`${path}.lock`)
  if (Either.isLeft(lock)) throw new JournalFailed({ reason: "Locked", detail: `${path} is held by ${lock.left.by}` })
  let file: FileHandle | undefined
  try {
    await rm(freshName(path), { force: true })
    file = await openFile(path, constants.O_RDWR | constants.O_CREAT, 0o600)
    const journal = new JournalFile(path, file, lock.right, wasteBytes)
    await journal.load()
    return journal
  } catch (error) {
    await file?.close().catch(() => undefined)
    await lock.right.release()
    throw error
  }
}
