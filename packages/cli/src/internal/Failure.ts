/** Turns every failure of a command into text and an exit code. */
import * as Data from "effect/Data"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"

/** The exit codes of the command. */
export const exitCodes = { success: 0, failure: 1, usage: 2, interrupted: 130 } as const

/** A failure with a line about what happened and a line about what to do. */
export class Failure extends Data.TaggedError("Failure")<{
  readonly message: string
  readonly hint?: string | undefined
  readonly cause?: unknown
}> {}

/** The input ended, or the user left, before a question was answered. */
export class Aborted extends Data.TaggedError("Aborted") {}

/** An invalid command line. */
export class UsageError extends Data.TaggedError("UsageError")<{
  readonly message: string
  /** The usage line of the command; none if the official command prints none either. */
  readonly usage?: Option.Option<{ readonly line: string; readonly command: string }>
}> {}

/** A command that was stopped, and ended what it was doing. Its message says what was saved. */
export class Stopped extends Data.TaggedError("Stopped")<{ readonly message: string }> {}

/** A failure that was described where it happened. */
export class Described extends Data.TaggedError("Described")<{ readonly report: Report; readonly causes: string }> {}

/** The text that a failure prints, without its cause, and its exit code. */
export interface Report {
  readonly text: string
  readonly exitCode: number
}

const textOf = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined)

interface Words {
  /** Not given: the message of the error. */
  readonly headline?: string | undefined
  readonly hint?: string | undefined
  /** Whether the server's own words follow the headline; otherwise the whole message does. */
  readonly detail?: "server" | "message"
}

const check = "Please check your API key or authentication credentials."

/** Describes the errors of the SDK by their tags, with the words of the official command. */
const tagged = (error: { readonly _tag: string } & Record<string, unknown>): Words | undefined => {
  const reason = error["reason"]
  const status = Option.isOption(error["status"]) ? Option.getOrElse(error["status"], () => "unknown") : "unknown"
  switch (error._tag) {
    case "NotFound":
      return {
        headline: "Resource not found",
        hint: "Check its id, and that the key may see it; 'tinkerfx run list' and 'tinkerfx checkpoint list' show yours.",
      }
    case "Unauthorized":
      return reason === "Refused"
        ? { headline: "Authentication failed", hint: check }
        : { headline: "Authentication failed", hint: check, detail: "message" }
    case "BillingPaused":
      return {
        headline: "Billing issue",
        hint: "There is a billing issue with your account. Please check that billing is set up.",
      }
    case "Forbidden":
      return { headline: "Permission denied", hint: "You don't have permission to access this resource." }
    case "RateLimited":
      return { headline: "Rate limit exceeded", hint: "Please wait a moment before trying again." }
    case "RequestRejected":
      if (reason === "BadRequest") return { headline: "Invalid request", hint: "Check the arguments." }
      if (reason === "Unprocessable") return { headline: "Invalid data provided", hint: "Check the arguments." }
      return { headline: `API error (status ${status})`, hint: "Check the arguments." }
    case "Unavailable":
      if (reason === "ServerError")
        return {
          headline: "Internal server error",
          hint: "The Tinker API encountered an internal error. Please try again later.",
        }
      if (reason === "Timeout" || reason === "Pending")
        return { headline: "Request timeout", hint: "The request to Tinker API timed out. Please try again." }
      return {
        headline: "Connection failed",
        hint: "Could not connect to the Tinker API. Please check your network connection.",
      }
    case "InvalidConfig":
      return {
        headline: "Configuration error",
        hint: "Please check your Tinker API credentials: 'tinkerfx auth status' tells whether they work.",
        detail: "message",
      }
    case "InvalidInput":
      return { headline: "Invalid request", hint: "Check the arguments.", detail: "message" }
    case "FileFailed":
      return { headline: "File error", hint: "Check that the directory exists and can be written.", detail: "message" }
    case "Corrupted":
      return { headline: "Corrupt download", hint: "Run the command again.", detail: "message" }
    case "UnexpectedResponse":
      return { hint: "Check TINKER_BASE_URL: the server may be another one, or of another version." }
    case "BadRow":
      return {
        hint: "Correct the row, or leave such rows out with --on-bad-row skip. 'tinkerfx lint' finds all of them.",
      }
    case "UnreadableFile":
      return { hint: "Use a .jsonl, .csv or .parquet file." }
    case "DataChanged":
      return { hint: "Run the command again when nothing writes to the file." }
    case "ConfigurationChanged":
      return { hint: "Use another --out, or the settings that the run was started with: 'tinkerfx resume' has them." }
    case "JournalFailed":
      return { hint: "Wait until the other process has ended, or use another --out." }
    case "RunStoreFailed":
      return { hint: "Check that the directory of the run can be read and written, or use another --out." }
    case "ModelNotCalibrated":
      return { hint: "Set --learning-rate." }
    case "RendererError":
      return { hint: "Choose a renderer with --renderer; 'template' is the model's own chat template." }
    case "TokenizerError":
      return { hint: "Check the name of the model, the network and HF_TOKEN, or name a directory with --tokenizer." }
    case "RolloutFailed":
      return { hint: "Correct the environment, or use --on-failed-rollout retry or shrink." }
    case "BadReward":
    case "UserError":
      return { hint: "Correct the environment: rewards are finite numbers." }
    case "QuestionFailed":
      return { hint: "Correct the question or the environment, or try again." }
    case "StoreError":
    case "HostError":
      return { hint: "Use another directory, or end the process that uses it." }
    default:
      return undefined
  }
}

const messageOf = (error: unknown): string =>
  (Predicate.hasProperty(error, "message") ? textOf(error.message) : undefined) ?? String(error)

/** Some errors list what they are about in lines of their own. */
const oneLine = (text: string): string =>
  text
    .trim()
    .replaceAll(/\s*\n\s*/g, "; ")
    .replaceAll(":; ", ": ")

const lines = (...parts: ReadonlyArray<string | undefined>): string =>
  parts.flatMap((part) => (part === undefined ? [] : [`${part}\n`])).join("")

/** Describes a failure in one line about what happened and one about what to do. */
export const report = (error: unknown): Report => {
  if (error instanceof UsageError) {
    const usage = Option.match(error.usage ?? Option.none(), {
      onNone: () => "",
      onSome: ({ command, line }) => `Usage: ${line}\nTry '${command} --help' for help.\n\n`,
    })
    return { text: `${usage}Error: ${error.message}\n`, exitCode: exitCodes.usage }
  }
  if (error instanceof Described) return error.report
  if (error instanceof Stopped) return { text: `${error.message}\n`, exitCode: exitCodes.interrupted }
  if (error instanceof Aborted) return { text: "Aborted!\n", exitCode: exitCodes.failure }
  if (error instanceof Failure)
    return { text: lines(`Error: ${error.message}`, error.hint), exitCode: exitCodes.failure }
  const known =
    Predicate.hasProperty(error, "_tag") && typeof error._tag === "string"
      ? tagged(error as { readonly _tag: string } & Record<string, unknown>)
      : undefined
  if (known === undefined)
    return {
      text: lines(`Error: ${oneLine(messageOf(error))}`, "Run the command again with --verbose to see the cause."),
      exitCode: exitCodes.failure,
    }
  const headline = known.headline
  if (headline === undefined)
    return { text: lines(`Error: ${oneLine(messageOf(error))}`, known.hint), exitCode: exitCodes.failure }
  const detail =
    known.detail === "message"
      ? messageOf(error)
      : Predicate.hasProperty(error, "detail")
        ? textOf(error.detail)
        : undefined
  return {
    text: lines(`Error: ${headline}${detail === undefined ? "" : `: ${detail}`}`, known.hint),
    exitCode: exitCodes.failure,
  }
}

/** Describes why a failure happened, for `--verbose`: the full message, then its causes. */
export const causes = (error: unknown): string => {
  if (error instanceof Described) return error.causes
  const out: Array<string> = []
  let current: unknown = error
  for (let depth = 0; current !== undefined && current !== null && depth < 10; depth++) {
    const name = Predicate.hasProperty(current, "_tag") ? `${String(current._tag)}: ` : ""
    out.push(`${depth === 0 ? "Cause" : "  caused by"}: ${name}${messageOf(current)}\n`)
    if (Predicate.hasProperty(current, "body") && Option.isOption(current.body) && Option.isSome(current.body))
      out.push(`  response: ${JSON.stringify(current.body.value)}\n`)
    current = Predicate.hasProperty(current, "cause") ? current.cause : undefined
  }
  return out.join("")
}
