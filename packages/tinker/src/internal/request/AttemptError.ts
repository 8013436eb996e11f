/** Turns everything that can go wrong with one HTTP exchange into an error of the SDK. */
import type { ResponseError } from "@effect/platform/HttpClientError"
import type * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"
import type * as HttpDirect from "../../http/HttpDirect.ts"
import type { HttpFailure } from "../../http/HttpFailure.ts"
import { parseRetryAfter } from "../../RetryPolicy.ts"
import { InvalidInput, type RequestError, Unavailable, UnexpectedResponse } from "../../TinkerError.ts"
import { bodyFailure, describeCause } from "./ClientAdapter.ts"
import * as Refusal from "./Refusal.ts"

/** The fields of an error that describe its attempt. */
export interface Facts {
  readonly operation: string
  /** 0 for the first attempt. */
  readonly retryCount: number
  readonly startedAt: number
  readonly clock: Clock.Clock
  /** Removes the secrets of the request from a string. */
  readonly redact: (text: string) => string
}

const fieldsOf = ({ operation, retryCount, startedAt }: Facts, now: number) => ({
  operation,
  attempts: retryCount + 1,
  elapsed: Duration.millis(now - startedAt),
})

/** Returns the error for a response that can't be used. */
export const unexpected = (
  facts: Facts,
  response: Pick<HttpDirect.Incoming, "status" | "headers">,
  reason: UnexpectedResponse["reason"],
  detail: string,
): UnexpectedResponse =>
  new UnexpectedResponse({
    ...fieldsOf(facts, facts.clock.unsafeCurrentTimeMillis()),
    reason,
    status: Option.some(response.status),
    requestId: Refusal.requestId(response.headers, facts.redact),
    detail,
  })

/** Returns the error for a response whose status is not a success. */
export const refused = (facts: Facts, { body, headers, status }: HttpDirect.Incoming): RequestError => {
  const now = facts.clock.unsafeCurrentTimeMillis()
  return Refusal.toError(
    { status, headers, body, retryAfter: parseRetryAfter(headers, now) },
    { ...fieldsOf(facts, now), redact: facts.redact },
  )
}

/** Returns the error for an attempt that ran out of time. `timeout` in milliseconds. */
export const timedOut = (facts: Facts, timeout: number): Unavailable =>
  new Unavailable({
    ...fieldsOf(facts, facts.clock.unsafeCurrentTimeMillis()),
    reason: "Timeout",
    detail: `no answer in ${Duration.format(Duration.millis(timeout))}`,
  })

/** Returns the error for a request that got no readable response. `status` is that of a response without its body. */
export const failed = (
  facts: Facts,
  failure: HttpFailure | HttpDirect.Unsendable,
  status: number | undefined,
): RequestError | InvalidInput =>
  failure._tag === "Unsendable"
    ? new InvalidInput({ path: facts.operation, problem: facts.redact(describeCause(failure)) })
    : unanswered(facts, failure, status)

/** Returns the error for a body that breaks off while it is streamed. */
export const brokenOff = (facts: Facts, error: ResponseError): RequestError =>
  unanswered(facts, bodyFailure(error), error.response.status)

const unanswered = (facts: Facts, failure: HttpFailure, status: number | undefined): RequestError => {
  const now = facts.clock.unsafeCurrentTimeMillis()
  const fields = { ...fieldsOf(facts, now), detail: facts.redact(describeCause(failure)) }
  switch (failure._tag) {
    case "NotSent":
      return new Unavailable({ ...fields, reason: "Connect" })
    case "Disconnected":
      return new Unavailable({ ...fields, reason: "Disconnected" })
    case "InflatedTooLarge":
      return new UnexpectedResponse({ ...fields, status: Option.fromNullable(status), reason: "TooLarge" })
    case "CorruptBody":
    case "UnsupportedEncoding":
      return new UnexpectedResponse({ ...fields, status: Option.fromNullable(status), reason: "Encoding" })
  }
}
