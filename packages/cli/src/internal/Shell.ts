/**
 * What a command may do with the process that it runs in: print, ask, read a variable. The only module of the command
 * that touches the process.
 */
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { hostname } from "node:os"
import process from "node:process"

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
  readonly variable: (name: string) => string | undefined
  /** Waits until the user asks the command to stop. */
  readonly stopped: Effect.Effect<void>
  /** Reads one line of the input; none at its end. */
  readonly line: Effect.Effect<Option.Option<string>>
  /** Asks for one line that a terminal shows as asterisks; none at the end of the input. A pipe is not asked. */
  readonly secret: (question: string) => Effect.Effect<Option.Option<string>, Quit>
}

export class Shell extends Context.Tag("@effect-tinker/cli/Shell")<Shell, Service>() {}

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

const positive = (text: string | undefined): number | undefined => {
  const number = Number(text)
  return Number.isInteger(number) && number > 0 ? number : undefined
}

const aborted = (signal: AbortSignal): Effect.Effect<void> =>
  Effect.async((resume) => {
    if (signal.aborted) return resume(Effect.void)
    signal.addEventListener("abort", () => resume(Effect.void), { once: true })
  })

/** The shell of this process. The signal asks the command to stop. */
export const live = (signal?: AbortSignal): Effect.Effect<Service> =>
  Effect.sync(() => {
    const { env, stderr, stdin, stdout } = process
    const variable = (name: string) => (env[name] === "" ? undefined : env[name])
    const isTerminal = stdout.isTTY === true
    return {
      out: write(stdout),
      err: write(stderr),
      isTerminal,
      isInteractive: stdin.isTTY === true,
      hasProgress: isTerminal && stderr.isTTY === true,
      hasColors: isTerminal && variable("NO_COLOR") === undefined && variable("TERM") !== "dumb",
      width: positive(variable("COLUMNS")) ?? (isTerminal ? stdout.columns || 80 : 80),
      directory: process.cwd(),
      machine: hostname(),
      variable,
      stopped: signal === undefined ? Effect.never : aborted(signal),
      line: Effect.orElseSucceed(readLine(), Option.none),
      secret: readLine,
    }
  })
