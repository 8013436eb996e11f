/** Sends malformed and oversized HTTP on raw sockets: nothing of it may reach the API. */
import { connect } from "node:net"
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Listening from "./support/Listening.ts"

/** Writes bytes and returns all that the server sends until it closes the connection. */
const raw = (port: number, text: string) =>
  Effect.async<string>((resume) => {
    const socket = connect(port, "127.0.0.1", () => socket.write(text, "latin1"))
    let all = ""
    socket.on("data", (part) => (all += String(part)))
    socket.on("error", () => {})
    socket.on("close", () => resume(Effect.succeed(all)))
    return Effect.sync(() => socket.destroy())
  })

/** The statuses of all responses, which follow each other without a line break. */
const statusesOf = (reply: string) => [...reply.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => Number(status))

const sessionsOf = (url: string) =>
  Effect.promise(async () => {
    const { sessions } = (await (await fetch(`${url}/api/v1/sessions`)).json()) as { sessions: ReadonlyArray<string> }
    return sessions
  })

const start = "POST /api/v1/telemetry HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
const session = '{"sdk_version":"1"}'
/** The request that must not be found within the body of another. */
const hidden = `POST /api/v1/create_session HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: ${session.length}\r\n\r\n${session}`

const smuggled: Readonly<Record<string, string>> = {
  "two different lengths": `${start}content-length: 0\r\ncontent-length: ${hidden.length}\r\n\r\n${hidden}`,
  "a list of lengths": `${start}content-length: 0, ${hidden.length}\r\n\r\n${hidden}`,
  "a length and chunks": `${start}content-length: ${hidden.length + 5}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n${hidden}`,
  "chunks and a length": `${start}transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n${hidden}`,
  "chunked that is not last": `${start}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n${hidden}`,
  "an unknown transfer encoding": `${start}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n${hidden}`,
  "a folded header": `${start}x-folded: a\r\n b\r\ncontent-length: 0\r\n\r\n${hidden}`,
  "a folded transfer encoding": `${start}transfer-encoding:\r\n chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n${hidden}`,
  "a space before a colon": `${start}content-length : 0\r\n\r\n${hidden}`,
  "a negative length": `${start}content-length: -1\r\n\r\n${hidden}`,
  "a length with a sign": `${start}content-length: +0\r\n\r\n${hidden}`,
  "a hexadecimal length": `${start}content-length: 0x0\r\n\r\n${hidden}`,
  "a length that overflows": `${start}content-length: 18446744073709551616\r\n\r\n${hidden}`,
  "a chunk size that overflows": `${start}transfer-encoding: chunked\r\n\r\n10000000000000000\r\n${hidden}`,
  "a chunk size with a sign": `${start}transfer-encoding: chunked\r\n\r\n-1\r\n${hidden}`,
  "a zero byte in a header": `${start}x-zero: a\u0000b\r\ncontent-length: 0\r\n\r\n${hidden}`,
  "a bare carriage return": `${start}x-bare: a\rb\r\ncontent-length: 0\r\n\r\n${hidden}`,
  "an unknown protocol": `POST /api/v1/telemetry HTTP/9.9\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n${hidden}`,
}

describe("request smuggling", () => {
  for (const [name, text] of Object.entries(smuggled))
    it.live(`a request with ${name} is refused, the connection closed, and nothing in its body is carried out`, () =>
      Effect.gen(function* () {
        const { port, url } = yield* Listening.make()
        const statuses = statusesOf(yield* raw(port, text))
        expect(statuses.length).toBe(1)
        expect(statuses[0]).toBeGreaterThanOrEqual(400)
        expect(statuses[0]).toBeLessThan(500)
        expect(yield* sessionsOf(url)).toEqual([])
      }).pipe(Effect.scoped),
    )

  it.live("two requests in a row on one connection are both answered", () =>
    Effect.gen(function* () {
      const { port, url } = yield* Listening.make()
      expect(statusesOf(yield* raw(port, `${start}content-length: 2\r\n\r\n{}${hidden}`))).toEqual([200, 200])
      expect((yield* sessionsOf(url)).length).toBe(1)
    }).pipe(Effect.scoped),
  )

  it.live("the body of a refused request does not become a request", () =>
    Effect.gen(function* () {
      const { port, url } = yield* Listening.make()
      const foreign = start.replace("host: localhost", "host: evil.example\r\nconnection: close")
      expect(statusesOf(yield* raw(port, `${foreign}content-length: ${hidden.length}\r\n\r\n${hidden}`))).toEqual([403])
      expect(yield* sessionsOf(url)).toEqual([])
    }).pipe(Effect.scoped),
  )
})

describe("oversized requests", () => {
  const get = (path: string, headers = "") =>
    `GET ${path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n${headers}\r\n`
  const many = (count: number) => Array.from({ length: count }, (_, i) => `h${i}: x\r\n`).join("")

  it.live("oversized headers, paths, queries and bodies are refused with 431, 413 or 404", () =>
    Effect.gen(function* () {
      const { port } = yield* Listening.make()
      for (const [name, text, statuses] of [
        ["a header", get("/api/v1/sessions", `x-large: ${"x".repeat(40_000)}\r\n`), [431]],
        ["many headers", get("/api/v1/sessions", many(8000)), [431]],
        ["a path", get(`/api/v1/${"x".repeat(40_000)}`), [431]],
        ["a path of many parts", get(`/api/v1${"/x".repeat(10_000)}`), [404]],
        ["a query", get(`/api/v1/sessions?a=${"x".repeat(40_000)}`), [431]],
        ["a query of many parts", get(`/api/v1/sessions?${"a&".repeat(10_000)}`), [200]],
        ["an id", get(`/api/v1/sessions/${"x".repeat(20_000)}`), [404]],
        ["a limit", get("/api/v1/sessions?limit=1e308&offset=-1"), [422, 200]],
        ["a body", `${start}content-length: 5000000\r\n\r\n`, [413]],
        [
          "a body of a GET",
          get("/api/v1/sessions", "content-type: application/json\r\ncontent-length: 100000\r\n"),
          [413],
        ],
      ] as const) {
        const [status = 0, ...more] = statusesOf(yield* raw(port, text))
        expect([name, statuses.some((one) => one === status) ? "as expected" : status, more]).toEqual([
          name,
          "as expected",
          [],
        ])
      }
    }).pipe(Effect.scoped),
  )

  it.live("headers behind thousands of others are still checked", () =>
    Effect.gen(function* () {
      const { port } = yield* Listening.make()
      expect(
        statusesOf(yield* raw(port, get("/api/v1/sessions", `${many(2500)}origin: https://evil.example\r\n`))),
      ).toEqual([403])
    }).pipe(Effect.scoped),
  )
})
