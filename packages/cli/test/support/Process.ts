/** The command in a process of its own, as a user starts it. */
import { type ChildProcess, spawn } from "node:child_process"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import { Data, Effect, type Scope } from "effect"

const bin = fileURLToPath(new URL("../../src/internal/bin.ts", import.meta.url))

/** It ended before it was ready. */
export class NotServed extends Data.TaggedError("NotServed")<{ readonly message: string }> {}

export interface Served {
  readonly url: string
  readonly port: number
  /** Gives its exit code, or the signal that ended it. */
  readonly end: (signal: NodeJS.Signals) => Effect.Effect<number | string>
}

const ended = (child: ChildProcess): Effect.Effect<number | string> =>
  Effect.async((resume) => {
    if (child.exitCode !== null || child.signalCode !== null)
      return resume(Effect.succeed(child.exitCode ?? child.signalCode ?? 0))
    child.once("exit", (code, signal) => resume(Effect.succeed(code ?? signal ?? 0)))
  })

/** Ready when it says so. It is killed with the scope. */
export const serve = (...args: ReadonlyArray<string>): Effect.Effect<Served, NotServed, Scope.Scope> =>
  Effect.gen(function* () {
    const child = yield* Effect.acquireRelease(
      Effect.sync(() => spawn(process.execPath, ["--import", "tsx", bin, "serve", ...args])),
      (child) => Effect.suspend(() => (child.kill("SIGKILL"), ended(child))),
    )
    let err = ""
    child.stderr.on("data", (part) => (err += part))
    const url = yield* Effect.async<string, NotServed>((resume) => {
      createInterface({ input: child.stdout }).on("line", (line) => {
        const at = /^listening on (http:\S+)$/.exec(line)?.[1]
        if (at !== undefined) resume(Effect.succeed(at))
      })
      child.once("exit", (code) => resume(new NotServed({ message: `ended with ${code} before it was ready: ${err}` })))
    })
    return {
      url,
      port: Number(new URL(url).port),
      end: (signal) => Effect.suspend(() => (child.kill(signal), ended(child))),
    }
  })
