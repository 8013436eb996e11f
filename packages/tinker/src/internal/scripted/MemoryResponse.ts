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
import type { Answer } from "../../testing/ScriptedServer.ts"

type Failed = HttpClientError.ResponseError

/** An answer that is all there. A web `Response` would take a stream, promises and most of the time of a long test. */
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

  private get bytes(): Uint8Array<ArrayBuffer> {
    return typeof this.body === "string" ? new TextEncoder().encode(this.body) : Uint8Array.from(this.body)
  }

  private get string(): string {
    return typeof this.body === "string" ? this.body : new TextDecoder().decode(this.body)
  }

  get cookies(): Cookies.Cookies {
    return Cookies.fromSetCookie(this.headers["set-cookie"] ?? [])
  }

  get text(): Effect.Effect<string, Failed> {
    return Effect.sync(() => this.string)
  }

  get json(): Effect.Effect<unknown, Failed> {
    return Effect.try({
      try: (): unknown => (this.string === "" ? null : JSON.parse(this.string)),
      catch: (cause) => this.failure(cause),
    })
  }

  get urlParamsBody(): Effect.Effect<UrlParams.UrlParams, Failed> {
    return Effect.sync(() => UrlParams.fromInput(new URLSearchParams(this.string)))
  }

  get arrayBuffer(): Effect.Effect<ArrayBuffer, Failed> {
    return Effect.sync(() => this.bytes.buffer)
  }

  get formData(): Effect.Effect<FormData, Failed> {
    return Effect.tryPromise({
      try: () => new Response(this.bytes, { headers: this.headers }).formData(),
      catch: (cause) => this.failure(cause),
    })
  }

  get stream(): Stream.Stream<Uint8Array, Failed> {
    return Stream.sync(() => this.bytes)
  }

  toJSON(): unknown {
    return { _id: "@effect/platform/HttpClientResponse", request: this.request.toJSON(), status: this.status }
  }

  private failure(cause: unknown): Failed {
    return new HttpClientError.ResponseError({ request: this.request, response: this, reason: "Decode", cause })
  }
}
