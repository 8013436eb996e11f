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
 * @since 0.1.0
 * @category help
 */
export const help: string = `Usage: tinkerfx COMMAND [options]

Commands:
  serve    a Tinker server on this machine

tinkerfx COMMAND --help tells more about one.`

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
      return new UsageError({ message: `there is no command "${name}"` })
  }
}

/**
 * Runs a command and gives its exit code: 0, 1 if it failed, 2 if the command line is wrong.
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
          `Error: ${error.message}${error._tag === "UsageError" ? "\ntinkerfx --help tells how it is used" : ""}`,
        ),
        error._tag === "UsageError" ? 2 : 1,
      ),
  })
