/**
 * When is a body no longer read? Not when it is answered, which may be before it was sent: when the socket that it was
 * written to says that this write is done. Undici does not pass that on, so the sockets that it gets tell it themselves.
 */
import type { Socket } from "node:net"
import type { buildConnector } from "undici"

/** By the memory that they lie in. */
const expected = new WeakMap<ArrayBufferLike, () => void>()

/** Has it told when this body was written to a socket; never if that fails, nor over HTTP/2. */
export const expect = (body: Uint8Array, sent: () => void): void => {
  expected.set(body.buffer, sent)
}

/** A connector whose sockets tell. */
export const told =
  (connect: buildConnector.connector): buildConnector.connector =>
  (options, callback) =>
    connect(options, (...result) => {
      if (result[0] === null) tell(result[1])
      callback(...result)
    })

const tell = (socket: Socket): void => {
  const write = socket.write.bind(socket) as (chunk: unknown, encoding?: unknown, done?: unknown) => boolean
  socket.write = (chunk: unknown, encoding?: unknown, done?: unknown): boolean => {
    const body = chunk instanceof Uint8Array ? chunk.buffer : undefined
    const sent = body && expected.get(body)
    if (body === undefined || sent === undefined) return write(chunk, encoding, done)
    expected.delete(body)
    // Undici writes a body whole, and wants to hear nothing of it.
    return write(chunk, (error?: Error | null) => {
      if (error === undefined || error === null) sent()
    })
  }
}
