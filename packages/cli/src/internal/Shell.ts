/**
 * The access of a command to its process: print, ask, read a variable. The only module of the command
 * that touches the process.
 */
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { hostname } from "node:os"
import process from "node:process"
import { createInterface } from "node:readline"

/** The user pressed Ctrl-C at a prompt. */
export class Quit extends Data.TaggedError("Quit") {}

export interface Service {
  readonly out: (text: string) => Effect.Effect<void>
  readonly err: (text: string) => Effect.Effect<void>
  /** Whether the output is a terminal; otherwise it is plain. */
  readonly isTerminal: boolean
  /** Whether a person can answer. */
  readonly isInteractive: boolean
  /** Whether progress can be drawn, which goes to the error output. */
  readonly hasProgress: boolean
  readonly hasColors: boolean
  readonly width: number
  readonly directory: string
  readonly machine: string
  readonly environment: Readonly<Record<string, string | undefined>>
  /** Waits until the user asks the command to stop. */
  readonly stopped: Effect.Effect<void>
  /** Waits until the user asks it again. */
  readonly hurried: Effect.Effect<void>
  /** Reads one line of the input; none at its end. */
  readonly line: Effect.Effect<Option.Option<string>>
  /** Asks for one line, which can be edited on a terminal; none at the end of the input. A pipe is not asked. */
  readonly ask: (question: string) => Effect.Effect<Option.Option<string>, Quit>
  /** Asks for one line that a terminal shows as asterisks; none at the end of the input. A pipe is not asked. */
  readonly secret: (question: string) => Effect.Effect<Option.Option<string>, Quit>
}

export class Shell extends Context.Tag("@effect-tinker/cli/Shell")<Shell, Service>() {}

/** Returns a variable of the environment. One that is empty counts as not set. */
export const variable = ({ environment }: Pick<Service, "environment">, name: string): string | undefined =>
  environment[name] === "" ? undefined : environment[name]

const write = (stream: NodeJS.WriteStream) => (text: string) =>
  Effect.async<void>((resume) => {
    // A reader that has gone, such as `head`, is no failure of the command.
    stream.write(text, () => resume(Effect.void))
  })

/** Reads a line byte by byte, so that what follows is left for the next reader. */
const readLine = (secret?: string) =>
  Effect.async<Option.Option<string>, Quit>((resume) => {
    const { stdin, stdout } = process
    const raw = secret !== undefined && stdin.isTTY
    // Its end is reported once.
    if (stdin.readableEnded) return resume(Effect.succeedNone)
    let text = ""
    const end = (result: Effect.Effect<Option.Option<string>, Quit>) => {
      stdin.off("readable", read)
      stdin.off("end", atEnd)
      if (raw) {
        stdin.setRawMode(false)
        stdout.write("\n")
      }
      stdin.pause()
      stdin.unref?.()
      resume(result)
    }
    const atEnd = () => end(Effect.succeed(text === "" ? Option.none() : Option.some(text)))
    const erase = () => {
      if (text === "") return
      text = text.slice(0, -1)
      stdout.write("\b \b")
    }
    const read = () => {
      for (let chunk: Buffer | null; (chunk = stdin.read() as Buffer | null) !== null;) {
        const typed = chunk.toString("utf8")
        // The escape sequence of a key such as an arrow.
        if (raw && typed.startsWith("\u001b")) continue
        for (let at = 0; at < typed.length; at++) {
          const character = typed[at] ?? ""
          if (character === "\n" || character === "\r") {
            const rest = typed.slice(at + 1)
            if (rest !== "" && !raw) stdin.unshift(Buffer.from(rest))
            return end(Effect.succeed(Option.some(text)))
          }
          if (!raw) text += character
          else if (character === "\u0003") return end(Effect.fail(new Quit()))
          else if (character === "\u0004") return end(Effect.succeedNone)
          else if (character === "\b" || character === "\u007f") erase()
          else if (character >= " ") {
            text += character
            stdout.write("*")
          }
        }
      }
    }
    if (raw) {
      // Before the question: from now on, nothing that is typed is shown.
      stdin.setRawMode(true)
      stdout.write(secret)
    }
    stdin.ref?.()
    stdin.on("readable", read)
    stdin.on("end", atEnd)
  })

/** The answers typed in this process, the newest first. The arrow keys bring it back. */
let typed: ReadonlyArray<string> = []

/** Asks on a terminal, where the line can be edited. */
const askOnTerminal = (question: string) =>
  Effect.async<Option.Option<string>, Quit>((resume) => {
    const { stdin: input, stdout: output } = process
    const lines = createInterface({ input, output, history: [...typed], historySize: 1000 })
    const end = (result: Effect.Effect<Option.Option<string>, Quit>) => {
      lines.removeAllListeners("close")
      lines.close()
      resume(result)
    }
    lines.on("history", (history) => (typed = history))
    lines.on("SIGINT", () => {
      output.write("\n")
      end(Effect.fail(new Quit()))
    })
    lines.on("close", () => end(Effect.succeedNone))
    lines.question(question, (text) => end(Effect.succeed(Option.some(text))))
    return Effect.sync(() => lines.close())
  })

const positive = (text: string | undefined): number | undefined => {
  const number = Number(text)
  return Number.isInteger(number) && number > 0 ? number : undefined
}

export interface Signals {
  readonly signal?: AbortSignal | undefined
  readonly hurry?: AbortSignal | undefined
}

/** Waits for a signal. */
export const aborted = (signal: AbortSignal | undefined): Effect.Effect<void> =>
  Effect.async((resume) => {
    if (signal === undefined) return
    if (signal.aborted) return resume(Effect.void)
    signal.addEventListener("abort", () => resume(Effect.void), { once: true })
  })

/** The shell of this process. The first signal asks the command to stop, the second one asks again. */
export const live = ({ hurry, signal }: Signals = {}): Effect.Effect<Service> =>
  Effect.sync(() => {
    const { env: environment, stderr, stdin, stdout } = process
    const given = (name: string) => variable({ environment }, name)
    const isTerminal = stdout.isTTY === true
    return {
      out: write(stdout),
      err: write(stderr),
      isTerminal,
      isInteractive: stdin.isTTY === true,
      hasProgress: isTerminal && stderr.isTTY === true,
      hasColors: isTerminal && given("NO_COLOR") === undefined && given("TERM") !== "dumb",
      width: positive(given("COLUMNS")) ?? (isTerminal ? stdout.columns || 80 : 80),
      directory: process.cwd(),
      machine: hostname(),
      environment,
      stopped: aborted(signal),
      hurried: aborted(hurry),
      line: Effect.orElseSucceed(readLine(), Option.none),
      ask: (question) => (stdin.isTTY ? askOnTerminal(question) : readLine()),
      secret: readLine,
    }
  })
