/**
 * The commands that are not part of the bundle: they use the installed packages, threads and native code. The bundle has
 * its own copy of Effect, so that only plain values and promises cross this border. See `Border.ts`.
 */
import * as Cause from "effect/Cause"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import type { Handler } from "./Commands.ts"
import * as Failure from "./Failure.ts"
import { withLogs } from "./Logging.ts"
import type { Settings } from "./Output.ts"
import { aborted, Quit, type Service, Shell } from "./Shell.ts"

/** A line of the input, if there is one, or whether the user left instead. */
export interface Answer {
  readonly text: string | undefined
  readonly hasQuit: boolean
}

/** The shell as plain values and promises. */
export interface PlainShell extends Omit<Service, "out" | "err" | "line" | "ask" | "secret" | "stopped" | "hurried"> {
  readonly out: (text: string) => Promise<void>
  readonly err: (text: string) => Promise<void>
  readonly line: () => Promise<Answer>
  readonly ask: (question: string) => Promise<Answer>
  readonly secret: (question: string) => Promise<Answer>
  readonly stopped: AbortSignal
  readonly hurried: AbortSignal
}

/** The text that a failure prints; undefined after success. */
export type Ended = { readonly report: Failure.Report; readonly causes: string } | undefined

const handlers = {
  chat: async () => (await import("../commands/Chat.ts")).chat,
  eval: async () => (await import("../commands/Eval.ts")).evaluate,
  lint: async () => (await import("../commands/Tokens.ts")).lint,
  render: async () => (await import("../commands/Tokens.ts")).render,
  report: async () => (await import("../commands/Report.ts")).report,
  resume: async () => (await import("../commands/Train.ts")).resume,
  sample: async () => (await import("../commands/Chat.ts")).sample,
  serve: async () => (await import("../commands/Serve.ts")).serve,
  tokenize: async () => (await import("../commands/Tokens.ts")).tokenize,
  train: async () => (await import("../commands/Train.ts")).train,
} satisfies Record<string, () => Promise<Handler<never>>>

export type Name = keyof typeof handlers

/** The input of a command. */
export type Input<N extends Name> = Awaited<ReturnType<(typeof handlers)[N]>> extends Handler<infer A> ? A : never

const answered = (ask: () => Promise<Answer>): Effect.Effect<Option.Option<string>, Quit> =>
  Effect.flatMap(Effect.promise(ask), ({ hasQuit, text }) =>
    hasQuit ? new Quit() : Effect.succeed(Option.fromNullable(text)),
  )

const shellOf = ({ ask, err, hurried, line, out, secret, stopped, ...values }: PlainShell): Service => ({
  ...values,
  out: (text) => Effect.promise(() => out(text)),
  err: (text) => Effect.promise(() => err(text)),
  line: Effect.orElseSucceed(answered(line), Option.none),
  ask: (question) => answered(() => ask(question)),
  secret: (question) => answered(() => secret(question)),
  stopped: aborted(stopped),
  hurried: aborted(hurried),
})

const configurationOf = (environment: PlainShell["environment"]) =>
  ConfigProvider.fromMap(
    new Map(Object.entries(environment).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]]))),
  )

/** Performs a command until the signal, and returns how it failed, if so. */
export const perform = async <N extends Name>(
  name: N,
  input: Input<N>,
  settings: Settings,
  shell: PlainShell,
  signal: AbortSignal,
): Promise<Ended> => {
  const handler = (await handlers[name]()) as Handler<unknown>
  const program = handler(input, settings).pipe(
    Effect.provideService(Shell, shellOf(shell)),
    Effect.withConfigProvider(configurationOf(shell.environment)),
    withLogs(settings.verbose),
  )
  const exit = await Effect.runPromiseExit(program, { signal })
  if (Exit.isSuccess(exit) || Cause.isInterruptedOnly(exit.cause)) return undefined
  const error = Cause.squash(exit.cause)
  const isExpected = Option.isSome(Cause.failureOption(exit.cause))
  return {
    report: Failure.report(error),
    causes: isExpected ? Failure.causes(error) : `${Cause.pretty(exit.cause)}\n`,
  }
}
