/** Writes logs to the error output with `--verbose`, and nowhere otherwise. */
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as LogLevel from "effect/LogLevel"

const errorOutput = Logger.replace(Logger.defaultLogger, Logger.withConsoleError(Logger.logfmtLogger))

/** Sets what an effect logs. */
export const withLogs =
  (verbose: boolean) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    effect.pipe(Logger.withMinimumLogLevel(verbose ? LogLevel.Debug : LogLevel.None), Effect.provide(errorOutput))
