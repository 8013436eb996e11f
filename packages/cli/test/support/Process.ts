/** The command in a process of its own, as a user starts it. */
import { type ChildProcess, spawn } from "node:child_process"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import { Data, Effect, type Scope } from "effect"

const bin = fileURLToPath(new URL("../../src/internal/bin.ts", import.meta.url))

const dieAt = new URL("./DieAt.ts", import.meta.url).href

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

const started = (before: ReadonlyArray<string>, args: ReadonlyArray<string>, env: NodeJS.ProcessEnv = {}) =>
  Effect.acquireRelease(
    Effect.sync(() =>
      spawn(process.execPath, ["--import", "tsx", ...before, bin, "serve", ...args], {
        env: { ...process.env, ...env },
      }),
    ),
    (child) => Effect.suspend(() => (child.kill("SIGKILL"), ended(child))),
  )

/** Ready when it says so, or ended. */
const listening = (child: Effect.Effect.Success<ReturnType<typeof started>>): Effect.Effect<string, NotServed> => {
  let err = ""
  child.stderr.on("data", (part) => (err += part))
  return Effect.async<string, NotServed>((resume) => {
    createInterface({ input: child.stdout }).on("line", (line) => {
      const at = /^listening on (http:\S+)$/.exec(line)?.[1]
      if (at !== undefined) resume(Effect.succeed(at))
    })
    child.once("exit", (code) => resume(new NotServed({ message: `ended with ${code} before it was ready: ${err}` })))
  })
}

/** It is killed with the scope. */
export const serve = (...args: ReadonlyArray<string>): Effect.Effect<Served, NotServed, Scope.Scope> =>
  Effect.gen(function* () {
    const child = yield* started([], args)
    const url = yield* listening(child)
    return {
      url,
      port: Number(new URL(url).port),
      end: (signal) => Effect.suspend(() => (child.kill(signal), ended(child))),
    }
  })

/** One that dies at a place of writing weights (`DieAt.ts`), before it is ready or after. */
export const doomed = (
  place: string,
  ...args: ReadonlyArray<string>
): Effect.Effect<
  { readonly url: Effect.Effect<string, NotServed>; readonly died: Effect.Effect<number | string> },
  never,
  Scope.Scope
> =>
  Effect.map(started(["--import", dieAt], args, { TINKER_DIE_AT: place }), (child) => ({
    url: listening(child),
    died: ended(child),
  }))
