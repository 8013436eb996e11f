/**
 * Implements a response: status and headers, and a body that is either collected or streamed, decoded in both cases.
 */
import * as Cookies from "@effect/platform/Cookies"
import * as Headers from "@effect/platform/Headers"
import * as HttpClientError from "@effect/platform/HttpClientError"
import type * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as HttpIncomingMessage from "@effect/platform/HttpIncomingMessage"
import * as UrlParams from "@effect/platform/UrlParams"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Inspectable from "effect/Inspectable"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { Disconnected, InflatedTooLarge, UnsupportedEncoding } from "effect-tinker/http/HttpFailure"
import * as Zlib from "node:zlib"
import * as Body from "./Body.ts"
import type { Exchange } from "./Exchange.ts"

type Failed = HttpClientError.ResponseError

const headersProto: object = Object.getPrototypeOf(Headers.empty)

const toText = (body: Buffer): string =>
  body.length >= 3 && body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf
    ? body.toString("utf8", 3)
    : body.toString("utf8")

const toJson = (body: Buffer): unknown => (body.length === 0 ? null : (JSON.parse(toText(body)) as unknown))

const toArrayBuffer = (body: Buffer): ArrayBuffer => {
  const { buffer, byteLength, byteOffset } = body
  // Socket memory is never a SharedArrayBuffer.
  const owner = buffer as ArrayBuffer
  return byteOffset === 0 && byteLength === owner.byteLength ? owner : owner.slice(byteOffset, byteOffset + byteLength)
}

export class UndiciResponse extends Inspectable.Class implements HttpClientResponse.HttpClientResponse {
  readonly request: HttpClientRequest.HttpClientRequest
  private readonly exchange: Exchange
  private readonly maxBytes: number
  private cachedHeaders: Headers.Headers | undefined = undefined
  private cachedCookies: Cookies.Cookies | undefined = undefined
  // The body is unread, being collected for waiting readers, collected, or streamed.
  private waiting: Set<(result: Effect.Effect<Buffer, Failed>) => void> | undefined = undefined
  private collected: Effect.Effect<Buffer, Failed> | undefined = undefined
  private isStreamed = false

  constructor(request: HttpClientRequest.HttpClientRequest, exchange: Exchange, maxBytes: number) {
    super()
    this.request = request
    this.exchange = exchange
    this.maxBytes = maxBytes
  }

  get [HttpIncomingMessage.TypeId](): HttpIncomingMessage.TypeId {
    return HttpIncomingMessage.TypeId
  }

  get [HttpClientResponse.TypeId](): HttpClientResponse.TypeId {
    return HttpClientResponse.TypeId
  }

  get status(): number {
    return this.exchange.status
  }

  get headers(): Headers.Headers {
    if (this.cachedHeaders === undefined) {
      const out: Record<string, string> = Object.create(headersProto)
      const received = this.exchange.headers
      for (const name of Object.keys(received)) {
        const value = received[name]
        if (value !== undefined) out[name] = typeof value === "string" ? value : value.join(", ")
      }
      this.cachedHeaders = out as Headers.Headers
    }
    return this.cachedHeaders
  }

  get cookies(): Cookies.Cookies {
    return (this.cachedCookies ??= Cookies.fromSetCookie(this.exchange.headers["set-cookie"] ?? []))
  }

  get remoteAddress(): Option.Option<string> {
    return Option.none()
  }

  get text(): Effect.Effect<string, Failed> {
    return Effect.map(this.body, toText)
  }

  get json(): Effect.Effect<unknown, Failed> {
    return Effect.flatMap(this.body, (body) => this.read(body, toJson))
  }

  get urlParamsBody(): Effect.Effect<UrlParams.UrlParams, Failed> {
    return Effect.map(this.body, (body) => UrlParams.fromInput(new URLSearchParams(toText(body))))
  }

  get arrayBuffer(): Effect.Effect<ArrayBuffer, Failed> {
    return Effect.map(this.body, toArrayBuffer)
  }

  get formData(): Effect.Effect<FormData, Failed> {
    return Effect.flatMap(this.body, (body) =>
      Effect.tryPromise({
        try: () => {
          const headers = { "content-type": this.headers["content-type"] ?? "" }
          return new Response(toArrayBuffer(body), { headers }).formData()
        },
        catch: (cause) => this.failure(cause),
      }),
    )
  }

  get stream(): Stream.Stream<Uint8Array, Failed> {
    return Stream.fromPull(
      Effect.suspend(() => {
        // A collected body can be streamed again.
        if (this.collected !== undefined && !this.isStreamed) return this.replay(this.collected)
        if (this.isStreamed || this.waiting !== undefined)
          return Effect.succeed(Effect.fail(Option.some(this.consumed())))
        this.isStreamed = true
        return this.open()
      }),
    )
  }

  // Without the body, which printing must not consume.
  toJSON(): unknown {
    return {
      _id: "@effect/platform/HttpClientResponse",
      request: this.request.toJSON(),
      status: this.status,
      headers: Inspectable.redact(this.headers),
      remoteAddress: Option.none(),
    }
  }

  /** Collects the body on first use; later readers share the result. */
  private get body(): Effect.Effect<Buffer, Failed> {
    return Effect.suspend(() => {
      if (this.collected !== undefined) return this.collected
      if (this.isStreamed) return Effect.fail(this.consumed())
      if (this.waiting === undefined && this.exchange.isOver) {
        const result = this.finished()
        if (result !== undefined) return result
      }
      return Effect.async<Buffer, Failed>((resume) => {
        if (this.collected !== undefined) return resume(this.collected)
        if (this.waiting === undefined) this.collect()
        const waiting = (this.waiting ??= new Set())
        waiting.add(resume)
        return Effect.sync(() => {
          waiting.delete(resume)
          // No reader is left.
          if (waiting.size === 0 && this.collected === undefined) this.exchange.abort()
        })
      })
    })
  }

  private collect(): void {
    const { exchange } = this
    this.waiting = new Set()
    if (this.encoding === undefined) return queueMicrotask(() => this.unsupported())
    exchange.unbounded = true
    const step = () => {
      if (exchange.received > this.maxBytes) {
        exchange.reader = undefined
        exchange.abort()
        return this.settle(Effect.fail(this.failure(new InflatedTooLarge({ limit: this.maxBytes }))))
      }
      if (!exchange.isOver) return
      exchange.reader = undefined
      const result = this.finished()
      if (result !== undefined) this.settle(result)
    }
    if (exchange.isOver) return queueMicrotask(step)
    exchange.reader = step
    exchange.flow()
  }

  private unsupported(): void {
    this.exchange.abort()
    this.settle(Effect.fail(this.failure(new UnsupportedEncoding({ encoding: this.contentEncoding }))))
  }

  /** Returns the result of an exchange that is over, or undefined if decompression has just started. */
  private finished(): Effect.Effect<Buffer, Failed> | undefined {
    const { exchange } = this
    if (exchange.error !== undefined) {
      return (this.collected = Effect.fail(this.failure(new Disconnected({ cause: exchange.error }))))
    }
    if (exchange.received > this.maxBytes) {
      return (this.collected = Effect.fail(this.failure(new InflatedTooLarge({ limit: this.maxBytes }))))
    }
    const encoding = this.encoding
    if (encoding === undefined) {
      return (this.collected = Effect.fail(this.failure(new UnsupportedEncoding({ encoding: this.contentEncoding }))))
    }
    if (encoding === "identity" || exchange.isEmpty) {
      return (this.collected = Effect.succeed(Body.join(exchange.take())))
    }
    this.waiting ??= new Set()
    Body.inflate(Body.join(exchange.take()), encoding, this.maxBytes, (result) =>
      this.settle(Buffer.isBuffer(result) ? Effect.succeed(result) : Effect.fail(this.failure(result))),
    )
    return undefined
  }

  private settle(result: Effect.Effect<Buffer, Failed>): void {
    this.collected = result
    const waiting = this.waiting
    this.waiting = undefined
    waiting?.forEach((resume) => resume(result))
  }

  private get contentEncoding(): string {
    return (this.headers["content-encoding"] ?? "").trim().toLowerCase()
  }

  private get encoding(): Body.Encoding | undefined {
    return Body.encodingOf(this.exchange.headers["content-encoding"])
  }

  private read<A>(body: Buffer, parse: (body: Buffer) => A): Effect.Effect<A, Failed> {
    try {
      return Effect.succeed(parse(body))
    } catch (cause) {
      return Effect.fail(this.failure(cause))
    }
  }

  private failure(cause: unknown): Failed {
    return new HttpClientError.ResponseError({ request: this.request, response: this, reason: "Decode", cause })
  }

  private consumed(): Failed {
    return new HttpClientError.ResponseError({
      request: this.request,
      response: this,
      reason: "Decode",
      description: "the body was already consumed by another reader",
    })
  }

  private replay(
    body: Effect.Effect<Buffer, Failed>,
  ): Effect.Effect<Effect.Effect<Chunk.Chunk<Uint8Array>, Option.Option<Failed>>> {
    let given = false
    return Effect.succeed(
      Effect.suspend(() => {
        if (given) return Effect.fail(Option.none())
        given = true
        return Effect.mapBoth(body, { onFailure: Option.some, onSuccess: (bytes) => Chunk.of<Uint8Array>(bytes) })
      }),
    )
  }

  private open(): Effect.Effect<Effect.Effect<Chunk.Chunk<Uint8Array>, Option.Option<Failed>>, never, Scope.Scope> {
    const { exchange } = this
    const encoding = this.encoding
    if (encoding === undefined) {
      exchange.abort()
      return Effect.succeed(
        Effect.fail(Option.some(this.failure(new UnsupportedEncoding({ encoding: this.contentEncoding })))),
      )
    }
    return encoding === "identity" ? this.openPlain() : this.openInflated(encoding)
  }

  private openPlain() {
    const { exchange } = this
    const pull = Effect.async<Chunk.Chunk<Uint8Array>, Option.Option<Failed>>((resume) => {
      const step = () => {
        if (exchange.isEmpty && !exchange.isOver) {
          exchange.reader = step
          return exchange.flow()
        }
        exchange.reader = undefined
        if (!exchange.isEmpty) return resume(Effect.succeed(Chunk.unsafeFromArray<Uint8Array>(exchange.take())))
        if (exchange.error === undefined) return resume(Effect.fail(Option.none()))
        resume(Effect.fail(Option.some(this.failure(new Disconnected({ cause: exchange.error })))))
      }
      step()
      return Effect.sync(() => (exchange.reader = undefined))
    })
    return Effect.as(
      Effect.addFinalizer(() => Effect.sync(() => exchange.abort())),
      pull,
    )
  }

  private openInflated(encoding: "gzip" | "deflate") {
    return Effect.map(
      Effect.acquireRelease(
        Effect.sync(() => new Inflating(this.exchange, encoding)),
        (inflating) => Effect.sync(() => inflating.close()),
      ),
      (inflating) => {
        let total = 0
        return Effect.async<Chunk.Chunk<Uint8Array>, Option.Option<Failed>>((resume) => {
          inflating.next((result) => {
            if (result === undefined) return resume(Effect.fail(Option.none()))
            if (!(result instanceof Error)) {
              total += result.length
              return resume(
                total > this.maxBytes
                  ? Effect.fail(Option.some(this.failure(new InflatedTooLarge({ limit: this.maxBytes }))))
                  : Effect.succeed(Chunk.of<Uint8Array>(result)),
              )
            }
            const cause =
              result === this.exchange.error
                ? new Disconnected({ cause: result })
                : Body.failure(result, this.contentEncoding, this.maxBytes)
            resume(Effect.fail(Option.some(this.failure(cause))))
          })
          return Effect.sync(() => inflating.cancel())
        })
      },
    )
  }
}

/** Feeds a decompressor from an exchange, as fast as its output is read. */
class Inflating {
  private inflater: Zlib.Gunzip | Zlib.Inflate | Zlib.InflateRaw | undefined = undefined
  private input: Array<Buffer> = []
  private want: ((result: Buffer | undefined | Error) => void) | undefined = undefined
  private ended = false
  private error: Error | undefined = undefined

  private readonly exchange: Exchange
  private readonly encoding: "gzip" | "deflate"

  constructor(exchange: Exchange, encoding: "gzip" | "deflate") {
    this.exchange = exchange
    this.encoding = encoding
    this.feed()
  }

  next(want: (result: Buffer | undefined | Error) => void): void {
    this.want = want
    this.give()
  }

  cancel(): void {
    this.want = undefined
  }

  close(): void {
    this.want = undefined
    this.exchange.reader = undefined
    this.exchange.abort()
    this.inflater?.destroy()
  }

  private give(): void {
    const want = this.want
    if (want === undefined) return
    const out = this.error === undefined ? (this.inflater?.read() as Buffer | null | undefined) : undefined
    if (out === null || out === undefined) {
      if (this.error === undefined && !this.ended) return
      this.want = undefined
      return want(this.error)
    }
    this.want = undefined
    want(out)
  }

  private stop(error: Error | undefined): void {
    if (this.ended || this.error !== undefined) return
    if (error === undefined) this.ended = true
    else this.error = error
    this.give()
  }

  private open(first: Buffer): Zlib.Gunzip | Zlib.Inflate | Zlib.InflateRaw {
    const inflater =
      this.encoding === "gzip"
        ? Zlib.createGunzip()
        : Body.isZlib(first)
          ? Zlib.createInflate()
          : Zlib.createInflateRaw()
    inflater.on("readable", () => this.give())
    inflater.on("end", () => this.stop(undefined))
    inflater.on("error", (error) => this.stop(error))
    return inflater
  }

  private readonly feed = (): void => {
    const { exchange } = this
    exchange.reader = undefined
    if (this.ended || this.error !== undefined) return
    if (this.input.length === 0) this.input = exchange.take()
    const chunk = this.input.shift()
    if (chunk !== undefined) {
      this.inflater ??= this.open(chunk)
      // Called once the chunk is decompressed and its output mostly read.
      this.inflater.write(chunk, (error) => (error ? undefined : this.feed()))
    } else if (!exchange.isOver) {
      exchange.reader = this.feed
    } else if (exchange.error !== undefined) {
      this.stop(exchange.error)
    } else if (this.inflater === undefined) {
      this.stop(undefined)
    } else {
      this.inflater.end()
    }
  }
}
