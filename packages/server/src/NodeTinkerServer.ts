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
  /** Maximum size of a request body; a larger one is answered with 413. Default: 128 MiB. */
  readonly maxBodyBytes?: number | undefined
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

const detail = (status: number, message: string): Answer => ({
  status,
  headers: { "content-type": "application/json", connection: "close" },
  body: JSON.stringify({ detail: message }),
})

type Body =
  | { readonly _tag: "Whole"; readonly bytes: Uint8Array }
  | { readonly _tag: "TooLarge" }
  | { readonly _tag: "Gone" }

/** Reads the whole body; stops as soon as it exceeds the limit. */
const readBody = (request: IncomingMessage, limit: number): Effect.Effect<Body> =>
  Effect.async<Body>((resume) => {
    if (Number(request.headers["content-length"] ?? 0) > limit) return resume(Effect.succeed({ _tag: "TooLarge" }))
    const parts: Array<Buffer> = []
    let size = 0
    request.on("data", (part: Buffer) => {
      size += part.length
      if (size > limit) {
        parts.length = 0
        request.pause()
        resume(Effect.succeed({ _tag: "TooLarge" }))
      } else parts.push(part)
    })
    request.on("end", () => resume(Effect.succeed({ _tag: "Whole", bytes: Buffer.concat(parts) })))
    request.on("error", () => resume(Effect.succeed({ _tag: "Gone" })))
    request.on("close", () => resume(Effect.succeed({ _tag: "Gone" })))
    return undefined
  })

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

/**
 * Listens until the scope closes. Pending requests, e.g. held polls, are then interrupted.
 *
 * @since 0.1.0
 * @category constructors
 */
export const listen = (
  { handle }: TinkerServer.Service,
  options: ListenOptions = {},
): Effect.Effect<Listening, ListenError, Scope.Scope> =>
  Effect.gen(function* () {
    const { host = "127.0.0.1", maxBodyBytes = 128 * 2 ** 20, maxHeaderBytes = 32 * 2 ** 10, port = 8000 } = options
    const requestTimeout = Duration.toMillis(options.requestTimeout ?? "60 seconds")
    const runtime = yield* Effect.runtime<never>()
    const running = new Set<Fiber.RuntimeFiber<void>>()

    const answer = (request: IncomingMessage, response: ServerResponse): Effect.Effect<void> =>
      Effect.gen(function* () {
        const body = yield* readBody(request, maxBodyBytes)
        if (body._tag === "Gone") return
        if (body._tag === "TooLarge") {
          yield* send(response, detail(413, `the request body exceeds ${maxBodyBytes} bytes`))
          request.destroy()
          return
        }
        const { method = "GET", url = "/" } = request
        yield* send(response, yield* handle({ method, path: url, headers: headersOf(request), body: body.bytes }))
      })

    const server = createServer(
      {
        maxHeaderSize: maxHeaderBytes,
        requestTimeout,
        headersTimeout: Math.min(requestTimeout, 30_000),
        connectionsCheckingInterval: Math.min(5000, Math.max(100, requestTimeout / 4)),
        keepAliveTimeout: 65_000,
      },
      (request, response) => {
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
      },
    )
    const address = yield* Effect.acquireRelease(
      Effect.async<Listening, ListenError>((resume) => {
        server.once("error", (cause) => resume(new ListenError({ host, port, cause })))
        server.listen(port, host, () => {
          const address = server.address()
          const bound = typeof address === "object" && address !== null ? address.port : port
          const name = host.includes(":") ? `[${host}]` : host
          resume(Effect.succeed({ url: `http://${name}:${bound}`, host, port: bound }))
        })
      }),
      () =>
        Effect.suspend(() => {
          const interruptPending = Effect.zipRight(Effect.sleep("250 millis"), Fiber.interruptAll([...running]))
          return Effect.all([close(server, options.closeGrace ?? "5 seconds"), interruptPending], {
            concurrency: "unbounded",
            discard: true,
          })
        }),
    )
    return address
  })
