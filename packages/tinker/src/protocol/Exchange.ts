/**
 * A request and its answer without a transport, and an `HttpClient` that brings the one to a server and the other back
 * within the process. For those who write a server.
 *
 * @since 0.1.0
 */
import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientError from "@effect/platform/HttpClientError"
import type * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as UrlParams from "@effect/platform/UrlParams"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Stream from "effect/Stream"
import * as HttpDirect from "../http/HttpDirect.ts"
import type { HttpFailure } from "../http/HttpFailure.ts"
import { exitOf } from "../internal/util/Callback.ts"
import { joined, MemoryResponse } from "../internal/protocol/MemoryResponse.ts"
import { runBeside } from "../internal/util/RunBeside.ts"

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
          Effect.mapBoth(
            Effect.withFiberRuntime<Answer, HttpFailure>((fiber) => handle({ method, path, headers, body }, fiber)),
            {
              onSuccess: (answer) => new MemoryResponse(request, answer),
              onFailure: (cause) => new HttpClientError.RequestError({ request, reason: "Transport", cause }),
            },
          ),
        )
      }),
      Effect.succeed,
    ),
    sendDirect(handle),
  )

/**
 * What a server does with a request. It is asked in the fiber of its client, which has the clock and all else that the
 * answer depends on; what it gives runs in a fiber of its own, unless it is an `Exit` (as `Effect.succeed` gives one):
 * that is the answer at once.
 *
 * @since 0.1.0
 * @category models
 */
export type Handle = (
  request: Request,
  fiber: Fiber.RuntimeFiber<unknown, unknown>,
) => Effect.Effect<Answer, HttpFailure>

const utf8 = new TextEncoder()
const origin = /^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i

const wholeOf = ({ body, headers: given, status }: Answer): Effect.Effect<HttpDirect.Incoming> => {
  const headers: Record<string, string> = {}
  for (const name of Object.keys(given)) headers[name.toLowerCase()] = given[name] ?? ""
  const incoming = (body: Uint8Array) => ({ status, headers, body })
  if (typeof body === "string") return Effect.succeed(incoming(utf8.encode(body)))
  if (body instanceof Uint8Array) return Effect.succeed(incoming(body.slice()))
  return Effect.map(Stream.runCollect(body), (parts) => incoming(joined(parts)))
}

/** The answer to the last byte; at once, if the server has it and all of it is there. */
const answerOf = (
  handle: Handle,
  request: Request,
  fiber: Fiber.RuntimeFiber<unknown, unknown>,
): Effect.Effect<HttpDirect.Incoming, HttpFailure> => {
  try {
    const answer = handle(request, fiber)
    const exit = exitOf(answer)
    if (exit === undefined) return Effect.flatMap(answer, wholeOf)
    return Exit.isSuccess(exit) ? wholeOf(exit.value) : Exit.failCause(exit.cause)
  } catch (defect) {
    return Exit.die(defect)
  }
}

const outcomeOf = (exit: Exit.Exit<HttpDirect.Incoming, HttpFailure>): HttpDirect.Outcome => {
  if (Exit.isSuccess(exit)) return { _tag: "Answered", answer: exit.value }
  const failure = Cause.failureOrCause(exit.cause)
  return Either.isLeft(failure) ? { _tag: "Failed", failure: failure.left } : { _tag: "Died", cause: failure.right }
}

const nothing = () => {}

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
    const answer = answerOf(handle, request, fiber)
    const exit = exitOf(answer)
    if (exit !== undefined) {
      done(outcomeOf(exit))
      return nothing
    }
    let isGivenUp = false
    const running = runBeside(fiber, answer)
    running.addObserver((exit) => {
      if (!isGivenUp) done(outcomeOf(exit))
    })
    return () => {
      isGivenUp = true
      running.unsafeInterruptAsFork(FiberId.none)
    }
  }
