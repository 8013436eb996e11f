/**
 * Serves the API on a Node.js HTTP socket, with limits on bodies, headers and slow clients.
 *
 * @since 0.1.0
 */
import * as Data from "effect/Data"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Runtime from "effect/Runtime"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type { Answer } from "effect-tinker/protocol/Exchange"
import * as BodyBudget from "./internal/BodyBudget.ts"
import * as WebGuard from "./internal/WebGuard.ts"
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import type * as TinkerServer from "./TinkerServer.ts"

/**
 * Options of the HTTP listener.
 *
 * @since 0.1.0
 * @category models
 */
export interface ListenOptions {
  /** The address to bind to. Default: 127.0.0.1, which other machines cannot reach. */
  readonly host?: string | undefined
  /** The port to bind to; 0 picks a free one. Default: 8000. */
  readonly port?: number | undefined
  /**
   * Maximum size of a request body; a larger one is answered with 413. Default: 32 MiB for passes, 4 MiB for other
   * requests.
   */
  readonly maxBodyBytes?: number | undefined
  /** Maximum size of all request bodies in memory; beyond it, requests get 429. Default: 256 MiB. */
  readonly maxBodiesBytes?: number | undefined
  /** Maximum number of connections; more are closed at once. Default: 4096. */
  readonly maxConnections?: number | undefined
  /**
   * Host names under which clients reach the server. Addresses, `localhost` and the name of this machine are always
   * accepted; requests for other hosts get 403, because any web page could have caused them (DNS rebinding).
   */
  readonly allowedHosts?: ReadonlyArray<string> | undefined
  /** Origins whose web pages may use the server, e.g. `http://localhost:3000`. Default: none. */
  readonly corsOrigins?: ReadonlyArray<string> | undefined
  /** Maximum total size of the headers of a request. Default: 32 KiB. */
  readonly maxHeaderBytes?: number | undefined
  /** Time within which a request must arrive completely; otherwise it is answered with 408. Default: 60 seconds. */
  readonly requestTimeout?: Duration.DurationInput | undefined
  /** Time that pending responses get to finish during shutdown. Default: 5 seconds. */
  readonly closeGrace?: Duration.DurationInput | undefined
}

/**
 * Reports that the server could not bind to its address, e.g. because the port is in use.
 *
 * @since 0.1.0
 * @category errors
 */
export class ListenError extends Data.TaggedError("ListenError")<{
  readonly host: string
  readonly port: number
  readonly cause: unknown
}> {
  /** @since 0.1.0 */
  override get message(): string {
    return `cannot listen on ${this.host}:${this.port}: ${this.cause instanceof Error ? this.cause.message : String(this.cause)}`
  }
}

/**
 * The address on which a server listens.
 *
 * @since 0.1.0
 * @category models
 */
export interface Listening {
  readonly url: string
  readonly host: string
  readonly port: number
}

/**
 * Checks whether an address can be reached only from this machine.
 *
 * @since 0.1.0
 * @category predicates
 */
export const isLoopback: (host: string) => boolean = WebGuard.isLoopback

const detail = (status: number, message: string, headers: Answer["headers"] = {}): Answer => ({
  status,
  headers: { "content-type": "application/json", ...headers },
  body: JSON.stringify({ detail: message }),
})

type Body =
  | { readonly _tag: "Whole"; readonly bytes: Uint8Array }
  | { readonly _tag: "Refused"; readonly answer: Answer }
  | { readonly _tag: "Gone" }

/** Reads the whole body; stops as soon as it exceeds the limit or the budget of all bodies. */
const readBody = (request: IncomingMessage, limit: number, share: BodyBudget.Share): Effect.Effect<Body> =>
  Effect.async<Body>((resume) => {
    const parts: Array<Buffer> = []
    let size = 0
    const refuse = (answer: Answer) => {
      parts.length = 0
      request.pause()
      request.removeListener("data", add)
      resume(Effect.succeed({ _tag: "Refused", answer }))
    }
    const add = (part: Buffer) => {
      size += part.length
      if (size > limit) refuse(detail(413, `the request body exceeds ${limit} bytes`))
      else if (!share.take(part.length))
        refuse(detail(429, "too many large requests at once; retry later", { "retry-after": "1" }))
      else parts.push(part)
    }
    request.on("data", add)
    request.on("end", () => resume(Effect.succeed({ _tag: "Whole", bytes: Buffer.concat(parts) })))
    request.on("error", () => resume(Effect.succeed({ _tag: "Gone" })))
    request.on("close", () => resume(Effect.succeed({ _tag: "Gone" })))
  })

/** How long the rest of a refused body is read and dropped before the connection is cut. */
const linger = 2000

/** The pause after each part of a refused body, so that dropping it costs little. */
const dropPause = 5

const hasBody = ({ headers }: IncomingMessage): boolean =>
  headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0

/**
 * Sends a response although the body has not been read. The rest of the body is dropped, not cut off: a client that is
 * still sending may lose the response together with the connection.
 */
const sendEarly = (request: IncomingMessage, response: ServerResponse, answer: Answer): Effect.Effect<void> => {
  if (!hasBody(request) || request.complete) return send(response, answer)
  return Effect.zipRight(
    send(response, answer),
    Effect.sync(() => {
      const timer = setTimeout(() => request.socket.destroy(), linger)
      const stop = () => clearTimeout(timer)
      request.once("end", stop)
      request.socket.once("close", stop)
      request.on("data", () => {
        request.pause()
        setTimeout(() => request.resume(), dropPause)
      })
      request.resume()
    }),
  )
}

const drained = (response: ServerResponse): Effect.Effect<void> =>
  Effect.async<void>((resume) => {
    const go = () => resume(Effect.void)
    response.once("drain", go)
    response.once("close", go)
    return Effect.sync(() => {
      response.off("drain", go)
      response.off("close", go)
    })
  })

const send = (response: ServerResponse, { body, headers, status }: Answer): Effect.Effect<void> => {
  if (typeof body === "string" || body instanceof Uint8Array)
    return Effect.sync(() => {
      const bytes = typeof body === "string" ? Buffer.from(body) : body
      // Always set: clients attribute a 400 without a content-length to a proxy.
      response.writeHead(status, { ...headers, "content-length": String(bytes.length) }).end(bytes)
    })
  return Effect.sync(() => response.writeHead(status, headers).flushHeaders()).pipe(
    Effect.zipRight(
      Stream.runForEach(body, (part) =>
        Effect.suspend(() => (response.write(part) || response.destroyed ? Effect.void : drained(response))),
      ),
    ),
    Effect.zipRight(Effect.sync(() => void response.end())),
  )
}

const headersOf = ({ headers }: IncomingMessage): Readonly<Record<string, string | undefined>> =>
  Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, Array.isArray(value) ? value.join(", ") : value]),
  )

const close = (server: Server, grace: Duration.DurationInput): Effect.Effect<void> =>
  Effect.async<void>((resume) => {
    server.close(() => resume(Effect.void))
    server.closeIdleConnections()
  }).pipe(
    Effect.timeoutOption(grace),
    Effect.tap((done) => Effect.sync(() => Option.isNone(done) && server.closeAllConnections())),
    Effect.asVoid,
  )

const idleTimeout = 600_000

/** Answers requests: what can be refused by the headers alone is refused before the body is read. */
const responder = (server: TinkerServer.Service, options: ListenOptions) => {
  const allowed: WebGuard.Allowed = { hosts: options.allowedHosts ?? [], origins: options.corsOrigins ?? [] }
  const budget = BodyBudget.make(options.maxBodiesBytes ?? 256 * 2 ** 20)
  const { maxBodyBytes = Infinity } = options

  return (request: IncomingMessage, response: ServerResponse): Effect.Effect<void> =>
    Effect.gen(function* () {
      const { method = "GET", url = "/" } = request
      const headers = headersOf(request)
      const foreign = WebGuard.check(headers, allowed)
      if (foreign !== undefined) return yield* sendEarly(request, response, foreign)
      const early = (answer: Answer) => sendEarly(request, response, WebGuard.withCors(answer, headers))
      const preflight = WebGuard.preflight(method, headers)
      if (preflight !== undefined) return yield* early(preflight)
      const admission = yield* server.admit({ method, path: url, headers })
      if (admission._tag === "Refused") return yield* early(admission.answer)
      const limit = Math.min(maxBodyBytes, admission.maxBodyBytes)
      if (Number(headers["content-length"] ?? 0) > limit)
        return yield* early(detail(413, `the request body exceeds ${limit} bytes`))
      if (headers["expect"] !== undefined) response.writeContinue()
      const share = budget.share()
      yield* Effect.gen(function* () {
        const body = yield* readBody(request, limit, share)
        if (body._tag === "Gone") return
        if (body._tag === "Refused") return yield* early(body.answer)
        yield* send(response, WebGuard.withCors(yield* admission.answer(body.bytes), headers))
      }).pipe(Effect.ensuring(Effect.sync(share.release)))
    })
}

/**
 * Listens until the scope closes. Pending requests, e.g. held polls, are then interrupted. A server without API keys
 * may listen only on a loopback address.
 *
 * @since 0.1.0
 * @category constructors
 */
export const listen = (
  server: TinkerServer.Service,
  options: ListenOptions = {},
): Effect.Effect<Listening, ListenError, Scope.Scope> =>
  Effect.gen(function* () {
    const { host = "127.0.0.1", maxConnections = 4096, maxHeaderBytes = 32 * 2 ** 10, port = 8000 } = options
    if (!server.requiresKey && !WebGuard.isLoopback(host))
      return yield* new ListenError({ host, port, cause: "other machines can reach this address; set apiKeys" })
    const requestTimeout = Duration.toMillis(options.requestTimeout ?? "60 seconds")
    const runtime = yield* Effect.runtime<never>()
    const running = new Set<Fiber.RuntimeFiber<void>>()
    const answer = responder(server, options)
    const handle = (request: IncomingMessage, response: ServerResponse) => {
      const fiber = Runtime.runFork(runtime)(answer(request, response))
      running.add(fiber)
      fiber.addObserver((exit) => {
        running.delete(fiber)
        if (Exit.isFailure(exit) && !response.writableEnded) response.destroy()
      })
      // Interrupts the handler of a client that disconnected.
      response.on("close", () => {
        if (!response.writableFinished) fiber.unsafeInterruptAsFork(fiber.id())
      })
    }
    const http = createServer(
      {
        maxHeaderSize: maxHeaderBytes,
        requestTimeout,
        headersTimeout: Math.min(requestTimeout, 30_000),
        connectionsCheckingInterval: Math.min(5000, Math.max(100, requestTimeout / 4)),
        keepAliveTimeout: 65_000,
      },
      handle,
    )
    // A client that waits for permission to send its body gets it only after its key was checked.
    http.on("checkContinue", handle)
    http.maxConnections = maxConnections
    // Headers beyond a maximum count would be ignored, those that are checked among them; their size is limited instead.
    http.maxHeadersCount = 0
    // Closes connections on which nothing moves, e.g. of a client that does not read its response.
    http.setTimeout(idleTimeout)
    const address = yield* Effect.acquireRelease(
      Effect.async<Listening, ListenError>((resume) => {
        http.once("error", (cause) => resume(new ListenError({ host, port, cause })))
        http.listen(port, host, () => {
          const address = http.address()
          const bound = typeof address === "object" && address !== null ? address.port : port
          const name = host.includes(":") ? `[${host}]` : host
          resume(Effect.succeed({ url: `http://${name}:${bound}`, host, port: bound }))
        })
      }),
      () =>
        Effect.suspend(() => {
          const interruptPending = Effect.zipRight(Effect.sleep("250 millis"), Fiber.interruptAll([...running]))
          return Effect.all([close(http, options.closeGrace ?? "5 seconds"), interruptPending], {
            concurrency: "unbounded",
            discard: true,
          })
        }),
    )
    return address
  })
