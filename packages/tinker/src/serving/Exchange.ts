/**
 * A request and its answer without a transport, and an `HttpClient` that brings the one to a server and the other back
 * within the process. For those who write a server.
 *
 * @since 0.1.0
 */
import * as Headers from "@effect/platform/Headers"
import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientError from "@effect/platform/HttpClientError"
import type * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as UrlParams from "@effect/platform/UrlParams"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import * as FiberId from "effect/FiberId"
import * as Stream from "effect/Stream"
import * as HttpDirect from "../HttpDirect.ts"
import type { HttpFailure } from "../HttpFailure.ts"
import { joined, MemoryResponse } from "../internal/MemoryResponse.ts"
import { runBeside } from "../internal/RunBeside.ts"

/**
 * @since 0.1.0
 * @category models
 */
export interface Request {
  readonly method: string
  /** With the query, with or without what comes before `/api/v1/`. */
  readonly path: string
  /** By names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>
  readonly body: Uint8Array
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /** A stream comes as it is made. */
  readonly body: Uint8Array | string | Stream.Stream<Uint8Array>
}

/** Bytes of a body, however it is given. */
const bytesOf = (
  request: HttpClientRequest.HttpClientRequest,
): Effect.Effect<Uint8Array, HttpClientError.RequestError> => {
  const { body } = request
  switch (body._tag) {
    case "Empty":
      return Effect.succeed(new Uint8Array(0))
    case "Uint8Array":
      return Effect.succeed(body.body)
    case "Stream":
      return Stream.runFold(body.stream, new Uint8Array(0), (all, part) => {
        const joined = new Uint8Array(all.length + part.length)
        joined.set(all)
        joined.set(part, all.length)
        return joined
      }).pipe(Effect.mapError((cause) => new HttpClientError.RequestError({ request, reason: "Encode", cause })))
    default:
      return new HttpClientError.RequestError({ request, reason: "Encode", description: `a body of ${body._tag}` })
  }
}

/**
 * A server as a client sees it, at whatever address the client believes it to be.
 *
 * @since 0.1.0
 * @category clients
 */
export const client = (handle: Handle): HttpClient.HttpClient =>
  HttpDirect.offer(
    HttpClient.makeWith<never, never, HttpClientError.RequestError, never>(
      Effect.flatMap((request) => {
        const url = UrlParams.makeUrl(request.url, request.urlParams, request.hash)
        if (Either.isLeft(url)) {
          return new HttpClientError.RequestError({ request, reason: "InvalidUrl", cause: url.left })
        }
        const path = `${url.right.pathname}${url.right.search}`
        const { headers, method } = request
        return Effect.flatMap(bytesOf(request), (body) =>
          Effect.mapBoth(handle({ method, path, headers, body }), {
            onSuccess: (answer) => new MemoryResponse(request, answer),
            onFailure: (cause) => new HttpClientError.RequestError({ request, reason: "Transport", cause }),
          }),
        )
      }),
      Effect.succeed,
    ),
    sendDirect(handle),
  )

/**
 * What a server does with a request.
 *
 * @since 0.1.0
 * @category models
 */
export type Handle = (request: Request) => Effect.Effect<Answer, HttpFailure>

const utf8 = new TextEncoder()
const origin = /^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i

const wholeOf = ({ body }: Answer): Effect.Effect<Uint8Array> => {
  if (typeof body === "string") return Effect.succeed(utf8.encode(body))
  return body instanceof Uint8Array ? Effect.succeed(body.slice()) : Effect.map(Stream.runCollect(body), joined)
}

/** The same for requests that the client has ready: a test of a long run is made of thousands of them. */
const sendDirect =
  (handle: Handle): HttpDirect.Send =>
  ({ body, headers: flat, method, url }, done, fiber) => {
    const headers: Record<string, string> = {}
    for (let at = 0; at < flat.length; at += 2) headers[flat[at] ?? ""] = flat[at + 1] ?? ""
    const request: Request = {
      method,
      path: url.replace(origin, ""),
      headers,
      body: typeof body === "string" ? utf8.encode(body) : (body ?? new Uint8Array(0)),
    }
    let isGivenUp = false
    const running = runBeside(
      fiber,
      Effect.flatMap(
        Effect.suspend(() => handle(request)),
        (answer) =>
          Effect.map(wholeOf(answer), (body) => ({
            status: answer.status,
            headers: Headers.fromInput(answer.headers),
            body,
          })),
      ),
    )
    running.addObserver((exit) => {
      if (isGivenUp) return
      if (Exit.isSuccess(exit)) return done({ _tag: "Answered", answer: exit.value })
      const failure = Cause.failureOrCause(exit.cause)
      done(Either.isLeft(failure) ? { _tag: "Failed", failure: failure.left } : { _tag: "Died", cause: failure.right })
    })
    return () => {
      isGivenUp = true
      running.unsafeInterruptAsFork(FiberId.none)
    }
  }
