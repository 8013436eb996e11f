/** Tests what web pages and clients without a key can do, over real sockets. */
import { request as send } from "node:http"
import { connect, type Socket } from "node:net"
import { describe, expect, it } from "@effect/vitest"
import { NodeTinkerServer, TinkerServer, ModelHost } from "@effect-tinker/server"
import { Effect, Redacted } from "effect"
import * as Listening from "./support/Listening.ts"
import * as StandInModel from "./support/StandInModel.ts"

interface Reply {
  readonly status: number
  readonly headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
  readonly body: string
}

const ask = (
  port: number,
  method: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
  body = "",
): Effect.Effect<Reply> =>
  Effect.async((resume) => {
    const outgoing = send(
      { port, host: "127.0.0.1", method, path: `/api/v1/${path}`, headers, agent: false },
      (answer) => {
        let text = ""
        answer.on("data", (part) => (text += String(part)))
        answer.on("end", () =>
          resume(Effect.succeed({ status: answer.statusCode ?? 0, headers: answer.headers, body: text })),
        )
      },
    )
    outgoing.on("error", (cause) => resume(Effect.die(cause)))
    outgoing.end(body)
  })

const session = '{"sdk_version":"1"}'
const json = { "content-type": "application/json" }
const page = { origin: "https://evil.example" }

describe("web pages", () => {
  it.live(
    "a request for a foreign host gets 403, and one for an address, localhost or an allowed host is answered",
    () =>
      Effect.gen(function* () {
        const { port } = yield* Listening.make({ allowedHosts: ["gpu.lan"] })
        const statusFor = (host: string) =>
          Effect.map(ask(port, "POST", "create_session", { ...json, host }, session), ({ status }) => status)
        for (const host of ["evil.example", `evil.example:${port}`, "127.0.0.1.evil.example", "localhost.evil.example"])
          expect([host, yield* statusFor(host)]).toEqual([host, 403])
        for (const host of [
          "127.0.0.1",
          `localhost:${port}`,
          `[::1]:${port}`,
          "LOCALHOST",
          "gpu.lan:80",
          "192.168.1.7",
        ])
          expect([host, yield* statusFor(host)]).toEqual([host, 200])
      }).pipe(Effect.scoped),
  )

  it.live("a request with an origin gets 403 and no CORS headers, whatever it asks for", () =>
    Effect.gen(function* () {
      const { port } = yield* Listening.make()
      const replies = [
        yield* ask(port, "POST", "create_session", { ...json, ...page }, session),
        yield* ask(port, "GET", "sessions", page),
        yield* ask(port, "POST", "create_session", { ...json, origin: "null" }, session),
        yield* ask(port, "OPTIONS", "create_session", { ...page, "access-control-request-method": "POST" }),
      ]
      for (const { headers, status } of replies)
        expect([status, headers["access-control-allow-origin"]]).toEqual([403, undefined])
      const listed = yield* ask(port, "GET", "sessions")
      expect(JSON.parse(listed.body).sessions).toEqual([])
    }).pipe(Effect.scoped),
  )

  it.live("a body that is not declared as JSON gets 415, so that a browser cannot send it without asking", () =>
    Effect.gen(function* () {
      const { port } = yield* Listening.make()
      for (const headers of [
        { "content-type": "text/plain" },
        { "content-type": "application/x-www-form-urlencoded" },
        { "content-type": "text/plain; a=application/json" },
        {},
      ])
        expect((yield* ask(port, "POST", "create_session", headers, session)).status).toBe(415)
      const charset = { "content-type": "Application/JSON; charset=utf-8" }
      expect((yield* ask(port, "POST", "create_session", charset, session)).status).toBe(200)
    }).pipe(Effect.scoped),
  )

  it.live("pages of an origin in corsOrigins can ask and read, and others cannot", () =>
    Effect.gen(function* () {
      const own = { origin: "http://localhost:3000" }
      const { port } = yield* Listening.make({ corsOrigins: [own.origin] })
      const asked = yield* ask(port, "OPTIONS", "create_session", {
        ...own,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type,x-api-key",
      })
      expect([asked.status, asked.headers["access-control-allow-headers"]]).toEqual([204, "content-type,x-api-key"])
      const done = yield* ask(port, "POST", "create_session", { ...json, ...own }, session)
      expect([done.status, done.headers["access-control-allow-origin"]]).toEqual([200, own.origin])
      expect((yield* ask(port, "POST", "create_session", { ...json, ...page }, session)).status).toBe(403)
    }).pipe(Effect.scoped),
  )

  it.live("a server without keys refuses to listen on an address that other machines can reach", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(Listening.make({ host: "0.0.0.0" }))
      expect(error.message).toContain("set apiKeys")
      yield* Listening.make({ host: "0.0.0.0" }, { apiKeys: [Redacted.make("tml-a")] })
    }).pipe(Effect.scoped),
  )
})

/** Sends a head and then as much of a body as the server takes; returns the response and the number of bytes sent. */
const flood = (port: number, head: string, bytes: number) =>
  Effect.async<{ readonly reply: string; readonly sent: number }>((resume) => {
    let reply = ""
    const socket: Socket = connect(port, "127.0.0.1", () => {
      socket.write(head)
      const chunk = Buffer.alloc(64 * 1024, 0x20)
      const more = () => {
        if (reply === "" && socket.writable && socket.bytesWritten < bytes && socket.write(chunk)) setImmediate(more)
      }
      socket.on("drain", more)
      more()
    })
    socket.on("data", (part) => {
      reply += String(part)
      socket.end()
    })
    socket.on("error", () => {})
    socket.on("close", () => resume(Effect.succeed({ reply, sent: socket.bytesWritten })))
    return Effect.sync(() => socket.destroy())
  })

const headFor = (path: string, length: number, key = "") =>
  `POST /api/v1/${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n${key}content-length: ${length}\r\n\r\n`

describe("clients without a key", () => {
  it.live("a request without a valid key or path is refused although its body never arrives", () =>
    Effect.gen(function* () {
      const { port } = yield* Listening.make({}, { apiKeys: [Redacted.make("tml-a")] })
      for (const [path, status] of [
        ["forward_backward", 401],
        ["nothing", 404],
      ] as const) {
        const { reply } = yield* flood(port, headFor(path, 30_000_000), 0)
        expect(reply).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `))
      }
    }).pipe(Effect.scoped),
  )

  it.live("a refused upload still gets its response after the client has sent megabytes", () =>
    Effect.gen(function* () {
      const { port } = yield* Listening.make({}, { apiKeys: [Redacted.make("tml-a")] })
      const { reply } = yield* flood(port, headFor("forward_backward", 30_000_000), 30_000_000)
      expect(reply).toMatch(/^HTTP\/1\.1 401 /)
    }).pipe(Effect.scoped),
  )

  it.live("a client that expects 100-continue gets 401 instead of a permission to send", () =>
    Effect.gen(function* () {
      const { port } = yield* Listening.make({}, { apiKeys: [Redacted.make("tml-a")] })
      const head = (key: string) => headFor("telemetry", 2, `${key}expect: 100-continue\r\nconnection: close\r\n`)
      expect((yield* flood(port, head(""), 0)).reply).toMatch(/^HTTP\/1\.1 401 /)
      expect((yield* flood(port, head("x-api-key: tml-a\r\n"), 0)).reply).toMatch(/^HTTP\/1\.1 100 /)
    }).pipe(Effect.scoped),
  )
})

describe("budgets", () => {
  it.live("a large body beyond the budget of all bodies gets 429 with Retry-After, and small ones are answered", () =>
    Effect.gen(function* () {
      const { port } = yield* Listening.make({ maxBodiesBytes: 300_000 })
      const large = `{"sdk_version":"1","tags":["${"x".repeat(400_000)}"]}`
      const refused = yield* ask(port, "POST", "create_session", json, large)
      expect([refused.status, refused.headers["retry-after"]]).toEqual([429, "1"])
      expect((yield* ask(port, "POST", "create_session", json, session)).status).toBe(200)
      // A refused body gives its share back.
      const fitting = `{"sdk_version":"1","tags":["${"x".repeat(250_000)}"]}`
      expect((yield* ask(port, "POST", "create_session", json, fitting)).status).toBe(200)
      expect((yield* ask(port, "POST", "create_session", json, fitting)).status).toBe(200)
    }).pipe(Effect.scoped),
  )

  it.live("connections beyond maxConnections are closed at once", () =>
    Effect.gen(function* () {
      const { port } = yield* Listening.make({ maxConnections: 2 })
      const open = Effect.acquireRelease(
        Effect.async<Socket>((resume) => {
          const socket = connect(port, "127.0.0.1", () => resume(Effect.succeed(socket)))
        }),
        (socket) => Effect.sync(() => socket.destroy()),
      )
      const others = [yield* open, yield* open]
      const closed = others.map(() => false)
      for (const [i, socket] of others.entries()) socket.resume().once("end", () => (closed[i] = true))
      const third = yield* open
      yield* Effect.async<void>((resume) => {
        third.on("error", () => {})
        third.resume().once("close", () => resume(Effect.void))
      })
      // The server closes idle connections later than that.
      expect(closed).toEqual([false, false])
    }).pipe(Effect.scoped),
  )
})

describe("TinkerServer.admit", () => {
  it.live("admit decides by the head alone: a large body is refused before it arrives", () =>
    Effect.gen(function* () {
      const server = yield* Effect.provideService(
        TinkerServer.make({ apiKeys: [Redacted.make("tml-a")] }),
        ModelHost.ModelHost,
        ModelHost.inline(StandInModel.make()),
      )
      const head = { method: "POST", path: "/api/v1/create_session", headers: { "x-api-key": "tml-a" } }
      const large = { ...head, headers: { ...head.headers, "content-length": "5000000" } }
      const refused = yield* server.admit(large)
      expect(refused).toMatchObject({ _tag: "Refused", answer: { status: 413 } })
      expect(yield* server.admit(head)).toMatchObject({ _tag: "Admitted", maxBodyBytes: 4 * 2 ** 20 })
      expect(NodeTinkerServer.isLoopback("127.0.0.1")).toBe(true)
    }).pipe(Effect.scoped),
  )
})
