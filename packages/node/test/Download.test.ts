import { FetchHttpClient, FileSystem, HttpClient, HttpClientResponse, Path } from "@effect/platform"
import { SystemError } from "@effect/platform/Error"
import { NodeContext } from "@effect/platform-node"
import { NodeHost, UndiciHttpClient } from "@effect-tinker/node"
import { describe, expect, it } from "@effect/vitest"
import {
  Cause,
  Chunk,
  Deferred,
  Duration,
  Effect,
  Exit,
  Fiber,
  Layer,
  Logger,
  Option,
  Queue,
  Schedule,
  type Scope,
  Stream,
  TestClock,
} from "effect"
import { Download } from "effect-tinker"
import { createHash, randomBytes } from "node:crypto"
import * as Http from "node:http"
import type { AddressInfo } from "node:net"
import { crc32 } from "node:zlib"

const quiet = Logger.remove(Logger.defaultLogger)
const machine = Layer.mergeAll(NodeContext.layer, NodeHost.layer, quiet)
const undici = Layer.merge(machine, UndiciHttpClient.layer())

/** Retries immediately, up to five times. */
const retryPolicy = Schedule.recurs(5)

interface Seen {
  readonly url: string
  readonly headers: Http.IncomingHttpHeaders
}

type Handler = (request: Http.IncomingMessage, response: Http.ServerResponse, seen: ReadonlyArray<Seen>) => void

const serve = (handler: Handler) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.async<{ readonly server: Http.Server; readonly seen: Array<Seen> }>((resume) => {
        const seen: Array<Seen> = []
        const server = Http.createServer((request, response) => {
          seen.push({ url: request.url ?? "", headers: request.headers })
          request.resume()
          request.on("end", () => handler(request, response, seen))
        })
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed({ server, seen })))
      }),
      ({ server }) =>
        Effect.async<void>((resume) => {
          server.close(() => resume(Effect.void))
          server.closeAllConnections()
        }),
    ),
    ({ seen, server }) => ({
      seen,
      url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/a?sig=secret-signature`,
    }),
  )

/** A correct storage server; `write` sends the bytes, and may stop in the middle. */
const storage =
  (
    body: Uint8Array,
    write: (response: Http.ServerResponse, bytes: Uint8Array, request: number) => void,
    headers: Record<string, string> = { etag: '"v1"' },
  ): Handler =>
  (request, response, seen) => {
    const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? -1)
    const isSame =
      request.headers["if-range"] === headers["etag"] || request.headers["if-range"] === headers["last-modified"]
    if (start < 0 || !isSame) {
      response.writeHead(200, { ...headers, "content-length": body.length })
      return write(response, body, seen.length)
    }
    if (start >= body.length) {
      return void response.writeHead(416, { "content-range": `bytes */${body.length}` }).end()
    }
    const rest = body.subarray(start)
    response.writeHead(206, {
      ...headers,
      "content-length": rest.length,
      "content-range": `bytes ${start}-${body.length - 1}/${body.length}`,
    })
    return write(response, rest, seen.length)
  }

const all = (response: Http.ServerResponse, bytes: Uint8Array) => void response.end(bytes)

/** Sends a number of bytes, then breaks the connection. */
const some = (count: number) => (response: Http.ServerResponse, bytes: Uint8Array) => {
  if (count >= bytes.length) return void response.end(bytes)
  response.write(bytes.subarray(0, count), () => setImmediate(() => response.destroy()))
  response.flushHeaders()
}

const target = Effect.gen(function* () {
  const fs = yield* FileSystem.FileSystem
  const { join } = yield* Path.Path
  const directory = yield* fs.makeTempDirectoryScoped()
  const path = join(directory, "below", "weights.tar")
  return { path, directory: join(directory, "below") }
})

const listing = (directory: string) =>
  Effect.flatMap(FileSystem.FileSystem, (fs) =>
    Effect.map(
      Effect.orElseSucceed(fs.readDirectory(directory), () => []),
      (names) => names.toSorted(),
    ),
  )
const read = (path: string) =>
  Effect.flatMap(FileSystem.FileSystem, (fs) => Effect.map(fs.readFile(path), (bytes) => Buffer.from(bytes)))

const body = randomBytes(300_000)
const sha256 = createHash("sha256").update(body).digest()
const live = <A, E>(program: Effect.Effect<A, E, Layer.Layer.Success<typeof undici> | Scope.Scope>) =>
  Effect.provide(program, undici)

describe("Download", () => {
  it.scopedLive("toFile downloads a file without credentials and leaves no temporary files", () =>
    live(
      Effect.gen(function* () {
        const { seen, url } = yield* serve(storage(body, all))
        const { directory, path } = yield* target
        expect(yield* Download.toFile(url, path)).toEqual({
          path,
          bytes: body.length,
          resumedFrom: 0,
          verified: [],
        })
        expect((yield* read(path)).equals(body)).toBe(true)
        expect(yield* listing(directory)).toEqual(["weights.tar"])
        expect(seen.length).toBe(1)
        expect(seen[0]?.headers).toMatchObject({ "accept-encoding": "identity" })
        const names = ["accept", "accept-encoding", "connection", "host", "user-agent"]
        expect(Object.keys(seen[0]?.headers ?? {}).toSorted()).toEqual(names)
      }),
    ),
  )

  it.scopedLive("toFile completes downloads that are cut at random bytes", () =>
    live(
      Effect.gen(function* () {
        const { path } = yield* target
        let seed = 1
        const random = () => (seed = (seed * 48_271) % 2_147_483_647) / 2_147_483_647
        for (let round = 0; round < (process.env["TINKER_TESTS"] === "all" ? 100 : 20); round++) {
          // About five cuts per download, a tenth of them before the first byte.
          const { seen, url } = yield* serve(
            storage(body, (response, bytes) => some(Math.floor(random() * 130_000) - 12_000)(response, bytes), {
              etag: `"v${round}"`,
              "x-goog-hash": `md5=${createHash("md5").update(body).digest("base64")}`,
            }),
          )
          const { verified } = yield* Download.toFile(url, path, { retryPolicy: Schedule.recurs(20) })
          expect((yield* read(path)).equals(body)).toBe(true)
          expect(verified).toEqual(["md5"])
          // No byte is requested twice.
          const starts = seen.map(({ headers }) => Number(/\d+/.exec(headers.range ?? "0")?.[0]))
          expect(starts).toEqual(starts.toSorted((a, b) => a - b))
        }
      }).pipe(Effect.scoped),
    ),
  )

  it.scopedLive("toFile completes interrupted downloads on fetch", () =>
    Effect.gen(function* () {
      const { seen, url } = yield* serve(storage(body, some(100_000)))
      const { path } = yield* target
      yield* Download.toFile(url, path, { retryPolicy })
      expect((yield* read(path)).equals(body)).toBe(true)
      expect(seen.length).toBeGreaterThan(2)
    }).pipe(Effect.provide(Layer.merge(machine, FetchHttpClient.layer))),
  )

  it.scopedLive("toFile starts over if the server has no ranges or the file has changed", () =>
    live(
      Effect.gen(function* () {
        const other = randomBytes(200_000)
        const whole =
          (bytes: Uint8Array, etag: string, write = all): Handler =>
          (_, response) => {
            response.writeHead(200, { etag, "content-length": bytes.length })
            write(response, bytes)
          }
        const cases: ReadonlyArray<readonly [Handler, Handler, Buffer]> = [
          [whole(body, '"v1"', some(1000)), whole(body, '"v1"'), body],
          [storage(body, some(1000)), storage(other, all, { etag: '"v2"' }), other],
          // Without a strong validator, no range is requested.
          [storage(body, some(1000), {}), whole(other, '"v2"'), other],
          [storage(body, some(1000), { etag: 'W/"v1"' }), whole(other, '"v2"'), other],
          [
            storage(body, some(1000), { "last-modified": "Mon, 16 Nov 2026 10:00:00 GMT" }),
            storage(body, all, { "last-modified": "Mon, 16 Nov 2026 10:00:00 GMT" }),
            body,
          ],
        ]
        const ranges: Array<ReadonlyArray<string | undefined>> = []
        for (const [first, second, expected] of cases) {
          const { seen, url } = yield* serve((request, response, seen) =>
            (seen.length === 1 ? first : second)(request, response, seen),
          )
          const { path } = yield* target
          yield* Download.toFile(url, path, { retryPolicy })
          expect((yield* read(path)).equals(expected)).toBe(true)
          ranges.push(seen.map(({ headers }) => headers["if-range"] as string | undefined))
        }
        expect(ranges).toEqual([
          [undefined, '"v1"'],
          [undefined, '"v1"'],
          [undefined, undefined],
          [undefined, undefined],
          [undefined, "Mon, 16 Nov 2026 10:00:00 GMT"],
        ])
      }).pipe(Effect.scoped),
    ),
  )

  it.scopedLive("toFile discards a response with a different range than requested", () =>
    live(
      Effect.gen(function* () {
        const { seen, url } = yield* serve((request, response, seen) => {
          if (seen.length !== 2) return storage(body, seen.length === 1 ? some(1000) : all)(request, response, seen)
          // Sends the beginning again, as if it were the rest.
          return void response
            .writeHead(206, { etag: '"v1"', "content-range": `bytes 0-${body.length - 1}/${body.length}` })
            .end(body)
        })
        const { path } = yield* target
        yield* Download.toFile(url, path, { retryPolicy })
        expect((yield* read(path)).equals(body)).toBe(true)
        expect(seen.map(({ headers }) => headers.range)).toEqual([undefined, "bytes=1000-", undefined])
      }),
    ),
  )

  it.scopedLive("toFile never combines two versions of a file, even if the server ignores If-Range", () =>
    live(
      Effect.gen(function* () {
        const other = randomBytes(body.length)
        for (const [old, now] of [
          [{ etag: '"v1"' }, { etag: '"v2"' }],
          [{ "last-modified": "Mon, 16 Nov 2026 10:00:00 GMT" }, { "last-modified": "Tue, 17 Nov 2026 10:00:00 GMT" }],
        ] as const) {
          const { url } = yield* serve((request, response, seen) => {
            if (seen.length === 1) return storage(body, some(1000), old)(request, response, seen)
            const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0)
            const range = { "content-range": `bytes ${start}-${other.length - 1}/${other.length}` }
            return void response
              .writeHead(start > 0 ? 206 : 200, start > 0 ? { ...now, ...range } : now)
              .end(other.subarray(start))
          })
          const { path } = yield* target
          yield* Download.toFile(url, path, { retryPolicy })
          expect((yield* read(path)).equals(other)).toBe(true)
        }
      }).pipe(Effect.scoped),
    ),
  )

  it.scopedLive("concurrent downloads to one path never report a wrong file as correct", () =>
    live(
      Effect.gen(function* () {
        const { url } = yield* serve(storage(body, all))
        const { path } = yield* target
        const both = yield* Effect.all(
          [1, 2].map(() => Effect.either(Download.toFile(url, path, { retryPolicy: Schedule.stop }))),
          {
            concurrency: 2,
          },
        )
        const there = yield* Effect.option(read(path))
        for (const one of both) {
          if (one._tag === "Right") expect(Option.exists(there, (bytes) => bytes.equals(body))).toBe(true)
          else expect(["Corrupted", "FileFailed"]).toContain(one.left._tag)
        }
      }),
    ),
  )

  it.scopedLive("toFile closes the connection if the file cannot be written", () =>
    live(
      Effect.gen(function* () {
        const fs = yield* FileSystem.FileSystem
        const closed = yield* Deferred.make<void>()
        const { url } = yield* serve((request, response) => {
          response.writeHead(200, { etag: '"v1"', "content-length": body.length }).write(body.subarray(0, 1000))
          request.socket.once("close", () => Deferred.unsafeDone(closed, Exit.void))
        })
        const { path } = yield* target
        yield* fs.makeDirectory(`${path}.part.json/in-the-way`, { recursive: true })
        expect(yield* Effect.flip(Download.toFile(url, path))).toMatchObject({ _tag: "FileFailed" })
        yield* Deferred.await(closed)
      }),
    ),
  )

  it.scopedLive("toFile resumes a partial file of an earlier run, even if it is complete", () =>
    live(
      Effect.gen(function* () {
        const fs = yield* FileSystem.FileSystem
        const crc = {
          etag: '"v1"',
          "x-amz-checksum-crc32": Buffer.from(Uint32Array.of(crc32(body)).buffer)
            .swap32()
            .toString("base64"),
        }
        for (const have of [1000, body.length]) {
          const { directory, path } = yield* target
          const cut = yield* serve(storage(body, some(1000), crc))
          const error = yield* Effect.flip(Download.toFile(cut.url, path, { retryPolicy: Schedule.stop }))
          expect(error).toMatchObject({ _tag: "Unavailable", reason: "Disconnected", attempts: 1 })
          expect(yield* listing(directory)).toEqual(["weights.tar.part", "weights.tar.part.json"])
          expect(yield* fs.readFileString(`${path}.part.json`)).not.toContain("secret")
          yield* fs.writeFile(`${path}.part`, body.subarray(0, have))
          const { seen, url } = yield* serve(storage(body, all, crc))
          const { resumedFrom, verified } = yield* Download.toFile(url, path)
          expect([resumedFrom, verified]).toEqual([have, ["crc32"]])
          expect((yield* read(path)).equals(body)).toBe(true)
          expect(seen.map(({ headers }) => headers.range)).toEqual([`bytes=${have}-`])
          expect(yield* listing(directory)).toEqual(["weights.tar"])
        }
      }),
    ),
  )

  it.scopedLive("toFile discards a partial file that is too long or has invalid metadata", () =>
    live(
      Effect.gen(function* () {
        const fs = yield* FileSystem.FileSystem
        const notes = ["{}", "not json", '{"validator":"\\"v1\\"","size":null,"checksums":[]}']
        for (const note of notes) {
          const { directory, path } = yield* target
          yield* fs.makeDirectory(directory, { recursive: true })
          yield* fs.writeFile(`${path}.part`, randomBytes(body.length + 5))
          yield* fs.writeFileString(`${path}.part.json`, note)
          const { url } = yield* serve(storage(body, all))
          yield* Download.toFile(url, path, { retryPolicy })
          expect((yield* read(path)).equals(body)).toBe(true)
        }
      }),
    ),
  )

  it.scopedLive("progress resets the retry budget, and retries without progress exhaust it", () =>
    live(
      Effect.gen(function* () {
        const { path } = yield* target
        // 30 cuts with a budget of one retry each.
        const slow = yield* serve(storage(body, some(10_000)))
        yield* Download.toFile(slow.url, path, { retryPolicy: Schedule.recurs(1) })
        expect(slow.seen.length).toBe(30)
        // Always cut at the same byte without ranges, which is no progress.
        const stuck = yield* serve((_, response) => {
          response.writeHead(200, { "content-length": body.length })
          some(10_000)(response, body)
        })
        const error = yield* Effect.flip(Download.toFile(stuck.url, path, { retryPolicy: Schedule.recurs(3) }))
        expect(error).toMatchObject({ _tag: "Unavailable", reason: "Disconnected", attempts: 4 })
        expect(stuck.seen.length).toBe(4)
        const down = yield* serve((_, response) => void response.writeHead(503).end("busy"))
        expect(yield* Effect.flip(Download.toFile(down.url, path, { retryPolicy: Schedule.recurs(2) }))).toMatchObject({
          _tag: "Unavailable",
          reason: "ServerError",
          attempts: 3,
          detail: "busy",
        })
        // The existing file is unchanged.
        expect((yield* read(path)).equals(body)).toBe(true)
      }),
    ),
  )

  it.scopedLive("toFile renews an expired URL, at most once until data arrives", () =>
    live(
      Effect.gen(function* () {
        const { path } = yield* target
        let asked = 0
        const { seen, url } = yield* serve((request, response, seen) => {
          if (request.url?.includes("renewed=1") !== true && seen.length > 1)
            return void response.writeHead(403).end("<Code>AccessDenied</Code>")
          return storage(body, seen.length === 1 ? some(1000) : all)(request, response, seen)
        })
        const source = Effect.sync(() => ({ url: asked++ === 0 ? url : `${url}&renewed=1` }))
        yield* Download.toFile(source, path, { retryPolicy })
        expect([asked, seen.length]).toEqual([2, 3])
        expect((yield* read(path)).equals(body)).toBe(true)

        const refusing = yield* serve((request, response) => void response.writeHead(403).end(`no: ${request.url}`))
        let again = 0
        const error = yield* Effect.flip(
          Download.toFile(
            Effect.sync(() => (again++, refusing.url)),
            path,
            { retryPolicy },
          ),
        )
        expect(error).toMatchObject({ _tag: "Forbidden", detail: "no: /a<redacted>" })
        expect([again, refusing.seen.length]).toEqual([2, 2])
        expect(yield* Effect.flip(Download.toFile(refusing.url, path, { retryPolicy }))).toMatchObject({
          _tag: "Forbidden",
        })
        expect(refusing.seen.length).toBe(3)
        expect(yield* Effect.flip(Download.toFile(Effect.fail("nowhere" as const), path))).toBe("nowhere")
      }),
    ),
  )

  const checksums: ReadonlyArray<readonly [string, Record<string, string>]> = [
    ["sha256", { "x-amz-checksum-sha256": sha256.toString("base64") }],
    ["sha256", { digest: `md5=AAAA,SHA-256=${sha256.toString("base64")}` }],
    ["sha256", { "repr-digest": `sha-256=:${sha256.toString("base64")}:, unixsum=:AA==:` }],
    ["md5", { "content-md5": createHash("md5").update(body).digest("base64") }],
    ["sha1", { "x-amz-checksum-sha1": createHash("sha1").update(body).digest("base64") }],
    ["sha512", { "repr-digest": `sha-512=:${createHash("sha512").update(body).digest("base64")}:` }],
  ]
  it.scopedLive("toFile verifies the checksums that the server sends", () =>
    live(
      Effect.gen(function* () {
        for (const [algorithm, headers] of checksums) {
          const { directory, path } = yield* target
          const { url } = yield* serve(storage(body, all, headers))
          expect((yield* Download.toFile(url, path)).verified).toEqual([algorithm])
          const wrong = yield* serve(storage(randomBytes(1000), all, headers))
          const { path: other } = yield* target
          const error = yield* Effect.flip(Download.toFile(wrong.url, other))
          expect(error).toMatchObject({ _tag: "Corrupted", reason: "Checksum" })
          expect(yield* listing(directory)).toEqual(["weights.tar"])
          expect(yield* listing(other.replace("/weights.tar", ""))).toEqual([])
        }
        // A checksum of the uploaded parts, not of the file.
        const { url } = yield* serve(storage(body, all, { "x-amz-checksum-crc32c": "AAAAAA==-3" }))
        expect((yield* Download.toFile(url, (yield* target).path)).verified).toEqual([])
      }),
    ),
  )

  it.scopedLive("toFile computes crc32c correctly for the standard check value", () =>
    live(
      Effect.gen(function* () {
        // CRC-32C("123456789") is E3069283.
        const value = Buffer.from("e3069283", "hex").toString("base64")
        const { url } = yield* serve(storage(Buffer.from("123456789"), all, { "x-goog-hash": `crc32c=${value}` }))
        expect((yield* Download.toFile(url, (yield* target).path)).verified).toEqual(["crc32c"])
      }),
    ),
  )

  it.scopedLive("toFile verifies the checksum that the caller expects, in hex or base64", () =>
    live(
      Effect.gen(function* () {
        const { url } = yield* serve(storage(body, all))
        for (const value of [sha256.toString("hex"), sha256.toString("hex").toUpperCase(), sha256.toString("base64")]) {
          const checksum = { algorithm: "sha256", value } as const
          expect((yield* Download.toFile(url, (yield* target).path, { checksum })).verified).toEqual(["sha256"])
        }
        const checksum = { algorithm: "sha256", value: "0".repeat(64) } as const
        expect(yield* Effect.flip(Download.toFile(url, (yield* target).path, { checksum }))).toMatchObject({
          _tag: "Corrupted",
          path: expect.stringContaining("weights.tar"),
        })
      }),
    ),
  )

  it.scopedLive("toFile refuses more bytes than announced", () =>
    live(
      Effect.gen(function* () {
        const { url } = yield* serve((request, response, seen) => {
          if (seen.length === 1) return storage(body, some(1000))(request, response, seen)
          response.writeHead(206, { etag: '"v1"', "content-range": `bytes 1000-${body.length - 1}/${body.length}` })
          return void response.end(body)
        })
        const { directory, path } = yield* target
        expect(yield* Effect.flip(Download.toFile(url, path, { retryPolicy }))).toMatchObject({
          _tag: "Corrupted",
          reason: "Length",
        })
        expect(yield* listing(directory)).toEqual([])
      }),
    ),
  )

  it.scopedLive("toFile refuses a content-encoding", () =>
    live(
      Effect.gen(function* () {
        const { url } = yield* serve(
          (_, response) => void response.writeHead(200, { "content-encoding": "gzip" }).end(body),
        )
        expect(yield* Effect.flip(Download.toFile(url, (yield* target).path, { retryPolicy }))).toMatchObject({
          _tag: "UnexpectedResponse",
          reason: "Encoding",
        })
      }),
    ),
  )

  it.scopedLive("toFile follows redirects, but not from https to http", () =>
    live(
      Effect.gen(function* () {
        const there = yield* serve(storage(body, some(200_000)))
        const { url } = yield* serve((_, response) => void response.writeHead(302, { location: there.url }).end())
        const { path } = yield* target
        yield* Download.toFile(url, path, { retryPolicy })
        expect((yield* read(path)).equals(body)).toBe(true)
        const round = yield* serve(
          (request, response) => void response.writeHead(302, { location: request.url ?? "" }).end(),
        )
        const lost = yield* Effect.flip(Download.toFile(round.url, path, { retryPolicy }))
        expect(lost).toMatchObject({ _tag: "UnexpectedResponse", reason: "Redirect" })
        expect(round.seen.length).toBe(11)
        const worse = yield* serve(
          (_, response) => void response.writeHead(302, { location: "file:///etc/passwd" }).end(),
        )
        expect(yield* Effect.flip(Download.toFile(worse.url, path, { retryPolicy }))).toMatchObject({
          reason: "Redirect",
        })
      }),
    ),
  )

  it.scopedLive("toFile redacts the URL of a redirect in errors", () =>
    live(
      Effect.gen(function* () {
        const signed = "/object?X-Amz-Signature=deadbeefcafebabe1234"
        const { url } = yield* serve((request, response) =>
          request.url?.startsWith("/object") === true
            ? void response.writeHead(403).end(`<StringToSign>${request.url} deadbeefcafebabe1234</StringToSign>`)
            : void response.writeHead(302, { location: signed }).end(),
        )
        const { path } = yield* target
        const error = yield* Effect.flip(Download.toFile(url, path))
        expect(error).toMatchObject({ _tag: "Forbidden" })
        expect(`${error.message} ${JSON.stringify(error)}`).not.toContain("deadbeef")
        expect(error.message).toContain("StringToSign")
      }),
    ),
  )

  it.scopedLive("toFile reports a 404 with its detail and does not retry", () =>
    live(
      Effect.gen(function* () {
        const { seen, url } = yield* serve((_, response) => void response.writeHead(404).end("no such key"))
        const { directory, path } = yield* target
        expect(yield* Effect.flip(Download.toFile(url, path, { retryPolicy }))).toMatchObject({
          _tag: "NotFound",
          operation: "download",
          detail: "no such key",
        })
        expect(seen.length).toBe(1)
        expect(yield* listing(directory)).toEqual([])
      }),
    ),
  )

  it.scopedLive("toFile refuses invalid input before it does anything", () =>
    live(
      Effect.gen(function* () {
        const { directory, path } = yield* target
        const refused = (effect: Effect.Effect<unknown, Download.DownloadError, Download.Environment>) =>
          Effect.map(Effect.flip(effect), (error) => (error._tag === "InvalidInput" ? error.path : error._tag))
        expect(yield* refused(Download.toFile("nowhere", path))).toBe("download.url")
        expect(yield* refused(Download.toFile("file:///etc/passwd", path))).toBe("download.url")
        expect(yield* refused(Download.toFile("http://a:b@host/", path))).toBe("download.url")
        expect(yield* refused(Download.toFile("http://host/", ""))).toBe("download.path")
        expect(yield* refused(Download.toFile("http://host/", path, { timeout: "soon" as never }))).toBe(
          "download.options.timeout",
        )
        expect(yield* listing(directory)).toEqual([])
      }),
    ),
  )

  it.scopedLive(
    "an interrupted download leaves no file under its final name, and a partial one only with keepPartial",
    () =>
      live(
        Effect.gen(function* () {
          for (const keepPartial of [true, false]) {
            const arrived = yield* Deferred.make<void>()
            const { url } = yield* serve((request, response, seen) => {
              response.on("close", () => Deferred.unsafeDone(arrived, Effect.void))
              storage(body, (response, bytes) => void response.write(bytes.subarray(0, 100_000)))(
                request,
                response,
                seen,
              )
            })
            const { directory, path } = yield* target
            const seen = yield* Deferred.make<number>()
            const fiber = yield* Download.withProgress(url, path, { keepPartial }).pipe(
              Stream.runForEach(({ bytes }) => Deferred.succeed(seen, bytes)),
              Effect.fork,
            )
            expect(yield* Deferred.await(seen)).toBeGreaterThan(0)
            yield* Fiber.interrupt(fiber)
            // The connection is closed, too.
            yield* Deferred.await(arrived)
            expect(yield* listing(directory)).toEqual(keepPartial ? ["weights.tar.part", "weights.tar.part.json"] : [])
          }
        }),
      ),
  )

  it.scopedLive("withProgress emits the progress and a final element", () =>
    live(
      Effect.gen(function* () {
        const { url } = yield* serve(storage(body, some(100_000)))
        const { path } = yield* target
        const progress = Chunk.toReadonlyArray(
          yield* Stream.runCollect(Download.withProgress(url, path, { retryPolicy })),
        )
        expect(progress.at(0)).toMatchObject({
          total: Option.some(body.length),
          isDone: false,
          remaining: Option.none(),
        })
        expect(progress.at(-1)).toMatchObject({ bytes: body.length, total: Option.some(body.length), isDone: true })
        expect(progress.filter(({ isDone }) => isDone).length).toBe(1)
        const { url: gone } = yield* serve((_, response) => void response.writeHead(404).end())
        const failed = yield* Effect.exit(Stream.runDrain(Download.withProgress(gone, path)))
        expect(Exit.isFailure(failed) && Cause.failureOption(failed.cause)).toMatchObject({
          value: { _tag: "NotFound" },
        })
      }),
    ),
  )

  it.scopedLive("toFile reports a full disk and an unwritable path", () =>
    Effect.gen(function* () {
      const { url } = yield* serve(storage(body, all))
      const { path } = yield* target
      const fs = yield* FileSystem.FileSystem
      const on = (changes: Partial<FileSystem.FileSystem>) =>
        Effect.flip(Download.toFile(url, path, { retryPolicy })).pipe(
          Effect.provideService(FileSystem.FileSystem, { ...fs, ...changes }),
        )
      // The kernel's device for simulating a full disk.
      const full = yield* on({
        open: (path, options) =>
          path.endsWith(".part") ? fs.open("/dev/full", { flag: "w" }) : fs.open(path, options),
      })
      expect(full).toMatchObject({ _tag: "FileFailed", reason: "DiskFull", path })
      const denied = new SystemError({
        reason: "Unknown",
        module: "FileSystem",
        method: "open",
        cause: Object.assign(new Error("EPERM"), { code: "EPERM" }),
      })
      expect(yield* on({ open: () => Effect.fail(denied) })).toMatchObject({
        _tag: "FileFailed",
        reason: "PermissionDenied",
      })
      expect(yield* on({ rename: () => Effect.fail(denied) })).toMatchObject({
        _tag: "FileFailed",
        reason: "PermissionDenied",
      })
      // A file in place of a directory.
      yield* fs.writeFileString(path, "")
      expect(yield* Effect.flip(Download.toFile(url, `${path}/below`))).toMatchObject({ _tag: "FileFailed" })
    }).pipe(Effect.provide(undici)),
  )

  it.scoped("a download times out without data, and rate and remaining time cover only the last seconds", () =>
    Effect.gen(function* () {
      const { path } = yield* target
      const pieces = yield* Queue.unbounded<Uint8Array>()
      const storage = HttpClient.make((request) =>
        Effect.succeed(
          HttpClientResponse.fromWeb(
            request,
            new Response(Stream.toReadableStream(Stream.fromQueue(pieces)), { headers: { "content-length": "1000" } }),
          ),
        ),
      )
      const reports = yield* Queue.unbounded<Download.Progress>()
      const fiber = yield* Download.withProgress("http://host/", path, { retryPolicy: Schedule.stop }).pipe(
        Stream.runForEach((progress) => Queue.offer(reports, progress)),
        Effect.provideService(HttpClient.HttpClient, storage),
        Effect.fork,
      )
      const after = (seconds: number) =>
        Effect.gen(function* () {
          yield* TestClock.adjust(`${seconds} seconds`)
          yield* Queue.offer(pieces, new Uint8Array(100))
          return yield* Queue.take(reports)
        })
      expect(yield* after(0)).toMatchObject({ bytes: 100, rate: 0, remaining: Option.none(), isDone: false })
      expect(yield* after(1)).toMatchObject({ bytes: 200, rate: 100, remaining: Option.some(Duration.seconds(8)) })
      expect(yield* after(9)).toMatchObject({ bytes: 300, rate: 20, remaining: Option.some(Duration.seconds(35)) })
      // The first sample is more than ten seconds old.
      expect(yield* after(1)).toMatchObject({ bytes: 400, rate: 20, remaining: Option.some(Duration.seconds(30)) })
      yield* TestClock.adjust("60 seconds")
      expect(yield* Effect.flip(Fiber.join(fiber))).toMatchObject({
        _tag: "Unavailable",
        reason: "Timeout",
        detail: "no data for 1m",
      })
    }).pipe(Effect.provide(machine)),
  )
})
