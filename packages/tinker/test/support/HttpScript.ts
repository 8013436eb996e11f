/** A scripted `HttpClient`: the n-th reply of a path answers its n-th request, and every request is recorded. */
import { HttpClient, HttpClientError, HttpClientResponse } from "@effect/platform"
import { Clock, Context, Effect, Layer } from "effect"
import * as HttpFailure from "effect-tinker/http/HttpFailure"
import * as HttpPurpose from "effect-tinker/http/HttpPurpose"

export interface Reply {
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  /** A string or bytes are sent unchanged, anything else as JSON. */
  readonly body?: unknown
  /** Delays the answer by this long. */
  readonly delaySeconds?: number
  /** `before`: nothing was sent; `after`: the request was on its way. */
  readonly drop?: "before" | "after"
  /** Answers every further request too. */
  readonly forever?: boolean
}

export interface Seen {
  /** Milliseconds since the first request. */
  readonly at: number
  readonly method: string
  readonly url: string
  /** Without the query. */
  readonly path: string
  readonly query: ReadonlyArray<readonly [string, string]>
  readonly headers: Readonly<Record<string, string | undefined>>
  readonly purpose: string
  readonly body: string
  readonly bytes: Uint8Array
}

export interface Script {
  /** Every request, in order. */
  readonly seen: ReadonlyArray<Seen>
  readonly to: (path: string) => ReadonlyArray<Seen>
}

export class HttpScript extends Context.Tag("test/HttpScript")<HttpScript, Script>() {}

const bytesOf = (body: unknown): Uint8Array<ArrayBuffer> =>
  body === undefined || body === null
    ? new Uint8Array()
    : body instanceof Uint8Array
      ? Uint8Array.from(body)
      : new TextEncoder().encode(typeof body === "string" ? body : JSON.stringify(body))

/** Replies by the end of the path, e.g. `client/config`. A request with no reply left is a defect. */
export const layer = (
  replies: Readonly<Record<string, ReadonlyArray<Reply>>>,
): Layer.Layer<HttpClient.HttpClient | HttpScript> =>
  Layer.effectContext(
    Effect.sync(() => {
      const left = new Map(Object.entries(replies).map(([path, list]) => [path, [...list]]))
      const seen: Array<Seen> = []
      let start: number | undefined
      const client = HttpClient.make((request, url, _signal) =>
        Effect.gen(function* () {
          const now = yield* Clock.currentTimeMillis
          start ??= now
          const bytes = request.body._tag === "Uint8Array" ? request.body.body : new Uint8Array()
          seen.push({
            at: now - start,
            method: request.method,
            url: url.href,
            path: url.pathname,
            query: [...url.searchParams],
            headers: request.headers,
            purpose: yield* HttpPurpose.HttpPurpose,
            body: new TextDecoder().decode(bytes),
            bytes,
          })
          const [path] = [...left.keys()].filter((path) => url.pathname.endsWith(`/${path}`))
          const list = path === undefined ? undefined : left.get(path)
          const reply = list?.[0]?.forever === true ? list[0] : list?.shift()
          if (reply === undefined)
            return yield* Effect.dieMessage(`no reply left for ${request.method} ${url.pathname}`)
          if (reply.delaySeconds !== undefined) yield* Effect.sleep(`${reply.delaySeconds} seconds`)
          if (reply.drop !== undefined) {
            const cause =
              reply.drop === "before"
                ? new HttpFailure.NotSent({ cause: new Error("refused") })
                : new HttpFailure.Disconnected({ cause: new Error("reset") })
            return yield* new HttpClientError.RequestError({ request, reason: "Transport", cause })
          }
          const isText = typeof reply.body === "string" || reply.body instanceof Uint8Array || reply.body === undefined
          const headers = { ...(isText ? {} : { "content-type": "application/json" }), ...reply.headers }
          const response = new Response(reply.status === 204 ? null : bytesOf(reply.body), {
            status: reply.status ?? 200,
            headers,
          })
          return HttpClientResponse.fromWeb(request, response)
        }),
      )
      const script: Script = { seen, to: (path) => seen.filter((request) => request.path.endsWith(`/${path}`)) }
      return Context.make(HttpClient.HttpClient, client).pipe(Context.add(HttpScript, script))
    }),
  )
