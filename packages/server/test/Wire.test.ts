/** Sends recorded requests of the official SDK to our server. */
import { readdirSync, readFileSync } from "node:fs"
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import * as Raw from "./support/Raw.ts"
import { name as baseModel } from "./support/StandInModel.ts"

const wire = new URL("../../../test/wire/", import.meta.url)

interface Recorded {
  readonly method: string
  readonly path: string
  readonly query: ReadonlyArray<readonly [string, string]>
  readonly headers: Readonly<Record<string, string>>
  readonly body?: unknown
  readonly bodyBase64?: string
}

const requestsOf = (folder: string) =>
  readdirSync(new URL(folder, wire)).flatMap((file) => {
    const vector = JSON.parse(readFileSync(new URL(`${folder}/${file}`, wire), "utf8"))
    const exchanges: ReadonlyArray<{ readonly request: Recorded | null }> = vector.exchanges ?? [vector]
    // The recordings download files from a different server.
    return exchanges.flatMap(({ request }) =>
      request?.path.includes("/api/v1/") === true ? [{ file: `${folder}/${file}`, request }] : [],
    )
  })

const all = ["vectors", "vectors-0.25.0"].flatMap(requestsOf)

/** Replaces the model and session names of a recording. */
const renamed = (text: string, sessionId: string): string =>
  text.replaceAll(/"base_model":"[^"]*"/g, `"base_model":"${baseModel}"`).replaceAll(/sess-\d+|session-\d+/g, sessionId)

describe("recorded requests", () => {
  it.effect("TinkerServer understands every recorded request", () =>
    Effect.gen(function* () {
      const { ask, model, session } = yield* Raw.make()
      const seen = new Map<number, number>()
      const wrong: Array<string> = []
      let last = ""
      let sessionId = ""
      for (const { file, request } of all) {
        // Each recording gets a new session, with a model unless the recording creates one.
        if (file !== last) {
          last = file
          sessionId = yield* session
          const makes = all.some(({ file, request }) => file === last && /create_model|load_weights/.test(request.path))
          if (!makes) yield* model(sessionId)
        }
        const query = new URLSearchParams(request.query.map(([name, value]) => [name, value])).toString()
        const body =
          request.bodyBase64 !== undefined
            ? Uint8Array.from(Buffer.from(request.bodyBase64, "base64"))
            : request.body === null || request.body === undefined
              ? undefined
              : renamed(JSON.stringify(request.body), sessionId)
        const reply = yield* ask(
          request.method,
          `${renamed(request.path, sessionId)}${query === "" ? "" : `?${query}`}`,
          body,
          Object.fromEntries(
            Object.entries(request.headers).filter(([name]) => /^(accept|content-|x-tinker|x-idem)/.test(name)),
          ),
        )
        seen.set(reply.status, (seen.get(reply.status) ?? 0) + 1)
        const words = JSON.stringify(reply.body)
        // Names from the recording may not exist (404) or not fit this small model (400); the response names them in
        // both cases.
        const fine =
          reply.status < 300 ||
          (reply.status === 302 && reply.headers["location"] !== undefined) ||
          (reply.status === 404 && words !== '{"detail":"Not Found"}') ||
          (reply.status === 400 && /"detail":"[\w.[\]]+: /.test(words)) ||
          (reply.status === 403 && request.path.endsWith("apikey/me")) ||
          (reply.status === 415 && file.includes("zstd"))
        if (!fine) wrong.push(`${file} ${request.method} ${request.path}: ${reply.status} ${words}`)
      }
      expect(wrong).toEqual([])
      expect(all.length).toBeGreaterThan(300)
      expect(seen.get(200) ?? 0).toBeGreaterThan(120)
    }).pipe(Effect.scoped, VirtualTime.run),
  )
})
