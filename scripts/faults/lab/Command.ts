/** Runs a command of the lab. */
import type { UsageError } from "./Arguments.ts"
import { NodeRuntime } from "@effect/platform-node"
import { Console, Effect, type ParseResult, type Scope } from "effect"

/** Runs a program in a scope. A mistake in its arguments prints the help and exits with 2. */
export const run = (
  help: string,
  program: Effect.Effect<unknown, UsageError | ParseResult.ParseError, Scope.Scope>,
): void =>
  program.pipe(
    Effect.scoped,
    Effect.catchTag("UsageError", ({ message }) =>
      Effect.zipRight(
        Console.error(`${message}\n\n${help}`),
        Effect.sync(() => (process.exitCode = 2)),
      ),
    ),
    NodeRuntime.runMain,
  )
