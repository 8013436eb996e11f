/**
 * Represents requests and responses without a transport, and provides an `HttpClient` for a server in the same process.
 * For authors of servers.
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
import * as Stream from "effect/Stream"
import * as HttpDirect from "../http/HttpDirect.ts"
import type { HttpFailure } from "../http/HttpFailure.ts"
import { joined, MemoryResponse } from "../internal/protocol/MemoryResponse.ts"
import { exitOf } from "../internal/util/Callback.ts"
import { runToExit } from "../internal/util/RunBeside.ts"

/**
 * A request to a server.
 *
 * @since 0.1.0
 * @category models
 */
export interface Request {
  readonly method: string
  /** Includes the query. May start with a prefix before `/api/v1/`. */
  readonly path: string
  /** Names are in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>
  readonly body: Uint8Array
}

/**
 * A response of a server.
 *
 * @since 0.1.0
 * @category models
 */
export interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /** The chunks of a stream are sent as they are produced. */
  readonly body: Uint8Array | string | Stream.Stream<Uint8Array>
}

/**
 * Handles a request. The server runs in the client's fiber, with the same clock and context. An `Exit`, as returned by
 * `Effect.succeed`, is used immediately; any other effect runs in a separate fiber.
 *
 * @since 0.1.0
 * @category models
 */
export type Handle = (
  request: Request,
  fiber: Fiber.RuntimeFiber<unknown, unknown>,
) => Effect.Effect<Answer, HttpFailure>

/**
 * Creates an HTTP client for the server, regardless of the address that is called.
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
          Effect.withFiberRuntime<MemoryResponse, HttpClientError.RequestError>((fiber) =>
            Effect.mapBoth(ask(handle, { method, path, headers, body }, fiber), {
              onSuccess: (answer) => new MemoryResponse(request, answer),
              onFailure: (cause) => new HttpClientError.RequestError({ request, reason: "Transport", cause }),
            }),
          ),
        )
      }),
      Effect.succeed,
    ),
    send(handle),
  )

/** Calls the server. The result is an `Exit` if the server answers immediately. */
const ask = (
  handle: Handle,
  request: Request,
  fiber: Fiber.RuntimeFiber<unknown, unknown>,
): Effect.Effect<Answer, HttpFailure> => {
  try {
    return handle(request, fiber)
  } catch (defect) {
    return Exit.die(defect)
  }
}

/** Calls the server and reads the complete response. Needs no fiber for an immediate response. */
const send =
  (handle: Handle): HttpDirect.Send =>
  (outgoing, done, fiber) => {
    const answer = ask(handle, toRequest(outgoing), fiber)
    const exit = exitOf(answer)
    const whole =
      exit === undefined
        ? Effect.flatMap(answer, wholeOf)
        : Exit.isSuccess(exit)
          ? wholeOf(exit.value)
          : Exit.failCause(exit.cause)
    let isCancelled = false
    const stop = runToExit(fiber, whole, (exit) => {
      if (!isCancelled) done(outcomeOf(exit))
    })
    return () => {
      isCancelled = true
      return stop()
    }
  }

const utf8 = new TextEncoder()
const origin = /^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i

const toRequest = ({ body, headers: flat, method, url }: HttpDirect.Outgoing): Request => {
  const headers: Record<string, string> = {}
  for (let at = 0; at < flat.length; at += 2) headers[flat[at] ?? ""] = flat[at + 1] ?? ""
  return {
    method,
    path: url.replace(origin, ""),
    headers,
    body: typeof body === "string" ? utf8.encode(body) : (body ?? new Uint8Array(0)),
  }
}

/** Collects the bytes of a body of any kind. */
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
      return Effect.mapBoth(Stream.runCollect(body.stream), {
        onSuccess: joined,
        onFailure: (cause) => new HttpClientError.RequestError({ request, reason: "Encode", cause }),
      })
    default:
      return new HttpClientError.RequestError({ request, reason: "Encode", description: `a body of ${body._tag}` })
  }
}

/** Reads a complete response. The result is an `Exit` unless the body is a stream. */
const wholeOf = ({ body, headers: given, status }: Answer): Effect.Effect<HttpDirect.Incoming> => {
  const headers: Record<string, string> = {}
  for (const name of Object.keys(given)) headers[name.toLowerCase()] = given[name] ?? ""
  const incoming = (body: Uint8Array) => ({ status, headers, body })
  if (typeof body === "string") return Effect.succeed(incoming(utf8.encode(body)))
  if (body instanceof Uint8Array) return Effect.succeed(incoming(body.slice()))
  return Effect.map(Stream.runCollect(body), (parts) => incoming(joined(parts)))
}

const outcomeOf = (exit: Exit.Exit<HttpDirect.Incoming, HttpFailure>): HttpDirect.Outcome => {
  if (Exit.isSuccess(exit)) return { _tag: "Answered", answer: exit.value }
  const failure = Cause.failureOrCause(exit.cause)
  return Either.isLeft(failure) ? { _tag: "Failed", failure: failure.left } : { _tag: "Died", cause: failure.right }
}
