// Replays recordings that need a real socket, with our own client and with fetch, the fallback for other platforms.
import { readFileSync } from "node:fs"
import * as Http from "node:http"
import type { AddressInfo } from "node:net"
import { gzipSync } from "node:zlib"
import { FetchHttpClient } from "@effect/platform"
import { describe, expect, it } from "@effect/vitest"
import { NodeTinker } from "@effect-tinker/node"
import { Deferred, Effect, Layer, Option, Redacted, Schedule, Stream } from "effect"
import { RetryPolicy, TinkerConfig, TrainingResult } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import * as Transport from "effect-tinker/Transport"

interface Answer {
  readonly for: string
  readonly status: number
  readonly headers: Record<string, string>
  readonly contentEncoding?: string
  readonly transferEncoding?: string
  readonly body?: unknown
  readonly bodyBase64?: string
}

const script = (file: string): ReadonlyArray<Answer> =>
  JSON.parse(readFileSync(new URL(`../../../test/wire/${file}`, import.meta.url), "utf8")).script

interface Seen {
  readonly url: string
  readonly headers: Http.IncomingHttpHeaders
}

/** Answers each path from its list of responses, in order, with the recorded encoding and framing. */
const serve = (answers: ReadonlyArray<Answer>) =>
  Effect.acquireRelease(
    Effect.async<{ readonly url: string; readonly seen: Array<Seen>; readonly server: Http.Server }>((resume) => {
      const left = [...answers]
      const seen: Array<Seen> = []
      const server = Http.createServer((request, response) => {
        request.resume()
        request.on("end", () => {
          const path = request.url ?? ""
          seen.push({ url: path, headers: request.headers })
          const at = left.findIndex((answer) => answer.for.split(" ")[1] === path.split("?")[0])
          const answer = at < 0 ? undefined : left.splice(at, 1)[0]
          if (answer === undefined) {
            const known = path.endsWith("/client/config")
            return response.writeHead(known ? 200 : 599).end(known ? "{}" : "")
          }
          const plain =
            answer.bodyBase64 !== undefined
              ? Buffer.from(answer.bodyBase64, "base64")
              : Buffer.from(answer.body === null || answer.body === undefined ? "" : JSON.stringify(answer.body))
          const body = answer.contentEncoding === "gzip" ? gzipSync(plain) : plain
          const encoding = answer.contentEncoding === undefined ? {} : { "content-encoding": answer.contentEncoding }
          const length = answer.transferEncoding === undefined ? { "content-length": body.length } : {}
          response.writeHead(answer.status, { ...answer.headers, ...encoding, ...length })
          return response.end(body)
        })
      })
      server.listen(0, "127.0.0.1", () => {
        const { port } = server.address() as AddressInfo
        resume(Effect.succeed({ url: `http://127.0.0.1:${port}`, seen, server }))
      })
    }),
    ({ server }) =>
      Effect.async<void>((resume) => {
        server.close(() => resume(Effect.void))
        server.closeAllConnections()
      }),
  )

const values = (baseUrl: string): TinkerConfig.Values => ({
  baseUrl,
  apiKey: Redacted.make("tml-secret-key"),
  headers: { "x-proxy-secret": "hunter2" },
  retryPolicy: Schedule.recurs(1),
})
const clients = {
  undici: (baseUrl: string) => NodeTinker.layer(values(baseUrl)),
  fetch: (baseUrl: string) =>
    Transport.layer.pipe(Layer.provide(TinkerConfig.layer(values(baseUrl))), Layer.provide(FetchHttpClient.layer)),
}
const getInfo = Effect.flatMap(Transport.Transport, ({ call }) => call(Api.getInfo, { modelId: "m" }))

describe.each(["undici", "fetch"] as const)("Transport over a real socket, with %s", (name) => {
  const client = clients[name]

  it.scopedLive("behaviours/response_compression.json: gzip is decoded for JSON and protobuf", () =>
    Effect.gen(function* () {
      const [gzip, zstd, protobuf] = script("behaviours/response_compression.json")
      if (gzip === undefined || zstd === undefined || protobuf === undefined) return expect.fail("not recorded")
      const { seen, url } = yield* serve([gzip, protobuf, { ...zstd, body: "not really zstd" }])
      yield* Effect.gen(function* () {
        const { call } = yield* Transport.Transport
        expect((yield* getInfo).modelName).toEqual(Option.some("Qwen/Qwen3-8B"))
        const answer = yield* call(Api.retrieveFuture, { requestId: "r", allowMetadataOnly: true })
        const result = yield* TrainingResult.fromProtobuf(answer.body)
        expect(result.metrics).toEqual({ "loss:sum": 1.5 })
        expect(result.outputs[0]?.["logprobs"]?.data).toEqual(Float32Array.of(-0.5, -1, -1.5))
        // zstd is never requested; a response with it is reported as an error.
        const once = { retryPolicy: RetryPolicy.none }
        const error = yield* Effect.flip(call(Api.getInfo, { modelId: "m" }, once))
        expect(error).toMatchObject({ _tag: "UnexpectedResponse" })
        if (name === "undici") {
          expect(error).toMatchObject({ reason: "Encoding" })
          for (const request of seen) expect(request.headers["accept-encoding"]).toBe("gzip, deflate")
        }
      }).pipe(Effect.provide(client(url)))
    }),
  )

  it.scopedLive.each(["behaviours/holder_400_gzip.json", "behaviours/holder_400_chunked_without_content_length.json"])(
    "%s: a 400 with a detail is not retried, whatever its encoding and framing",
    (file) =>
      Effect.gen(function* () {
        const { url } = yield* serve(script(file))
        const error = yield* Effect.flip(getInfo).pipe(Effect.provide(client(url)))
        expect(error).toMatchObject({ _tag: "RequestRejected", reason: "BadRequest", detail: "bad", attempts: 1 })
      }),
  )

  it.scopedLive("behaviours/http_redirect_same_and_cross_origin.json: the API key is not sent to another origin", () =>
    Effect.gen(function* () {
      const other = yield* serve([{ for: "GET /other-origin.json", status: 200, headers: {}, body: { entries: [] } }])
      const recorded = script("behaviours/http_redirect_same_and_cross_origin.json").map((answer) => ({
        ...answer,
        headers: { Location: (answer.headers["Location"] ?? "").replace("http://127.0.0.1:PORT", other.url) },
      }))
      const { seen, url } = yield* serve(recorded)
      const audit = yield* Effect.flatMap(Transport.Transport, ({ call }) =>
        call(Api.getAuditLog, { eventType: "all" }),
      ).pipe(Effect.provide(client(url)))
      expect(audit.entries).toEqual([])
      expect(seen.map((request) => [request.url, request.headers["x-api-key"]])).toEqual([
        ["/api/v1/client/config", "tml-secret-key"],
        ["/api/v1/audit?event_type=all", "tml-secret-key"],
        ["/signed/audit.json?sig=1", "tml-secret-key"],
      ])
      expect(JSON.stringify(other.seen)).not.toMatch(/tml-secret-key|hunter2/)
      expect(other.seen.length).toBe(1)
    }),
  )

  it.scopedLive("behaviours/connection_refused.json: a refused connection is reported as Connect", () =>
    Effect.gen(function* () {
      const { server, url } = yield* serve([])
      yield* Effect.async<void>((resume) => {
        server.close(() => resume(Effect.void))
      })
      const error = yield* Effect.flatMap(Transport.Transport, ({ call }) =>
        Effect.flip(call(Api.health, {}, { retryPolicy: RetryPolicy.make({ maxRetries: 1, base: "1 millis" }) })),
      ).pipe(Effect.provide(client(url)))
      expect(error).toMatchObject({ _tag: "Unavailable", reason: "Connect", attempts: 2 })
      expect(error.message).toMatch(/^healthz could not connect after 2 attempts.*ECONNREFUSED/)
    }),
  )

  it.scopedLive("behaviours/http_connection_dropped.json: a dropped connection is reported as Disconnected", () =>
    Effect.gen(function* () {
      const server = yield* serve([])
      server.server.removeAllListeners("request")
      server.server.on("request", (request) => request.socket.destroy())
      const error = yield* Effect.flatMap(Transport.Transport, ({ call }) =>
        Effect.flip(call(Api.health, {}, { retryPolicy: RetryPolicy.none })),
      ).pipe(Effect.provide(client(server.url)))
      expect(error).toMatchObject({ _tag: "Unavailable", reason: "Disconnected", attempts: 1 })
    }),
  )

  it.scopedLive("a raw response frees its connection, whether it is unread, partly read or read", () =>
    Effect.gen(function* () {
      const { server, url } = yield* serve([])
      let endless = 3
      const allClosed = yield* Deferred.make<void>()
      server.removeAllListeners("request")
      server.on("request", (request, response) => {
        response.writeHead(200)
        if (request.url?.endsWith("healthz") !== true) return response.end("{}")
        response.on("close", () => --endless === 0 && Deferred.unsafeDone(allClosed, Effect.void))
        const write = () => void (response.write(Buffer.alloc(65_536)) && setImmediate(write))
        response.on("drain", write)
        return request.on("end", write).resume()
      })
      // The layer outlives the responses, so only releasing them can close their connections.
      yield* Effect.gen(function* () {
        const { raw } = yield* Transport.Transport
        const read = (amount: number) =>
          Effect.scoped(
            Effect.gen(function* () {
              const answer = yield* raw(Api.health, {})
              expect(answer.status).toBe(200)
              if (amount > 0) yield* Stream.runDrain(Stream.take(answer.stream, amount))
            }),
          )
        yield* Effect.forEach([0, 1, 3], read)
        yield* Deferred.await(allClosed)
        const whole = raw(Api.getServerCapabilities, {})
        const bytes = yield* Effect.scoped(Effect.flatMap(whole, ({ stream }) => Stream.runCollect(stream)))
        expect(Buffer.concat([...bytes]).toString()).toBe("{}")
      }).pipe(Effect.provide(client(url)))
    }),
  )
})

describe("fetch", () => {
  it.scopedLive("fetch keeps the RequestInit of the program except for redirects", () =>
    Effect.gen(function* () {
      const seen: Array<RequestInit | undefined> = []
      const spy: typeof globalThis.fetch = (_url, init) => {
        seen.push(init)
        return Promise.resolve(new Response(`{"status":"ok"}`))
      }
      yield* Effect.flatMap(Transport.Transport, ({ call }) => call(Api.health, {})).pipe(
        Effect.provide(clients.fetch("http://server")),
        Effect.provideService(FetchHttpClient.Fetch, spy),
        Effect.provideService(FetchHttpClient.RequestInit, { cache: "no-store", redirect: "follow" }),
      )
      expect(seen[0]).toMatchObject({ cache: "no-store", redirect: "manual" })
    }),
  )
})

describe("NodeTinker", () => {
  it.scopedLive("a request that cannot be sent fails with InvalidInput", () =>
    Effect.gen(function* () {
      const { seen, url } = yield* serve([])
      const error = yield* Effect.flatMap(Transport.Transport, ({ call }) =>
        Effect.flip(call(Api.health, {}, { headers: { "content-length": "nonsense" } })),
      ).pipe(Effect.provide(NodeTinker.layer(values(url))))
      expect(error).toMatchObject({ _tag: "InvalidInput" })
      expect(seen.length).toBe(0)
    }),
  )

  it.scopedLive("NodeTinker stops reading a response at maxResponseBytes", () =>
    Effect.gen(function* () {
      const { server, url } = yield* serve([])
      let written = 0
      server.removeAllListeners("request")
      server.on("request", (request, response) => {
        const write = () => {
          if (response.destroyed) return
          written += 65_536
          if (response.write(Buffer.alloc(65_536))) setImmediate(write)
        }
        response.on("drain", write)
        request.on("end", write).resume()
      })
      const error = yield* Effect.flatMap(Transport.Transport, ({ call }) => Effect.flip(call(Api.health, {}))).pipe(
        Effect.provide(NodeTinker.layer({ ...values(url), maxResponseBytes: 100_000 })),
      )
      expect(error).toMatchObject({ _tag: "UnexpectedResponse", reason: "TooLarge" })
      expect(written).toBeLessThan(50_000_000)
    }),
  )
})
