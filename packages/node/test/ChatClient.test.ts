// Tests that need a real socket: when bytes arrive, and when a connection ends.
import { FetchHttpClient } from "@effect/platform"
import { NodeTinker } from "@effect-tinker/node"
import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, Redacted, Schedule, Stream } from "effect"
import { ChatClient, TinkerConfig } from "effect-tinker"
import * as Transport from "effect-tinker/Transport"
import * as Http from "node:http"
import type { AddressInfo } from "node:net"
import { constants, createGzip } from "node:zlib"

const values = (baseUrl: string): TinkerConfig.Values => ({
  baseUrl,
  apiKey: Redacted.make("tml-secret-key"),
  retryPolicy: Schedule.recurs(3),
})

const clients = {
  undici: (baseUrl: string) => ChatClient.layer.pipe(Layer.provide(NodeTinker.layer(values(baseUrl)))),
  fetch: (baseUrl: string) =>
    ChatClient.layer.pipe(
      Layer.provide(Transport.layer),
      Layer.provide(TinkerConfig.layer(values(baseUrl))),
      Layer.provide(FetchHttpClient.layer),
    ),
}

/** Starts a server that answers chats with `answer`, counts them, and observes when they are closed. */
const serve = (answer: (response: Http.ServerResponse, chat: number) => void) =>
  Effect.gen(function* () {
    const closed = yield* Deferred.make<"whole" | "left">()
    const seen: Array<string> = []
    const server = Http.createServer((request, response) => {
      request.resume()
      request.on("end", () => {
        if (!request.url?.endsWith("/chat/completions")) return response.end("{}")
        seen.push(request.url)
        response.on("close", () =>
          Deferred.unsafeDone(closed, Effect.succeed(response.writableFinished ? "whole" : "left")),
        )
        return answer(response, seen.length)
      })
    })
    yield* Effect.acquireRelease(
      Effect.async<void>((resume) => void server.listen(0, "127.0.0.1", () => resume(Effect.void))),
      () =>
        Effect.async<void>((resume) => {
          server.close(() => resume(Effect.void))
          server.closeAllConnections()
        }),
    )
    return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen, closed }
  })

const event = (text: string) => `data: ${JSON.stringify({ id: "c", choices: [{ delta: { content: text } }] })}\n\n`
const begin = (response: Http.ServerResponse) => response.writeHead(200, { "content-type": "text/event-stream" })

const answer = ChatClient.ChatClient.pipe(
  Effect.map(({ streamChat }) => streamChat({ model: "m", messages: [{ role: "user", content: "Hi" }] })),
)

describe.each(["undici", "fetch"] as const)("ChatClient on %s", (name) => {
  it.scopedLive("streamChat emits a part before the server sends the next one", () =>
    Effect.gen(function* () {
      const { closed, url } = yield* serve((response) => void begin(response).write(event("one")))
      const first = yield* Deferred.make<string>()
      const fiber = yield* answer.pipe(
        Effect.flatMap((parts) => Stream.runForEach(ChatClient.text()(parts), (text) => Deferred.succeed(first, text))),
        Effect.provide(clients[name](url)),
        Effect.fork,
      )
      expect(yield* Deferred.await(first)).toBe("one")
      // The server observes that the client is gone.
      yield* Fiber.interrupt(fiber)
      expect(yield* Deferred.await(closed)).toBe("left")
    }),
  )

  it.scopedLive("streamChat emits parts of a compressed response as they arrive", () =>
    Effect.gen(function* () {
      const { url } = yield* serve((response) => {
        response.writeHead(200, { "content-type": "text/event-stream", "content-encoding": "gzip" })
        const gzip = createGzip({ flush: constants.Z_SYNC_FLUSH })
        gzip.pipe(response)
        gzip.write(event("one"))
      })
      const text = yield* answer.pipe(
        Effect.flatMap((parts) => Stream.runHead(ChatClient.text()(parts))),
        Effect.provide(clients[name](url)),
      )
      expect(text).toMatchObject({ value: "one" })
    }),
  )

  it.scopedLive("streamChat closes the connection when the consumer stops early", () =>
    Effect.gen(function* () {
      const { closed, seen, url } = yield* serve((response) => {
        begin(response)
        // Writes as fast as the client reads, until it closes.
        const next = (): void => void (response.destroyed || response.write(event("more"), () => setImmediate(next)))
        next()
      })
      yield* Effect.gen(function* () {
        const texts = yield* Stream.runCollect(Stream.take(ChatClient.text()(yield* answer), 3))
        expect([...texts]).toEqual(["more", "more", "more"])
        expect(yield* Deferred.await(closed)).toBe("left")
      }).pipe(Effect.provide(clients[name](url)))
      expect(seen.length).toBe(1)
    }),
  )

  it.scopedLive("streamChat fails without a retry if the connection breaks after the first part", () =>
    Effect.gen(function* () {
      const { seen, url } = yield* serve(
        (response) => void begin(response).write(event("one"), () => setImmediate(() => response.destroy())),
      )
      const given: Array<string> = []
      const error = yield* answer.pipe(
        Effect.flatMap((parts) =>
          Stream.runForEach(ChatClient.text()(parts), (text) => Effect.sync(() => given.push(text))),
        ),
        Effect.provide(clients[name](url)),
        Effect.flip,
      )
      expect(given).toEqual(["one"])
      expect(error).toMatchObject({ _tag: "Unavailable", reason: "Disconnected", operation: "chat/completions" })
      expect(seen.length).toBe(1)
    }),
  )

  it.scopedLive("streamChat retries if the connection breaks before the response", () =>
    Effect.gen(function* () {
      const { seen, url } = yield* serve((response, chat) =>
        chat < 3 ? void response.destroy() : void begin(response).end(`${event("one")}data: [DONE]\n\n`),
      )
      const texts = yield* answer.pipe(
        Effect.flatMap((parts) => Stream.runCollect(ChatClient.text()(parts))),
        Effect.provide(clients[name](url)),
      )
      expect([...texts]).toEqual(["one"])
      expect(seen.length).toBe(3)
    }),
  )
})
