import { readdirSync } from "node:fs"
import { describe, expect, it } from "@effect/vitest"
import { Schema } from "effect"
import * as Futures from "effect-tinker/protocol/schemas/Futures"
import { type Exchange, exchanges, results, table, wire } from "./wire.ts"

/**
 * All recorded JSON, from the server's side: an endpoint decodes each request and encodes it back unchanged, and
 * decodes each response. `Replay.test.ts` starts from a program's input.
 */
const files = ["vectors", "vectors-0.25.0"].flatMap((folder) =>
  readdirSync(new URL(folder, wire)).map((name) => `${folder}/${name}`),
)

const isJson = ({ request }: Exchange) => request.bodyBase64 === undefined && request.path.includes("/api/v1/")

/** The endpoints for this method and path, the most specific path first. */
const rows = ({ request }: Exchange) => {
  const path = request.path.slice(request.path.indexOf("/api/v1/") + 8)
  return table
    .filter(([, endpoint]) => {
      const pattern = endpoint.path.replace(/:\w+\*/g, ".+").replace(/:\w+/g, "[^/]+")
      return endpoint.method === request.method && new RegExp(`^${pattern}$`).test(path)
    })
    .toSorted(([, a], [, b]) => b.path.length - a.path.length)
}

describe("recorded exchanges", () => {
  const all = files.flatMap((file) =>
    exchanges(file)
      .filter(isJson)
      .map((exchange) => ({ file, exchange })),
  )

  it("there are more than 200 recorded exchanges", () => expect(all.length).toBeGreaterThan(200))

  it("every recorded exchange belongs to an endpoint", () => {
    const missing = all.filter(({ exchange }) => rows(exchange).length === 0)
    expect(missing.map(({ exchange, file }) => `${file}: ${exchange.request.method} ${exchange.request.path}`)).toEqual(
      [],
    )
  })

  it.each(all.map(({ exchange, file }) => [`${file}: ${exchange.request.path}`, exchange] as const))(
    "%s is decoded and encoded unchanged",
    (name, exchange) => {
      const candidates = rows(exchange).flatMap(([, { body }]) => (body.kind === "json" ? [body.schema] : []))
      const recorded = exchange.request.body
      // The times and ids of recorded telemetry are placeholders.
      if (recorded !== null && recorded !== undefined && !name.includes("/telemetry")) {
        const written = candidates.flatMap((schema) => {
          const read = Schema.decodeUnknownEither(schema)(recorded)
          return read._tag === "Right" ? [JSON.parse(JSON.stringify(Schema.encodeSync(schema)(read.right)))] : []
        })
        // A 0.25 request is encoded with the fields that were added later.
        if (name.startsWith("vectors-0.25.0")) expect(written[0]).toMatchObject(recorded)
        else expect(written).toContainEqual(recorded)
      }

      const { body, status } = exchange.response
      const [row] = rows(exchange)
      if (row?.[1].response.kind === "json" && status === 200) {
        Schema.decodeUnknownSync(row[1].response.schema)(body)
      }
      const result = results[exchange.request.headers["x-tinker-request-type"] ?? ""]
      if (result !== undefined) Schema.decodeUnknownSync(status === 408 ? Futures.TryAgain : result)(body)
    },
  )
})
