/** The server of one experiment, in a process that can be killed and started again on the same data. */
import { Effect, Exit, Scope } from "effect"
import { keyVariable, type ServerSettings } from "../program/Settings.ts"
import type { Bundles } from "./Bundles.ts"
import * as Child from "./Child.ts"

export interface LabServer {
  readonly port: () => number
  readonly pid: () => number
  /** Kills the process and starts another one on the same data. */
  readonly restart: Effect.Effect<void>
  /** Like `restart`, with an effect between the two processes. */
  readonly restartAfter: (meanwhile: Effect.Effect<void>) => Effect.Effect<void>
  /** Kills the process. */
  readonly kill: Effect.Effect<void>
  /** Everything that the processes wrote. */
  readonly output: () => string
}

interface Running {
  readonly child: Child.Child
  readonly port: number
  readonly scope: Scope.CloseableScope
}

/** Starts a process and waits until it listens. */
const start = (
  bundles: Bundles,
  settings: ServerSettings,
  key: string,
  conditions: Child.Conditions | undefined,
): Effect.Effect<Running> =>
  Effect.gen(function* () {
    const scope = yield* Scope.make()
    const child = yield* Scope.extend(
      Child.run({ program: bundles.server, args: [JSON.stringify(settings)], env: { [keyVariable]: key }, conditions }),
      scope,
    )
    const line = yield* child.firstLine
    return line === undefined
      ? yield* Effect.dieMessage(`the server did not start: ${child.stderr()}`)
      : { child, port: Number(line), scope }
  })

/** Starts a server in the current scope. `key` is one API key, or several with commas between them. */
export const make = (
  bundles: Bundles,
  settings: ServerSettings,
  key: string,
  conditions?: Child.Conditions,
): Effect.Effect<LabServer, never, Scope.Scope> =>
  Effect.gen(function* () {
    const lock = yield* Effect.makeSemaphore(1)
    const all: Array<Child.Child> = []
    let running: Running | undefined
    const kill = Effect.suspend(() => {
      const scope = running?.scope
      running = undefined
      return scope === undefined ? Effect.void : Scope.close(scope, Exit.void)
    })
    const begin = Effect.map(start(bundles, settings, key, conditions), (next) => {
      all.push(next.child)
      running = next
    })
    const restartAfter = (meanwhile: Effect.Effect<void>) =>
      Effect.uninterruptible(lock.withPermits(1)(kill.pipe(Effect.zipRight(meanwhile), Effect.zipRight(begin))))
    yield* Effect.addFinalizer(() => lock.withPermits(1)(kill))
    yield* begin
    return {
      port: () => running?.port ?? 1,
      pid: () => running?.child.pid ?? 0,
      restart: restartAfter(Effect.void),
      restartAfter,
      kill: lock.withPermits(1)(kill),
      output: () => all.map(({ stderr, stdout }) => stdout() + stderr()).join(""),
    }
  })
