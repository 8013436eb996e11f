/**
 * A lean `HttpClient` on undici's `dispatch`: no web streams, no `URL` per request, no span of its own (the operation
 * that sends the request has one), and connections apart per origin and purpose.
 *
 * It follows no redirect, retries nothing and has no time-out but the one for connecting: all that belongs to whoever
 * knows what the request means. What failed is told by the `cause` of the error, see `effect-tinker/HttpFailure`.
 *
 * @since 0.1.0
 */
import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientError from "@effect/platform/HttpClientError"
import type * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as UrlParams from "@effect/platform/UrlParams"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type { Purpose } from "effect-tinker/protocol/Endpoint"
import * as HttpDirect from "effect-tinker/http/HttpDirect"
import {
  Disconnected,
  type HttpFailure,
  InflatedTooLarge,
  NotSent,
  UnsupportedEncoding,
} from "effect-tinker/http/HttpFailure"
import { HttpPurpose } from "effect-tinker/http/HttpPurpose"
import { constants } from "node:buffer"
import { Readable } from "node:stream"
import type * as Undici from "undici"
import * as Body from "./internal/Body.ts"
import { Exchange, type Settled } from "./internal/Exchange.ts"
import * as SentBodies from "./internal/SentBodies.ts"
import { buildConnector, errors, Pool } from "./internal/UndiciPool.ts"
import { UndiciResponse } from "./internal/UndiciResponse.ts"

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /**
   * How many connections a purpose may open to one origin; what is above waits. The defaults leave room for what the
   * protocol lets be under way at once: 400 samples being submitted, 2,000 results being waited for.
   */
  readonly connections?: Partial<Record<Purpose, number>>
  /** For name lookup, TCP and TLS together. Default: 5 seconds. */
  readonly connectTimeout?: Duration.DurationInput
  /**
   * How long an idle connection is kept when the server does not say. Default: 4 seconds, just below what common
   * servers grant; a request on a connection that the server is closing is lost without an answer.
   */
  readonly keepAliveTimeout?: Duration.DurationInput
  /** The biggest body that is read at once, or inflated, in bytes. Default: 256 MiB. */
  readonly maxInflatedBytes?: number
  /** Bytes of a body kept in memory that nobody asked for yet; above, the connection is paused. Default: 64 KiB. */
  readonly highWaterMark?: number
  /** Speak HTTP/2 where the server offers it; still one request a connection at a time. Default: no. */
  readonly allowH2?: boolean
  /** For `tls.connect` and `net.connect`: certificates, `servername`, addresses. */
  readonly connect?: Omit<Undici.buildConnector.BuildOptions, "timeout">
  /** How long requests under way may take when the client is closed. Default: 1 second. */
  readonly closeGrace?: Duration.DurationInput
}

const defaultConnections: Record<Purpose, number> = {
  session: 16,
  train: 32,
  sample: 400,
  retrieve: 2048,
  rest: 50,
  telemetry: 4,
}

/**
 * A client in the current scope, which closes its connections.
 *
 * The answer's `headers` are as received, also `content-encoding` and `content-length` of a body that is handed out
 * decoded. A body is read from the connection once: `text`, `json` and `arrayBuffer` share what the first of them
 * collected, `stream` has it for itself. An answer whose body is never read keeps its connection as long as it is
 * referenced, unless the body is small.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (options?: Options): Effect.Effect<HttpClient.HttpClient, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => new Pools(options ?? {})),
      (pools) => pools.close,
    ),
    (pools) =>
      HttpDirect.offer(
        HttpClient.makeWith<never, never, HttpClientError.RequestError, never>(
          (request) => Effect.flatMap(request, (request) => send(pools, request)),
          Effect.succeed,
        ),
        sendDirect(pools),
      ),
  )

/**
 * A client of its own at every call, connections included.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (options?: Options): Layer.Layer<HttpClient.HttpClient> =>
  Layer.scoped(HttpClient.HttpClient, make(options))

class Pools {
  readonly maxBytes: number
  readonly highWaterMark: number
  /** Frees the connection of an answer that was dropped with its body unread. */
  readonly abandoned = new FinalizationRegistry<Exchange>((exchange) => exchange.abort())

  // By what stands before the path, as written; several writings of one origin lead to the same pools.
  private readonly byPrefix = new Map<string, Map<Purpose, Pool>>()
  private readonly byOrigin = new Map<string, Map<Purpose, Pool>>()
  private closed = false
  private readonly options: Options

  constructor(options: Options) {
    this.options = options
    // Within what zlib takes.
    this.maxBytes = Math.max(1, Math.min(options.maxInflatedBytes ?? 256 * 1024 * 1024, constants.MAX_LENGTH))
    this.highWaterMark = options.highWaterMark ?? 64 * 1024
  }

  /** The pool for this origin, `undefined` if it is none, and the reason if there will be none. */
  get(prefix: string, purpose: Purpose): Pool | undefined | NotSent {
    if (this.closed) return new NotSent({ cause: new Error("the HTTP client is closed") })
    let pools = this.byPrefix.get(prefix)
    if (pools === undefined) {
      const origin = originOf(prefix)
      if (origin === undefined) return undefined
      pools = this.byOrigin.get(origin) ?? new Map<Purpose, Pool>()
      this.byOrigin.set(origin, pools)
      if (this.byPrefix.size > 1000) this.byPrefix.clear()
      this.byPrefix.set(prefix, pools)
    }
    const known = pools.get(purpose)
    if (known !== undefined) return known
    try {
      const pool = this.open(prefix, purpose)
      pools.set(purpose, pool)
      return pool
    } catch (cause) {
      // Options that undici refuses.
      return new NotSent({ cause })
    }
  }

  private open(prefix: string, purpose: Purpose): Pool {
    const { allowH2 = false, connect, connections, connectTimeout, keepAliveTimeout } = this.options
    const timeout = Duration.toMillis(connectTimeout ?? "5 seconds")
    return new Pool(new URL(prefix).origin, {
      connections: connections?.[purpose] ?? defaultConnections[purpose],
      pipelining: 1,
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: Duration.toMillis(keepAliveTimeout ?? "4 seconds"),
      allowH2,
      connect: SentBodies.told(buildConnector({ ...connect, allowH2, timeout })),
    })
  }

  /**
   * Lets requests under way end, but not for longer than the grace. A timer of the platform, not of the `Clock`:
   * sockets don't know of a clock that a test holds still, and nothing in a finalizer can be timed out by `Effect`.
   */
  readonly close: Effect.Effect<void> = Effect.async<void>((resume) => {
    this.closed = true
    const pools = Array.from(this.byOrigin.values()).flatMap((pools) => Array.from(pools.values()))
    const destroy = () => Promise.allSettled(pools.map((pool) => pool.destroy())).then(() => resume(Effect.void))
    const timer = setTimeout(destroy, Duration.toMillis(this.options.closeGrace ?? "1 second"))
    void Promise.allSettled(pools.map((pool) => pool.close())).then(() => {
      clearTimeout(timer)
      resume(Effect.void)
    })
  })
}

const originOf = (prefix: string): string | undefined => {
  try {
    const url = new URL(prefix)
    const isHttp = url.protocol === "http:" || url.protocol === "https:"
    return isHttp && url.username === "" && url.password === "" ? url.origin : undefined
  } catch {
    return undefined
  }
}

// Origin and path of what is already written as `URL` would write it; everything else goes through `URL`.
const plainUrl =
  /^(https?:\/\/[^/?#@\\\s]+)((?:\/(?!\.|%2[eE])[A-Za-z0-9_~!$&()*+,;=:@%.-]*)*(?:\?[A-Za-z0-9_~!$&()*+,;=:@%./?-]*)?)$/

type Address = readonly [prefix: string, path: string]

/** Of whole addresses, as our own requests have them: few, and the same again and again. */
const addresses = new Map<string, Address>()
const knownAddressOf = (address: string): Address | undefined => {
  let known = addresses.get(address)
  if (known === undefined) {
    known = addressOf(address)
    if (known === undefined) return undefined
    if (addresses.size > 1000) addresses.clear()
    addresses.set(address, known)
  }
  return known
}

const addressOf = (address: string): Address | undefined => {
  const plain = plainUrl.exec(address)
  if (plain !== null) {
    const [, prefix = "", path = ""] = plain
    return [prefix, path.startsWith("/") ? path : `/${path}`]
  }
  try {
    const url = new URL(address)
    return url.username === "" && url.password === "" ? [url.origin, url.pathname + url.search] : undefined
  } catch {
    return undefined
  }
}

const target = ({ url, urlParams }: HttpClientRequest.HttpClientRequest): Address | undefined => {
  const address = addressOf(url)
  if (address === undefined || urlParams.length === 0) return address
  const [prefix, path] = address
  return [prefix, `${path}${path.includes("?") ? "&" : "?"}${UrlParams.toString(urlParams)}`]
}

const headersOf = (request: HttpClientRequest.HttpClientRequest): Array<string> => {
  const out: Array<string> = []
  let encoding = false
  for (const name of Object.keys(request.headers)) {
    if (name === "accept-encoding") encoding = true
    out.push(name, request.headers[name] ?? "")
  }
  if (!encoding) out.push("accept-encoding", "gzip, deflate")
  return out
}

type RequestBody = NonNullable<Undici.Dispatcher.DispatchOptions["body"]> | null

const send = (
  pools: Pools,
  request: HttpClientRequest.HttpClientRequest,
): Effect.Effect<HttpClientResponse.HttpClientResponse, HttpClientError.RequestError> => {
  switch (request.body._tag) {
    case "Empty":
      return dispatch(pools, request, null)
    case "Uint8Array":
      return dispatch(pools, request, request.body.body)
    case "FormData":
      // Both are the platform's own class; the types disagree about its iterator.
      return dispatch(pools, request, request.body.formData as unknown as RequestBody)
    case "Raw":
      // Undici refuses what it can't send, which is told as `Encode`.
      return dispatch(pools, request, request.body.body as RequestBody)
    case "Stream": {
      const { stream } = request.body
      return Effect.flatMap(Effect.runtime<never>(), (runtime) => {
        const bytes = Readable.from(Stream.toAsyncIterableRuntime(stream, runtime), { objectMode: false })
        // Undici tells a failure only if it came so far as to listen.
        bytes.on("error", () => {})
        return Effect.ensuring(
          dispatch(pools, request, bytes),
          Effect.sync(() => {
            // The request may have failed before anybody read the body.
            if (!bytes.readableDidRead) bytes.destroy()
          }),
        )
      })
    }
  }
}

const dispatch = (
  pools: Pools,
  request: HttpClientRequest.HttpClientRequest,
  body: RequestBody,
): Effect.Effect<HttpClientResponse.HttpClientResponse, HttpClientError.RequestError> =>
  Effect.withFiberRuntime((fiber) => {
    const address = target(request)
    const pool = address && pools.get(address[0], Context.get(fiber.currentContext, HttpPurpose))
    if (address === undefined || pool === undefined) {
      return Effect.fail(new HttpClientError.RequestError({ request, reason: "InvalidUrl" }))
    }
    if (pool instanceof NotSent) {
      return Effect.fail(new HttpClientError.RequestError({ request, reason: "Transport", cause: pool }))
    }
    const exchange = new Exchange(
      { path: address[1], method: request.method, headers: headersOf(request), body },
      pools.highWaterMark,
    )
    // An answer that came at the moment of an interruption is not lost: its connection is freed.
    return Effect.uninterruptibleMask((restore) =>
      Effect.matchCauseEffect(restore(exchange.start(pool)), {
        onFailure: (cause) => {
          exchange.abort()
          return Effect.failCause(cause)
        },
        onSuccess: (settled) => {
          if (settled !== undefined) return Effect.fail(toRequestError(request, settled))
          const response = new UndiciResponse(request, exchange, pools.maxBytes)
          if (!exchange.isOver) {
            pools.abandoned.register(response, exchange, exchange)
            exchange.onOver = () => pools.abandoned.unregister(exchange)
          }
          return Effect.succeed(response)
        },
      }),
    )
  })

/** Did undici find that this is no request at all? */
const isRefused = (error: Error): boolean =>
  error instanceof errors.InvalidArgumentError ||
  error instanceof errors.NotSupportedError ||
  error instanceof errors.RequestContentLengthMismatchError

const toFailure = ({ error, started }: Settled): Disconnected | NotSent =>
  started ? new Disconnected({ cause: error }) : new NotSent({ cause: error })

const toRequestError = (request: HttpClientRequest.HttpClientRequest, settled: Settled): HttpClientError.RequestError =>
  new HttpClientError.RequestError({
    request,
    reason: isRefused(settled.error) ? "Encode" : "Transport",
    cause: toFailure(settled),
  })

const flatten = (headers: Exchange["headers"]): Record<string, string> => {
  const out: Record<string, string> = {}
  for (const name of Object.keys(headers)) {
    const value = headers[name]
    if (value !== undefined) out[name] = typeof value === "string" ? value : value.join(", ")
  }
  return out
}

/** The short way: what `execute` and reading the body do, in one callback. */
const sendDirect =
  (pools: Pools): HttpDirect.Send =>
  (request, done) => {
    let isGivenUp = false
    const fail = (failure: HttpFailure | HttpDirect.Unsendable) => {
      if (!isGivenUp) done({ _tag: "Failed", failure })
    }
    const address = knownAddressOf(request.url)
    const pool = address && pools.get(address[0], request.purpose)
    if (address === undefined || pool === undefined) {
      fail(new HttpDirect.Unsendable({ cause: new Error("not the URL of a server") }))
      return () => {}
    }
    if (pool instanceof NotSent) {
      fail(pool)
      return () => {}
    }
    const headers = [...request.headers, "accept-encoding", "gzip, deflate"]
    const { method, body = null } = request
    if (request.onBodySent !== undefined && body instanceof Uint8Array) SentBodies.expect(body, request.onBodySent)
    const exchange = new Exchange({ path: address[1], method, headers, body }, pools.highWaterMark)
    exchange.unbounded = true
    const deliver = (body: Uint8Array) => {
      if (!isGivenUp)
        done({ _tag: "Answered", answer: { status: exchange.status, headers: flatten(exchange.headers), body } })
    }
    exchange.reader = () => {
      if (exchange.received <= pools.maxBytes || exchange.isOver) return
      fail(new InflatedTooLarge({ limit: pools.maxBytes }))
      isGivenUp = true
      exchange.abort()
    }
    let isAnswered = false
    exchange.onOver = () => {
      const { error } = exchange
      if (error !== undefined) {
        // Before the answer it is told below.
        if (isAnswered) fail(new Disconnected({ cause: error }))
        return
      }
      const packed = Body.join(exchange.take())
      const encoding = Body.encodingOf(exchange.headers["content-encoding"])
      if (encoding === undefined) {
        fail(new UnsupportedEncoding({ encoding: String(exchange.headers["content-encoding"]) }))
      } else if (encoding === "identity" || packed.length === 0) {
        deliver(packed)
      } else {
        Body.inflate(packed, encoding, pools.maxBytes, (result) =>
          Buffer.isBuffer(result) ? deliver(result) : fail(result),
        )
      }
    }
    exchange.begin(pool, (settled) => {
      isAnswered = settled === undefined
      if (settled !== undefined) {
        fail(isRefused(settled.error) ? new HttpDirect.Unsendable({ cause: settled.error }) : toFailure(settled))
      }
    })
    return () => {
      isGivenUp = true
      exchange.abort()
    }
  }
