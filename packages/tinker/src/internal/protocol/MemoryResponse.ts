import * as Cookies from "@effect/platform/Cookies"
import * as Headers from "@effect/platform/Headers"
import * as HttpClientError from "@effect/platform/HttpClientError"
import type * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as HttpIncomingMessage from "@effect/platform/HttpIncomingMessage"
import * as UrlParams from "@effect/platform/UrlParams"
import * as Effect from "effect/Effect"
import * as Inspectable from "effect/Inspectable"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { Answer } from "../../protocol/Exchange.ts"

type Failed = HttpClientError.ResponseError

/** A response from memory. A web `Response` requires promises, which dominate the run time of long tests. */
export class MemoryResponse extends Inspectable.Class implements HttpClientResponse.HttpClientResponse {
  readonly [HttpIncomingMessage.TypeId]: HttpIncomingMessage.TypeId = HttpIncomingMessage.TypeId
  readonly [HttpClientResponse.TypeId]: HttpClientResponse.TypeId = HttpClientResponse.TypeId
  readonly request: HttpClientRequest.HttpClientRequest
  readonly status: number
  readonly headers: Headers.Headers
  readonly remoteAddress: Option.Option<string> = Option.none()
  private readonly body: Answer["body"]

  constructor(request: HttpClientRequest.HttpClientRequest, answer: Answer) {
    super()
    this.request = request
    this.status = answer.status
    this.headers = Headers.fromInput(answer.headers)
    this.body = answer.body
  }

  /** Returns the complete body and waits for a streamed one. */
  private get whole(): Effect.Effect<Uint8Array<ArrayBuffer>, Failed> {
    const { body } = this
    if (typeof body === "string") return Effect.sync(() => new TextEncoder().encode(body))
    if (body instanceof Uint8Array) return Effect.sync(() => Uint8Array.from(body))
    return Effect.map(Stream.runCollect(body), joined)
  }

  get cookies(): Cookies.Cookies {
    return Cookies.fromSetCookie(this.headers["set-cookie"] ?? [])
  }

  get text(): Effect.Effect<string, Failed> {
    const { body } = this
    return typeof body === "string"
      ? Effect.succeed(body)
      : Effect.map(this.whole, (bytes) => new TextDecoder().decode(bytes))
  }

  get json(): Effect.Effect<unknown, Failed> {
    return Effect.flatMap(this.text, (text) =>
      Effect.try({
        try: (): unknown => (text === "" ? null : JSON.parse(text)),
        catch: (cause) => this.failure(cause),
      }),
    )
  }

  get urlParamsBody(): Effect.Effect<UrlParams.UrlParams, Failed> {
    return Effect.map(this.text, (text) => UrlParams.fromInput(new URLSearchParams(text)))
  }

  get arrayBuffer(): Effect.Effect<ArrayBuffer, Failed> {
    return Effect.map(this.whole, ({ buffer }) => buffer)
  }

  get formData(): Effect.Effect<FormData, Failed> {
    return Effect.flatMap(this.whole, (bytes) =>
      Effect.tryPromise({
        try: () => new Response(bytes, { headers: this.headers }).formData(),
        catch: (cause) => this.failure(cause),
      }),
    )
  }

  get stream(): Stream.Stream<Uint8Array, Failed> {
    const { body } = this
    return typeof body === "string" || body instanceof Uint8Array ? Stream.fromEffect(this.whole) : body
  }

  toJSON(): unknown {
    return { _id: "@effect/platform/HttpClientResponse", request: this.request.toJSON(), status: this.status }
  }

  private failure(cause: unknown): Failed {
    return new HttpClientError.ResponseError({ request: this.request, response: this, reason: "Decode", cause })
  }
}

export const joined = (chunk: Iterable<Uint8Array>): Uint8Array<ArrayBuffer> => {
  const parts = [...chunk]
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of parts) {
    all.set(part, at)
    at += part.length
  }
  return all
}
