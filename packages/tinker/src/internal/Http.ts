/** One attempt at one HTTP request: headers, redirects, deadline, and every way to fail folded into our errors. */
import * as FetchHttpClient from "@effect/platform/FetchHttpClient"
import * as HttpBody from "@effect/platform/HttpBody"
import * as HttpClient from "@effect/platform/HttpClient"
import type { HttpClientError, ResponseError } from "@effect/platform/HttpClientError"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Redacted from "effect/Redacted"
import type { Purpose } from "../Endpoint.ts"
import type { Platform } from "../Host.ts"
import { HttpPurpose } from "../HttpPurpose.ts"
import { parseRetryAfter } from "../RetryPolicy.ts"
import type * as TinkerConfig from "../TinkerConfig.ts"
import { InvalidInput, type RequestError, Unavailable, UnexpectedResponse } from "../TinkerError.ts"
import { version } from "../Version.ts"
import * as Answer from "./Answer.ts"
import { reveal } from "./Redact.ts"

/** What one attempt sends. */
export interface Attempt {
  readonly operation: string
  readonly purpose: Purpose
  readonly method: "GET" | "POST" | "PUT" | "DELETE"
  readonly url: string
  readonly body: { readonly contentType: string; readonly bytes: string | Uint8Array } | undefined
  /** Of this endpoint and this call; they win over the configured ones. */
  readonly headers: Readonly<Record<string, string>>
  readonly redirect: "follow" | "manual"
  readonly token: Redacted.Redacted<string>
  readonly idempotencyKey: string
  /** 0 for the first. */
  readonly retryCount: number
  readonly timeout: Duration.Duration
  readonly startedAt: number
  readonly redact: (text: string) => string
}

export interface Reply {
  readonly status: number
  readonly headers: Readonly<Record<string, string | undefined>>
  readonly body: Uint8Array
}

type Failure = RequestError | InvalidInput

export interface Http {
  /** The reply of a 2xx, or of a redirect that is not to be followed, read to its end. */
  readonly send: (attempt: Attempt) => Effect.Effect<Reply, Failure>
  /** The response of a 2xx as soon as its headers are there; the time-out ends there, too. */
  readonly open: (attempt: Attempt) => Effect.Effect<HttpClientResponse.HttpClientResponse, Failure>
}

const maxRedirects = 10
const isSuccess = (status: number) => status >= 200 && status < 300
const isRedirect = (status: number) => status >= 300 && status < 400

/** Stands for the body of a refusal that could not be read: it was not empty. */
const unread = new TextEncoder().encode("(its words could not be read)").buffer

/** What may follow a redirect to another origin: nothing that was configured, no credential, no key. */
const portable = new Set(["accept", "user-agent"])

export const make = (client: HttpClient.HttpClient, config: TinkerConfig.Service, platform: Platform): Http => {
  // The platform's own spans would show request headers, among them configured ones that it does not know as secret.
  const quiet = HttpClient.withTracerDisabledWhen(client, () => true)

  const common = {
    accept: "application/json",
    "user-agent": `effect-tinker/${version}`,
    "x-stainless-package-version": version,
    "x-stainless-os": platform.os,
    "x-stainless-arch": platform.arch,
    "x-stainless-runtime": platform.runtime,
    "x-stainless-runtime-version": platform.runtimeVersion,
    "x-stainless-async": "effect",
    ...reveal(config.headers),
  }

  const headersOf = (attempt: Attempt): Record<string, string> => {
    const headers: Record<string, string> = { ...common, ...attempt.headers }
    headers["x-api-key"] = Redacted.value(attempt.token)
    headers["x-stainless-retry-count"] = String(attempt.retryCount)
    if (Duration.isFinite(attempt.timeout)) {
      headers["x-stainless-read-timeout"] = String(Duration.toSeconds(attempt.timeout))
    }
    if (attempt.method !== "GET") {
      headers["content-type"] = attempt.body?.contentType ?? "application/json"
      headers["x-idempotency-key"] = attempt.idempotencyKey
    }
    return headers
  }

  const requestOf = (attempt: Attempt) => {
    const { body } = attempt
    const headers = headersOf(attempt)
    // An empty body, set explicitly, would take the content type away again.
    if (body === undefined) return HttpClientRequest.make(attempt.method)(attempt.url, { headers })
    return HttpClientRequest.make(attempt.method)(attempt.url, {
      headers,
      body:
        typeof body.bytes === "string"
          ? HttpBody.text(body.bytes, body.contentType)
          : HttpBody.uint8Array(body.bytes, body.contentType),
    })
  }

  const fail = (attempt: Attempt, error: HttpClientError | undefined) =>
    Effect.map(Clock.currentTimeMillis, (now): Failure => {
      const fields = fieldsOf(attempt, now)
      return error === undefined
        ? new Unavailable({ ...fields, reason: "Timeout", detail: `no answer in ${Duration.format(attempt.timeout)}` })
        : fold(error, fields, attempt.redact)
    })

  const failWith = (attempt: Attempt) => (error: HttpClientError) => Effect.flatMap(fail(attempt, error), Effect.fail)

  const refuse = (attempt: Attempt, response: HttpClientResponse.HttpClientResponse, body: ArrayBuffer) =>
    Effect.flatMap(Clock.currentTimeMillis, (now) =>
      Effect.fail(
        Answer.toError(
          {
            status: response.status,
            headers: response.headers,
            body: new Uint8Array(body),
            retryAfter: parseRetryAfter(response.headers, now),
          },
          { ...fieldsOf(attempt, now), redact: attempt.redact },
        ),
      ),
    )

  /**
   * Where a redirect leads, as a request, or why it is not followed. A credential never leaves its origin, https never
   * becomes http, and nothing that changes something is turned into a GET: the answer to that would look like success.
   */
  const redirected = (
    request: HttpClientRequest.HttpClientRequest,
    status: number,
    location: string,
  ): HttpClientRequest.HttpClientRequest | string => {
    if (!URL.canParse(location, request.url)) return "its Location is not a URL"
    const from = new URL(request.url)
    const to = new URL(location, request.url)
    const sameOrigin = to.origin === from.origin
    if (to.protocol !== "https:" && to.protocol !== from.protocol)
      return `it leads from ${from.protocol} to ${to.protocol}`
    if (request.method === "GET") {
      const headers = Object.entries(request.headers).filter(([name]) => sameOrigin || portable.has(name))
      return HttpClientRequest.make("GET")(to, { headers: Object.fromEntries(headers) })
    }
    if (!sameOrigin) return `it leads to ${to.origin}, and only a GET may leave its origin: is that the base URL?`
    if (status !== 307 && status !== 308) return `it would turn a ${request.method} into a GET`
    return HttpClientRequest.setUrl(request, to)
  }

  const refuseAs = (
    attempt: Attempt,
    response: HttpClientResponse.HttpClientResponse,
    reason: UnexpectedResponse["reason"],
    detail: string,
  ) => Effect.flatMap(Clock.currentTimeMillis, (now) => Effect.fail(unexpected(attempt, response, now, reason, detail)))

  const follow = (
    attempt: Attempt,
    request: HttpClientRequest.HttpClientRequest,
    redirects: number,
  ): Effect.Effect<HttpClientResponse.HttpClientResponse, Failure> =>
    Effect.flatMap(Effect.catchAll(quiet.execute(request), failWith(attempt)), (response) => {
      const location = response.headers["location"]
      // Status 0: a browser that hides where it was sent.
      const hidden = response.status === 0 ? "the browser does not tell where" : undefined
      if (!hidden && (!isRedirect(response.status) || location === undefined || attempt.redirect === "manual")) {
        return Effect.succeed(response)
      }
      const tooMany = redirects === maxRedirects ? `more than ${maxRedirects} redirects` : undefined
      const next = hidden ?? tooMany ?? redirected(request, response.status, location ?? "")
      // The answer is read so that its connection can be used again.
      return Effect.zipRight(
        Effect.ignore(response.arrayBuffer),
        typeof next === "string" ? refuseAs(attempt, response, "Redirect", next) : follow(attempt, next, redirects + 1),
      )
    })

  const read = (attempt: Attempt, response: HttpClientResponse.HttpClientResponse) =>
    Effect.flatMap(Effect.catchAll(response.arrayBuffer, failWith(attempt)), (body) =>
      body.byteLength > config.maxResponseBytes
        ? refuseAs(attempt, response, "TooLarge", `${body.byteLength} bytes, more than maxResponseBytes allows`)
        : Effect.succeed(body),
    )

  const open = (attempt: Attempt) =>
    Effect.flatMap(follow(attempt, requestOf(attempt), 0), (response) =>
      isSuccess(response.status) || (attempt.redirect === "manual" && isRedirect(response.status))
        ? Effect.succeed(response)
        : // What a refusal says is worth having, but the status alone decides what it is.
          Effect.flatMap(
            Effect.orElseSucceed(response.arrayBuffer, () => unread),
            (body) => refuse(attempt, response, body),
          ),
    )

  const within = <A>(attempt: Attempt, effect: Effect.Effect<A, Failure>): Effect.Effect<A, Failure> => {
    const timed = Duration.isFinite(attempt.timeout)
      ? Effect.timeoutTo(effect, {
          duration: attempt.timeout,
          onSuccess: (value) => Effect.succeed(value),
          onTimeout: () => Effect.flatMap(fail(attempt, undefined), Effect.fail),
        }).pipe(Effect.flatten)
      : effect
    return Effect.mapInputContext(timed, (context: Context.Context<never>) =>
      // Redirects are followed here, under the rules above; fetch would take every header along.
      Context.add(Context.add(context, HttpPurpose, attempt.purpose), FetchHttpClient.RequestInit, {
        ...Option.getOrUndefined(Context.getOption(context as Context.Context<unknown>, FetchHttpClient.RequestInit)),
        redirect: "manual",
      }),
    )
  }

  return {
    open: (attempt) => within(attempt, open(attempt)),
    send: (attempt) =>
      within(
        attempt,
        Effect.flatMap(open(attempt), (response) =>
          Effect.map(read(attempt, response), (body) => ({
            status: response.status,
            headers: response.headers,
            body: new Uint8Array(body),
          })),
        ),
      ),
  }
}

const connectCodes = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
])

/** Is it certain that no byte of the request left? Our own client knows; of fetch's errors a few codes tell. */
const neverSent = (cause: unknown): boolean => {
  if (!Predicate.isRecord(cause) && !(cause instanceof Error)) return false
  if (Predicate.isTagged(cause, "NotSent")) return true
  const { code } = cause as { readonly code?: unknown }
  return (
    (typeof code === "string" && connectCodes.has(code)) || neverSent((cause as { readonly cause?: unknown }).cause)
  )
}

/** What the innermost layers said, each thing once. */
const describeCause = (cause: unknown): string => {
  if (!(cause instanceof Error)) return ""
  const inner = describeCause(cause.cause)
  return cause.message.includes(inner) ? cause.message : `${cause.message}: ${inner}`
}

/** What every error of an attempt tells. */
export const fieldsOf = (attempt: Attempt, now = attempt.startedAt) => ({
  operation: attempt.operation,
  attempts: attempt.retryCount + 1,
  elapsed: Duration.millis(now - attempt.startedAt),
})

/** The error for an answer that came and can't be used. */
export const unexpected = (
  attempt: Attempt,
  response: { readonly status: number; readonly headers: Reply["headers"] },
  now: number,
  reason: UnexpectedResponse["reason"],
  detail: string,
): UnexpectedResponse =>
  new UnexpectedResponse({
    ...fieldsOf(attempt, now),
    reason,
    status: Option.some(response.status),
    requestId: Answer.requestId(response.headers, attempt.redact),
    detail,
  })

/** The failure of a body that is being read as a stream. */
export const foldBody = (error: ResponseError, attempt: Attempt): RequestError =>
  foldResponse(error, fieldsOf(attempt), describeError(error, attempt.redact))

/** Every failure of an HTTP client, ours or another. */
const fold = (
  error: HttpClientError,
  fields: ReturnType<typeof fieldsOf>,
  redact: (text: string) => string,
): Failure => {
  const detail = describeError(error, redact)
  if (error._tag === "ResponseError") return foldResponse(error, fields, detail)
  // What can't be written as a request will not be sendable the next time either. Its cause holds the request, with
  // every header.
  if (error.reason !== "Transport") return new InvalidInput({ path: fields.operation, problem: detail })
  return new Unavailable({ ...fields, detail, reason: neverSent(error.cause) ? "Connect" : "Disconnected" })
}

const describeError = (error: HttpClientError, redact: (text: string) => string): string =>
  redact(describeCause(error.cause) || (error.description ?? ""))

const foldResponse = (error: ResponseError, fields: ReturnType<typeof fieldsOf>, detail: string): RequestError => {
  const reason = unreadable(error.cause)
  return reason === undefined
    ? new Unavailable({ ...fields, detail, reason: "Disconnected" })
    : new UnexpectedResponse({ ...fields, status: Option.some(error.response.status), detail, reason })
}

/** Was the body there, but not to be decoded? What else stops a body is a lost connection. */
const unreadable = (cause: unknown): "TooLarge" | "Encoding" | undefined => {
  if (Predicate.isTagged(cause, "InflatedTooLarge")) return "TooLarge"
  if (Predicate.isTagged(cause, "CorruptBody") || Predicate.isTagged(cause, "UnsupportedEncoding")) return "Encoding"
  // fetch hides zlib's error in the cause of its own.
  const inner = cause instanceof Error ? cause.cause : undefined
  return inner instanceof Error && String((inner as { readonly code?: unknown }).code).startsWith("Z_")
    ? "Encoding"
    : undefined
}
