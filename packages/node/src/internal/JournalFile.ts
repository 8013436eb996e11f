/** Implements a file to which entries are appended in the order of the calls. */
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

/**
 * Checks whether a record must survive a machine crash. If one of the others is lost, the client only has to ask the
 * server again.
 */
const mustLast = ({ record }: TrainingJournal.Entry): boolean => {
  switch (record._tag) {
    case "Opened":
    case "Resumed":
    case "Intent":
    case "Checkpoint":
    case "Completed":
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

/** Tracks which requests are still needed, and how many bytes are not. */
class Requests {
  waste = 0
  /** The frame position of each needed request, by sequence number. */
  private readonly kept = new Map<number, { readonly offset: number; readonly bytes: number }>()

  private outdatedBy(record: TrainingJournal.Record): Iterable<number> {
    if (record._tag === "Opened") return [...this.kept.keys()]
    return record._tag === "Intent" ? [record.seq] : Option.toArray(TrainingJournal.settles(record))
  }

  /** Must be called for every entry, in order. */
  note(record: TrainingJournal.Record, offset: number, bytes: number): void {
    for (const seq of this.outdatedBy(record)) {
      this.waste += this.kept.get(seq)?.bytes ?? 0
      this.kept.delete(seq)
    }
    if (record._tag === "Intent" && bytes > 0) this.kept.set(record.seq, { offset, bytes })
  }

  /** The offsets of the needed requests. */
  get offsets(): ReadonlySet<number> {
    return new Set(Array.from(this.kept.values(), ({ offset }) => offset))
  }

  /** Updates the offsets after the file was rewritten. */
  moved(to: ReadonlyMap<number, number>): void {
    for (const [seq, { bytes, offset }] of this.kept) this.kept.set(seq, { bytes, offset: to.get(offset) ?? offset })
    this.waste = 0
  }
}

export class JournalFile {
  /** Serializes the calls; never rejects. */
  private queue: Promise<unknown> = Promise.resolve()
  private readonly requests = new Requests()
  /** The end of the last complete frame. */
  private end = 0
  /** Whether there may be incomplete data after `end`. */
  private torn = false
  /** Why nothing can be written anymore. */
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

  /** Finds the end of the journal and truncates incomplete data. */
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
      // Runs after the pending calls.
      if (waste > this.wasteAllowed && waste > end - waste) void this.enqueue(() => this.shrink())
    })
  }

  private async cut(): Promise<void> {
    await this.file.truncate(this.end)
    this.torn = false
  }

  /** Writes all frames, or none. */
  private async add(frame: Frames.Frame, mustLast: boolean): Promise<number> {
    this.torn = true
    try {
      const end = await writeAll(this.file, frame, this.end)
      if (mustLast) await this.sync()
      this.torn = false
      return end
    } catch (error) {
      // Immediately: after a failed append, the entries must not be there after a restart.
      await this.cut().catch(() => undefined)
      throw error
    }
  }

  private async sync(): Promise<void> {
    try {
      await this.file.datasync()
    } catch (cause) {
      // It is unknown what reached the disk, and a retry could succeed without writing it.
      const detail = `${this.path} is no longer reliable: ${cause instanceof Error ? cause.message : String(cause)}`
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

  /** Rewrites the file without requests that are no longer needed. If that fails, it is tried again later. */
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

  /** Until the rename is durable, a crash may restore the old file, without later entries. */
  private async settleName(): Promise<void> {
    try {
      await syncDirectory(dirname(this.path))
    } catch (cause) {
      this.over = new JournalFailed({ reason: "Write", detail: `${this.path} is no longer reliable`, cause })
    }
  }

  /** Closes the journal after the pending calls. */
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

/** Resolves symbolic links: two names for one file are one journal. */
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
