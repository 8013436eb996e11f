/** Runs a command line and returns its exit code. */
import * as CliConfig from "@effect/cli/CliConfig"
import * as Command from "@effect/cli/Command"
import * as HelpDoc from "@effect/cli/HelpDoc"
import * as ValidationError from "@effect/cli/ValidationError"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import * as NodePath from "@effect/platform-node/NodePath"
import * as NodeTerminal from "@effect/platform-node/NodeTerminal"
import { version } from "effect-tinker/protocol/Version"
import * as Cause from "effect/Cause"
import type * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Arguments from "./Arguments.ts"
import * as Commands from "./Commands.ts"
import * as Failure from "./Failure.ts"
import * as Help from "./Help.ts"
import { withLogs } from "./Logging.ts"
import { Shell } from "./Shell.ts"

const platform = Layer.mergeAll(
  NodeFileSystem.layer,
  NodePath.layer,
  NodeTerminal.layer,
  CliConfig.layer({ isCaseSensitive: true, autoCorrectLimit: 0 }),
)

// oxlint-disable-next-line no-control-regex
const escapes = /\u001b\[[0-9;]*m/g

/** The parser prints its help in colors, even into a pipe, and with spaces at the end of lines. */
const tidy = (text: string, hasColors: boolean): string => {
  const plain = hasColors ? text : text.replaceAll(escapes, "")
  return `${plain.replaceAll(/[ \t]+$/gm, "").trimEnd()}\n`
}

/** The words of the parser about a value, in the form of the official command. */
const invalidValue = (error: ValidationError.ValidationError, path: ReadonlyArray<Arguments.Node>) =>
  new Failure.UsageError({
    message: HelpDoc.toAnsiText(error.error).replaceAll(escapes, "").trim().replaceAll(/\s+/g, " "),
    usage: Option.some(Arguments.usageOf(path)),
  })

const print = (cause: Cause.Cause<unknown>, { has, path }: Pick<Arguments.Normalized, "has" | "path">) =>
  Effect.gen(function* () {
    const shell = yield* Shell
    const failure = Cause.failureOption(cause)
    const squashed = Cause.squash(cause)
    if (Option.exists(failure, (error) => error instanceof Object && "_tag" in error && error._tag === "Quit"))
      return Failure.exitCodes.interrupted
    const error = ValidationError.isValidationError(squashed) ? invalidValue(squashed, path) : squashed
    const { exitCode, text } = Failure.report(error)
    yield* shell.err(text)
    if (exitCode === Failure.exitCodes.interrupted) return exitCode
    if (has("--verbose"))
      yield* shell.err(Option.isSome(failure) ? Failure.causes(squashed) : `${Cause.pretty(cause)}\n`)
    return exitCode
  })

/** A server runs until it is stopped, so that is not a failure. */
const isServer = (path: ReadonlyArray<Arguments.Node>): boolean => path[1]?.name === "serve"

/** A training run ends its steps and saves a checkpoint when it is stopped. */
const isTraining = (path: ReadonlyArray<Arguments.Node>): boolean =>
  path[1]?.name === "train" || path[1]?.name === "resume"

/** Runs a command line and returns its exit code, also if the user stops it. */
export const run = (argv: ReadonlyArray<string>): Effect.Effect<number, never, Shell> =>
  Effect.gen(function* () {
    const shell = yield* Shell
    const normalized = Arguments.normalize(Commands.tree, argv)
    if (Either.isLeft(normalized)) {
      const { exitCode, text } = Failure.report(normalized.left)
      yield* shell.err(text)
      return exitCode
    }
    const line = normalized.right
    const { args, has, intent, path } = line
    if (intent !== "run") {
      const text = Help.render(path, shell.width)
      yield* intent === "help" ? shell.out(text) : shell.err(text)
      return intent === "help" ? Failure.exitCodes.success : Failure.exitCodes.usage
    }
    // Commands print through the shell. The console is left to the parser, whose errors are reported below.
    const console: Console.Console = {
      ...(yield* Effect.console),
      log: (text: unknown) => shell.out(tidy(String(text ?? ""), shell.hasColors)),
      error: () => Effect.void,
    }
    const command = Commands.root({ only: path[1]?.name })
    const execute = Command.run(command, { name: Commands.name, version, executable: Commands.name })
    const performed = execute(["node", Commands.name, ...args]).pipe(
      Effect.withConsole(console),
      Effect.provide(platform),
      Effect.as(Failure.exitCodes.success),
      withLogs(has("--verbose")),
    )
    // A daemon, so that nothing waits for it if it does not end.
    const fiber = yield* Effect.forkDaemon(performed)
    const interrupt = Fiber.interrupt(fiber)
    const exit = yield* Effect.raceAll([
      Fiber.await(fiber),
      Effect.zipRight(isTraining(path) ? shell.hurried : shell.stopped, interrupt),
      Effect.zipRight(isTraining(path) ? Effect.never : shell.hurried, Effect.succeed(Exit.interrupt(FiberId.none))),
    ]).pipe(Effect.onInterrupt(() => interrupt))
    if (Exit.isSuccess(exit)) return exit.value
    if (!Cause.isInterruptedOnly(exit.cause)) return yield* print(exit.cause, line)
    if (isServer(path)) return Failure.exitCodes.success
    yield* shell.err("Interrupted.\n")
    return Failure.exitCodes.interrupted
  })
