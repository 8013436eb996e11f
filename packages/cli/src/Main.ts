/**
 * The `tinkerfx` command.
 *
 * @since 0.1.0
 */
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import { UsageError } from "./Arguments.ts"
import * as Serve from "./Serve.ts"

/**
 * The help text of the command.
 *
 * @since 0.1.0
 * @category help
 */
export const help: string = `Usage: tinkerfx COMMAND [options]

Commands:
  serve    run a Tinker server on this machine

Run "tinkerfx COMMAND --help" for the options of a command.`

const command = (args: ReadonlyArray<string>) => {
  const [name, ...rest] = args
  switch (name) {
    case "serve":
      return Serve.run(rest)
    case undefined:
    case "help":
    case "-h":
    case "--help":
      return Console.log(help)
    default:
      return new UsageError({ message: `unknown command "${name}"` })
  }
}

/**
 * Runs a command and returns its exit code: 0 on success, 1 on failure, 2 for an invalid command line.
 *
 * @since 0.1.0
 * @category running
 */
export const run = (args: ReadonlyArray<string>): Effect.Effect<number> =>
  Effect.matchEffect(command(args), {
    onSuccess: () => Effect.succeed(0),
    onFailure: (error) =>
      Effect.as(
        Console.error(
          `Error: ${error.message}${error._tag === "UsageError" ? '\nRun "tinkerfx --help" for usage.' : ""}`,
        ),
        error._tag === "UsageError" ? 2 : 1,
      ),
  })
