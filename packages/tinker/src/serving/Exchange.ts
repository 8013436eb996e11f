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
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Stream from "effect/Stream"
import type { HttpFailure } from "../HttpFailure.ts"
import { MemoryResponse } from "../internal/MemoryResponse.ts"

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
export const client = (handle: (request: Request) => Effect.Effect<Answer, HttpFailure>): HttpClient.HttpClient =>
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
  )
