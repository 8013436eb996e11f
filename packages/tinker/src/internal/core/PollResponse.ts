/** Reads the state of a request from the response to a poll, as plain data. */
import * as Option from "effect/Option"
import type { TinkerError } from "../../TinkerError.ts"
import { isMisfit, isUnreadable } from "./Response.ts"

/**
 * - `Done`: the response holds the result.
 * - `Failed`: the response is final and is not a result. `expired` if the server has dropped the result.
 * - `Pending`: the server still works on the request.
 * - `Size`: the result is ready and has this many bytes.
 * - `Unreachable`: the response does not concern the request itself.
 * - `Unreadable`: the response can't be read. `isMisfit` if it is well-formed and not what the API describes.
 * - `BillingPaused`: billing blocks the account.
 */
export type PollResponse =
  | { readonly _tag: "Done" }
  | { readonly _tag: "Failed"; readonly expired: boolean }
  | { readonly _tag: "Pending"; readonly state: string; readonly reason: string | undefined }
  | { readonly _tag: "Size"; readonly bytes: number }
  | {
      readonly _tag: "Unreachable"
      readonly reason: string
      readonly isRateLimited: boolean
      /** The delay that the server asks for, in milliseconds. */
      readonly retryAfter: number | undefined
    }
  | { readonly _tag: "Unreadable"; readonly reason: string; readonly isMisfit: boolean }
  | { readonly _tag: "BillingPaused"; readonly reason: string }

/** A body that is JSON: a response without a result, a failed result, or anything else, which only its kind can read. */
export type Body =
  | Extract<PollResponse, { readonly _tag: "Pending" | "Size" }>
  | { readonly _tag: "Error"; readonly detail: string; readonly category: "user" | "server" | undefined }
  | { readonly _tag: "Result" }

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const textIn = (value: unknown, clean: (text: string) => string): string | undefined =>
  typeof value === "string" && value !== "" ? clean(value) : undefined

/** Reads each field by itself, so that an unknown body never costs the state. */
const pending = (body: unknown, clean: (text: string) => string): Extract<PollResponse, { _tag: "Pending" }> => {
  const fields = isRecord(body) ? body : {}
  return {
    _tag: "Pending",
    state: textIn(fields["queue_state"], clean) ?? "unknown",
    reason: textIn(fields["queue_state_reason"], clean),
  }
}

/** Reads a JSON body of status 200. `clean` removes secrets and shortens text. */
export const fromBody = (body: unknown, clean: (text: string) => string): Body => {
  if (!isRecord(body)) return { _tag: "Result" }
  // In this order; a result has none of these keys.
  if (body["type"] === "try_again") return pending(body, clean)
  if (body["status"] === "complete_metadata") {
    const bytes = Number(body["response_payload_size"])
    return { _tag: "Size", bytes: bytes > 0 && Number.isFinite(bytes) ? bytes : 0 }
  }
  if (!("error" in body)) return { _tag: "Result" }
  const { category, error } = body
  return {
    _tag: "Error",
    detail: clean(typeof error === "string" ? error : JSON.stringify(error)),
    // Every other category, also these words in capitals, is as good as none.
    category: category === "user" || category === "server" ? category : undefined,
  }
}

/** Reads a poll that failed. Error bodies hold no secrets, so `clean` only shortens them. */
export const fromError = (
  error: TinkerError,
  retryAfter: number | undefined,
  clean: (text: string) => string,
): PollResponse => {
  const unreachable = (isRateLimited: boolean): PollResponse => ({
    _tag: "Unreachable",
    reason: error.message,
    isRateLimited,
    retryAfter,
  })
  switch (error._tag) {
    case "Unavailable":
      return error.reason === "Pending" ? pending(Option.getOrUndefined(error.body), clean) : unreachable(false)
    case "RateLimited":
      return unreachable(true)
    case "Unauthorized":
      // A credential command that fails once must not cost every result that is waited for.
      return error.reason === "Refused" ? { _tag: "Failed", expired: false } : unreachable(false)
    case "BillingPaused":
      return { _tag: "BillingPaused", reason: error.message }
    case "RequestRejected":
      return { _tag: "Failed", expired: error.reason === "Gone" }
    case "UnexpectedResponse":
      return isUnreadable(error)
        ? { _tag: "Unreadable", reason: error.message, isMisfit: isMisfit(error) }
        : { _tag: "Failed", expired: false }
    default:
      // Open servers report a failed request as 400, 404, 409 or 422; the error has the details.
      return { _tag: "Failed", expired: false }
  }
}
