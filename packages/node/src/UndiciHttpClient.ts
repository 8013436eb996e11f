/**
 * Implements a lean `HttpClient` on undici's `dispatch`: no web streams, no `URL` per request, no span (the operation
 * that sends the request has one), and separate connections per origin and purpose.
 *
 * It does not follow redirects or retry, and its only timeout is the one for connecting: everything else is up to the
 * caller, which knows the meaning of the request. The `cause` of an error shows what failed; see
 * `effect-tinker/http/HttpFailure`.
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
import * as Option from "effect/Option"
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
import * as Proxy from "effect-tinker/http/Proxy"
import { HttpPurpose } from "effect-tinker/http/HttpPurpose"
import { constants } from "node:buffer"
import { Readable } from "node:stream"
import type * as Undici from "undici"
import * as Body from "./internal/Body.ts"
import { Exchange, type Settled } from "./internal/Exchange.ts"
import * as SentBodies from "./internal/SentBodies.ts"
import * as Tunnel from "./internal/Tunnel.ts"
import { buildConnector, errors, Pool } from "./internal/UndiciPool.ts"
import { UndiciResponse } from "./internal/UndiciResponse.ts"

/**
 * Options of the HTTP client.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /**
   * Maximum number of connections per purpose and origin; further requests wait. The defaults allow for the maximum
   * concurrency of the protocol: 400 samples being submitted and 2,000 results being awaited.
   */
  readonly connections?: Partial<Record<Purpose, number>>
  /** Timeout for DNS lookup, TCP and TLS together, and for a proxy to open its tunnel. Default: 5 seconds. */
  readonly connectTimeout?: Duration.DurationInput
  /**
   * How long an idle connection is kept if the server does not specify it. Default: 4 seconds, slightly less than
   * common servers allow; a request on a connection that the server is closing is lost without a response.
   */
  readonly keepAliveTimeout?: Duration.DurationInput
  /** Maximum size in bytes of a body that is collected or decompressed. Default: 256 MiB. */
  readonly maxInflatedBytes?: number
  /** Number of unread body bytes in memory above which the connection is paused. Default: 64 KiB. */
  readonly highWaterMark?: number
  /** Uses HTTP/2 if the server offers it, still with one request at a time per connection. Default: false. */
  readonly allowH2?: boolean
  /** Options for `tls.connect` and `net.connect`: certificates, `servername`, addresses. */
  readonly connect?: Omit<Undici.buildConnector.BuildOptions, "timeout">
  /**
   * HTTP proxies. Every connection through one is a tunnel (`CONNECT`), for http servers, too. Default: those of the
   * `TinkerConfig` with the layers of `NodeTinker`, none otherwise.
   */
  readonly proxies?: Proxy.Proxies
  /** How long pending requests may take to finish when the client is closed. Default: 1 second. */
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
 * Creates a client in the current scope, which closes its connections.
 *
 * The response `headers` are as received, including `content-encoding` and `content-length` of a body that is returned
 * decoded. A body is read from the connection once: `text`, `json` and `arrayBuffer` share what the first of them
 * collected, `stream` consumes it exclusively. A response whose body is never read holds its connection as long as it
 * is referenced, unless the body is small.
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
 * Provides a client with its own connections; each call returns a different layer.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (options?: Options): Layer.Layer<HttpClient.HttpClient> =>
  Layer.scoped(HttpClient.HttpClient, make(options))

class Pools {
  readonly maxBytes: number
  readonly highWaterMark: number
  /** Frees the connection of a response that was garbage-collected with its body unread. */
  readonly abandoned = new FinalizationRegistry<Exchange>((exchange) => exchange.abort())

  // Keyed by the text before the path; different spellings of one origin share their pools.
  private readonly byPrefix = new Map<string, Map<Purpose, Pool>>()
  private readonly byOrigin = new Map<string, Map<Purpose, Pool>>()
  private closed = false
  private readonly options: Options

  constructor(options: Options) {
    this.options = options
    // zlib accepts at most this length.
    this.maxBytes = Math.max(1, Math.min(options.maxInflatedBytes ?? 256 * 1024 * 1024, constants.MAX_LENGTH))
    this.highWaterMark = options.highWaterMark ?? 64 * 1024
  }

  /** Returns the pool for an origin, `undefined` if the prefix is not an origin, or the reason why there is no pool. */
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
      // Undici rejected the options.
      return new NotSent({ cause })
    }
  }

  private open(prefix: string, purpose: Purpose): Pool {
    const { allowH2 = false, connect, connections, connectTimeout, keepAliveTimeout, proxies } = this.options
    const timeout = Duration.toMillis(connectTimeout ?? "5 seconds")
    const url = new URL(prefix)
    const direct = buildConnector({ ...connect, allowH2, timeout })
    const connector = Option.match(Proxy.select(proxies ?? Proxy.none, url), {
      onNone: () => direct,
      onSome: (proxy) => Tunnel.through(proxy, direct, { ...connect, timeout }),
    })
    return new Pool(url.origin, {
      connections: connections?.[purpose] ?? defaultConnections[purpose],
      pipelining: 1,
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: Duration.toMillis(keepAliveTimeout ?? "4 seconds"),
      allowH2,
      connect: SentBodies.reporting(connector),
    })
  }

  /**
   * Lets pending requests finish, but not for longer than the grace period. Uses a platform timer instead of the
   * `Clock`: sockets do not follow a test clock, and `Effect` cannot time out a finalizer.
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

// Matches URLs that are already in the form that `URL` produces; all others are parsed by `URL`.
const plainUrl =
  /^(https?:\/\/[^/?#@\\\s]+)((?:\/(?!\.|%2[eE])[A-Za-z0-9_~!$&()*+,;=:@%.-]*)*(?:\?[A-Za-z0-9_~!$&()*+,;=:@%./?-]*)?)$/

type Address = readonly [prefix: string, path: string]

/** Caches parsed URLs of our own requests, which are few and repeat. */
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
      // Both are the platform class; only the types disagree about its iterator.
      return dispatch(pools, request, request.body.formData as unknown as RequestBody)
    case "Raw":
      // Undici rejects values that it cannot send, which is reported as `Encode`.
      return dispatch(pools, request, request.body.body as RequestBody)
    case "Stream": {
      const { stream } = request.body
      return Effect.flatMap(Effect.runtime<never>(), (runtime) => {
        const bytes = Readable.from(Stream.toAsyncIterableRuntime(stream, runtime), { objectMode: false })
        // Undici reports a failure only once it listens to the stream.
        bytes.on("error", () => {})
        return Effect.ensuring(
          dispatch(pools, request, bytes),
          Effect.sync(() => {
            // The request may have failed before the body was read.
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
    // If the response arrives at the moment of an interruption, its connection is freed.
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

/** Checks whether undici rejected the request as invalid. */
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

/** Sends a request and reads the body in one callback, without a fiber. */
const sendDirect =
  (pools: Pools): HttpDirect.Send =>
  (request, done) => {
    let isAborted = false
    let isAnswered = false
    const fail = (failure: HttpFailure | HttpDirect.Unsendable) => {
      if (!isAborted) done({ _tag: "Failed", failure, response: isAnswered ? head() : undefined })
    }
    const address = knownAddressOf(request.url)
    const pool = address && pools.get(address[0], request.purpose)
    if (address === undefined || pool === undefined) {
      fail(new HttpDirect.Unsendable({ cause: new Error("not a valid HTTP URL") }))
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
    const head = () => ({ status: exchange.status, headers: flatten(exchange.headers) })
    const deliver = (body: Uint8Array) => {
      if (!isAborted)
        done({ _tag: "Answered", answer: { status: exchange.status, headers: flatten(exchange.headers), body } })
    }
    exchange.reader = () => {
      if (exchange.received <= pools.maxBytes || exchange.isOver) return
      fail(new InflatedTooLarge({ limit: pools.maxBytes }))
      isAborted = true
      exchange.abort()
    }
    exchange.onOver = () => {
      const { error } = exchange
      if (error !== undefined) {
        // A failure before the response is reported below.
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
    const begin = () =>
      exchange.begin(pool, (settled) => {
        isAnswered = settled === undefined
        if (settled !== undefined) {
          fail(isRefused(settled.error) ? new HttpDirect.Unsendable({ cause: settled.error }) : toFailure(settled))
        }
      })
    // A poll waits on the server anyway: it leaves after what was submitted in this turn of the event loop. undici
    // writes to a connection that was just used only in the next turn.
    if (request.purpose === "retrieve") setImmediate(() => !isAborted && begin())
    else begin()
    return () => {
      isAborted = true
      exchange.abort()
    }
  }
