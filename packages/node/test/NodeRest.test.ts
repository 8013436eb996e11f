/**
 * Tests the management clients over real sockets: redirects that are not followed, slashes in paths, partly read lists.
 */
import * as Http from "node:http"
import type { AddressInfo } from "node:net"
import { FetchHttpClient } from "@effect/platform"
import { describe, expect, it } from "@effect/vitest"
import { NodeTinker } from "@effect-tinker/node"
import { Chunk, Effect, Layer, Redacted, Stream } from "effect"
import { RateLimiter, RestClient, Tinker, TinkerConfig } from "effect-tinker"

const checkpoint = (i: number) => ({
  checkpoint_id: `weights/${i}`,
  checkpoint_type: "training",
  time: "2026-01-02T03:04:05Z",
  tinker_path: `tinker://run/weights/${i}`,
})

/** Starts a server with 1000 checkpoints that can be deleted, and an archive on another server. */
const serve = Effect.acquireRelease(
  Effect.async<{ readonly url: string; readonly seen: Array<string>; readonly server: Http.Server }>((resume) => {
    const seen: Array<string> = []
    let left = Array.from({ length: 1000 }, (_, i) => checkpoint(i))
    const answer = (method: string, url: URL): unknown => {
      if (url.pathname.endsWith("/client/config")) return {}
      seen.push(`${method} ${url.pathname}${url.search}`)
      if (method === "DELETE") {
        left = left.filter(({ checkpoint_id }) => !url.pathname.endsWith(`/checkpoints/${checkpoint_id}`))
        return {}
      }
      const offset = Number(url.searchParams.get("offset"))
      const limit = Number(url.searchParams.get("limit"))
      return {
        checkpoints: left.slice(offset, offset + limit),
        cursor: { offset, limit, total_count: left.length },
      }
    }
    const server = Http.createServer((request, response) => {
      request.resume()
      request.on("end", () => {
        const url = new URL(request.url ?? "", "http://server")
        const body = JSON.stringify(answer(request.method ?? "", url))
        return url.pathname.endsWith("/archive")
          ? response.writeHead(302, { location: "/never-asked?sig=1" }).end()
          : response.writeHead(200, { "content-type": "application/json" }).end(body)
      })
    })
    server.listen(0, "127.0.0.1", () =>
      resume(Effect.succeed({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen, server })),
    )
  }),
  ({ server }) =>
    Effect.async<void>((resume) => {
      server.close(() => resume(Effect.void))
      server.closeAllConnections()
    }),
)

const values = (baseUrl: string): TinkerConfig.Values => ({ baseUrl, apiKey: Redacted.make("tml-secret-key") })

const clients: Readonly<Record<string, (baseUrl: string) => Layer.Layer<RestClient.RestClient>>> = {
  undici: (baseUrl) => Layer.orDie(NodeTinker.layer(values(baseUrl))),
  fetch: (baseUrl) =>
    Tinker.layer().pipe(
      Layer.provide(Layer.mergeAll(TinkerConfig.layer(values(baseUrl)), RateLimiter.layer, FetchHttpClient.layer)),
      Layer.orDie,
    ),
}

describe.each(Object.entries(clients))("RestClient on %s", (_, client) => {
  const path = "tinker://run/weights/7"

  it.scopedLive("getCheckpointArchiveUrl returns the redirect target without requesting it", () =>
    Effect.gen(function* () {
      const { seen, url } = yield* serve
      const archive = yield* Effect.flatMap(RestClient.RestClient, (rest) => rest.getCheckpointArchiveUrl(path)).pipe(
        Effect.provide(client(url)),
      )
      expect(archive.url).toBe(`${url}/never-asked?sig=1`)
      expect(seen).toEqual(["GET /api/v1/training_runs/run/checkpoints/weights/7/archive"])
    }),
  )

  it.scopedLive("a checkpoint stream requests no further pages when the consumer stops", () =>
    Effect.gen(function* () {
      const { seen, url } = yield* serve
      const names = yield* Effect.gen(function* () {
        const { stream } = yield* RestClient.RestClient
        return yield* Stream.runCollect(Stream.take(stream.listUserCheckpoints({ pageSize: 10 }), 20))
      }).pipe(Effect.provide(client(url)))
      expect(
        Chunk.toReadonlyArray(names)
          .map(({ checkpointId }) => checkpointId)
          .at(-1),
      ).toBe("weights/19")
      expect(seen).toEqual([0, 10].map((offset) => `GET /api/v1/checkpoints?limit=10&offset=${offset}`))
    }),
  )

  it.scopedLive("checkpoints can be deleted while they are being listed", () =>
    Effect.gen(function* () {
      const { url } = yield* serve
      const left = yield* Effect.gen(function* () {
        const rest = yield* RestClient.RestClient
        yield* rest.stream.listUserCheckpoints({ pageSize: 100 }).pipe(
          Stream.filter(({ checkpointId }) => checkpointId.endsWith("3")),
          Stream.mapEffect(({ tinkerPath }) => rest.deleteCheckpointByPath(tinkerPath), { concurrency: 8 }),
          Stream.runDrain,
        )
        return yield* Stream.runCollect(rest.stream.listUserCheckpoints())
      }).pipe(Effect.provide(client(url)))
      expect(Chunk.size(left)).toBe(900)
      expect(Chunk.toReadonlyArray(left).filter(({ checkpointId }) => checkpointId.endsWith("3"))).toEqual([])
    }),
  )
})
