/**
 * Reports when a request body is no longer read. That is not when the response arrives, which may be before the body
 * was sent, but when the socket completes the write. Undici does not report this, so its sockets are wrapped.
 */
import type { Socket } from "node:net"
import type { buildConnector } from "undici"

/** Callbacks by the buffer that holds the body. */
const expected = new WeakMap<ArrayBufferLike, () => void>()

/** Registers a callback for when the body was written to a socket; it is not called if that fails, nor with HTTP/2. */
export const expect = (body: Uint8Array, sent: () => void): void => {
  expected.set(body.buffer, sent)
}

/** Wraps a connector so that its sockets report sent bodies. */
export const reporting =
  (connect: buildConnector.connector): buildConnector.connector =>
  (options, callback) =>
    connect(options, (...result) => {
      if (result[0] === null) wrap(result[1])
      callback(...result)
    })

const wrap = (socket: Socket): void => {
  const write = socket.write.bind(socket) as (chunk: unknown, encoding?: unknown, done?: unknown) => boolean
  socket.write = (chunk: unknown, encoding?: unknown, done?: unknown): boolean => {
    const body = chunk instanceof Uint8Array ? chunk.buffer : undefined
    const sent = body && expected.get(body)
    if (body === undefined || sent === undefined) return write(chunk, encoding, done)
    expected.delete(body)
    // Undici writes a body in one call and passes no callback for it.
    return write(chunk, (error?: Error | null) => {
      if (error === undefined || error === null) sent()
    })
  }
}
