/** Runs a program in a process of its own, whose output is kept and which never outlives its scope. */
import { type ChildProcess, spawn } from "node:child_process"
import { Deferred, Effect, type Scope } from "effect"

/** How a process ended: its exit code, or the signal that ended it. */
export type End = NodeJS.Signals | number | null

export interface Child {
  readonly pid: number
  readonly kill: (signal: NodeJS.Signals) => Effect.Effect<void>
  readonly ended: Effect.Effect<End>
  readonly hasEnded: () => boolean
  /** Everything that was written so far. */
  readonly stdout: () => string
  readonly stderr: () => string
  /** Waits for the first complete line of the output; `undefined` if the process ends without one. */
  readonly firstLine: Effect.Effect<string | undefined>
}

export interface Command {
  readonly program: string
  readonly args: ReadonlyArray<string>
  readonly env?: Readonly<Record<string, string>>
  readonly conditions?: Conditions | undefined
}

/** Changes what surrounds a process. */
export interface Conditions {
  /** A program that runs Node, with its arguments. */
  readonly wrapper?: ReadonlyArray<string>
  /** Options of Node itself. */
  readonly node?: ReadonlyArray<string>
}

const start = ({ args, conditions: { node = [], wrapper = [] } = {}, env = {}, program }: Command): ChildProcess => {
  const [command = process.execPath, ...rest] = [...wrapper, process.execPath, ...node, program, ...args]
  return spawn(command, rest, {
    stdio: ["ignore", "pipe", "pipe"],
    // No variable of the surroundings reaches the program, so that a seed means the same everywhere.
    env: { PATH: process.env["PATH"], HOME: "/nonexistent", ...env },
  })
}

const follow = (child: ChildProcess): Child => {
  let [stdout, stderr] = ["", ""]
  const line = Deferred.unsafeMake<string | undefined>(undefined as never)
  const end = Deferred.unsafeMake<End>(undefined as never)
  let hasEnded = false
  child.stdout?.on("data", (part) => {
    stdout += String(part)
    const at = stdout.indexOf("\n")
    if (at >= 0) Deferred.unsafeDone(line, Effect.succeed(stdout.slice(0, at)))
  })
  child.stderr?.on("data", (part) => (stderr += String(part)))
  child.once("close", () => {
    hasEnded = true
    Deferred.unsafeDone(end, Effect.succeed(child.signalCode ?? child.exitCode))
    Deferred.unsafeDone(
      line,
      Effect.map(Effect.void, () => undefined),
    )
  })
  return {
    pid: child.pid ?? 0,
    kill: (signal) => Effect.sync(() => void child.kill(signal)),
    ended: Deferred.await(end),
    hasEnded: () => hasEnded,
    stdout: () => stdout,
    stderr: () => stderr,
    firstLine: Deferred.await(line),
  }
}

/** Starts a program in the current scope. When the scope closes, the process is killed and awaited. */
export const run = (command: Command): Effect.Effect<Child, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => follow(start(command))),
    ({ ended, kill }) => Effect.zipRight(kill("SIGKILL"), ended),
  )
