/** One request of the client at the proxy, and the ways to end it. */
import type { IncomingMessage, ServerResponse } from "node:http"
import { Effect } from "effect"
import { bodyOf, type Message, type Reply, type UpstreamLost } from "./Message.ts"

export interface Exchange {
  /** The request, read to its end. */
  readonly message: Effect.Effect<Message, UpstreamLost>
  /** Waits for the first bytes of the body. */
  readonly firstBytes: Effect.Effect<void>
  readonly reply: (reply: Reply) => Effect.Effect<void>
  /** Announces the whole reply, sends a part of it and closes the connection. */
  readonly replyPartly: (reply: Reply, length: number) => Effect.Effect<void>
  /** Resets the connection. */
  readonly reset: Effect.Effect<void>
}

const write = (response: ServerResponse, reply: Reply, body: Uint8Array, announced: number) => {
  // The response of a storage server may announce a length without a body.
  response.writeHead(reply.status, [...reply.headers, "content-length", String(announced)])
  return body
}

export const make = (request: IncomingMessage, response: ServerResponse): Exchange => ({
  message: Effect.map(bodyOf(request), (body) => ({
    method: request.method ?? "GET",
    path: request.url ?? "/",
    headers: request.rawHeaders,
    body,
  })),
  firstBytes: Effect.async((resume) => {
    request.once("data", () => resume(Effect.void))
    request.once("end", () => resume(Effect.void))
    request.once("close", () => resume(Effect.void))
  }),
  reply: (reply) =>
    Effect.async((resume) => {
      response.once("close", () => resume(Effect.void))
      const hasBody = reply.status >= 200 && reply.status !== 204 && reply.status !== 304
      if (hasBody) response.end(write(response, reply, reply.body, reply.body.length))
      else response.writeHead(reply.status, [...reply.headers]).end()
    }),
  replyPartly: (reply, length) =>
    Effect.async((resume) => {
      response.once("close", () => resume(Effect.void))
      const part = write(response, reply, reply.body.subarray(0, length), reply.body.length)
      response.write(part, () => response.socket?.end())
      if (part.length === 0) response.flushHeaders()
    }),
  reset: Effect.sync(() => void request.socket.resetAndDestroy()),
})
