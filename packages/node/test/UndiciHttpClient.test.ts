import { HttpBody, HttpClient, type HttpClientError, HttpClientRequest, HttpClientResponse } from "@effect/platform"
import { UndiciHttpClient } from "@effect-tinker/node"
import { describe, expect, it } from "@effect/vitest"
import { Cause, Chunk, Deferred, Effect, Exit, Fiber, FiberId, Option, Scope, Stream } from "effect"
import type { Purpose } from "effect-tinker/protocol/Endpoint"
import * as HttpDirect from "effect-tinker/http/HttpDirect"
import * as HttpFailure from "effect-tinker/http/HttpFailure"
import { HttpPurpose } from "effect-tinker/http/HttpPurpose"
import { createHash, randomBytes } from "node:crypto"
import { readFileSync } from "node:fs"
import * as Http from "node:http"
import * as Https from "node:https"
import * as Net from "node:net"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import * as Zlib from "node:zlib"

type Handler = (request: Http.IncomingMessage, response: Http.ServerResponse) => void

/** Starts a server on a free port that tracks its connections. */
const serve = (handler: Handler) =>
  Effect.acquireRelease(
    Effect.async<{
      readonly url: string
      readonly port: number
      readonly sockets: Set<Net.Socket>
      readonly opened: () => number
      readonly server: Http.Server
    }>((resume) => {
      const sockets = new Set<Net.Socket>()
      let opened = 0
      const server = Http.createServer(handler)
      server.on("connection", (socket) => {
        opened++
        sockets.add(socket)
        socket.on("close", () => sockets.delete(socket))
        socket.on("error", () => {})
      })
      server.listen(0, "127.0.0.1", () => {
        const { port } = server.address() as Net.AddressInfo
        resume(Effect.succeed({ url: `http://127.0.0.1:${port}`, port, sockets, opened: () => opened, server }))
      })
    }),
    ({ server }) =>
      Effect.async<void>((resume) => {
        server.close(() => resume(Effect.void))
        server.closeAllConnections()
      }),
  )

const rawServer = (onSocket: (socket: Net.Socket) => void) =>
  Effect.acquireRelease(
    Effect.async<{ readonly url: string; readonly server: Net.Server; readonly sockets: Set<Net.Socket> }>((resume) => {
      const sockets = new Set<Net.Socket>()
      const server = Net.createServer((socket) => {
        sockets.add(socket)
        socket.on("error", () => {})
        onSocket(socket)
      })
      server.listen(0, "127.0.0.1", () => {
        const { port } = server.address() as Net.AddressInfo
        resume(Effect.succeed({ url: `http://127.0.0.1:${port}`, server, sockets }))
      })
    }),
    ({ server, sockets }) =>
      Effect.async<void>((resume) => {
        server.close(() => resume(Effect.void))
        sockets.forEach((socket) => socket.destroy())
      }),
  )

const event = (register: (done: () => void) => void) =>
  Effect.async<void>((resume) => register(() => resume(Effect.void)))

const closed = (socket: Net.Socket) =>
  event((done) => (socket.destroyed ? done() : void socket.once("close", () => done())))

const as = (purpose: Purpose) => Effect.provideService(HttpPurpose, purpose)

const bytesOf = (response: HttpClientResponse.HttpClientResponse) =>
  Effect.map(response.arrayBuffer, (buffer) => Buffer.from(buffer))

const streamed = (response: HttpClientResponse.HttpClientResponse) =>
  Effect.map(Stream.runCollect(response.stream), (chunks) => Buffer.concat(Chunk.toReadonlyArray(chunks)))

const sha = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex")

/** Writes the body in chunks, each in its own packet as far as TCP allows. */
const pieces = (response: Http.ServerResponse, body: Uint8Array, size: number) => {
  let at = 0
  const next = (): void => {
    if (at >= body.length) return void response.end()
    response.write(body.subarray(at, (at += size)), () => setImmediate(next))
  }
  next()
}

const causeOf = (error: HttpClientError.HttpClientError): string =>
  HttpFailure.isHttpFailure(error.cause) ? error.cause._tag : `other: ${String(error.cause)}`

const failureOf = <A, R>(effect: Effect.Effect<A, HttpClientError.HttpClientError, R>) =>
  Effect.map(Effect.flip(effect), (error) => [error._tag, error.reason, causeOf(error)])

describe("UndiciHttpClient", () => {
  describe("UndiciHttpClient requests", () => {
    it.scopedLive("a request arrives with method, path, query, headers and every kind of body", () =>
      Effect.gen(function* () {
        const { url } = yield* serve((request, response) => {
          const chunks: Array<Buffer> = []
          request.on("data", (chunk) => chunks.push(chunk))
          request.on("end", () =>
            response.setHeader("content-type", "application/json").end(
              JSON.stringify({
                method: request.method,
                url: request.url,
                key: request.headers["x-api-key"],
                type: request.headers["content-type"],
                length: request.headers["content-length"],
                accept: request.headers["accept-encoding"],
                body: Buffer.concat(chunks).toString(),
              }),
            ),
          )
        })
        const client = yield* UndiciHttpClient.make()
        const echo = (request: HttpClientRequest.HttpClientRequest) =>
          Effect.flatMap(client.execute(request), (response) => response.json)
        expect(
          yield* echo(
            HttpClientRequest.get(`${url}/a/b?x=1#hash`, {
              headers: { "x-api-key": "k" },
              urlParams: { q: "a b", r: [1, 2] },
            }),
          ),
        ).toEqual({ method: "GET", url: "/a/b?x=1&q=a+b&r=1&r=2", key: "k", accept: "gzip, deflate", body: "" })
        expect(yield* echo(HttpClientRequest.get(url, { urlParams: { q: "1" } }))).toMatchObject({ url: "/?q=1" })
        expect(yield* echo(HttpClientRequest.get(`${url}/ü/../b c"?q=ü`))).toMatchObject({ url: "/b%20c%22?q=%C3%BC" })
        expect(yield* echo(HttpClientRequest.post(`${url}/p`))).toMatchObject({ method: "POST", length: "0", body: "" })
        const text = HttpBody.text("grüße", "text/plain")
        expect(yield* echo(HttpClientRequest.post(`${url}/p`, { body: text }))).toMatchObject({
          body: "grüße",
          type: "text/plain",
          length: "7",
        })
        const raw = HttpBody.raw("raw", { contentType: "text/x" })
        expect(yield* echo(HttpClientRequest.put(`${url}/p`, { body: raw }))).toMatchObject({
          method: "PUT",
          body: "raw",
          type: "text/x",
        })
        const stream = HttpBody.stream(Stream.make(Buffer.from("one "), Buffer.from("two")), "text/s")
        expect(yield* echo(HttpClientRequest.post(`${url}/p`, { body: stream }))).toMatchObject({
          body: "one two",
          type: "text/s",
        })
        const own = { headers: { "accept-encoding": "identity" } }
        expect(yield* echo(HttpClientRequest.get(url, own))).toMatchObject({ accept: "identity" })
      }),
    )

    it.scopedLive("an upload of 8 MiB arrives intact, both as bytes and streamed", () =>
      Effect.gen(function* () {
        const { url } = yield* serve((request, response) => {
          const hash = createHash("sha256")
          request.on("data", (chunk) => hash.update(chunk)).on("end", () => response.end(hash.digest("hex")))
        })
        const client = yield* UndiciHttpClient.make()
        const body = randomBytes(8 * 1024 * 1024)
        const whole = yield* client.post(url, { body: HttpBody.uint8Array(body) })
        expect(yield* whole.text).toBe(sha(body))
        const parts = Stream.fromIterable(
          Array.from({ length: 128 }, (_, i) => body.subarray(i * 65_536, (i + 1) * 65_536)),
        )
        const inParts = yield* client.post(url, { body: HttpBody.stream(parts) })
        expect(yield* inParts.text).toBe(sha(body))
      }),
    )

    it.scopedLive("an invalid request fails before anything is sent", () =>
      Effect.gen(function* () {
        const client = yield* UndiciHttpClient.make()
        for (const url of ["nonsense", "ftp://localhost/x", "http://user:pass@localhost/", "http://[/", "/relative"]) {
          const error = yield* Effect.flip(client.get(url))
          expect([url, error.reason]).toEqual([url, "InvalidUrl"])
        }
        const { url } = yield* serve((_, response) => response.end())
        const encode = ["RequestError", "Encode", "NotSent"]
        expect(yield* failureOf(client.get(url, { headers: { "x-bad": "a\r\nb" } }))).toEqual(encode)
        expect(yield* failureOf(client.post(url, { body: HttpBody.raw(42) }))).toEqual(encode)
      }),
    )

    it.scopedLive("a failing body stream fails the request with its error", () =>
      Effect.gen(function* () {
        const { url } = yield* serve((request, response) => void request.on("end", () => response.end()).resume())
        const client = yield* UndiciHttpClient.make()
        const body = HttpBody.stream(Stream.concat(Stream.make(Buffer.from("x")), Stream.fail("disk")))
        const error = yield* Effect.flip(client.post(url, { body }))
        expect(String(error.cause)).toContain("disk")
      }),
    )

    it.scopedLive("1,000 concurrent requests are all answered", () =>
      Effect.gen(function* () {
        const { opened, url } = yield* serve((request, response) => response.end(request.url))
        const client = yield* UndiciHttpClient.make()
        const answers = yield* Effect.forEach(
          Array.from({ length: 1000 }, (_, index) => `/${index}`),
          (path) => Effect.flatMap(client.get(url + path), (response) => response.text),
          { concurrency: "unbounded" },
        )
        expect(answers).toEqual(Array.from({ length: 1000 }, (_, index) => `/${index}`))
        // The default limit of the purpose `rest`.
        expect(opened()).toBeLessThanOrEqual(50)
      }),
    )
  })

  describe("UndiciHttpClient responses", () => {
    it.scopedLive("a response has status, headers and cookies, and redirects are not followed", () =>
      Effect.gen(function* () {
        const { url } = yield* serve((_, response) => {
          response.writeEarlyHints({ link: "</x>" })
          response.writeHead(307, { location: "/elsewhere", "set-cookie": ["a=1", "b=2"], "x-many": ["1", "2"] })
          response.end("moved")
        })
        const client = yield* UndiciHttpClient.make()
        const response = yield* client.get(url)
        expect(response.status).toBe(307)
        expect(response.headers).toMatchObject({ location: "/elsewhere", "x-many": "1, 2" })
        expect(Object.keys(response.cookies.cookies)).toEqual(["a", "b"])
        expect(Effect.isEffect(response.text)).toBe(true)
        expect(HttpClientResponse.TypeId in response).toBe(true)
        expect(response.remoteAddress).toEqual(Option.none())
        expect(String(response)).toContain("307")
        expect(yield* response.text).toBe("moved")
      }),
    )

    it.scopedLive("a body can be read repeatedly as text, JSON, form data or bytes", () =>
      Effect.gen(function* () {
        const { url } = yield* serve((request, response) => {
          if (request.url === "/json") response.end('\uFEFF{"a":[1,2]}')
          else if (request.url === "/form") {
            response.setHeader("content-type", "application/x-www-form-urlencoded").end("a=1&b=2")
          } else if (request.url === "/empty") response.writeHead(204).end()
          else response.end("not json")
        })
        const client = yield* UndiciHttpClient.make()
        const json = yield* client.get(`${url}/json`)
        expect(yield* json.json).toEqual({ a: [1, 2] })
        expect(yield* json.text).toBe('{"a":[1,2]}')
        expect((yield* bytesOf(json)).length).toBe(14)
        expect((yield* streamed(json)).length).toBe(14)
        const form = yield* client.get(`${url}/form`)
        expect(yield* form.urlParamsBody).toEqual([
          ["a", "1"],
          ["b", "2"],
        ])
        expect((yield* form.formData).get("b")).toBe("2")
        const empty = yield* client.get(`${url}/empty`)
        expect(yield* empty.json).toBe(null)
        const head = yield* client.head(`${url}/text`)
        expect(yield* head.text).toBe("")
        const text = yield* client.get(`${url}/text`)
        const error = yield* Effect.flip(text.json)
        expect([error._tag, error.reason]).toEqual(["ResponseError", "Decode"])
        expect(yield* text.text).toBe("not json")
      }),
    )

    it.scopedLive("a streamed body cannot be read again", () =>
      Effect.gen(function* () {
        const { url } = yield* serve((_, response) => response.end("once"))
        const client = yield* UndiciHttpClient.make()
        const response = yield* client.get(url)
        expect((yield* streamed(response)).toString()).toBe("once")
        expect((yield* Effect.flip(response.text)).reason).toBe("Decode")
        expect((yield* Effect.flip(streamed(response))).reason).toBe("Decode")
      }),
    )

    it.scopedLive("two concurrent readers share one body", () =>
      Effect.gen(function* () {
        const { url } = yield* serve((_, response) => pieces(response, Buffer.from("x".repeat(1000)), 100))
        const client = yield* UndiciHttpClient.make()
        const response = yield* client.get(url)
        const both = yield* Effect.all([response.text, response.text], { concurrency: 2 })
        expect(both.map((text) => text.length)).toEqual([1000, 1000])
      }),
    )

    const payload = Buffer.from(JSON.stringify(Array.from({ length: 20_000 }, (_, i) => i)))
    const encodings: ReadonlyArray<readonly [string, string | undefined, Buffer]> = [
      ["identity", undefined, payload],
      ["gzip", "gzip", Zlib.gzipSync(payload)],
      [
        "two gzip members",
        "x-gzip",
        Buffer.concat([payload.subarray(0, 99), payload.subarray(99)].map((b) => Zlib.gzipSync(b))),
      ],
      ["deflate (zlib)", "deflate", Zlib.deflateSync(payload)],
      ["deflate (bare)", "Deflate", Zlib.deflateRawSync(payload)],
    ]
    for (const [name, encoding, body] of encodings) {
      it.scopedLive(`a ${name} body is decoded in any chunking, collected and streamed`, () =>
        Effect.gen(function* () {
          const { url } = yield* serve((request, response) => {
            if (encoding !== undefined) response.setHeader("content-encoding", encoding)
            const size = Number(request.url?.slice(1))
            if (size === 0) response.setHeader("content-length", body.length).end(body)
            else pieces(response, body, size)
          })
          const client = yield* UndiciHttpClient.make()
          for (const size of [0, 997, 4099]) {
            const get = client.get(`${url}/${size}`)
            expect(sha(yield* Effect.flatMap(get, bytesOf))).toBe(sha(payload))
            expect(sha(yield* Effect.flatMap(get, streamed))).toBe(sha(payload))
          }
        }),
      )
    }

    it.scopedLive("a gzip body split at any byte is decoded", () =>
      Effect.gen(function* () {
        const small = Buffer.from("small but real")
        const { url } = yield* serve((request, response) => {
          const raw = request.url === "/raw"
          response.setHeader("content-encoding", raw ? "deflate" : "gzip")
          pieces(response, raw ? Zlib.deflateRawSync(small) : Zlib.gzipSync(small), 1)
        })
        const client = yield* UndiciHttpClient.make()
        for (const path of ["/raw", "/gzip"]) {
          const get = client.get(url + path)
          expect(yield* Effect.flatMap(get, (response) => response.text)).toBe("small but real")
          expect((yield* Effect.flatMap(get, streamed)).toString()).toBe("small but real")
        }
      }),
    )

    it.scopedLive("an empty body with a content-encoding is empty", () =>
      Effect.gen(function* () {
        const { url } = yield* serve((_, response) => response.setHeader("content-encoding", "gzip").end())
        const client = yield* UndiciHttpClient.make()
        const get = client.get(url)
        expect(yield* Effect.flatMap(get, (response) => response.text)).toBe("")
        expect((yield* Effect.flatMap(get, streamed)).length).toBe(0)
        expect(yield* Effect.flatMap(client.head(url), (response) => response.text)).toBe("")
      }),
    )

    it.scopedLive("a body above maxInflatedBytes is refused, compressed or not", () =>
      Effect.gen(function* () {
        const bomb = Zlib.gzipSync(Buffer.alloc(64 * 1024 * 1024))
        const { url } = yield* serve((request, response) => {
          if (request.url === "/bomb") response.setHeader("content-encoding", "gzip").end(bomb)
          else response.end(Buffer.alloc(2 * 1024 * 1024))
        })
        const client = yield* UndiciHttpClient.make({ maxInflatedBytes: 1024 * 1024 })
        const expected = ["ResponseError", "Decode", "InflatedTooLarge"]
        const collected = (path: string) => Effect.flatMap(client.get(url + path), (response) => response.text)
        expect(yield* failureOf(collected("/bomb"))).toEqual(expected)
        expect(yield* failureOf(Effect.flatMap(client.get(`${url}/bomb`), streamed))).toEqual(expected)
        expect(yield* failureOf(collected("/plain"))).toEqual(expected)
        // An uncompressed stream is not buffered, so its length is not limited.
        expect((yield* Effect.flatMap(client.get(`${url}/plain`), streamed)).length).toBe(2 * 1024 * 1024)
        expect(yield* failureOf(collected("/bomb"))).toEqual(expected)
      }),
    )

    it.scopedLive("corrupt, truncated and unknown encodings fail", () =>
      Effect.gen(function* () {
        const { url } = yield* serve((request, response) => {
          const packed = Zlib.gzipSync(payload)
          switch (request.url) {
            case "/garbage":
              return response.setHeader("content-encoding", "gzip").end("this is not gzip")
            case "/short":
              return response.setHeader("content-encoding", "gzip").end(packed.subarray(0, packed.length - 20))
            case "/deflate":
              return response.setHeader("content-encoding", "deflate").end(Buffer.from([0xff, 0xff, 0xff]))
            default:
              return response.setHeader("content-encoding", "zstd").end("whatever")
          }
        })
        const client = yield* UndiciHttpClient.make()
        for (const [path, tag] of [
          ["/garbage", "CorruptBody"],
          ["/short", "CorruptBody"],
          ["/deflate", "CorruptBody"],
          ["/zstd", "UnsupportedEncoding"],
        ]) {
          const get = client.get(`${url}${path}`)
          const expected = ["ResponseError", "Decode", tag]
          expect(yield* failureOf(Effect.flatMap(get, (response) => response.text))).toEqual(expected)
          expect(yield* failureOf(Effect.flatMap(get, streamed))).toEqual(expected)
        }
      }),
    )
  })

  describe("UndiciHttpClient failures", () => {
    it.scopedLive("a refused connection and an unknown host fail with NotSent", () =>
      Effect.gen(function* () {
        const port = yield* Effect.scoped(
          Effect.map(
            serve(() => {}),
            ({ port }) => port,
          ),
        )
        const client = yield* UndiciHttpClient.make()
        const expected = ["RequestError", "Transport", "NotSent"]
        expect(yield* failureOf(client.get(`http://127.0.0.1:${port}/`))).toEqual(expected)
        expect(yield* failureOf(client.get("http://no-such-host.invalid/"))).toEqual(expected)
        // With more requests than connections, all of them fail.
        const many = Effect.forEach(
          Array.from({ length: 200 }),
          () => failureOf(client.get(`http://127.0.0.1:${port}/`)),
          {
            concurrency: "unbounded",
          },
        )
        expect(yield* many).toEqual(Array.from({ length: 200 }, () => expected))
      }),
    )

    it.scopedLive("a server without TLS fails with NotSent", () =>
      Effect.gen(function* () {
        const { url } = yield* rawServer((socket) => socket.end("this is no handshake\r\n"))
        const client = yield* UndiciHttpClient.make()
        expect(yield* failureOf(client.get(url.replace("http:", "https:")))).toEqual([
          "RequestError",
          "Transport",
          "NotSent",
        ])
      }),
    )

    it.scopedLive("a connection timeout fails with NotSent", () =>
      Effect.gen(function* () {
        // Accepts the connection but never answers, so that TLS is never established.
        const { url } = yield* rawServer(() => {})
        const client = yield* UndiciHttpClient.make({ connectTimeout: "20 millis" })
        expect(yield* failureOf(client.get(url.replace("http:", "https:")))).toEqual([
          "RequestError",
          "Transport",
          "NotSent",
        ])
      }),
    )

    it.scopedLive("a connection cut before the response, or an invalid response, fails with Disconnected", () =>
      Effect.gen(function* () {
        const expected = ["RequestError", "Transport", "Disconnected"]
        const client = yield* UndiciHttpClient.make()
        const { url } = yield* serve((request) => request.socket.destroy())
        expect(yield* failureOf(client.get(url))).toEqual(expected)
        expect(yield* failureOf(client.post(url, { body: HttpBody.text("x") }))).toEqual(expected)
        const nonsense = yield* rawServer((socket) => socket.once("data", () => socket.end("SMTP ready\r\n")))
        expect(yield* failureOf(client.get(nonsense.url))).toEqual(expected)
      }),
    )

    it.scopedLive("a connection cut in the middle of a body fails its reader", () =>
      Effect.gen(function* () {
        const { url } = yield* serve((request, response) => {
          if (request.url === "/gzip") response.setHeader("content-encoding", "gzip")
          response.setHeader("content-length", 1_000_000)
          response.write(
            request.url === "/gzip" ? Zlib.gzipSync(randomBytes(5000)).subarray(0, 2000) : "a beginning",
            () => request.socket.destroy(),
          )
        })
        const client = yield* UndiciHttpClient.make()
        const expected = ["ResponseError", "Decode", "Disconnected"]
        for (const path of ["/plain", "/gzip"]) {
          const get = client.get(url + path)
          expect(yield* failureOf(Effect.flatMap(get, (response) => response.text))).toEqual(expected)
          expect(yield* failureOf(Effect.flatMap(get, streamed))).toEqual(expected)
        }
      }),
    )
  })

  describe("UndiciHttpClient connections", () => {
    it.scopedLive("each purpose has its own connections, so long polls do not delay heartbeats", () =>
      Effect.gen(function* () {
        const held: Array<Http.ServerResponse> = []
        const full = yield* Deferred.make<void>()
        const { opened, url } = yield* serve((request, response) => {
          if (request.url !== "/poll") return void response.end("beat")
          held.push(response)
          if (held.length === 3) Deferred.unsafeDone(full, Exit.void)
        })
        const client = yield* UndiciHttpClient.make({ connections: { retrieve: 3 } })
        const polls = yield* Effect.forEach(Array.from({ length: 5 }), () =>
          Effect.fork(as("retrieve")(Effect.flatMap(client.get(`${url}/poll`), (response) => response.text))),
        )
        yield* Deferred.await(full)
        expect(opened()).toBe(3)
        const beat = as("session")(Effect.flatMap(client.get(`${url}/beat`), (response) => response.text))
        expect(yield* beat).toBe("beat")
        expect(opened()).toBe(4)
        expect(held.length).toBe(3)
        // An interrupted request that waits for a connection is never sent.
        yield* Fiber.interrupt(polls[3]!)
        held.forEach((response) => response.end("done"))
        yield* Fiber.join(polls[0]!)
        const late = yield* Effect.iterate(3, {
          while: (count) => count < 4,
          body: () => Effect.as(Effect.yieldNow(), held.length),
        })
        expect(late).toBe(4)
        held[3]?.end("done")
        yield* Fiber.join(polls[4]!)
        expect(held.length).toBe(4)
        expect(opened()).toBe(4)
      }),
    )

    it.scopedLive("each origin has its own connections, whatever its spelling", () =>
      Effect.gen(function* () {
        const one = yield* serve((_, response) => response.end("1"))
        const two = yield* serve((_, response) => response.end("2"))
        const client = yield* UndiciHttpClient.make({ connections: { rest: 1 } })
        const get = (url: string) => Effect.flatMap(client.get(url), (response) => response.text)
        expect(yield* get(`${one.url}/a`)).toBe("1")
        expect(yield* get(`${two.url}/a`)).toBe("2")
        expect(yield* get(`HTTP://127.0.0.1:${one.port}/ü`)).toBe("1")
        expect(yield* get(`${one.url}?b`)).toBe("1")
        expect([one.opened(), two.opened()]).toEqual([1, 1])
      }),
    )

    it.scopedLive("connections are closed with the scope", () =>
      Effect.gen(function* () {
        const { sockets, url } = yield* serve((_, response) => response.end("x"))
        const client = yield* Effect.scoped(
          Effect.gen(function* () {
            const client = yield* UndiciHttpClient.make()
            yield* Effect.forEach(["session", "rest"] as const, (purpose) =>
              as(purpose)(Effect.flatMap(client.get(url), (response) => response.text)),
            )
            expect(sockets.size).toBe(2)
            return client
          }),
        )
        yield* Effect.forEach(Array.from(sockets), closed)
        expect(sockets.size).toBe(0)
        expect(yield* failureOf(client.get(url))).toEqual(["RequestError", "Transport", "NotSent"])
      }),
    )

    it.scopedLive("closing the client does not hang on endless or unread requests", () =>
      Effect.gen(function* () {
        const arrived = yield* Deferred.make<void>()
        const { sockets, url } = yield* serve((request, response) => {
          if (request.url === "/never") return Deferred.unsafeDone(arrived, Exit.void)
          response.end(Buffer.alloc(4 * 1024 * 1024))
        })
        const scope = yield* Scope.make()
        const client = yield* Scope.extend(UndiciHttpClient.make({ closeGrace: "10 millis" }), scope)
        const never = yield* Effect.fork(failureOf(client.get(`${url}/never`)))
        yield* Deferred.await(arrived)
        const unread = yield* client.get(`${url}/big`)
        yield* Scope.close(scope, Exit.void)
        expect(yield* Fiber.join(never)).toEqual(["RequestError", "Transport", "Disconnected"])
        expect(yield* failureOf(unread.text)).toEqual(["ResponseError", "Decode", "Disconnected"])
        yield* Effect.forEach(Array.from(sockets), closed)
      }),
    )

    it.scopedLive("interrupting a request closes its connection", () =>
      Effect.gen(function* () {
        const arrived = yield* Deferred.make<Net.Socket>()
        const { url } = yield* serve((request) => Deferred.unsafeDone(arrived, Exit.succeed(request.socket)))
        const client = yield* UndiciHttpClient.make()
        const fiber = yield* Effect.fork(client.get(url))
        const socket = yield* Deferred.await(arrived)
        const exit = yield* Fiber.interrupt(fiber)
        expect(Exit.isInterrupted(exit)).toBe(true)
        yield* closed(socket)
      }),
    )

    for (const [what, read] of [
      ["collecting", (response: HttpClientResponse.HttpClientResponse) => Effect.asVoid(response.text)],
      ["streaming", (response: HttpClientResponse.HttpClientResponse) => Stream.runDrain(response.stream)],
    ] as const) {
      it.scopedLive(`interrupting while ${what} a body closes its connection`, () =>
        Effect.gen(function* () {
          const begun = yield* Deferred.make<Net.Socket>()
          const { url } = yield* serve((request, response) => {
            response.write("a beginning", () => Deferred.unsafeDone(begun, Exit.succeed(request.socket)))
          })
          const client = yield* UndiciHttpClient.make()
          const reading = yield* Deferred.make<void>()
          const fiber = yield* Effect.fork(
            Effect.flatMap(client.get(url), (response) =>
              Effect.zipRight(Deferred.succeed(reading, undefined), read(response)),
            ),
          )
          const socket = yield* Deferred.await(begun)
          yield* Deferred.await(reading)
          yield* Effect.yieldNow()
          const exit = yield* Fiber.interrupt(fiber)
          expect(Exit.isFailure(exit) && Cause.isInterruptedOnly(exit.cause)).toBe(true)
          yield* closed(socket)
        }),
      )
    }

    it.scopedLive("interruption at any moment leaves no request open", () =>
      Effect.gen(function* () {
        const asked = new Set<Net.Socket>()
        const { url } = yield* serve((request, response) => {
          asked.add(request.socket)
          response.write("a")
        })
        const client = yield* UndiciHttpClient.make()
        for (let yields = 0; yields < 60; yields++) {
          const fiber = yield* Effect.fork(Effect.flatMap(client.get(url), (response) => response.text))
          for (let i = 0; i < yields; i++) {
            yield* i % 2 === 0 ? Effect.yieldNow() : event((done) => void setImmediate(done))
          }
          yield* Fiber.interrupt(fiber)
        }
        expect(asked.size).toBeGreaterThan(10)
        yield* Effect.forEach(Array.from(asked), closed)
      }),
    )

    it.scopedLive("interrupting an upload closes its connection and its stream", () =>
      Effect.gen(function* () {
        const arrived = yield* Deferred.make<Net.Socket>()
        const released = yield* Deferred.make<void>()
        const { url } = yield* serve((request) =>
          request.once("data", () => Deferred.unsafeDone(arrived, Exit.succeed(request.socket))),
        )
        const client = yield* UndiciHttpClient.make()
        const body = Stream.concat(Stream.make(Buffer.from("a beginning")), Stream.never).pipe(
          Stream.ensuring(Deferred.succeed(released, undefined)),
        )
        const fiber = yield* Effect.fork(client.post(url, { body: HttpBody.stream(body) }))
        const socket = yield* Deferred.await(arrived)
        yield* Fiber.interrupt(fiber)
        yield* closed(socket)
        yield* Deferred.await(released)
      }),
    )

    it.scopedLive("a response that arrives before the end of the upload is returned", () =>
      Effect.gen(function* () {
        const released = yield* Deferred.make<void>()
        const { url } = yield* serve((request, response) => {
          request.once("data", () => response.writeHead(413, { connection: "close" }).end("too much"))
        })
        const client = yield* UndiciHttpClient.make()
        const body = Stream.concat(Stream.make(Buffer.from("a beginning")), Stream.never).pipe(
          Stream.ensuring(Deferred.succeed(released, undefined)),
        )
        const response = yield* client.post(url, { body: HttpBody.stream(body) })
        expect([response.status, yield* response.text]).toEqual([413, "too much"])
        yield* Deferred.await(released)
      }),
    )

    it.scopedLive("an unread response frees its connection when it is garbage-collected", () =>
      Effect.gen(function* () {
        setFlagsFromString("--expose-gc")
        const collectGarbage = runInNewContext("gc") as () => void
        const asked = yield* Deferred.make<Net.Socket>()
        const { url } = yield* serve((request, response) => {
          Deferred.unsafeDone(asked, Exit.succeed(request.socket))
          response.end(Buffer.alloc(16 * 1024 * 1024))
        })
        const client = yield* UndiciHttpClient.make()
        expect(yield* Effect.map(client.get(url), (response) => response.status)).toBe(200)
        const socket = yield* Deferred.await(asked)
        while (!socket.destroyed) {
          collectGarbage()
          yield* event((done) => void setImmediate(done))
        }
      }),
    )

    it.scopedLive("a partly read stream closes its connection", () =>
      Effect.gen(function* () {
        const begun = yield* Deferred.make<Net.Socket>()
        const { url } = yield* serve((request, response) => {
          Deferred.unsafeDone(begun, Exit.succeed(request.socket))
          const more = (): boolean => response.write("x".repeat(10_000), () => void (response.closed || more()))
          more()
        })
        const client = yield* UndiciHttpClient.make()
        const response = yield* client.get(url)
        expect(Chunk.size(yield* Stream.runCollect(Stream.take(response.stream, 3)))).toBe(3)
        yield* closed(yield* Deferred.await(begun))
      }),
    )

    for (const packed of [false, true]) {
      it.scopedLive(`a slow reader of a${packed ? " compressed" : "n uncompressed"} stream slows down the server`, () =>
        Effect.gen(function* () {
          const total = (packed ? 12 : 32) * 1024 * 1024
          const block = randomBytes(65_536)
          const stuck = yield* Deferred.make<number>()
          let sent = 0
          const { url } = yield* serve((_, response) => {
            const out = packed ? Zlib.createGzip({ level: 0 }) : response
            if (packed) {
              response.setHeader("content-encoding", "gzip")
              out.pipe(response)
            }
            const write = (): void => {
              while (sent < total) {
                sent += block.length
                if (out.write(block)) continue
                out.once("drain", write)
                // No drain within many event loop turns: the connection is full.
                let turns = 0
                const at = sent
                const wait = (): void => {
                  if (sent !== at) return
                  if (++turns > 2000) return void Deferred.unsafeDone(stuck, Exit.succeed(sent))
                  setImmediate(wait)
                }
                return wait()
              }
              out.end()
            }
            write()
          })
          const client = yield* UndiciHttpClient.make()
          const response = yield* client.get(url)
          const received = yield* Stream.runFoldEffect(response.stream, { bytes: 0, waited: false }, (state, chunk) =>
            state.waited
              ? Effect.succeed({ ...state, bytes: state.bytes + chunk.length })
              : // The first chunk is held until the server is blocked.
                Effect.map(Deferred.await(stuck), () => ({ bytes: chunk.length, waited: true })),
          )
          expect(yield* Deferred.await(stuck)).toBeLessThan(total)
          expect(received.bytes).toBe(total)
        }),
      )
    }

    it.scopedLive("an unread response slows down the server", () =>
      Effect.gen(function* () {
        const stuck = yield* Deferred.make<number>()
        const total = 64 * 1024 * 1024
        const { sockets, url } = yield* serve((_, response) => {
          let sent = 0
          const write = (): void => {
            while (sent < total) {
              sent += 65_536
              if (response.write(Buffer.alloc(65_536))) continue
              let turns = 0
              const at = sent
              response.once("drain", write)
              const wait = (): void => {
                if (sent !== at) return
                if (++turns > 2000) return void Deferred.unsafeDone(stuck, Exit.succeed(sent))
                setImmediate(wait)
              }
              return wait()
            }
            response.end()
            Deferred.unsafeDone(stuck, Exit.succeed(sent))
          }
          write()
        })
        const client = yield* UndiciHttpClient.make()
        const response = yield* client.get(url)
        expect(yield* Deferred.await(stuck)).toBeLessThan(total)
        expect(sockets.size).toBe(1)
        expect((yield* bytesOf(response)).length).toBe(total)
      }),
    )
  })

  it.scopedLive("UndiciHttpClient works with layers and middleware", () =>
    Effect.gen(function* () {
      const { url } = yield* serve((request, response) => response.end(request.headers["x-added"]))
      const program = Effect.gen(function* () {
        const client = (yield* HttpClient.HttpClient).pipe(
          HttpClient.mapRequest(HttpClientRequest.prependUrl(url)),
          HttpClient.mapRequest(HttpClientRequest.setHeader("x-added", "yes")),
          HttpClient.filterStatusOk,
        )
        return yield* Effect.flatMap(client.get("/x"), (response) => response.text)
      })
      expect(yield* Effect.provide(program, UndiciHttpClient.layer())).toBe("yes")
    }),
  )
})

describe("HttpDirect on UndiciHttpClient", () => {
  const sendDirect = (
    client: HttpClient.HttpClient,
    request: Partial<HttpDirect.Outgoing> & Pick<HttpDirect.Outgoing, "url">,
  ) =>
    Effect.withFiberRuntime<HttpDirect.Outcome>((fiber) =>
      Effect.async((resume) => {
        const send = HttpDirect.of(client)
        if (send === undefined) return resume(Effect.dieMessage("there is no short way"))
        const outgoing = { method: "POST", purpose: "sample", headers: [], body: undefined, ...request } as const
        const cancel = send(outgoing, (outcome) => resume(Effect.succeed(outcome)), fiber)
        return Effect.sync(cancel)
      }),
    )

  const answer = (outcome: HttpDirect.Outcome) => {
    if (outcome._tag !== "Answered") throw outcome._tag === "Failed" ? outcome.failure : outcome.cause
    return outcome.answer
  }
  const failure = (outcome: HttpDirect.Outcome) => {
    if (outcome._tag !== "Failed") throw new Error(outcome._tag)
    return outcome.failure._tag
  }

  it.scopedLive("HttpDirect sends a request and returns the response, whatever its status", () =>
    Effect.gen(function* () {
      const { url } = yield* serve((request, response) => {
        const chunks: Array<Buffer> = []
        request.on("data", (chunk: Buffer) => chunks.push(chunk))
        request.on("end", () => {
          response.writeHead(418, { "x-method": request.method ?? "", "set-cookie": ["a=1", "b=2"] })
          response.end(`${request.headers["x-api-key"]} ${Buffer.concat(chunks).toString()}`)
        })
      })
      const client = yield* UndiciHttpClient.make()
      for (const body of ["text \u00fc", new TextEncoder().encode("text \u00fc")]) {
        const {
          body: came,
          headers,
          status,
        } = answer(yield* sendDirect(client, { url, headers: ["x-api-key", "key"], body }))
        expect([status, headers["x-method"], headers["set-cookie"]]).toEqual([418, "POST", "a=1, b=2"])
        expect(new TextDecoder().decode(came)).toBe("key text \u00fc")
      }
    }),
  )

  it.scopedLive.each(["gzip", "deflate", "identity"] as const)("HttpDirect decodes %s up to the limit", (encoding) =>
    Effect.gen(function* () {
      const plain = Buffer.alloc(100_000, "abc")
      const packed =
        encoding === "gzip" ? Zlib.gzipSync(plain) : encoding === "deflate" ? Zlib.deflateSync(plain) : plain
      const { url } = yield* serve((_, response) =>
        response.writeHead(200, { "content-encoding": encoding }).end(packed),
      )
      const client = yield* UndiciHttpClient.make()
      expect(Buffer.from(answer(yield* sendDirect(client, { url })).body).equals(plain)).toBe(true)
      const small = yield* UndiciHttpClient.make({ maxInflatedBytes: 99_999 })
      expect(failure(yield* sendDirect(small, { url }))).toBe("InflatedTooLarge")
    }),
  )

  describe("onBodySent", () => {
    // More than sockets and operating system buffer.
    const body = new Uint8Array(64 * 1024 * 1024).map((_, at) => at % 251)
    const head = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"

    /** Sends a body and counts the calls of `onBodySent`, in total and when the response arrives. */
    const sendCounted = (client: HttpClient.HttpClient, url: string, body: string | Uint8Array) => {
      const calls = { sent: 0, atAnswer: 0 }
      const sent = Deferred.unsafeMake<void>(FiberId.none)
      const onBodySent = () => {
        calls.sent++
        Deferred.unsafeDone(sent, Exit.void)
      }
      return {
        calls,
        sent,
        outcome: Effect.map(sendDirect(client, { url, body, onBodySent }), (outcome) => {
          calls.atAnswer = calls.sent
          return answer(outcome)
        }),
      }
    }

    it.scopedLive("onBodySent is not called before the last byte was read", () =>
      Effect.gen(function* () {
        const client = yield* UndiciHttpClient.make()
        const received: Array<Buffer> = []
        let callsAtStart: number | undefined
        const { url } = yield* rawServer((socket) => {
          socket.once("data", (first: Buffer) => {
            received.push(first)
            callsAtStart = calls.sent
            let size = first.length
            socket.on("data", (chunk: Buffer) => {
              received.push(chunk)
              size += chunk.length
              if (size > body.length) socket.end(`${head}ok`)
            })
          })
        })
        const { outcome, calls } = sendCounted(client, url, body)
        expect((yield* outcome).status).toBe(200)
        expect([callsAtStart, calls]).toEqual([0, { sent: 1, atAnswer: 1 }])
        const all = Buffer.concat(received)
        const end = all.indexOf("\r\n\r\n") + 4
        expect(all.subarray(0, end).toString()).toContain(`content-length: ${body.length}\r\n`)
        expect(all.subarray(end).equals(body)).toBe(true)
      }),
    )

    it.scopedLive("onBodySent is not called by an early response, and the rest of the body is sent", () =>
      Effect.gen(function* () {
        const client = yield* UndiciHttpClient.make()
        let received = 0
        const { sockets, url } = yield* rawServer((socket) => {
          socket.on("data", (chunk: Buffer) => {
            if (received === 0) {
              socket.pause()
              socket.write(`${head}no`)
            }
            received += chunk.length
          })
        })
        const { outcome, sent, calls } = sendCounted(client, url, body)
        expect((yield* outcome).status).toBe(200)
        expect(calls.atAnswer).toBe(0)
        sockets.forEach((socket) => socket.resume())
        yield* Deferred.await(sent)
        const [socket] = sockets
        while (received < body.length) yield* event((done) => void socket?.once("data", () => done()))
        expect([calls.sent, sockets.size, socket?.destroyed]).toEqual([1, 1, false])
      }),
    )

    it.scopedLive("onBodySent is called over TLS, with all requests on one connection", () =>
      Effect.gen(function* () {
        const pem = (name: string) => readFileSync(new URL(`support/tls/${name}.pem`, import.meta.url))
        let connections = 0
        const server = yield* Effect.acquireRelease(
          Effect.async<Https.Server>((resume) => {
            const server = Https.createServer({ key: pem("key"), cert: pem("cert") }, (request, response) => {
              const hash = createHash("sha1")
              request.on("data", (chunk: Buffer) => hash.update(chunk))
              request.on("end", () => response.end(hash.digest("hex")))
            })
            server.on("secureConnection", () => connections++)
            server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
          }),
          (server) =>
            Effect.async<void>((resume) => {
              server.close(() => resume(Effect.void))
              server.closeAllConnections()
            }),
        )
        const client = yield* UndiciHttpClient.make({
          connections: { sample: 1 },
          connect: { ca: pem("cert") } as object,
        })
        const url = `https://127.0.0.1:${(server.address() as Net.AddressInfo).port}`
        const body = new Uint8Array(1_500_000)
        for (let n = 0; n < 20; n++) {
          // Reuses the memory of the previous body.
          body.fill(n)
          const { outcome, sent } = sendCounted(client, url, body)
          expect(new TextDecoder().decode((yield* outcome).body)).toBe(createHash("sha1").update(body).digest("hex"))
          yield* Deferred.await(sent)
        }
        expect(connections).toBe(1)
      }),
    )

    it.scopedLive("onBodySent is called for bytes of any size, but not for text", () =>
      Effect.gen(function* () {
        const { url } = yield* serve((request, response) => {
          request.resume()
          request.on("end", () => response.end(request.headers["content-length"]))
        })
        const cases = [
          [yield* UndiciHttpClient.make(), "x".repeat(2_000_000), 0],
          [yield* UndiciHttpClient.make(), new Uint8Array(1000), 1],
          [yield* UndiciHttpClient.make({ connect: { writableHighWaterMark: 1e9 } as object }), new Uint8Array(2e6), 1],
        ] as const
        for (const [client, body, times] of cases) {
          const { outcome, calls } = sendCounted(client, url, body)
          expect(new TextDecoder().decode((yield* outcome).body)).toBe(String(body.length))
          expect(calls.sent).toBe(times)
        }
      }),
    )
  })

  it.scopedLive("HttpDirect reports what failed, and whether the request was sent", () =>
    Effect.gen(function* () {
      const client = yield* UndiciHttpClient.make()
      const closed = yield* Effect.scoped(rawServer(() => {}))
      expect(failure(yield* sendDirect(client, { url: closed.url }))).toBe("NotSent")
      const rude = yield* rawServer((socket) => socket.once("data", () => socket.destroy()))
      expect(failure(yield* sendDirect(client, { url: rude.url }))).toBe("Disconnected")
      const cut = yield* rawServer((socket) =>
        socket.once("data", () => socket.end("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")),
      )
      expect(failure(yield* sendDirect(client, { url: cut.url }))).toBe("Disconnected")
      const { url } = yield* serve((_, response) =>
        response.writeHead(200, { "content-encoding": "gzip" }).end("not gzip"),
      )
      expect(failure(yield* sendDirect(client, { url }))).toBe("CorruptBody")
      const odd = yield* serve((_, response) => response.writeHead(200, { "content-encoding": "odd" }).end("?"))
      expect(failure(yield* sendDirect(client, { url: odd.url }))).toBe("UnsupportedEncoding")
      expect(failure(yield* sendDirect(client, { url: "nowhere" }))).toBe("Unsendable")
      expect(failure(yield* sendDirect(client, { url, headers: ["bad name", "x"] }))).toBe("Unsendable")
    }),
  )

  it.scopedLive("an aborted HttpDirect request closes its connection", () =>
    Effect.gen(function* () {
      const arrived = yield* Deferred.make<void>()
      const { sockets, url } = yield* serve(() => Deferred.unsafeDone(arrived, Exit.void))
      const client = yield* UndiciHttpClient.make()
      const fiber = yield* Effect.fork(sendDirect(client, { url }))
      yield* Deferred.await(arrived)
      const [socket] = sockets
      const gone = yield* Effect.fork(event((done) => socket?.once("close", done)))
      yield* Fiber.interrupt(fiber)
      yield* Fiber.join(gone)
      expect(socket?.destroyed).toBe(true)
    }),
  )

  it.scopedLive("HttpDirect is not available on a wrapped client", () =>
    Effect.gen(function* () {
      const client = yield* UndiciHttpClient.make()
      expect(HttpDirect.of(client)).toBeTypeOf("function")
      expect(HttpDirect.of(HttpClient.mapRequest(client, (request) => request))).toBeUndefined()
    }),
  )

  it.scopedLive("HttpDirect fails with NotSent when the client is closed", () =>
    Effect.gen(function* () {
      const { url } = yield* serve((_, response) => response.end())
      const client = yield* Effect.scoped(UndiciHttpClient.make())
      expect(failure(yield* sendDirect(client, { url }))).toBe("NotSent")
    }),
  )
})
