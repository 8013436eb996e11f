/** A proxy that drops one request, or one response, on demand. */
import { Effect, type Scope } from "effect"
import { createServer, type IncomingMessage, request } from "node:http"
import type { AddressInfo } from "node:net"

export type Fault = "request" | "answer"

export interface FaultyProxy {
  readonly baseUrl: string
  /** Drops the next request to this endpoint, or its response. */
  readonly lose: (what: Fault, operation: string) => Effect.Effect<void>
}

export const make = (target: string): Effect.Effect<FaultyProxy, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.async<{ readonly port: number; readonly close: () => void; readonly arm: (fault: Armed) => void }>(
        (resume) => {
          let armed: Armed | undefined
          const server = createServer((incoming, outgoing) => {
            const fault = incoming.url?.endsWith(`/${armed?.operation}`) === true ? armed?.what : undefined
            if (fault !== undefined) armed = undefined
            const vanish = () => void incoming.socket.destroy()
            // Read to the end, so that the request seems to have arrived.
            if (fault === "request") return void incoming.resume().once("end", vanish)
            // A new connection per request, so that none is about to be closed by the server.
            const options = { method: incoming.method, headers: incoming.headers, agent: false }
            const forwarded = request(new URL(incoming.url ?? "/", target), options, (answer: IncomingMessage) => {
              if (fault === "answer") return void answer.resume().once("end", vanish)
              outgoing.writeHead(answer.statusCode ?? 502, answer.headers)
              answer.pipe(outgoing)
            })
            forwarded.once("error", vanish)
            outgoing.once("close", () => forwarded.destroy())
            incoming.pipe(forwarded)
          })
          server.keepAliveTimeout = 120_000
          server.listen(0, "127.0.0.1", () =>
            resume(
              Effect.succeed({
                port: (server.address() as AddressInfo).port,
                close: () => {
                  server.closeAllConnections()
                  server.close()
                },
                arm: (fault: Armed) => {
                  armed = fault
                },
              }),
            ),
          )
        },
      ),
      ({ close }) => Effect.sync(close),
    ),
    ({ arm, port }) => ({
      baseUrl: `http://127.0.0.1:${port}`,
      lose: (what, operation) => Effect.sync(() => arm({ what, operation })),
    }),
  )

interface Armed {
  readonly what: Fault
  readonly operation: string
}
