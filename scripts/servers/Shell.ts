/** Runs other programs to their end, or until the scope closes. Their output goes to a file. */
import { Data, Deferred, Duration, Effect, Option, Schedule, type Scope } from "effect"
import { type ChildProcess, execFile, spawn } from "node:child_process"
import { closeSync, openSync, readFileSync } from "node:fs"
import { createServer } from "node:net"

/** The server could not be installed or started; its checks were not run. */
export class SetupFailed extends Data.TaggedError("SetupFailed")<{ readonly message: string }> {}

export interface Program {
  readonly command: string
  readonly args: ReadonlyArray<string>
  readonly cwd: string
  readonly env?: Readonly<Record<string, string>>
  /** The file that the output is appended to. */
  readonly log: string
}

const lastLines = (file: string): string => readFileSync(file, "utf8").trimEnd().split("\n").slice(-25).join("\n")

/** Signals the whole process group, because servers start child processes. Returns whether there was one. */
const signalGroup = (pid: number, signal: NodeJS.Signals): boolean => {
  try {
    return process.kill(-pid, signal)
  } catch {
    return false
  }
}

/** Runs keep no data, so a forced end loses nothing. */
const stopGrace = Duration.seconds(5)

interface Running {
  readonly pid: number
  readonly ended: Effect.Effect<number>
}

/** Launches a program in its own process group, so that Ctrl-C reaches us first and we stop it cleanly. */
const launch = (program: Program): Effect.Effect<Running, SetupFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const ended = yield* Deferred.make<number>()
    const begin = Effect.async<ChildProcess, SetupFailed>((resume) => {
      const log = openSync(program.log, "a")
      const child = spawn(program.command, program.args, {
        cwd: program.cwd,
        env: { ...process.env, ...program.env },
        detached: true,
        stdio: ["ignore", log, log],
      })
      closeSync(log)
      child.once("spawn", () => resume(Effect.succeed(child)))
      child.once("error", ({ message }) => resume(new SetupFailed({ message: `${program.command}: ${message}` })))
      child.once("exit", (code) => Deferred.unsafeDone(ended, Effect.succeed(code ?? 1)))
    })
    const stop = (pid: number) =>
      Effect.gen(function* () {
        signalGroup(pid, "SIGTERM")
        // Finalizers are uninterruptible, so the timeout needs an interruptible effect.
        yield* Effect.timeoutOption(Effect.interruptible(Deferred.await(ended)), stopGrace)
        // Kills processes that did not stop.
        signalGroup(pid, "SIGKILL")
      })
    const child = yield* Effect.acquireRelease(begin, ({ pid }) => (pid === undefined ? Effect.void : stop(pid)))
    return { pid: child.pid ?? -1, ended: Deferred.await(ended) }
  })

/** Runs a program to its end; a failure contains the end of its output. */
export const run = (program: Program): Effect.Effect<void, SetupFailed> =>
  Effect.gen(function* () {
    const { ended } = yield* launch(program)
    const code = yield* ended
    if (code === 0) return
    const call = [program.command, ...program.args.slice(0, 3)].join(" ")
    return yield* new SetupFailed({ message: `"${call} ..." exited with ${code}:\n${lastLines(program.log)}` })
  }).pipe(Effect.scoped)

/** Returns the output of a short program. */
export const output = (command: string, args: ReadonlyArray<string>): Effect.Effect<string, SetupFailed> =>
  Effect.async((resume) => {
    execFile(command, [...args], (error, stdout) =>
      resume(error === null ? Effect.succeed(stdout.trim()) : new SetupFailed({ message: error.message })),
    )
  })

/** Runs a program until the scope closes; completes when `isReady` returns true. */
export const start = (
  program: Program,
  isReady: Effect.Effect<boolean>,
  patience: Duration.DurationInput,
): Effect.Effect<void, SetupFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const { ended } = yield* launch(program)
    const problem = (what: string) =>
      new SetupFailed({ message: `${program.command} ${what}:\n${lastLines(program.log)}` })
    const ready = isReady.pipe(
      Effect.repeat({ schedule: Schedule.spaced("500 millis"), until: (ready) => ready }),
      Effect.timeoutOption(patience),
    )
    const early = Effect.flatMap(ended, (code) => problem(`exited with ${code} before it was ready`))
    if (Option.isNone(yield* Effect.raceFirst(ready, early))) return yield* problem("was not ready in time")
  })

/** Returns whether the log contains a text. */
export const printed = (log: string, words: string): Effect.Effect<boolean> =>
  Effect.sync(() => readFileSync(log, "utf8").includes(words))

/** Returns whether a URL answers with success. */
export const answers = (url: string): Effect.Effect<boolean> =>
  Effect.promise(() =>
    fetch(url, { signal: AbortSignal.timeout(5_000) }).then(
      ({ ok }) => ok,
      () => false,
    ),
  )

/** Finds a free port. */
export const freePort = (host: string): Effect.Effect<number, SetupFailed> =>
  Effect.async((resume) => {
    const server = createServer()
    server.once("error", ({ message }) => resume(new SetupFailed({ message: `${host}: ${message}` })))
    server.listen(0, host, () => {
      const address = server.address()
      const port = typeof address === "object" && address !== null ? address.port : 0
      server.close(() => resume(Effect.succeed(port)))
    })
  })
