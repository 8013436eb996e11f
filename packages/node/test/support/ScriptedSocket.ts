/** Test servers on real sockets. */
import { createServer, type IncomingHttpHeaders, type Server } from "node:http"
import type { AddressInfo, Socket } from "node:net"
import { Effect, Runtime } from "effect"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"

export interface Request {
  readonly method: string
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: Buffer
  /** The client port, one per connection. */
  readonly port: number
}

interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: Uint8Array | string
}

type Answered = Effect.Effect<Answer, unknown>

/** Starts a server that closes the connection if `answer` fails. */
export const listen = (answer: (request: Request) => Answered, onConnection: (socket: Socket) => void = () => {}) =>
  Effect.gen(function* () {
    const runtime = yield* Effect.runtime<never>()
    const server = yield* Effect.acquireRelease(
      Effect.async<Server>((resume) => {
        const server = createServer((request, response) => {
          const chunks: Array<Buffer> = []
          request.on("data", (chunk: Buffer) => chunks.push(chunk))
          request.on("end", () => {
            const { headers, method = "", socket, url: path = "" } = request
            const port = socket.remotePort ?? 0
            const answered = Effect.match(answer({ method, path, headers, body: Buffer.concat(chunks), port }), {
              onFailure: () => response.destroy(),
              onSuccess: ({ body, headers, status }) => response.writeHead(status, headers).end(body),
            })
            Runtime.runFork(runtime, answered)
          })
        })
        server.on("connection", onConnection)
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
      }),
      (server) =>
        Effect.async<void>((resume) => {
          server.close(() => resume(Effect.void))
          server.closeAllConnections()
        }),
    )
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  })

/** Returns the response of the scripted server. */
export const handledBy = (server: ScriptedServer.Service, { body, headers, method, path }: Request): Answered => {
  const texts = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, String(value)]))
  return server.handle({ method, path, headers: texts, body })
}

/** Starts the scripted server on a socket; `around` can observe requests and replace responses. */
export const scriptedWith = (around: (request: Request, handled: Answered) => Answered) =>
  Effect.gen(function* () {
    const server = yield* ScriptedServer.make()
    return yield* listen((request) => around(request, handledBy(server, request)))
  })

export const scripted = scriptedWith((_, handled) => handled)
