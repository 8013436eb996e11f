/** Tests who can use and read a data directory. */
import { spawn } from "node:child_process"
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join, relative } from "node:path"
import { fileURLToPath } from "node:url"
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import * as PrivateFiles from "../src/internal/PrivateFiles.js"
import * as Raw from "./support/Raw.ts"

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "tinker-data-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true })),
)

const holder = fileURLToPath(new URL("./support/Holder.ts", import.meta.url))

/** Starts a server in a process of its own; returns once it uses the directory. */
const held = (path: string) =>
  Effect.acquireRelease(
    Effect.async<ReturnType<typeof spawn>>((resume) => {
      const child = spawn(process.execPath, ["--import", "tsx", holder, path], { stdio: ["ignore", "pipe", "inherit"] })
      child.stdout.once("data", () => resume(Effect.succeed(child)))
    }),
    (child) => killed(child),
  )

const killed = (child: ReturnType<typeof spawn>) =>
  Effect.async<void>((resume) => {
    if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
    child.once("exit", () => resume(Effect.void))
    child.kill("SIGKILL")
  })

describe("data directory", () => {
  it.live("a second server in the same process refuses a data directory in use, and can use it afterwards", () =>
    Effect.gen(function* () {
      const dataDirectory = yield* directory
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* Raw.make({ dataDirectory })
          const error = yield* Effect.flip(Raw.make({ dataDirectory }))
          expect(error.message).toContain(`${dataDirectory} is in use by process ${process.pid} on `)
        }),
      )
      expect(readdirSync(dataDirectory)).not.toContain("server.pid")
      yield* Effect.scoped(Raw.make({ dataDirectory }))
    }).pipe(Effect.scoped),
  )

  it.live("a server refuses the data directory of another process until that process is killed", () =>
    Effect.gen(function* () {
      const dataDirectory = yield* directory
      const child = yield* held(dataDirectory)
      const error = yield* Effect.flip(Effect.scoped(Raw.make({ dataDirectory })))
      expect(error.message).toContain(`is in use by process ${child.pid} on `)
      yield* killed(child)
      yield* Effect.scoped(Raw.make({ dataDirectory }))
    }).pipe(Effect.scoped),
  )

  it.live("a server refuses a directory that it cannot use, and says why", () =>
    Effect.gen(function* () {
      const parent = yield* directory
      const dataDirectory = join(parent, "file")
      writeFileSync(dataDirectory, "")
      const error = yield* Effect.flip(Effect.scoped(Raw.make({ dataDirectory })))
      expect(error._tag).toBe("StoreError")
      expect(error.message).toBe(
        `the store could not create its directory: ${dataDirectory} is not a directory; use a directory that can be written`,
      )
    }).pipe(Effect.scoped),
  )

  it("errors of the system become messages for the user", () => {
    const failed = (code: string) => PrivateFiles.problemWith("/data", Object.assign(new Error("x"), { code }))
    expect(failed("EROFS")).toBe("/data is on a read-only file system; use a directory that can be written")
    expect(failed("EACCES")).toContain("/data cannot be written by this user")
    expect(failed("ENOSPC")).toContain("/data is on a disk that is full")
    expect([failed("EIO"), PrivateFiles.problemWith("/data", "x")]).toEqual([undefined, undefined])
  })

  it.live("database and weights are readable only by their user, even in an existing directory", () =>
    Effect.gen(function* () {
      const dataDirectory = join(yield* directory, "data")
      mkdirSync(join(dataDirectory, "files", "weights"), { recursive: true })
      writeFileSync(join(dataDirectory, "tinker.db"), "")
      for (const name of ["", "files", "files/weights", "tinker.db"]) chmodSync(join(dataDirectory, name), 0o755)
      const { model, post, result, session } = yield* Raw.make({ dataDirectory, snapshotEvery: 1 })
      const id = yield* model(yield* session)
      yield* result(yield* post("save_weights", { model_id: id, seq_id: 1, path: "one" }))
      yield* post("forward_backward", Raw.pass(id, 2))
      yield* result(yield* post("optim_step", Raw.step(id, 3)))
      yield* result(yield* post("save_weights", { model_id: id, seq_id: 4, path: "two" }))
      const all = readdirSync(dataDirectory, { recursive: true, withFileTypes: true })
      const readable = all.filter((entry) => (statSync(join(entry.parentPath, entry.name)).mode & 0o077) !== 0)
      expect(readable.map(({ name, parentPath }) => relative(dataDirectory, join(parentPath, name)))).toEqual([])
      expect(all.map(({ name }) => name)).toEqual(expect.arrayContaining(["tinker.db", "tinker.db-wal", "lock.db"]))
    }).pipe(Effect.scoped),
  )
})
