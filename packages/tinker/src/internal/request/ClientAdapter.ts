/** Adapts any `HttpClient` to `HttpDirect`, so that an attempt has one code path whatever the client is. */
import * as FetchHttpClient from "@effect/platform/FetchHttpClient"
import * as HttpBody from "@effect/platform/HttpBody"
import * as HttpClient from "@effect/platform/HttpClient"
import type { HttpClientError, RequestError, ResponseError } from "@effect/platform/HttpClientError"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as HttpDirect from "../../http/HttpDirect.ts"
import { CorruptBody, Disconnected, type HttpFailure, isHttpFailure, NotSent } from "../../http/HttpFailure.ts"
import { HttpPurpose } from "../../http/HttpPurpose.ts"
import { runToExit } from "../util/RunBeside.ts"

/** A response. If it was opened for streaming, `body` is empty and `response` has the unread body. */
export interface Reply extends HttpDirect.Incoming {
  readonly response?: HttpClientResponse.HttpClientResponse
}

/** `HttpDirect.Outcome` with a reply that may be open. */
export type Outcome =
  | Exclude<HttpDirect.Outcome, { readonly _tag: "Answered" }>
  | { readonly _tag: "Answered"; readonly answer: Reply }

/** `HttpDirect.Send` with a reply that may be open. */
export type Send = (
  request: HttpDirect.Outgoing,
  done: (outcome: Outcome) => void,
  fiber: Fiber.RuntimeFiber<unknown, unknown>,
) => HttpDirect.Cancel

export const isSuccess = (status: number): boolean => status >= 200 && status < 300

/** Sends through the client and reads the whole body. A client's own `HttpDirect` needs no adapter. */
export const direct = (client: HttpClient.HttpClient): Send => HttpDirect.of(client) ?? adapt(client, whole)

/** Sends through the client and leaves the body of a success unread, for a caller that streams it. */
export const opening = (client: HttpClient.HttpClient): Send =>
  adapt(client, (response) =>
    isSuccess(response.status) ? Effect.succeed({ ...headOf(response), response }) : whole(response),
  )

const adapt = (
  client: HttpClient.HttpClient,
  read: (response: HttpClientResponse.HttpClientResponse) => Effect.Effect<Reply, HttpClientError>,
): Send => {
  // The platform's own spans show request headers, among them configured secrets that it does not know as such.
  const quiet = HttpClient.withTracerDisabledWhen(client, () => true)
  return (request, done, fiber) => {
    let isCancelled = false
    // The outcome is a value: the log of a fiber that fails would show the request with every header.
    const exchange = Effect.matchCause(
      Effect.flatMap(
        Effect.suspend(() => quiet.execute(toRequest(request))),
        read,
      ),
      { onSuccess: answered, onFailure: failedBy },
    )
    const stop = runToExit(fiber, inContext(request, exchange), (exit) => {
      if (!isCancelled) done(Exit.isSuccess(exit) ? exit.value : { _tag: "Died", cause: exit.cause })
    })
    return () => {
      isCancelled = true
      return stop()
    }
  }
}

const toRequest = ({ body, headers: flat, method, url }: HttpDirect.Outgoing): HttpClientRequest.HttpClientRequest => {
  const headers: Record<string, string> = {}
  for (let at = 0; at < flat.length; at += 2) headers[flat[at] ?? ""] = flat[at + 1] ?? ""
  // An explicit empty body removes the content type.
  if (body === undefined) return HttpClientRequest.make(method)(url, { headers })
  const contentType = headers["content-type"]
  return HttpClientRequest.make(method)(url, {
    headers,
    body: typeof body === "string" ? HttpBody.text(body, contentType) : HttpBody.uint8Array(body, contentType),
  })
}

/** Provides what clients look for in their context: the purpose of the request, and no redirects by `fetch`. */
const inContext = <A, E>({ purpose }: HttpDirect.Outgoing, effect: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.mapInputContext(effect, (context: Context.Context<never>) =>
    // `fetch` would follow redirects by itself and take every header along.
    Context.add(Context.add(context, HttpPurpose, purpose), FetchHttpClient.RequestInit, {
      ...Option.getOrUndefined(Context.getOption(context as Context.Context<unknown>, FetchHttpClient.RequestInit)),
      redirect: "manual",
    }),
  )

const noBytes = new Uint8Array(0)
const headOf = ({ headers, status }: HttpClientResponse.HttpClientResponse): Reply => ({
  status,
  headers,
  body: noBytes,
})

const whole = (response: HttpClientResponse.HttpClientResponse): Effect.Effect<Reply, HttpClientError> => {
  const { headers, status } = response
  return Effect.map(response.arrayBuffer, (body) => ({ status, headers, body: new Uint8Array(body) }))
}

const answered = (answer: Reply): Outcome => ({ _tag: "Answered", answer })

const failedBy = (cause: Cause.Cause<HttpClientError>): Outcome => {
  const failure = Cause.failureOrCause(cause)
  if (Either.isRight(failure)) return { _tag: "Died", cause: failure.right }
  const error = failure.left
  if (error._tag === "ResponseError") return { _tag: "Failed", failure: bodyFailure(error), response: error.response }
  return { _tag: "Failed", failure: error.reason === "Transport" ? sendFailure(error) : unsendable(error) }
}

/** Keeps only the words of an error: the error itself holds the request with every header. */
const wordsOf = (error: HttpClientError): Error => new Error(describeCause(error.cause) || (error.description ?? ""))

const unsendable = (error: RequestError) => new HttpDirect.Unsendable({ cause: wordsOf(error) })

const sendFailure = (error: RequestError): HttpFailure => {
  if (isHttpFailure(error.cause)) return error.cause
  return isNeverSent(error.cause) ? new NotSent({ cause: wordsOf(error) }) : new Disconnected({ cause: wordsOf(error) })
}

/** Returns why a body can't be read. */
export const bodyFailure = (error: ResponseError): HttpFailure => {
  const { cause, response } = error
  // There is a response, so the request was sent, whatever the cause.
  if (isHttpFailure(cause) && cause._tag !== "NotSent") return cause
  // `fetch` reports an error of zlib as the cause of its own error.
  const inner = cause instanceof Error ? cause.cause : undefined
  const isCorrupt = inner instanceof Error && String((inner as { readonly code?: unknown }).code).startsWith("Z_")
  return isCorrupt
    ? new CorruptBody({ encoding: response.headers["content-encoding"] ?? "", cause: wordsOf(error) })
    : new Disconnected({ cause: wordsOf(error) })
}

const connectCodes = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
])

/** Checks whether it is certain that no byte of the request left. A few codes of `fetch` say so. */
const isNeverSent = (cause: unknown): boolean => {
  if (!Predicate.isRecord(cause) && !(cause instanceof Error)) return false
  if (Predicate.isTagged(cause, "NotSent")) return true
  const { code } = cause as { readonly code?: unknown }
  return (
    (typeof code === "string" && connectCodes.has(code)) || isNeverSent((cause as { readonly cause?: unknown }).cause)
  )
}

/** Joins the messages of an error and its causes, each once. */
export const describeCause = (cause: unknown): string => {
  if (!(cause instanceof Error)) return ""
  const inner = describeCause(cause.cause)
  return cause.message.includes(inner) ? cause.message : `${cause.message}: ${inner}`
}
