/** Sends requests through a CONNECT proxy on real sockets, to a server with TLS. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import * as Http from "node:http"
import * as Https from "node:https"
import * as Net from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Tls from "node:tls"
import { NodeContext } from "@effect/platform-node"
import { NodeTinker, UndiciHttpClient } from "@effect-tinker/node"
import { describe, expect, it } from "@effect/vitest"
import { Cause, Chunk, ConfigProvider, Effect, Exit, Layer, Logger, Option, Redacted, Schedule } from "effect"
import { Download } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import type * as Proxy from "effect-tinker/http/Proxy"
import * as Transport from "effect-tinker/Transport"

const pem = (name: string) => readFileSync(new URL(`support/tls/${name}.pem`, import.meta.url))
const tls = { key: pem("key"), cert: pem("cert") }
const connect = { ca: pem("cert") } as object

const listening = <S extends Net.Server>(server: S, close: () => void = () => {}) =>
  Effect.acquireRelease(
    Effect.async<{ readonly server: S; readonly port: number }>((resume) => {
      server.listen(0, "127.0.0.1", () =>
        resume(Effect.succeed({ server, port: (server.address() as Net.AddressInfo).port })),
      )
    }),
    () =>
      Effect.async<void>((resume) => {
        server.close(() => resume(Effect.void))
        close()
      }),
  )

const respond: Http.RequestListener = (request, response) => {
  request.resume()
  request.on("end", () => response.end(request.url?.endsWith("/file") ? "contents" : "{}"))
}

const serve = (kind: "http" | "https") =>
  Effect.suspend(() => {
    const requests: Array<Http.IncomingHttpHeaders> = []
    const listener: Http.RequestListener = (request, response) => {
      requests.push(request.headers)
      respond(request, response)
    }
    const server = kind === "https" ? Https.createServer(tls, listener) : Http.createServer(listener)
    return Effect.map(
      listening(server, () => server.closeAllConnections()),
      ({ port }) => ({ url: `${kind}://127.0.0.1:${port}`, authority: `127.0.0.1:${port}`, requests }),
    )
  })

interface ProxyOptions {
  readonly secure?: boolean
  /** Answers `CONNECT` with these bytes instead of opening a tunnel; with undefined, not at all. */
  readonly answer?: string | undefined
}

/** A proxy that opens tunnels, and records the heads of the requests and everything else that it sees. */
const proxy = (options: ProxyOptions = {}) =>
  Effect.suspend(() => {
    const heads: Array<string> = []
    const sockets = new Set<Net.Socket>()
    let seen = ""
    const onSocket = (socket: Net.Socket) => {
      sockets.add(socket)
      let head = ""
      socket.on("error", () => {})
      const onData = (chunk: Buffer) => {
        head += chunk.toString("latin1")
        if (!head.includes("\r\n\r\n")) return
        socket.off("data", onData)
        heads.push(head)
        if ("answer" in options) {
          if (options.answer !== undefined) socket.end(options.answer)
          return
        }
        const [, host, port] = /^CONNECT (.*):(\d+) HTTP\/1\.1\r\n/.exec(head) ?? []
        const server = Net.connect(Number(port), host, () => {
          socket.write("HTTP/1.1 200 Connection established\r\nvia: test\r\n\r\n")
          socket.on("data", (bytes: Buffer) => (seen += bytes.toString("latin1")))
          socket.pipe(server)
          server.pipe(socket)
        })
        sockets.add(server)
        server.on("error", () => socket.destroy())
      }
      socket.on("data", onData)
    }
    const server = options.secure === true ? Tls.createServer(tls, onSocket) : Net.createServer(onSocket)
    return Effect.map(
      listening(server, () => sockets.forEach((socket) => socket.destroy())),
      ({ port }) => ({
        url: Redacted.make(`${options.secure === true ? "https" : "http"}://user:p%40ss@127.0.0.1:${port}`),
        heads,
        seen: () => seen,
      }),
    )
  })

const through = (url: Redacted.Redacted<string>): Proxy.Proxies => ({
  https: Option.some(url),
  http: Option.some(url),
  except: [],
})

const quiet = Effect.provide(Logger.remove(Logger.defaultLogger))

const fetched = (options: UndiciHttpClient.Options, url: string) =>
  Effect.flatMap(UndiciHttpClient.make({ connect, ...options }), (client) =>
    Effect.flatMap(client.get(url), (response) => response.text),
  )

const inspected = (error: unknown): string => `${String(error)} ${JSON.stringify(error)}`

describe("proxies", () => {
  for (const secure of [false, true])
    it.scopedLive(`a request goes through the tunnel of ${secure ? "an https" : "an http"} proxy`, () =>
      Effect.gen(function* () {
        const server = yield* serve("https")
        const between = yield* proxy({ secure })
        expect(yield* fetched({ proxies: through(between.url) }, `${server.url}/file`)).toBe("contents")
        expect(between.heads).toEqual([
          `CONNECT ${server.authority} HTTP/1.1\r\nhost: ${server.authority}\r\nproxy-authorization: Basic ${Buffer.from("user:p@ss").toString("base64")}\r\n\r\n`,
        ])
        expect(server.requests).toHaveLength(1)
        expect(server.requests[0]).not.toHaveProperty("proxy-authorization")
        expect(between.seen()).not.toBe("")
      }),
    )

  it.scopedLive("a request to an http server goes through a tunnel, too", () =>
    Effect.gen(function* () {
      const server = yield* serve("http")
      const between = yield* proxy()
      expect(yield* fetched({ proxies: through(between.url) }, `${server.url}/file`)).toBe("contents")
      expect(between.heads).toHaveLength(1)
    }),
  )

  it.scopedLive("requests of all purposes go through the proxy, which sees no key; excepted servers do not", () =>
    Effect.gen(function* () {
      const server = yield* serve("https")
      const between = yield* proxy()
      const calls = Effect.gen(function* () {
        const { call } = yield* Transport.Transport
        yield* call(Api.getServerCapabilities, {}).pipe(Effect.ignore)
        yield* call(Api.createSession, { tags: [], userMetadata: {}, sdkVersion: "1" } as never).pipe(Effect.ignore)
      })
      const run = (except: ReadonlyArray<string>) =>
        calls.pipe(
          Effect.provide(
            NodeTinker.layer(
              {
                baseUrl: server.url,
                apiKey: Redacted.make("tml-very-secret"),
                proxy: { https: between.url, except },
                retryPolicy: Schedule.recurs(0),
              },
              { http: { connect } },
            ),
          ),
          quiet,
        )
      yield* run([])
      expect(server.requests.length).toBeGreaterThan(1)
      expect(server.requests.every((headers) => headers["x-api-key"] === "tml-very-secret")).toBe(true)
      expect(between.heads.length).toBeGreaterThan(0)
      expect(between.heads.join() + between.seen()).not.toContain("tml-very-secret")
      const before = between.heads.length
      yield* run([server.authority])
      expect(between.heads.length).toBe(before)
    }),
  )

  it.scopedLive("layerConfig uses the proxy of the environment, but not for the machine itself", () =>
    Effect.gen(function* () {
      const server = yield* serve("https")
      const between = yield* proxy()
      const run = (baseUrl: string) =>
        Effect.flatMap(Transport.Transport, ({ call }) => call(Api.getServerCapabilities, {})).pipe(
          Effect.ignore,
          Effect.provide(
            NodeTinker.layerConfig(
              { baseUrl, retryPolicy: Schedule.recurs(0) },
              { http: { connect: { ...connect, servername: "localhost" } as object } },
            ),
          ),
          Effect.withConfigProvider(
            ConfigProvider.fromMap(
              new Map([
                ["TINKER_API_KEY", "tml-very-secret"],
                ["https_proxy", Redacted.value(between.url)],
              ]),
            ),
          ),
          quiet,
        )
      yield* run(server.url)
      expect(between.heads).toEqual([])
      expect(server.requests.length).toBeGreaterThan(0)
      const before = server.requests.length
      // The same address under a name that is not excepted: only the proxy of the test would have to resolve it.
      yield* run(server.url.replace("127.0.0.1", "127.0.0.2"))
      expect(between.heads.length).toBeGreaterThan(0)
      expect(server.requests.length).toBe(before)
    }),
  )

  it.scopedLive("a download goes through the proxy", () =>
    Effect.gen(function* () {
      const server = yield* serve("https")
      const between = yield* proxy()
      const directory = yield* Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), "tinker-proxy-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true })),
      )
      const target = join(directory, "file")
      yield* Download.toFile(`${server.url}/file`, target).pipe(
        Effect.provide(
          Layer.merge(NodeContext.layer, UndiciHttpClient.layer({ connect, proxies: through(between.url) })),
        ),
      )
      expect(readFileSync(target, "utf8")).toBe("contents")
      expect(between.heads.length).toBeGreaterThan(0)
    }),
  )

  it.scopedLive("a tunnel is reused for the next request", () =>
    Effect.gen(function* () {
      const server = yield* serve("https")
      const between = yield* proxy()
      const client = yield* UndiciHttpClient.make({
        connect,
        proxies: through(between.url),
        connections: { rest: 1 },
      })
      for (let i = 0; i < 5; i++) yield* Effect.flatMap(client.get(`${server.url}/file`), (response) => response.text)
      expect(between.heads).toHaveLength(1)
    }),
  )

  const failures: ReadonlyArray<readonly [name: string, answer: string | undefined, problem: string]> = [
    ["refuses", "HTTP/1.1 403 Forbidden\r\n\r\nno", "it responded with 403"],
    ["refuses the password", "HTTP/1.1 407 Auth\r\n\r\n", "it refused the user name and password (407)"],
    ["hangs up", "", "it closed the connection"],
    ["does not speak HTTP", "SSH-2.0-x\r\n\r\n", "its response is not HTTP"],
    ["sends too much", "x".repeat(20_000), "its response is too long"],
    ["is silent", undefined, "no response within 500 ms"],
  ]
  for (const [name, answer, problem] of failures)
    it.scopedLive(`a proxy that ${name} is a request that was not sent, without the password in the error`, () =>
      Effect.gen(function* () {
        const server = yield* serve("https")
        const between = yield* proxy({ answer })
        const logs: Array<string> = []
        const logger = Logger.make(({ message }) => void logs.push(String(message)))
        const exit = yield* Effect.flatMap(Transport.Transport, ({ call }) => call(Api.getServerCapabilities, {})).pipe(
          Effect.provide(
            Layer.provideMerge(
              NodeTinker.layer(
                {
                  baseUrl: server.url,
                  apiKey: Redacted.make("tml-very-secret"),
                  proxy: { https: between.url },
                  retryPolicy: Schedule.recurs(0),
                },
                { http: { connect, connectTimeout: answer === undefined ? 500 : "10 seconds" } },
              ),
              Logger.replace(Logger.defaultLogger, logger),
            ),
          ),
          Effect.exit,
        )
        const [error] = Exit.isFailure(exit) ? Chunk.toReadonlyArray(Cause.failures(exit.cause)) : []
        expect(error).toMatchObject({ _tag: "Unavailable", reason: "Connect" })
        expect(String(error)).toContain(`opened no tunnel to ${server.authority}: ${problem}`)
        const text = [
          String(error),
          JSON.stringify(error),
          Exit.isFailure(exit) ? Cause.pretty(exit.cause) : "",
          ...logs,
        ]
        for (const secret of ["p@ss", "p%40ss", Buffer.from("user:p@ss").toString("base64"), "tml-very-secret"])
          expect(text.join("\n")).not.toContain(secret)
        expect(server.requests).toEqual([])
      }),
    )

  it.scopedLive("a proxy that cannot be reached is a request that was not sent", () =>
    Effect.gen(function* () {
      const server = yield* serve("https")
      const closed = yield* Effect.scoped(proxy())
      const error = yield* Effect.flip(fetched({ proxies: through(closed.url) }, server.url))
      expect(String((error as { readonly cause?: unknown }).cause)).toContain("ECONNREFUSED")
      expect(inspected(error)).not.toContain("p%40ss")
    }),
  )

  it.scopedLive("a certificate is checked inside the tunnel", () =>
    Effect.gen(function* () {
      const server = yield* serve("https")
      const between = yield* proxy()
      const error = yield* Effect.flip(fetched({ connect: {} as object, proxies: through(between.url) }, server.url))
      expect(String((error as { readonly cause?: unknown }).cause)).toMatch(/self.signed/)
      expect(server.requests).toEqual([])
    }),
  )
})
