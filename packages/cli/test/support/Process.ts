/** Runs the command in a child process, as a user does. */
import { type ChildProcess, spawn } from "node:child_process"
import { createInterface } from "node:readline"
import { join } from "node:path"
import { pathToFileURL } from "node:url"
import { Data, Effect, type Scope } from "effect"
import * as Bundle from "./Bundle.ts"

/** The process exited before it was ready. */
export class NotServed extends Data.TaggedError("NotServed")<{ readonly message: string }> {}

export interface Served {
  readonly url: string
  readonly port: number
  /** Returns the lines printed so far. */
  readonly lines: () => ReadonlyArray<string>
  /** Sends a signal and returns the exit code, or the signal that terminated the process. */
  readonly end: (signal: NodeJS.Signals) => Effect.Effect<number | string>
}

const ended = (child: ChildProcess): Effect.Effect<number | string> =>
  Effect.async((resume) => {
    if (child.exitCode !== null || child.signalCode !== null)
      return resume(Effect.succeed(child.exitCode ?? child.signalCode ?? 0))
    child.once("exit", (code, signal) => resume(Effect.succeed(code ?? signal ?? 0)))
  })

const started = (preloaded: ReadonlyArray<string>, args: ReadonlyArray<string>, env: NodeJS.ProcessEnv = {}) =>
  Effect.acquireRelease(
    Effect.map(Effect.promise(Bundle.directory), (directory) => {
      const imports = preloaded.flatMap((name) => ["--import", pathToFileURL(join(directory, name)).href])
      return spawn(process.execPath, [...imports, join(directory, "tinkerfx.js"), "serve", ...args], {
        env: { ...process.env, ...env },
      })
    }),
    (child) => Effect.suspend(() => (child.kill("SIGKILL"), ended(child))),
  )

/** Waits until the process prints its URL or exits. */
const listening = (child: Effect.Effect.Success<ReturnType<typeof started>>): Effect.Effect<string, NotServed> => {
  let err = ""
  child.stderr.on("data", (part) => (err += part))
  return Effect.async<string, NotServed>((resume) => {
    createInterface({ input: child.stdout }).on("line", (line) => {
      const at = /^listening on (http:\S+)$/.exec(line)?.[1]
      if (at !== undefined) resume(Effect.succeed(at))
    })
    child.once("exit", (code) => resume(new NotServed({ message: `exited with ${code} before it was ready: ${err}` })))
  })
}

/** Starts a server that is killed when the scope closes. */
export const serve = (...args: ReadonlyArray<string>): Effect.Effect<Served, NotServed, Scope.Scope> =>
  Effect.gen(function* () {
    const child = yield* started([], args)
    let output = ""
    child.stdout.on("data", (part) => (output += String(part)))
    const url = yield* listening(child)
    return {
      url,
      lines: () => output.trim().split("\n"),
      port: Number(new URL(url).port),
      end: (signal) => Effect.suspend(() => (child.kill(signal), ended(child))),
    }
  })

/** Starts a server that kills itself while writing weights (`DieAt.ts`), before or after it is ready. */
export const doomed = (
  place: string,
  ...args: ReadonlyArray<string>
): Effect.Effect<
  { readonly url: Effect.Effect<string, NotServed>; readonly died: Effect.Effect<number | string> },
  never,
  Scope.Scope
> =>
  Effect.map(started(["DieAt.js"], args, { TINKER_DIE_AT: place }), (child) => ({
    url: listening(child),
    died: ended(child),
  }))
