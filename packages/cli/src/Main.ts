/**
 * Runs the `tinkerfx` command from a program.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Program from "./internal/Program.ts"
import * as Shell from "./internal/Shell.ts"

/**
 * Options of {@link run}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Stops the command; its exit code is then 130. A server that is stopped has done its work: its exit code is 0. */
  readonly signal?: AbortSignal | undefined
  /** Stops it at once, also if it is still ending. */
  readonly hurry?: AbortSignal | undefined
}

/**
 * Runs a command with the input, output and environment of this process, and returns its exit code: 0 on success, 1 on
 * failure, 2 for an invalid command line, 130 if it was stopped.
 *
 * @since 0.1.0
 * @category running
 */
export const run = (args: ReadonlyArray<string>, options: Options = {}): Promise<number> =>
  Effect.runPromise(Effect.provideServiceEffect(Program.run(args), Shell.Shell, Shell.live(options)))
