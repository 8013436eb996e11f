/**
 * Other programs: run to their end, or kept running until the scope closes. What they print goes to a file.
 */
import { Data, Deferred, Duration, Effect, Option, Schedule, type Scope } from "effect"
import { type ChildProcess, execFile, spawn } from "node:child_process"
import { closeSync, openSync, readFileSync } from "node:fs"
import { createServer } from "node:net"

/** The server could not be installed or started; its checks were not made. */
export class SetupFailed extends Data.TaggedError("SetupFailed")<{ readonly message: string }> {}

export interface Program {
  readonly command: string
  readonly args: ReadonlyArray<string>
  readonly cwd: string
  readonly env?: Readonly<Record<string, string>>
  /** The file that its output is appended to. */
  readonly log: string
}

const lastLines = (file: string): string => readFileSync(file, "utf8").trimEnd().split("\n").slice(-25).join("\n")

/** All of a group, because servers start programs of their own. True if there was any to signal. */
const signalGroup = (pid: number, signal: NodeJS.Signals): boolean => {
  try {
    return process.kill(-pid, signal)
  } catch {
    return false
  }
}

/** Nothing of a run is kept, so nothing is lost by a harsh end. */
const stopGrace = Duration.seconds(5)

interface Running {
  readonly pid: number
  readonly ended: Effect.Effect<number>
}

/** In a group of its own, so that Ctrl-C reaches us first and we end it in order. */
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
        // A finalizer can't be interrupted, and so not timed out, unless it says so.
        yield* Effect.timeoutOption(Effect.interruptible(Deferred.await(ended)), stopGrace)
        // What did not follow its leader has had its chance.
        signalGroup(pid, "SIGKILL")
      })
    const child = yield* Effect.acquireRelease(begin, ({ pid }) => (pid === undefined ? Effect.void : stop(pid)))
    return { pid: child.pid ?? -1, ended: Deferred.await(ended) }
  })

/** To its end; a failure carries the last of what it printed. */
export const run = (program: Program): Effect.Effect<void, SetupFailed> =>
  Effect.gen(function* () {
    const { ended } = yield* launch(program)
    const code = yield* ended
    if (code === 0) return
    const call = [program.command, ...program.args.slice(0, 3)].join(" ")
    return yield* new SetupFailed({ message: `"${call} ..." ended with ${code}:\n${lastLines(program.log)}` })
  }).pipe(Effect.scoped)

/** What a short program prints. */
export const output = (command: string, args: ReadonlyArray<string>): Effect.Effect<string, SetupFailed> =>
  Effect.async((resume) => {
    execFile(command, [...args], (error, stdout) =>
      resume(error === null ? Effect.succeed(stdout.trim()) : new SetupFailed({ message: error.message })),
    )
  })

/** Keeps a program running until the scope closes; done when `isReady` says so. */
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
    const early = Effect.flatMap(ended, (code) => problem(`ended with ${code} before it was ready`))
    if (Option.isNone(yield* Effect.raceFirst(ready, early))) return yield* problem("was not ready in time")
  })

/** True once this line, or a part of it, was printed. */
export const printed = (log: string, words: string): Effect.Effect<boolean> =>
  Effect.sync(() => readFileSync(log, "utf8").includes(words))

/** True once this address answers with a success. */
export const answers = (url: string): Effect.Effect<boolean> =>
  Effect.promise(() =>
    fetch(url, { signal: AbortSignal.timeout(5_000) }).then(
      ({ ok }) => ok,
      () => false,
    ),
  )

/** A port that nobody listens on at the moment. */
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
