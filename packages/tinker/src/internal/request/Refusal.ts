/** Turns a response that is not a success into the one error that fits its status, headers and body. */
import type * as Duration from "effect/Duration"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as TinkerError from "../../TinkerError.ts"
import { redactJson } from "../util/Redact.ts"
import { shorten } from "../util/Text.ts"

/** The fields of an error that describe its attempt. */
export interface Context {
  readonly operation: string
  readonly attempts: number
  readonly elapsed: Duration.Duration
  readonly redact: (text: string) => string
}

export interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, string | undefined>>
  readonly body: Uint8Array
  readonly retryAfter: Option.Option<Duration.Duration>
}

const bodyLimit = 64 * 1024
const previewLimit = 1000

/** Formats validation errors, `[{ loc: ["body", "x"], msg: "field required" }]`, as one line. */
const describeIssues = (issues: ReadonlyArray<unknown>): string =>
  issues
    .map((issue) => {
      if (!Predicate.isRecord(issue) || typeof issue["msg"] !== "string") return JSON.stringify(issue)
      const where = Array.isArray(issue["loc"]) ? `${issue["loc"].join(".")}: ` : ""
      return `${where}${issue["msg"]}`
    })
    .join("; ")

/** Returns the human-readable part of a body. */
export const describeBody = (body: unknown): string => {
  if (body === undefined || body === null) return ""
  if (typeof body === "string") return body
  if (!Predicate.isRecord(body)) return JSON.stringify(body)
  const words = [body["detail"], body["message"], body["error"]].find((value) => value !== undefined && value !== null)
  if (words === undefined) return Object.keys(body).length === 0 ? "" : JSON.stringify(body)
  if (typeof words === "string") return words
  if (Array.isArray(words)) return describeIssues(words)
  return Predicate.isRecord(words) && typeof words["message"] === "string" ? words["message"] : JSON.stringify(words)
}

/** Returns the body without secrets, up to a limit: parsed if it is JSON, else as text. */
const readable = (bytes: Uint8Array, redact: (text: string) => string): unknown => {
  if (bytes.length === 0) return undefined
  const text = new TextDecoder().decode(bytes.subarray(0, bodyLimit))
  try {
    return redactJson(JSON.parse(text), redact)
  } catch {
    return redact(text.trim())
  }
}

/** Returns the server's id of the request, shortened to what an id may be. */
export const requestId = (headers: Answer["headers"], redact: (text: string) => string): Option.Option<string> =>
  Option.map(Option.fromNullable(headers["x-request-id"]), (id) => redact(id).slice(0, 200))

/** Returns the first bytes of a response for an error message. */
export const preview = (bytes: Uint8Array, redact: (text: string) => string): string =>
  shorten(redact(new TextDecoder().decode(bytes.subarray(0, 2 * previewLimit))))

const shouldRetry = (header: string | undefined): Option.Option<boolean> =>
  header === "true" ? Option.some(true) : header === "false" ? Option.some(false) : Option.none()

const rejection = (status: number): TinkerError.RequestRejected["reason"] => {
  switch (status) {
    case 400:
      return "BadRequest"
    case 409:
      return "Conflict"
    case 410:
      return "Gone"
    case 413:
      return "TooLarge"
    case 415:
      return "UnsupportedMediaType"
    case 422:
      return "Unprocessable"
    default:
      return "OtherStatus"
  }
}

/** Returns the error for a response whose status is not 2xx. */
export const toError = (answer: Answer, context: Context): TinkerError.RequestError => {
  const body = readable(answer.body, context.redact)
  const fields = {
    operation: context.operation,
    status: Option.some(answer.status),
    requestId: requestId(answer.headers, context.redact),
    detail: shorten(describeBody(body)),
    body: Option.fromNullable(body),
    shouldRetry: shouldRetry(answer.headers["x-should-retry"]),
    retryAfter: answer.retryAfter,
    attempts: context.attempts,
    elapsed: context.elapsed,
  }
  switch (answer.status) {
    case 401:
      return new TinkerError.Unauthorized({ ...fields, reason: "Refused" })
    case 402:
      return new TinkerError.BillingPaused(fields)
    case 403:
      return new TinkerError.Forbidden(fields)
    case 404:
      return new TinkerError.NotFound(fields)
    case 408:
      return new TinkerError.Unavailable({ ...fields, reason: "Pending" })
    case 429:
      return new TinkerError.RateLimited(fields)
  }
  if (answer.status >= 500) return new TinkerError.Unavailable({ ...fields, reason: "ServerError" })
  // The reference treats a 400 without Content-Length as a proxy error and misreads chunked and compressed ones. The
  // body decides here: an application explains its 400, a proxy does not.
  if (answer.status === 400 && answer.body.length === 0) {
    return new TinkerError.Unavailable({ ...fields, reason: "EmptyBadRequest" })
  }
  if (answer.status >= 400) return new TinkerError.RequestRejected({ ...fields, reason: rejection(answer.status) })
  return new TinkerError.UnexpectedResponse({ ...fields, reason: answer.status >= 300 ? "Redirect" : "Schema" })
}
