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
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Redacted from "effect/Redacted"
import type { Purpose } from "../../protocol/Endpoint.ts"
import type { Platform } from "../../http/Host.ts"
import * as HttpDirect from "../../http/HttpDirect.ts"
import type { HttpFailure } from "../../http/HttpFailure.ts"
import { HttpPurpose } from "../../http/HttpPurpose.ts"
import { parseRetryAfter } from "../../RetryPolicy.ts"
import type * as TinkerConfig from "../../TinkerConfig.ts"
import { InvalidInput, type RequestError, Unavailable, UnexpectedResponse } from "../../TinkerError.ts"
import { version } from "../../protocol/Version.ts"
import * as Answer from "./Refusal.ts"
import { awaited, nothingLeft, type Stop } from "../util/Begun.ts"
import type { Meter } from "../runtime/Meters.ts"
import { reveal } from "../util/Redact.ts"
import { runBeside } from "../util/RunBeside.ts"
import type { Timeouts } from "../runtime/Timeouts.ts"
import type { Trace } from "../runtime/Trace.ts"

/** What one attempt sends. */
export interface Attempt {
  readonly operation: string
  readonly purpose: Purpose
  readonly method: "GET" | "POST" | "PUT" | "DELETE"
  readonly url: string
  readonly body: { readonly contentType: string; readonly bytes: string | Uint8Array } | undefined
  /** Of this endpoint: the same object at every call. They win over the configured ones. */
  readonly fixed: Readonly<Record<string, string>>
  /** Of this call; they win over all others. */
  readonly headers: Readonly<Record<string, string>>
  readonly redirect: "follow" | "manual"
  readonly scheme: "x-api-key" | "bearer"
  readonly token: Redacted.Redacted<string>
  readonly idempotencyKey: string
  /** 0 for the first. */
  readonly retryCount: number
  /** In milliseconds. */
  readonly timeout: number
  readonly startedAt: number
  readonly clock: Clock.Clock
  readonly redact: (text: string) => string
  /** Its span, if somebody looks at it. */
  readonly trace: Trace | undefined
  /** Set where requests are counted. */
  readonly meter: Meter | undefined
  readonly onBodySent: (() => void) | undefined
}

export interface Reply {
  readonly status: number
  readonly headers: Readonly<Record<string, string | undefined>>
  readonly body: Uint8Array
}

type Failure = RequestError | InvalidInput
type AnyFiber = Fiber.RuntimeFiber<unknown, unknown>

/**
 * Begins an attempt with all that this fiber has around it, tells its end once, maybe before it returns, and gives the
 * way to stop it. The end is an `Exit` if nothing is left to do, which is the rule; else an effect for a fiber to run.
 */
export type Begin<out A, out E> = (
  fiber: AnyFiber,
  attempt: Attempt,
  end: (result: Effect.Effect<A, E>) => void,
) => Stop

export interface Http {
  /** The reply of a 2xx, or of a redirect that is not to be followed, read to its end. */
  readonly send: <A, E>(
    /** What becomes of the reply. */
    receive: (reply: Reply, attempt: Attempt) => Effect.Effect<A, E>,
  ) => Begin<A, Failure | E>
  /** The response of a 2xx as soon as its headers are there; the time-out ends there, too. */
  readonly open: Begin<HttpClientResponse.HttpClientResponse, Failure>
}

const nothing = () => {}
const maxRedirects = 10
const isSuccess = (status: number) => status >= 200 && status < 300
const isRedirect = (status: number) => status >= 300 && status < 400

/** Stands for the body of a refusal that could not be read: it was not empty. */
const unread = new TextEncoder().encode("(its words could not be read)").buffer

/** What may follow a redirect to another origin: nothing that was configured, no credential, no key. */
const portable = new Set(["accept", "user-agent"])

export const make = (
  client: HttpClient.HttpClient,
  config: TinkerConfig.Service,
  platform: Platform,
  timeouts: Timeouts,
): Http => {
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

  /** Name and value in turn, up to what changes from call to call; made once for an endpoint. */
  const prepared = new WeakMap<Attempt["fixed"], ReadonlyArray<string>>()
  const preparedFor = (fixed: Attempt["fixed"]): ReadonlyArray<string> => {
    let flat = prepared.get(fixed)
    if (flat === undefined) {
      flat = Object.entries({ ...common, ...fixed }).flat()
      prepared.set(fixed, flat)
    }
    return flat
  }

  const headersOf = (attempt: Attempt): Array<string> => {
    const headers = preparedFor(attempt.fixed).slice()
    const set = (name: string, value: string) => {
      for (let at = 0; at < headers.length; at += 2) {
        if (headers[at] === name) {
          headers[at + 1] = value
          return
        }
      }
      headers.push(name, value)
    }
    for (const name of Object.keys(attempt.headers)) set(name, attempt.headers[name] ?? "")
    if (attempt.scheme === "bearer") set("authorization", `Bearer ${Redacted.value(attempt.token)}`)
    else set("x-api-key", Redacted.value(attempt.token))
    set("x-stainless-retry-count", String(attempt.retryCount))
    if (Number.isFinite(attempt.timeout)) set("x-stainless-read-timeout", String(attempt.timeout / 1_000))
    if (attempt.method !== "GET") {
      set("content-type", attempt.body?.contentType ?? "application/json")
      set("x-idempotency-key", attempt.idempotencyKey)
    }
    return headers
  }

  const requestOf = (attempt: Attempt) => {
    const { body } = attempt
    const flat = headersOf(attempt)
    const headers: Record<string, string> = {}
    for (let at = 0; at < flat.length; at += 2) headers[flat[at] ?? ""] = flat[at + 1] ?? ""
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

  const timedOut = (attempt: Attempt, now: number) =>
    new Unavailable({
      ...fieldsOf(attempt, now),
      reason: "Timeout",
      detail: `no answer in ${Duration.format(Duration.millis(attempt.timeout))}`,
    })

  const failWith = (attempt: Attempt) => (error: HttpClientError) =>
    Effect.flatMap(Clock.currentTimeMillis, (now) => Effect.fail(fold(error, fieldsOf(attempt, now), attempt.redact)))

  const refusal = (attempt: Attempt, { body, headers, status }: Reply, now: number) =>
    Answer.toError(
      { status, headers, body, retryAfter: parseRetryAfter(headers, now) },
      { ...fieldsOf(attempt, now), redact: attempt.redact },
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
        ? refuseAs(attempt, response, "TooLarge", tooLarge(body))
        : Effect.succeed(body),
    )

  const open = (attempt: Attempt, request = requestOf(attempt), redirects = 0) =>
    Effect.flatMap(follow(attempt, request, redirects), (response) =>
      isSuccess(response.status) || (attempt.redirect === "manual" && isRedirect(response.status))
        ? Effect.succeed(response)
        : // What a refusal says is worth having, but the status alone decides what it is.
          Effect.flatMap(
            Effect.orElseSucceed(response.arrayBuffer, () => unread),
            (body) => {
              const { headers, status } = response
              return Effect.flatMap(Clock.currentTimeMillis, (now) =>
                Effect.fail(refusal(attempt, { status, headers, body: new Uint8Array(body) }, now)),
              )
            },
          ),
    )

  /** In the context that a client wants to know of. */
  const inContext = <A, E>(attempt: Attempt, effect: Effect.Effect<A, E>): Effect.Effect<A, E> =>
    Effect.mapInputContext(effect, (context: Context.Context<never>) =>
      // Redirects are followed here, under the rules above; fetch would take every header along.
      Context.add(Context.add(context, HttpPurpose, attempt.purpose), FetchHttpClient.RequestInit, {
        ...Option.getOrUndefined(Context.getOption(context as Context.Context<unknown>, FetchHttpClient.RequestInit)),
        redirect: "manual",
      }),
    )

  /** Gives up after the attempt's time. `start` begins the work, tells its end, and gives the way to stop it. */
  const within = <A, E>(
    attempt: Attempt,
    start: (running: Running<A, E | Failure>) => Stop,
    end: (result: Effect.Effect<A, Failure | E>) => void,
  ): Stop => {
    const running = new Running<A, Failure | E>(attempt, end)
    running.halt = start(running)
    // After the start: an answer in the last moment is one.
    if (!running.isOver) {
      running.clear = timeouts.after(attempt.timeout, () =>
        running.stopAndEnd(Effect.suspend(() => Effect.fail(timedOut(attempt, nowOf(attempt))))),
      )
    }
    return running.stop
  }

  /** Any client: the request runs in a fiber of its own, with everything that the caller has around it. */
  const forked =
    <A, E>(work: (attempt: Attempt) => Effect.Effect<A, Failure | E>): Begin<A, Failure | E> =>
    (fiber, attempt, end) =>
      within<A, E>(
        attempt,
        (request) => {
          const running = runBeside(fiber, inContext(attempt, work(attempt)))
          running.addObserver((exit) => request.end(exit))
          return () => Fiber.interrupt(running)
        },
        end,
      )

  const whole = (attempt: Attempt, response: HttpClientResponse.HttpClientResponse): Effect.Effect<Reply, Failure> =>
    Effect.map(read(attempt, response), (body) => ({
      status: response.status,
      headers: response.headers,
      body: new Uint8Array(body),
    }))

  const exchange = (attempt: Attempt, request?: HttpClientRequest.HttpClientRequest, redirects?: number) =>
    Effect.flatMap(open(attempt, request, redirects), (response) => whole(attempt, response))

  type Receive<A, E> = (reply: Reply, attempt: Attempt) => Effect.Effect<A, E>

  /** What the short way brought. */
  const settle = <A, E>(
    attempt: Attempt,
    outcome: HttpDirect.Outcome,
    receive: Receive<A, E>,
  ): Effect.Effect<A, Failure | E> => {
    if (outcome._tag === "Died") return Effect.failCause(outcome.cause)
    if (outcome._tag === "Failed")
      return Effect.fail(foldDirect(outcome.failure, fieldsOf(attempt, nowOf(attempt)), attempt.redact))
    const { answer } = outcome
    const { headers, status } = answer
    if (isSuccess(status)) {
      return answer.body.byteLength > config.maxResponseBytes
        ? Effect.fail(unexpected(attempt, answer, nowOf(attempt), "TooLarge", tooLarge(answer.body)))
        : receive(answer, attempt)
    }
    if (isRedirect(status)) {
      if (attempt.redirect === "manual") return receive(answer, attempt)
      const next =
        headers["location"] === undefined ? undefined : redirected(requestOf(attempt), status, headers["location"])
      if (typeof next === "string") return Effect.fail(unexpected(attempt, answer, nowOf(attempt), "Redirect", next))
      // Rare enough for the long way.
      if (next !== undefined) {
        const following = forked((attempt) => exchange(attempt, next, 1))
        return Effect.flatMap(
          Effect.withFiberRuntime<Reply, Failure>((fiber) => awaited((end) => following(fiber, attempt, end))),
          (reply) => receive(reply, attempt),
        )
      }
    }
    return Effect.fail(refusal(attempt, answer, nowOf(attempt)))
  }

  const sendDirect =
    <A, E>(direct: HttpDirect.Send, receive: Receive<A, E>): Begin<A, Failure | E> =>
    (fiber, attempt, end) =>
      within<A, E>(
        attempt,
        (running) => {
          const { body, method, onBodySent, purpose, url } = attempt
          const outgoing = { method, url, purpose, headers: headersOf(attempt), body: body?.bytes, onBodySent }
          const done = (outcome: HttpDirect.Outcome) => {
            let result
            try {
              result = settle(attempt, outcome, receive)
            } catch (cause) {
              // What goes wrong with an answer is the matter of who waits for it, not of who brought it.
              result = Effect.die(cause)
            }
            running.end(result)
          }
          const cancel = direct(outgoing, done, fiber)
          return () => {
            cancel()
            return Effect.void
          }
        },
        end,
      )

  const direct = HttpDirect.of(client)
  return {
    open: forked((attempt) => open(attempt)),
    send: (receive) =>
      direct === undefined
        ? forked((attempt) => Effect.flatMap(exchange(attempt), (reply) => receive(reply, attempt)))
        : sendDirect(direct, receive),
  }
}

/** An attempt under way, which ends once: by its answer, by its time, or by who stops it. */
class Running<in A, in E> {
  isOver = false
  /** Stops the work. */
  halt: Stop = nothingLeft
  /** Gives its time limit back. */
  clear: () => void = nothing
  private readonly attempt: Attempt
  private readonly tell: (result: Effect.Effect<A, E>) => void

  constructor(attempt: Attempt, tell: (result: Effect.Effect<A, E>) => void) {
    this.attempt = attempt
    this.tell = tell
    attempt.meter?.began(attempt.body?.bytes.length ?? 0, attempt.retryCount > 0)
  }

  // What is stopped tells its end, too, which nobody wants to hear of.
  end(result: Effect.Effect<A, E>): void {
    if (this.over()) this.tell(result)
  }

  stopAndEnd(result: Effect.Effect<A, E>): void {
    if (this.over()) this.tell(Effect.zipRight(this.halt(), result))
  }

  readonly stop: Stop = () => (this.over() ? this.halt() : Effect.void)

  private over(): boolean {
    if (this.isOver) return false
    this.isOver = true
    this.attempt.meter?.ended()
    this.clear()
    return true
  }
}

const nowOf = ({ clock }: Attempt): number => clock.unsafeCurrentTimeMillis()

const tooLarge = ({ byteLength }: { readonly byteLength: number }) =>
  `${byteLength} bytes, more than maxResponseBytes allows`

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

/** The same for the short way. */
const foldDirect = (
  failure: HttpFailure | HttpDirect.Unsendable,
  fields: ReturnType<typeof fieldsOf>,
  redact: (text: string) => string,
): Failure => {
  const detail = redact(describeCause(failure))
  switch (failure._tag) {
    case "Unsendable":
      return new InvalidInput({ path: fields.operation, problem: detail })
    case "NotSent":
      return new Unavailable({ ...fields, detail, reason: "Connect" })
    case "Disconnected":
      return new Unavailable({ ...fields, detail, reason: "Disconnected" })
    case "InflatedTooLarge":
      return new UnexpectedResponse({ ...fields, detail, reason: "TooLarge" })
    case "CorruptBody":
    case "UnsupportedEncoding":
      return new UnexpectedResponse({ ...fields, detail, reason: "Encoding" })
  }
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
