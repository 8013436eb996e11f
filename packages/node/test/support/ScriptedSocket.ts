/** Servers of the tests, on real sockets. */
import { createServer, type IncomingHttpHeaders, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { Effect, Runtime } from "effect"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"

export interface Request {
  readonly method: string
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: Buffer
}

interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: Uint8Array | string
}

/** A server behind a socket; it hangs up on what fails. */
export const listen = (answer: (request: Request) => Effect.Effect<Answer, unknown>) =>
  Effect.gen(function* () {
    const runtime = yield* Effect.runtime<never>()
    const server = yield* Effect.acquireRelease(
      Effect.async<Server>((resume) => {
        const server = createServer((request, response) => {
          const chunks: Array<Buffer> = []
          request.on("data", (chunk: Buffer) => chunks.push(chunk))
          request.on("end", () => {
            const { headers, method = "", url: path = "" } = request
            const answered = Effect.match(answer({ method, path, headers, body: Buffer.concat(chunks) }), {
              onFailure: () => response.destroy(),
              onSuccess: ({ body, headers, status }) => response.writeHead(status, headers).end(body),
            })
            Runtime.runFork(runtime, answered)
          })
        })
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

type Answered = Effect.Effect<Answer, unknown>

/** The scripted server behind one; `around` may look at what it is asked, and answer in its place. */
export const scriptedWith = (around: (request: Request, handled: Answered) => Answered) =>
  Effect.gen(function* () {
    const server = yield* ScriptedServer.make()
    return yield* listen((request) => {
      const { body, headers, method, path } = request
      const texts = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, String(value)]))
      return around(request, server.handle({ method, path, headers: texts, body }))
    })
  })

export const scripted = scriptedWith((_, handled) => handled)
