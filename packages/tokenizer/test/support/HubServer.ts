/** A local hub on a free port, and a second server that it redirects to for large files. */
import { Effect } from "effect"
import { createHash } from "node:crypto"
import * as Http from "node:http"
import type * as Net from "node:net"

export interface HubFile {
  readonly contents: string
  /** Whether the file is stored on the second server. */
  readonly large?: boolean
}

export interface Seen {
  readonly server: "hub" | "cdn"
  readonly path: string
  readonly authorization: string | undefined
}

export interface HubServer {
  readonly url: string
  /** Files by `repository/file`; may be changed at any time. */
  readonly files: Map<string, HubFile>
  readonly seen: Array<Seen>
  commit: string
  /** Replacements for the next responses with contents. */
  readonly faults: Array<(response: Http.ServerResponse, contents: Buffer) => void>
  /** Handles a request instead of the hub; returns true if it did. */
  intercept: (request: Http.IncomingMessage, response: Http.ServerResponse) => boolean
}

const sha256 = (contents: string) => createHash("sha256").update(contents).digest("hex")
const sha1 = (contents: string) => createHash("sha1").update(contents).digest("hex")

const listen = (handler: Http.RequestListener) =>
  Effect.acquireRelease(
    Effect.async<{ readonly url: string; readonly server: Http.Server }>((resume) => {
      const server = Http.createServer(handler)
      server.listen(0, "127.0.0.1", () => {
        const { port } = server.address() as Net.AddressInfo
        resume(Effect.succeed({ url: `http://127.0.0.1:${port}`, server }))
      })
    }),
    ({ server }) =>
      Effect.async<void>((resume) => {
        server.close(() => resume(Effect.void))
        server.closeAllConnections()
      }),
  )

export const make = Effect.gen(function* () {
  const state: Omit<HubServer, "url"> = {
    files: new Map(),
    seen: [],
    commit: "a".repeat(40),
    faults: [],
    intercept: () => false,
  }
  const note = (server: Seen["server"], { headers, url = "" }: Http.IncomingMessage) =>
    state.seen.push({ server, path: url, authorization: headers.authorization })
  const give = (response: Http.ServerResponse, contents: Buffer, headers: Record<string, string>) => {
    const fault = state.faults.shift()
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value)
    if (fault !== undefined) return fault(response, contents)
    response.setHeader("content-length", contents.length)
    response.end(contents)
  }

  const cdn = yield* listen((request, response): unknown => {
    note("cdn", request)
    const [path = ""] = (request.url ?? "").slice(1).split("?")
    const file = [...state.files.values()].find(({ contents }) => sha256(contents) === path)
    if (file === undefined) return response.writeHead(404).end()
    return give(response, Buffer.from(file.contents), { etag: '"of-the-cdn"' })
  })

  const hub = yield* listen((request, response): unknown => {
    note("hub", request)
    if (state.intercept(request, response)) return undefined
    const [, repository, file] = /^\/((?:[^/]+\/)?[^/]+)\/resolve\/[^/]+\/(.+)$/.exec(request.url ?? "") ?? []
    response.setHeader("x-repo-commit", state.commit)
    const found = state.files.get(`${repository}/${file}`)
    if (found === undefined) return response.writeHead(404, { "x-error-code": "EntryNotFound" }).end("no such file")
    const { contents, large = false } = found
    const etag = `"${large ? sha256(contents) : sha1(contents)}"`
    if (large) {
      return response
        .writeHead(302, {
          location: `${cdn.url}/${sha256(contents)}?signature=secret-of-the-cdn`,
          "x-linked-etag": etag,
          "x-linked-size": String(Buffer.byteLength(contents)),
        })
        .end()
    }
    if (request.headers["if-none-match"] === etag) return response.writeHead(304, { etag }).end()
    return give(response, Buffer.from(contents), { etag })
  })
  return Object.assign(state, { url: hub.url }) satisfies HubServer as HubServer
})
