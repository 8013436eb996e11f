/** Answers HTTP requests on loopback as a recording does, and keeps the requests in the form of the recording. */
import { readFileSync } from "node:fs"
import { createServer, type IncomingMessage } from "node:http"
import type { AddressInfo } from "node:net"
import { Effect, type Scope } from "effect"
import * as Loopback from "./Loopback.ts"
import { now } from "./Command.ts"

interface Message {
  readonly method: string
  readonly path: string
  readonly query: ReadonlyArray<readonly [string, string]>
  readonly headers: Readonly<Record<string, string | undefined>>
  readonly body: unknown
}

interface Answer {
  readonly status: number
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: unknown
  readonly bodyBase64?: string
}

export interface Recording {
  readonly call: { readonly argv: ReadonlyArray<string> }
  readonly exchanges: ReadonlyArray<{ readonly request: Message; readonly response: Answer }>
  readonly result: {
    readonly exitCode: number
    readonly stdout: string
    readonly stderr: string
    readonly credentialsFile?: unknown
    readonly credentialsFileMode?: string
  }
}

export const read = (file: string): Recording => {
  const recording = JSON.parse(readFileSync(new URL(`../../../../test/wire/${file}`, import.meta.url), "utf8"))
  return { ...recording, exchanges: recording.exchanges ?? [] }
}

const segment = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url")

/** A token whose claims are those behind the recorded identity. */
const token = [
  segment({ alg: "none" }),
  segment({
    sub: "tml:organization_user:u1",
    org_id: "org-1",
    email: "u@example.invalid",
    exp: now / 1000 + 3600,
  }),
  "signature",
].join(".")

const textOf = async (request: IncomingMessage): Promise<string> => {
  const parts: Array<Buffer> = []
  for await (const part of request) parts.push(part as Buffer)
  return Buffer.concat(parts).toString("utf8")
}

/** Requests that the two clients make at different times, or not at all. */
const isStartup = ({ path }: Message): boolean => /\/(client\/\w+|auth\/token|session_heartbeat)$/.test(path)

/** The compared parts: not our own name and version, nor how the connection is used. */
const compared = ({ body, headers, method, path, query }: Message) => ({
  method,
  path,
  query: query.map((pair) => [...pair]),
  body,
  sdkMethod: headers["x-sdk-method"],
  hasKey: headers["x-api-key"] !== undefined,
})

export const requestsOf = ({ exchanges }: Recording) =>
  exchanges
    .map(({ request }) => request)
    .filter((request) => !isStartup(request))
    .map(compared)

export interface Server {
  readonly url: string
  readonly port: number
  readonly requests: () => ReadonlyArray<ReturnType<typeof compared>>
  /** Every header that was sent with a request for a file. */
  readonly keys: () => ReadonlyArray<string | undefined>
}

/** Serves the answers of a recording, those of one path in their order. */
export const serve = ({ exchanges }: Recording): Effect.Effect<Server, never, Scope.Scope> =>
  Effect.gen(function* () {
    const seen: Array<Message> = []
    const answers = new Map<string, Array<Answer>>()
    for (const { request, response } of exchanges) {
      const key = `${request.method} ${request.path}`
      answers.set(key, [...(answers.get(key) ?? []), response])
    }
    const server = createServer((request, response) => {
      void textOf(request).then((text) => {
        const url = new URL(request.url ?? "", "http://127.0.0.1")
        const { port } = server.address() as AddressInfo
        seen.push({
          method: request.method ?? "",
          path: url.pathname,
          query: [...url.searchParams],
          headers: request.headers as Record<string, string | undefined>,
          body: text === "" ? null : JSON.parse(text),
        })
        const answer = answers.get(`${request.method} ${url.pathname}`)?.shift()
        const { body, bodyBase64, headers, status } = answer ?? { status: 200, body: {} }
        const content =
          bodyBase64 === undefined
            ? JSON.stringify(body).replaceAll("127.0.0.1:PORT", `127.0.0.1:${port}`).replaceAll("<JWT>", token)
            : Buffer.from(bodyBase64, "base64")
        response.writeHead(status, { "content-type": "application/json", ...headers })
        response.end(content)
      })
    })
    const port = yield* Loopback.listen(server)
    return {
      url: `http://127.0.0.1:${port}`,
      port,
      requests: () => seen.filter((request) => !isStartup(request)).map(compared),
      keys: () => seen.map(({ headers }) => headers["x-api-key"]),
    }
  })
