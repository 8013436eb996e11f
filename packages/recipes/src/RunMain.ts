/**
 * Runs a recipe as the main program of a process: shows progress, and reacts to Ctrl-C.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import process from "node:process"
import * as Progress from "./Progress.ts"
import type { RunEvent } from "./RunEvent.ts"
import * as RunLogger from "./RunLogger.ts"

/**
 * Options of {@link run}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /**
   * Receives every event.
   *
   * @default progress on standard error
   */
  readonly logger?: RunLogger.Service | undefined
}

/**
 * Runs the events of a recipe to their end and sets the exit code: 0 if the run is complete, 1 after a failure, 130
 * after Ctrl-C. The first Ctrl-C (or SIGTERM) lets steps on their way complete and saves a checkpoint; a second one
 * ends the process at once. In either case the same command continues the run.
 *
 * @since 0.1.0
 * @category running
 */
export const run = <E>(
  make: (stop: Effect.Effect<void>) => Stream.Stream<RunEvent, E>,
  options: Options = {},
): Promise<void> => {
  const stop = Effect.runSync(Deferred.make<void>())
  const say = (text: string) => void process.stderr.write(`${text}\n`)
  let last: RunEvent | undefined
  let saved = Option.none<string>()
  let signals = 0
  const onSignal = () => {
    if (signals++ === 0) {
      say("\nStopping: steps on their way are completed and a checkpoint is saved. Press Ctrl-C again to stop at once.")
      return void Effect.runSync(Deferred.succeed(stop, undefined))
    }
    const checkpoint = Option.match(saved, { onNone: () => "nothing", onSome: (path) => path })
    say(`\nStopped at once. This process saved ${checkpoint}; requests that were sent are in the journal.`)
    process.exit(130)
  }
  process.on("SIGINT", onSignal).on("SIGTERM", onSignal)
  const program = Effect.scoped(
    Effect.gen(function* () {
      const logger = options.logger ?? (yield* Effect.flatMap(Progress.standardError, Progress.make))
      yield* make(Deferred.await(stop)).pipe(
        Stream.tap((event) =>
          Effect.sync(() => {
            last = event
            if (event._tag === "Checkpoint" && event.statePath !== undefined) saved = Option.some(event.statePath)
          }),
        ),
        RunLogger.tap(logger),
        Stream.runDrain,
      )
    }),
  )
  return Effect.runPromiseExit(program).then((exit) => {
    process.off("SIGINT", onSignal).off("SIGTERM", onSignal)
    if (Exit.isSuccess(exit)) {
      if (last === undefined) say("The run was complete already; nothing to do.")
      return
    }
    const error: unknown = Option.getOrUndefined(Cause.failureOption(exit.cause))
    const isStopped = isTagged(error) && error._tag === "RunStopped"
    say(error instanceof Error ? `${isStopped ? "" : "Error: "}${error.message}` : Cause.pretty(exit.cause))
    process.exitCode = isStopped ? 130 : 1
  })
}

const isTagged = (value: unknown): value is { readonly _tag: unknown } =>
  typeof value === "object" && value !== null && "_tag" in value
