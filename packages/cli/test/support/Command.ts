/** Runs the command in this process, with an input, an environment and a directory of its own. */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs"
import { join } from "node:path"
import { Clock, ConfigProvider, Effect, Option, type Scope } from "effect"
import * as Program from "../../src/internal/Program.js"
import * as Shell from "../../src/internal/Shell.js"

/** When the tests take place: more than a month after what the recordings contain. */
export const now = Date.parse("2026-03-01T00:00:00Z")

const fixed = (clock: Clock.Clock): Clock.Clock => ({
  ...clock,
  [Clock.ClockTypeId]: Clock.ClockTypeId,
  unsafeCurrentTimeMillis: () => now,
  currentTimeMillis: Effect.succeed(now),
  unsafeCurrentTimeNanos: () => clock.unsafeCurrentTimeNanos(),
  currentTimeNanos: clock.currentTimeNanos,
  sleep: (duration) => clock.sleep(duration),
})

export interface Options {
  readonly env?: Readonly<Record<string, string>>
  readonly input?: string
  readonly directory: string
  /** The shell of a terminal's user. */
  readonly shell?: Partial<Shell.Service>
}

export interface Result {
  readonly exitCode: number
  readonly stdout: string
  readonly stderr: string
}

/** A directory whose path is as long as that of the recordings, because tables depend on it. */
export const directory: Effect.Effect<string, never, Scope.Scope> = Effect.acquireRelease(
  Effect.sync(() => {
    const path = mkdtempSync("/tmp/tfxr-")
    mkdirSync(join(path, "home"))
    return path
  }),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true })),
)

/** Runs a command line to its end. */
export const run = (args: ReadonlyArray<string>, options: Options): Effect.Effect<Result> =>
  Effect.gen(function* () {
    let [stdout, stderr] = ["", ""]
    const lines = (options.input ?? "").split("\n").slice(0, -1)
    const line = Effect.sync(() => Option.fromNullable(lines.shift()))
    const env: Readonly<Record<string, string>> = { HOME: join(options.directory, "home"), ...options.env }
    const shell: Shell.Service = {
      out: (text) => Effect.sync(() => void (stdout += text)),
      err: (text) => Effect.sync(() => void (stderr += text)),
      isTerminal: false,
      isInteractive: false,
      hasProgress: false,
      hasColors: false,
      width: 200,
      directory: options.directory,
      machine: "<HOST>",
      environment: env,
      stopped: Effect.never,
      hurried: Effect.never,
      line,
      ask: () => line,
      secret: () => line,
      ...options.shell,
    }
    const clock = yield* Effect.clock
    const exitCode = yield* Program.run(args).pipe(
      Effect.provideService(Shell.Shell, shell),
      Effect.withConfigProvider(ConfigProvider.fromMap(new Map(Object.entries(env)))),
      Effect.withClock(fixed(clock)),
    )
    return { exitCode, stdout, stderr }
  })
