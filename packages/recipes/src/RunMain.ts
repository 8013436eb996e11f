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
import * as Interruption from "./Interruption.ts"
import * as Progress from "./Progress.ts"
import type { RunEvent } from "./RunEvent.ts"
import * as RunLogger from "./RunLogger.ts"
import { RunStopped } from "./TrainingLoop.ts"

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
 * Programs that start others, e.g. pnpm and tsx, pass on a Ctrl-C that the terminal has sent to all of them. A signal so
 * many milliseconds after the first one is the same one.
 */
const relayedWithin = 300

/**
 * Runs the events of a recipe to their end and sets the exit code: 0 if the run is complete, 1 after a failure, 130
 * after Ctrl-C. The first Ctrl-C (or SIGTERM, or the loss of the terminal) lets steps on their way complete and saves a
 * checkpoint; a second one ends the process at once. In either case it prints what was saved and what was not, and the
 * same command continues the run.
 *
 * @since 0.1.0
 * @category running
 */
export const run = <E>(
  make: (stop: Effect.Effect<void>) => Stream.Stream<RunEvent, E>,
  options: Options = {},
): Promise<void> => {
  const stop = Effect.runSync(Deferred.make<void>())
  const { stderr } = process
  const isTerminal = stderr.isTTY === true
  const say = (text: string) => void stderr.write(`${text}\n`)
  /** Ends the line of progress on a terminal, behind which it shows `^C`. */
  const interject = (text: string) => say(isTerminal ? `\n${text}` : text)
  let last: RunEvent | undefined
  let seen = Interruption.nothing
  /** When the first signal arrived. */
  let stoppingSince: number | undefined
  const beginStop = () => {
    stoppingSince = performance.now()
    interject(Interruption.stopping)
    Effect.runSync(Deferred.succeed(stop, undefined))
  }
  const onSignal = () => {
    if (stoppingSince === undefined) return beginStop()
    if (performance.now() - stoppingSince < relayedWithin) return
    interject(Interruption.stoppedAtOnce(seen))
    process.exit(130)
  }
  /** A launcher that ends before this process takes the terminal with it, after the same Ctrl-C. */
  const onHangUp = () => {
    if (stoppingSince === undefined) beginStop()
  }
  // Without a terminal there is nothing to show, and no reason to fail.
  const onError = () => undefined
  process.on("SIGINT", onSignal).on("SIGTERM", onSignal)
  // Without a terminal the signal is left as it is: `nohup` ignores it.
  if (isTerminal) process.on("SIGHUP", onHangUp)
  stderr.on("error", onError)
  const program = Effect.scoped(
    Effect.gen(function* () {
      const logger = options.logger ?? (yield* Effect.flatMap(Progress.standardError, Progress.make))
      yield* make(Deferred.await(stop)).pipe(
        Stream.tap((event) =>
          Effect.sync(() => {
            last = event
            seen = Interruption.see(seen, event)
          }),
        ),
        RunLogger.tap(logger),
        Stream.runDrain,
      )
    }),
  )
  return Effect.runPromiseExit(program).then((exit) => {
    process.off("SIGINT", onSignal).off("SIGTERM", onSignal).off("SIGHUP", onHangUp)
    stderr.off("error", onError)
    if (Exit.isSuccess(exit)) {
      if (last === undefined) say("The run was complete already; nothing to do.")
      return
    }
    const error: unknown = Option.getOrUndefined(Cause.failureOption(exit.cause))
    if (error instanceof RunStopped && stoppingSince !== undefined && error.reason === undefined) {
      say(Interruption.stopped(error.step, error.checkpoint, error.evaluations))
      process.exitCode = 130
      return
    }
    const isStopped = error instanceof RunStopped
    say(error instanceof Error ? `${isStopped ? "" : "Error: "}${error.message}` : Cause.pretty(exit.cause))
    process.exitCode = 1
  })
}
