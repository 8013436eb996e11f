/** What the official SDK was recorded to send, sent to our server. */
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
    // Files are on another server in the recordings.
    return exchanges.flatMap(({ request }) =>
      request?.path.includes("/api/v1/") === true ? [{ file: `${folder}/${file}`, request }] : [],
    )
  })

const all = ["vectors", "vectors-0.25.0"].flatMap(requestsOf)

/** Names of the recording, as they are called here. */
const renamed = (text: string, sessionId: string): string =>
  text.replaceAll(/"base_model":"[^"]*"/g, `"base_model":"${baseModel}"`).replaceAll(/sess-\d+|session-\d+/g, sessionId)

describe("recorded requests", () => {
  it.effect("are understood: none is unknown, none breaks the server, none is answered in another shape", () =>
    Effect.gen(function* () {
      const { ask, model, session } = yield* Raw.make()
      const seen = new Map<number, number>()
      const wrong: Array<string> = []
      let last = ""
      let sessionId = ""
      for (const { file, request } of all) {
        // Another session for each recording, with the model that it speaks of, unless it makes it.
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
        const told = yield* ask(
          request.method,
          `${renamed(request.path, sessionId)}${query === "" ? "" : `?${query}`}`,
          body,
          Object.fromEntries(
            Object.entries(request.headers).filter(([name]) => /^(accept|content-|x-tinker|x-idem)/.test(name)),
          ),
        )
        seen.set(told.status, (seen.get(told.status) ?? 0) + 1)
        const words = JSON.stringify(told.body)
        // What the recording names is not there (404) or not for this small model (400): both are told with their names.
        const fine =
          told.status < 300 ||
          (told.status === 302 && told.headers["location"] !== undefined) ||
          (told.status === 404 && words !== '{"detail":"Not Found"}') ||
          (told.status === 400 && /"detail":"[\w.[\]]+: /.test(words)) ||
          (told.status === 403 && request.path.endsWith("apikey/me")) ||
          (told.status === 415 && file.includes("zstd"))
        if (!fine) wrong.push(`${file} ${request.method} ${request.path}: ${told.status} ${words}`)
      }
      expect(wrong).toEqual([])
      expect(all.length).toBeGreaterThan(300)
      expect(seen.get(200) ?? 0).toBeGreaterThan(120)
    }).pipe(Effect.scoped, VirtualTime.run),
  )
})
