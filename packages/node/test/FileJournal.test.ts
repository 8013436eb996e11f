import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import {
  appendFile,
  type FileHandle,
  open,
  readdir,
  readFile,
  stat,
  symlink,
  truncate,
  writeFile,
} from "node:fs/promises"
import { hostname } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { describe, expect, it } from "@effect/vitest"
import { FileJournal } from "@effect-tinker/node"
import { Effect, Either, Exit, FastCheck as fc, Fiber, Layer, Option, Redacted, Scope } from "effect"
import { Loss, RateLimiter, ServiceClient, TinkerConfig, type TinkerError, type TrainingJournal } from "effect-tinker"
import * as Transport from "effect-tinker/Transport"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import { vi } from "vitest"
// Not exported by the package; the compiler does not rewrite `.ts` imports into another project.
import { whole } from "../src/internal/JournalFrames.js"
import { bundle, directory } from "./kill/bundle.ts"

const opened: TrainingJournal.Record = {
  _tag: "Opened",
  baseUrl: "http://a",
  sessionId: "s",
  modelId: "m",
  from: Option.none(), firstStep: 0,
}

const intent = (seq: number, bytes?: Uint8Array): TrainingJournal.Entry => ({
  record: {
    _tag: "Intent",
    seq,
    operation: "optim_step",
    kind: "OptimStep",
    chunk: 0,
    chunks: 1,
    repeatable: false,
    idempotencyKey: `key-${seq}`,
    hash: "h",
    tag: Option.some(`step ${seq}`),
  },
  ...(bytes !== undefined && { request: { path: "optim_step", contentType: "application/json", bytes } }),
})

const acknowledged = (seq: number): TrainingJournal.Entry => ({
  record: { _tag: "Acknowledged", seq, requestId: `r${seq}` },
})

const bytes = (seq: number) => new TextEncoder().encode(`the bytes of ${seq}`)

const entries: ReadonlyArray<TrainingJournal.Entry> = [
  { record: opened },
  { record: { _tag: "Learnt", wire: Option.some("json"), refusedUsesNumber: true, guardsNumbers: Option.none() } },
  intent(1, bytes(1)),
  acknowledged(1),
  { record: { _tag: "Settled", seq: 1, succeeded: true } },
  { record: { _tag: "Checkpoint", seq: 1, path: "tinker://m/weights/a", withOptimizer: true } },
  { record: { _tag: "Resumed" } },
  intent(2, bytes(2)),
]

/** Returns the entries as they are read back: settled intents without their request. */
const kept = (entries: ReadonlyArray<TrainingJournal.Entry>) => {
  const settled = new Set(entries.flatMap(({ record }) => (record._tag === "Acknowledged" ? [record.seq] : [])))
  return entries.map((entry) =>
    entry.record._tag === "Intent" && settled.has(entry.record.seq) ? { record: entry.record } : entry,
  )
}

/** Opens a journal, uses it, and closes it. */
const using = <A, E>(
  path: string,
  use: (journal: TrainingJournal.Journal) => Effect.Effect<A, E>,
  options?: FileJournal.Options,
) => Effect.scoped(Effect.flatMap(FileJournal.make(path, options), use))

const readAt = (path: string) => using(path, ({ read }) => read)

/** Writes the entries one by one and returns the offsets at which they end. */
const written = (path: string, entries: ReadonlyArray<TrainingJournal.Entry>) =>
  using(path, ({ append }) =>
    Effect.gen(function* () {
      const ends = [yield* sizeOf(path)]
      for (const entry of entries) {
        yield* append([entry])
        ends.push(yield* sizeOf(path))
      }
      return ends
    }),
  )

const sizeOf = (path: string) =>
  Effect.map(
    Effect.promise(() => stat(path)),
    ({ size }) => size,
  )

const contentsOf = (path: string) => Effect.promise(() => readFile(path))

const failure = <A, R>(effect: Effect.Effect<A, TinkerError.JournalFailed, R>) =>
  Effect.map(Effect.flip(effect), ({ detail, reason }) => ({ reason, detail }))

const inDirectory = <A, E>(use: (path: string) => Effect.Effect<A, E, Scope.Scope>) =>
  Effect.scoped(Effect.flatMap(directory, use))

const every = <A>(items: ReadonlyArray<A>, check: (item: A) => Effect.Effect<unknown, unknown>) =>
  Effect.forEach(items, check, { concurrency: 8, discard: true })

const range = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i)

describe("FileJournal entries", () => {
  it.live("entries can be read back in the same and in a later session", () =>
    inDirectory((dir) =>
      Effect.gen(function* () {
        const path = join(dir, "journal")
        yield* using(path, (journal) =>
          Effect.gen(function* () {
            expect(yield* journal.read).toEqual([])
            yield* journal.append(entries.slice(0, 3))
            yield* journal.append(entries.slice(3))
            expect(yield* journal.read).toEqual(kept(entries))
          }),
        )
        expect(yield* readAt(path)).toEqual(kept(entries))
      }),
    ),
  )

  it.live("journal and lock file are readable only by their owner", () =>
    inDirectory((dir) =>
      using(join(dir, "journal"), () =>
        Effect.gen(function* () {
          const names = yield* Effect.promise(() => readdir(dir))
          expect(names.toSorted()).toEqual(["journal", "journal.lock"])
          for (const name of names)
            expect((yield* Effect.promise(() => stat(join(dir, name)))).mode & 0o777).toBe(0o600)
        }),
      ),
    ),
  )

  it.live("concurrent appends keep the order of the calls", () =>
    inDirectory((dir) =>
      using(join(dir, "journal"), ({ append, read }) =>
        Effect.gen(function* () {
          const all = range(0, 200).map((seq) => (seq % 3 === 0 ? intent(seq, bytes(seq)) : acknowledged(seq)))
          yield* Effect.forEach(all, (entry) => append([entry]), { concurrency: "unbounded" })
          expect((yield* read).map(({ record }) => record)).toEqual(all.map(({ record }) => record))
        }),
      ),
    ),
  )

  it.live("an interrupted append still writes the whole entry", () =>
    inDirectory((dir) =>
      using(join(dir, "journal"), ({ append, read }) =>
        Effect.gen(function* () {
          const fiber = yield* Effect.fork(append([intent(1, new Uint8Array(4_000_000).fill(7))]))
          yield* Effect.yieldNow()
          yield* Fiber.interrupt(fiber)
          yield* append([intent(2)])
          const [first, second] = yield* read
          expect(Buffer.alloc(4_000_000, 7).equals(first?.request?.bytes ?? Buffer.alloc(0))).toBe(true)
          expect(second).toEqual(intent(2))
        }),
      ),
    ),
  )

  it.live("requests may contain any bytes", () =>
    inDirectory((dir) =>
      Effect.promise(() =>
        fc.assert(
          fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 5 }), async (bodies) => {
            const path = join(dir, `journal-${Math.random()}`)
            const all = bodies.map((body, seq) => intent(seq, body))
            await Effect.runPromise(using(path, ({ append }) => append(all)))
            expect(await Effect.runPromise(readAt(path))).toEqual(all)
          }),
          { numRuns: 30 },
        ),
      ),
    ),
  )
})

/** Every position in `test:all`, otherwise every fifth. */
const places = (from: number, to: number) =>
  range(from, to).filter((i) => process.env["TINKER_TESTS"] === "all" || i % 5 === 0 || i === to - 1)

describe("truncated FileJournal", () => {
  it.live("a journal truncated at any byte keeps its complete records and can be continued", () =>
    inDirectory((dir) =>
      Effect.gen(function* () {
        const path = join(dir, "journal")
        const few = [{ record: opened }, intent(1, bytes(1)), acknowledged(1), intent(2, bytes(2))]
        const ends = yield* written(path, few)
        const whole = yield* contentsOf(path)
        expect(whole.length).toBe(ends.at(-1))
        yield* every(places(0, whole.length + 1), (length) =>
          Effect.gen(function* () {
            const cut = join(dir, `cut-${length}`)
            yield* Effect.promise(() => writeFile(cut, whole.subarray(0, length)))
            const complete = few.slice(0, ends.slice(1).filter((end) => end <= length).length)
            yield* using(cut, ({ append, read }) =>
              Effect.gen(function* () {
                expect(yield* read).toEqual(kept(complete))
                yield* append([acknowledged(9)])
                expect(yield* read).toEqual([...kept(complete), acknowledged(9)])
              }),
            )
            // Also after reopening.
            if (length % 10 === 0) expect(yield* readAt(cut)).toEqual([...kept(complete), acknowledged(9)])
          }),
        )
      }),
    ),
  )

  it.live("trailing zeros of an unfinished write are removed", () =>
    inDirectory((dir) =>
      Effect.gen(function* () {
        const path = join(dir, "journal")
        const ends = yield* written(path, entries)
        const before = ends.at(-2)!
        yield* Effect.promise(() => truncate(path, before + 7))
        yield* Effect.promise(() => truncate(path, ends.at(-1)! + 5_000))
        expect(yield* readAt(path)).toEqual(kept(entries.slice(0, -1)))
        expect(yield* sizeOf(path)).toBe(before)
      }),
    ),
  )
})

describe("damaged FileJournal", () => {
  it.live("a damaged byte before the last record is reported as Corrupt with its offset", () =>
    inDirectory((dir) =>
      Effect.gen(function* () {
        const path = join(dir, "journal")
        const few = entries.slice(0, 4)
        const ends = yield* written(path, few)
        const whole = yield* contentsOf(path)
        yield* every(places(0, ends.at(-2)!), (at) =>
          Effect.gen(function* () {
            const damaged = join(dir, `damaged-${at}`)
            const copy = Buffer.from(whole)
            copy.writeUInt8(copy.readUInt8(at) ^ 0x10, at)
            yield* Effect.promise(() => writeFile(damaged, copy))
            const { detail, reason } = yield* failure(readAt(damaged))
            expect(reason).toBe("Corrupt")
            const offset = at < ends[0]! ? 0 : ends.findLast((end) => end <= at)!
            expect(detail).toContain(`${damaged}, at byte ${offset}: `)
            // The damaged file is not modified.
            expect(yield* contentsOf(damaged)).toEqual(copy)
          }),
        )
      }),
    ),
  )

  it.live("a file that is not a journal is refused and left unchanged", () =>
    inDirectory((dir) =>
      Effect.gen(function* () {
        const path = join(dir, "notes")
        yield* Effect.promise(() => writeFile(path, "my dear diary"))
        expect(yield* failure(readAt(path))).toEqual({
          reason: "Corrupt",
          detail: `${path}, at byte 0: not a journal file`,
        })
        expect((yield* contentsOf(path)).toString()).toBe("my dear diary")
        // The lock is released.
        expect(yield* Effect.promise(() => readdir(dir))).toEqual(["notes"])
      }),
    ),
  )

  it.live("a record of an unknown kind is reported as Corrupt", () =>
    inDirectory((dir) =>
      Effect.gen(function* () {
        const path = join(dir, "journal")
        const ends = yield* written(path, entries)
        const record = Buffer.from(JSON.stringify({ _tag: "Abdicated" }))
        yield* Effect.promise(() =>
          appendFile(path, Buffer.concat(whole({ offset: 0, end: 0, record, request: Buffer.alloc(0) }))),
        )
        const { detail, reason } = yield* failure(readAt(path))
        expect(reason).toBe("Corrupt")
        expect(detail).toContain(`at byte ${ends.at(-1)}: record of an unknown kind`)
      }),
    ),
  )
})

/** Returns the id of a process that has exited. */
const deadPid = () => spawnSync("true").pid

const lockOf = (holder: Readonly<Record<string, unknown>>) =>
  JSON.stringify({ pid: process.pid, host: hostname(), started: null, nonce: "0123456789abcdef", ...holder })

describe("FileJournal lock", () => {
  it.live("the lock is held until the scope closes, also against symbolic links to the file", () =>
    inDirectory((dir) =>
      Effect.gen(function* () {
        const path = join(dir, "journal")
        const scope = yield* Scope.make()
        const journal = yield* Scope.extend(FileJournal.make(path), scope)
        yield* Effect.promise(() => symlink(path, join(dir, "alias")))
        for (const name of ["journal", "alias"])
          expect(yield* failure(readAt(join(dir, name)))).toEqual({
            reason: "Locked",
            detail: `${path} is held by process ${process.pid}`,
          })
        yield* journal.append([intent(1)])
        yield* Scope.close(scope, Exit.void)
        expect(yield* readAt(join(dir, "alias"))).toEqual([intent(1)])
        expect((yield* failure(journal.append([intent(2)]))).detail).toBe(`${path} is closed`)
      }),
    ),
  )

  it.live("closing the scope waits for a pending append", () =>
    inDirectory((dir) =>
      Effect.gen(function* () {
        const path = join(dir, "journal")
        const scope = yield* Scope.make()
        const { append } = yield* Scope.extend(FileJournal.make(path), scope)
        const fiber = yield* Effect.fork(append([intent(1, new Uint8Array(1_000_000)), acknowledged(1)]))
        yield* Effect.yieldNow()
        yield* Scope.close(scope, Exit.void)
        expect((yield* readAt(path)).map(({ record }) => record._tag)).toEqual(["Intent", "Acknowledged"])
        expect(Exit.isSuccess(yield* Fiber.await(fiber))).toBe(true)
      }),
    ),
  )

  it.live("the lock of a dead process is taken over, but not one of another machine", () =>
    inDirectory((dir) =>
      Effect.gen(function* () {
        const path = join(dir, "journal")
        const lock = `${path}.lock`
        const dead = [
          { pid: deadPid() },
          // The id of this process, held by an earlier process.
          {},
          { started: "1" },
          // The id of a running process that started at another time.
          { pid: 1, started: "not then" },
        ]
        for (const holder of dead) {
          yield* Effect.promise(() => writeFile(lock, lockOf(holder)))
          expect(yield* readAt(path)).toEqual([])
          expect(yield* Effect.promise(() => readdir(dir))).toEqual(["journal"])
        }
        yield* Effect.promise(() => writeFile(lock, lockOf({ host: "elsewhere", pid: 12 })))
        expect(yield* failure(readAt(path))).toEqual({
          reason: "Locked",
          detail: `${path} is held by process 12 on elsewhere; if that process no longer exists, delete ${lock}`,
        })
        yield* Effect.promise(() => writeFile(lock, "{"))
        expect((yield* failure(readAt(path))).reason).toBe("Locked")
      }),
    ),
  )

  it.live("the lock of a dead process is taken over even if an earlier takeover died", () =>
    inDirectory((dir) =>
      Effect.gen(function* () {
        const path = join(dir, "journal")
        const pid = deadPid()
        yield* Effect.promise(() => writeFile(`${path}.lock`, lockOf({ pid, nonce: "a" })))
        yield* Effect.promise(() => writeFile(`${path}.lock.a`, lockOf({ pid, nonce: "b" })))
        yield* Effect.promise(() => writeFile(`${path}.lock.a.b`, lockOf({ pid, nonce: "c" })))
        expect(yield* readAt(path)).toEqual([])
        expect(yield* Effect.promise(() => readdir(dir))).toEqual(["journal"])
      }),
    ),
  )

  it.live("only one of many concurrent calls gets the lock", () =>
    inDirectory((dir) =>
      Effect.forEach(
        range(0, 10),
        (round) =>
          Effect.gen(function* () {
            const path = join(dir, `journal-${round}`)
            if (round % 2 === 0)
              yield* Effect.promise(() => writeFile(`${path}.lock`, lockOf({ pid: deadPid(), nonce: "a" })))
            const scope = yield* Scope.make()
            const tries = yield* Effect.forEach(
              range(0, 10),
              () => Effect.either(Scope.extend(FileJournal.make(path), scope)),
              { concurrency: "unbounded" },
            )
            expect(tries.filter(Either.isRight).length).toBe(1)
            expect(tries.flatMap((result) => (Either.isLeft(result) ? [result.left.reason] : []))).toEqual(
              Array.from({ length: 9 }, () => "Locked"),
            )
            yield* Scope.close(scope, Exit.void)
          }),
        { discard: true },
      ),
    ),
  )

  it.live("only one of many processes gets the lock, with or without the lock of a dead process", () =>
    inDirectory((dir) =>
      Effect.gen(function* () {
        const [program = ""] = yield* bundle("contender.ts")
        const contenders = yield* Effect.forEach(range(0, 4), () => contender(program))
        for (const round of range(0, 24)) {
          const path = join(dir, `journal-${round}`)
          if (round % 4 !== 0)
            yield* Effect.promise(() => writeFile(`${path}.lock`, lockOf({ pid: deadPid(), nonce: "a" })))
          if (round % 4 === 3)
            yield* Effect.promise(() => writeFile(`${path}.lock.a`, lockOf({ pid: deadPid(), nonce: "b" })))
          const answers = yield* Effect.forEach(contenders, ({ ask }) => ask(path), { concurrency: "unbounded" })
          expect(answers.toSorted()).toEqual(["Locked", "Locked", "Locked", "won"])
          yield* Effect.forEach(contenders, ({ ask }) => ask(""), { concurrency: "unbounded" })
        }

        // The lock of a killed process is free.
        const path = join(dir, "journal")
        const { ask, child } = contenders[0]!
        expect(yield* ask(path)).toBe("won")
        expect((yield* failure(readAt(path))).detail).toBe(`${path} is held by process ${child.pid}`)
        yield* killed(child)
        expect(yield* readAt(path)).toEqual([])
      }),
    ),
  )
})

const killed = (child: ChildProcess) =>
  Effect.async<void>((resume) => {
    if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
    child.once("exit", () => resume(Effect.void))
    child.kill("SIGKILL")
  })

/** Starts a process that opens journals on request. */
const contender = (program: string) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => spawn(process.execPath, [program], { stdio: ["pipe", "pipe", "inherit"] })),
      killed,
    ),
    (child) => {
      const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
      return {
        child,
        ask: (path: string) =>
          Effect.promise(async () => {
            child.stdin.write(`${path}\n`)
            return String((await lines.next()).value)
          }),
      }
    },
  )

describe("FileJournal size", () => {
  it.live("acknowledged requests do not make the file grow", () =>
    inDirectory((dir) =>
      Effect.gen(function* () {
        const path = join(dir, "journal")
        const body = new Uint8Array(100_000).fill(3)
        const steps = 300
        let largest = 0
        yield* using(
          path,
          ({ append }) =>
            Effect.forEach(range(1, steps + 1), (seq) =>
              Effect.gen(function* () {
                yield* append([intent(seq, body)])
                // One request is never acknowledged, another is withdrawn.
                if (seq !== 7) yield* append([seq === 9 ? { record: { _tag: "Withdrawn", seq } } : acknowledged(seq)])
                largest = Math.max(largest, yield* sizeOf(path))
              }),
            ),
          { wasteBytes: 1_000_000 },
        )
        expect(largest).toBeLessThan(1_500_000)
        const read = yield* readAt(path)
        expect(read.length).toBe(2 * steps - 1)
        expect(read.flatMap(({ record, request }) => (request === undefined ? [] : [record]))).toEqual([
          intent(7).record,
        ])
        expect(read.find(({ request }) => request !== undefined)?.request?.bytes).toEqual(body)
        expect((yield* Effect.promise(() => stat(path))).mode & 0o777).toBe(0o600)
        expect(yield* Effect.promise(() => readdir(dir))).toEqual(["journal"])
      }),
    ),
  )

  it.live("compaction includes requests of earlier sessions and of an earlier client", () =>
    inDirectory((dir) =>
      Effect.gen(function* () {
        const path = join(dir, "journal")
        const body = new Uint8Array(100_000).fill(3)
        yield* using(path, ({ append }) => append(range(1, 6).map((seq) => intent(seq, body))))
        const options = { wasteBytes: 10_000 }
        yield* using(path, ({ append }) => append(range(1, 4).map(acknowledged)), options)
        expect(yield* sizeOf(path)).toBeLessThan(203_000)
        yield* using(path, ({ append }) => append([{ record: opened }]), options)
        expect(yield* sizeOf(path)).toBeLessThan(3_000)
        expect((yield* readAt(path)).length).toBe(9)
      }),
    ),
  )

  it.live("an interrupted compaction does not change the journal", () =>
    inDirectory((dir) =>
      Effect.gen(function* () {
        const path = join(dir, "journal")
        yield* written(path, entries)
        yield* Effect.promise(() => writeFile(`${path}.new`, "half of it"))
        expect(yield* readAt(path)).toEqual(kept(entries))
        expect(yield* Effect.promise(() => readdir(dir))).toEqual(["journal"])
      }),
    ),
  )
})

type Method = "write" | "datasync" | "truncate"

/** Replaces a method of all open files until the scope closes; these tests run sequentially. */
const during = (
  method: Method,
  replacement: (original: (...args: ReadonlyArray<unknown>) => Promise<unknown>, n: number) => Promise<unknown>,
) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const file = await open("/dev/null")
      const prototype: Record<Method, (...args: Array<unknown>) => Promise<unknown>> = Object.getPrototypeOf(file)
      await file.close()
      const original = prototype[method]
      let calls = 0
      return vi.spyOn(prototype, method).mockImplementation(function (this: FileHandle, ...args) {
        return replacement((...given) => original.apply(this, given.length > 0 ? [...given] : args), calls++)
      })
    }),
    (spy) => Effect.sync(() => spy.mockRestore()),
  )

const noSpace = Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" })
const badDisk = Object.assign(new Error("EIO: i/o error, fdatasync"), { code: "EIO" })

describe.sequential("FileJournal disk failures", () => {
  it.live("append flushes intents to disk, but not acknowledgments", () =>
    inDirectory((dir) =>
      using(join(dir, "journal"), ({ append }) =>
        Effect.scoped(
          Effect.gen(function* () {
            const log: Array<string> = []
            yield* during("datasync", async (original) => {
              await original()
              log.push("on disk")
            })
            yield* append([acknowledged(1), { record: { _tag: "Settled", seq: 1, succeeded: true } }])
            log.push("acknowledged")
            yield* append([intent(2, bytes(2)), intent(3)])
            log.push("intended")
            expect(log).toEqual(["acknowledged", "on disk", "intended"])
          }),
        ),
      ),
    ),
  )

  it.live("append on a full disk fails, leaves no partial record, and works again later", () =>
    inDirectory((dir) =>
      Effect.gen(function* () {
        const path = join(dir, "journal")
        yield* using(path, ({ append, read }) =>
          Effect.gen(function* () {
            yield* append([intent(1, bytes(1))])
            const size = yield* sizeOf(path)
            yield* Effect.scoped(
              Effect.gen(function* () {
                // Only twelve bytes fit.
                yield* during("write", async (original, n) => {
                  if (n > 0) throw noSpace
                  return await original(Buffer.alloc(12, 1), 0, 12, size)
                })
                expect(yield* failure(append([intent(2, bytes(2))]))).toEqual({
                  reason: "Write",
                  detail: noSpace.message,
                })
              }),
            )
            expect(yield* sizeOf(path)).toBe(size)
            yield* append([intent(3)])
            expect(yield* read).toEqual([intent(1, bytes(1)), intent(3)])
          }),
        )
        expect(yield* readAt(path)).toEqual([intent(1, bytes(1)), intent(3)])
      }),
    ),
  )

  it.live("a partial record that could not be truncated is truncated before the next append", () =>
    inDirectory((dir) =>
      using(join(dir, "journal"), ({ append, read }) =>
        Effect.gen(function* () {
          const path = join(dir, "journal")
          yield* append([intent(1)])
          const size = yield* sizeOf(path)
          yield* Effect.scoped(
            Effect.gen(function* () {
              yield* during("write", async (original, n) => {
                if (n > 0) throw noSpace
                return await original(Buffer.alloc(900, 1), 0, 900, size)
              })
              yield* during("truncate", () => Promise.reject(noSpace))
              expect((yield* failure(append([intent(2, new Uint8Array(2_000))]))).reason).toBe("Write")
            }),
          )
          expect(yield* sizeOf(path)).toBe(size + 900)
          yield* append([acknowledged(1)])
          expect((yield* read).map(({ record }) => record)).toEqual([intent(1).record, acknowledged(1).record])
          expect(yield* sizeOf(path)).toBeLessThan(size + 200)
        }),
      ),
    ),
  )

  it.live("a journal refuses further appends after a failed flush", () =>
    inDirectory((dir) =>
      Effect.gen(function* () {
        const path = join(dir, "journal")
        yield* using(path, ({ append }) =>
          Effect.gen(function* () {
            yield* append([intent(1)])
            yield* Effect.scoped(
              Effect.zipRight(
                during("datasync", () => Promise.reject(badDisk)),
                failure(append([intent(2)])),
              ),
            )
            expect(yield* failure(append([acknowledged(1)]))).toEqual({
              reason: "Write",
              detail: `${path} is no longer reliable: ${badDisk.message}`,
            })
          }),
        )
        // The failed entry is not in the file.
        expect(yield* readAt(path)).toEqual([intent(1)])
      }),
    ),
  )

  it.live("a missing directory, or a directory in place of the file, is reported", () =>
    inDirectory((dir) =>
      Effect.gen(function* () {
        const missing = yield* failure(readAt(join(dir, "missing", "journal")))
        expect(missing.reason).toBe("Write")
        expect(missing.detail).toContain("ENOENT")
        const inPlace = yield* failure(readAt(dir))
        expect(inPlace.reason).toBe("Write")
        expect(inPlace.detail).toContain("EISDIR")
        expect(yield* Effect.promise(() => readdir(dir))).toEqual([])
      }),
    ),
  )
})

const onServer = (options?: ScriptedServer.Options) =>
  ServiceClient.layer().pipe(
    Layer.provide(Transport.layer),
    Layer.provide(TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make("tml-key-of-mine") })),
    Layer.provide(RateLimiter.layer),
    Layer.provideMerge(ScriptedServer.layer(options)),
  )

it.live("FileJournal writes no secrets to disk", () =>
  inDirectory((dir) =>
    Effect.gen(function* () {
      const path = join(dir, "journal")
      yield* Effect.gen(function* () {
        const journal = yield* FileJournal.make(path)
        const service = yield* ServiceClient.ServiceClient
        const client = yield* service.createLoraTrainingClient({ baseModel: "m", journal })
        const data = [{ modelInput: [1, 2], inputs: { targetTokens: [2, 3], weights: [1, 1] } }]
        yield* client.forwardBackward(data, Loss.crossEntropy, { tag: "a tag of mine" })
        const saved = yield* client.saveState("a")
        yield* client.loadState(saved.path, { weightsAccessToken: Redacted.make("token-of-theirs") })
        const { requestsTo } = yield* ScriptedServer.ScriptedServer
        // The token was sent, but is in none of the files while the client is open.
        const [load] = yield* requestsTo("load_weights")
        expect(Buffer.from(load?.bytes ?? []).toString()).toContain("token-of-theirs")
        for (const name of yield* Effect.promise(() => readdir(dir))) {
          const text = (yield* contentsOf(join(dir, name))).toString("latin1")
          expect(text).not.toContain("token-of-theirs")
          expect(text).not.toContain("tml-key-of-mine")
        }
        const all = (yield* contentsOf(path)).toString("latin1")
        expect(all).toContain("a tag of mine")
        // Other requests are stored as plain text, so the search above would find secrets.
        expect(all).toContain('"path":"a"')
        expect(all).toContain('"operation":"load_weights"')
      }).pipe(Effect.scoped, Effect.provide(onServer()))
    }),
  ),
)
