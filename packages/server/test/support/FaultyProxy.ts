/** A proxy that replaces the response to the first request for an endpoint with a fault. */
import { Effect, type Scope } from "effect"
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"

/** Handles a response that the client must not see. */
export type Fault = (lost: { readonly incoming: IncomingMessage; readonly outgoing: ServerResponse }) => void

/** Closes the connection. */
export const reset: Fault = ({ incoming }) => void incoming.socket.destroy()

/** Never responds. */
export const silence: Fault = () => {}

/** Responds with a status instead. */
export const status =
  (code: number): Fault =>
  ({ outgoing }) =>
    void outgoing.writeHead(code, { "content-type": "application/json" }).end('{"detail":"lost"}')

/** Forwards to `target`, except for the response to the first request for `operation`. */
export const make = (
  target: string,
  operation: string,
  fault: Fault | undefined,
): Effect.Effect<string, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.async<ReturnType<typeof createServer>>((resume) => {
        let armed = fault
        const server = createServer((incoming, outgoing) => {
          const hit = incoming.url?.endsWith(`/${operation}`) === true ? armed : undefined
          if (hit !== undefined) armed = undefined
          const options = { method: incoming.method, headers: incoming.headers, agent: false }
          const forwarded = request(new URL(incoming.url ?? "/", target), options, (answer) => {
            if (hit !== undefined) return void answer.resume().once("end", () => hit({ incoming, outgoing }))
            outgoing.writeHead(answer.statusCode ?? 502, answer.headers)
            answer.pipe(outgoing)
          })
          forwarded.once("error", () => incoming.socket.destroy())
          incoming.pipe(forwarded)
        })
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
      }),
      (server) =>
        Effect.sync(() => {
          server.closeAllConnections()
          server.close()
        }),
    ),
    (server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
  )
