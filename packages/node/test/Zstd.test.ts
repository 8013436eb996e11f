import { readFileSync } from "node:fs"
import { HttpClient, HttpClientResponse } from "@effect/platform"
import { describe, expect, it } from "@effect/vitest"
import { NodeHost } from "@effect-tinker/node"
import { Zstd } from "@hpcc-js/wasm-zstd"
import { Effect, FastCheck as fc, Layer, Option, Redacted } from "effect"
import { Loss, RateLimiter, ServiceClient, TinkerConfig } from "effect-tinker"
import type * as Host from "effect-tinker/http/Host"
import * as Transport from "effect-tinker/Transport"
import { afterEach, vi } from "vitest"

const load = Effect.promise(() => Zstd.load())

/** Loads the module again with mocked dependencies, as on another machine. */
const elsewhere = (modules: Readonly<Record<string, () => object | Promise<object>>>): Effect.Effect<Host.Service> =>
  Effect.flatten(
    Effect.promise(async () => {
      vi.resetModules()
      for (const [name, factory] of Object.entries(modules)) vi.doMock(name, factory)
      return (await import("@effect-tinker/node/NodeHost")).make
    }),
  )

const withoutOwn = {
  "node:zlib": async () => ({ ...(await vi.importActual("node:zlib")), zstdCompressSync: undefined }),
}

afterEach(() => {
  vi.doUnmock("node:zlib")
  vi.doUnmock("@hpcc-js/wasm-zstd")
  vi.resetModules()
})

// Sequential: mocks apply to the whole file.
describe.sequential("NodeHost.zstd", () => {
  it.effect("zstd output can be decompressed by another implementation", () =>
    Effect.gen(function* () {
      const zstd = yield* load
      for (const host of [yield* NodeHost.make, yield* elsewhere(withoutOwn)]) {
        const compress = yield* Effect.flatten(host.zstd)
        for (const bytes of fc.sample(fc.uint8Array({ minLength: 1, maxLength: 300 }), 100)) {
          expect(zstd.decompress(yield* compress(bytes))).toEqual(bytes)
        }
        const zeros = new Uint8Array(100_000)
        expect((yield* compress(zeros)).length).toBeLessThan(1000)
      }
    }),
  )

  it.effect("zstd uses Node's own encoder if available", () =>
    Effect.gen(function* () {
      const host = yield* elsewhere({
        "node:zlib": async () => ({
          ...(await vi.importActual("node:zlib")),
          zstdCompressSync: (bytes: Uint8Array) => Buffer.from(bytes).toReversed(),
        }),
      })
      const compress = yield* Effect.flatten(host.zstd)
      expect([...(yield* compress(Uint8Array.of(1, 2, 3)))]).toEqual([3, 2, 1])
    }),
  )

  it.effect("zstd is none if neither encoder is available", () =>
    Effect.gen(function* () {
      const host = yield* elsewhere({
        ...withoutOwn,
        "@hpcc-js/wasm-zstd": () => {
          throw new TypeError("not installed")
        },
      })
      expect(yield* host.zstd).toEqual(Option.none())
    }),
  )
})

interface Exchange {
  readonly request: {
    readonly path: string
    readonly headers: Readonly<Record<string, string>>
    readonly bodyBase64?: string
  }
  readonly response: {
    readonly headers: Readonly<Record<string, string>>
    readonly body?: unknown
    readonly bodyBase64?: string
  }
}

describe.sequential("vectors/forward_backward_zstd.json", () => {
  const { exchanges }: { readonly exchanges: ReadonlyArray<Exchange> } = JSON.parse(
    readFileSync(new URL("../../../test/wire/vectors/forward_backward_zstd.json", import.meta.url), "utf8"),
  )
  const [submission, poll] = exchanges as readonly [Exchange, Exchange]

  interface Sent {
    readonly headers: Readonly<Record<string, string>>
    readonly bytes: Uint8Array
  }

  /** Sends a pass to a server that answers as recorded, and returns the request. */
  const passes = (flags: Readonly<Record<string, unknown>>, host: Layer.Layer<Host.Host> | typeof Layer.empty) => {
    const sent: Array<Sent> = []
    const recorded = [{ model_id: "sess-0001:train:0" }, poll.response]
    const answers: Readonly<Record<string, (request: Sent) => unknown>> = {
      "client/config": () => flags,
      create_session: () => ({ session_id: "sess-0001" }),
      create_model: () => ({ request_id: "req-0001" }),
      forward_backward: (request) => {
        sent.push(request)
        return submission.response.body
      },
      retrieve_future: () => recorded.shift(),
    }
    const client = HttpClient.make((request, url) =>
      Effect.sync(() => {
        const bytes = request.body._tag === "Uint8Array" ? request.body.body : new Uint8Array()
        const body = answers[url.pathname.replace("/api/v1/", "")]?.({ headers: request.headers, bytes }) ?? {}
        const reply =
          body === poll.response
            ? new Response(Buffer.from(poll.response.bodyBase64 ?? "", "base64"), { headers: poll.response.headers })
            : new Response(JSON.stringify(body), { headers: { "content-type": "application/json" } })
        return HttpClientResponse.fromWeb(request, reply)
      }),
    )
    const transport = Layer.provideMerge(
      Transport.layer,
      Layer.mergeAll(
        TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make("tml-a") }),
        Layer.succeed(HttpClient.HttpClient, client),
        host,
      ),
    )
    // The inputs are in the order of the recorded bytes, which is irrelevant to a server.
    const loss = Loss.make({ name: "cross_entropy", inputs: { weights: "float32", targetTokens: "int64" } })
    return Effect.gen(function* () {
      const { createLoraTrainingClient } = yield* ServiceClient.ServiceClient
      const training = yield* createLoraTrainingClient({ baseModel: "Qwen/Qwen3-8B" })
      const { metrics } = yield* training.forwardBackward(
        [{ modelInput: [1, 2, 3], inputs: { targetTokens: [2, 3, 4], weights: [0, 1, 1] } }],
        loss,
      )
      expect(metrics).toEqual({ "loss:sum": 1 })
      expect(sent.length).toBe(1)
      return sent[0]!
    }).pipe(
      Effect.scoped,
      Effect.provide(Layer.provide(ServiceClient.layer(), Layer.merge(transport, RateLimiter.layer))),
    )
  }

  const asked = { proto_compress_fwdbwd: true }

  it.effect("a pass is zstd-compressed if the server requests it", () =>
    Effect.gen(function* () {
      const zstd = yield* load
      const { bytes, headers } = yield* passes(asked, NodeHost.layer)
      const recorded = Buffer.from(submission.request.bodyBase64 ?? "", "base64")
      expect(Buffer.from(zstd.decompress(bytes))).toEqual(Buffer.from(zstd.decompress(recorded)))
      for (const name of ["content-type", "content-encoding"])
        expect(headers[name]).toBe(submission.request.headers[name])
      expect(bytes.length).toBeLessThan(zstd.decompress(bytes).length)
      expect(headers["content-length"]).toBe(String(bytes.length))
    }),
  )

  it.effect("a pass is not compressed without the flag or without an encoder", () =>
    Effect.gen(function* () {
      const zstd = yield* load
      const recorded = Buffer.from(zstd.decompress(Buffer.from(submission.request.bodyBase64 ?? "", "base64")))
      for (const { bytes, headers } of [yield* passes({}, NodeHost.layer), yield* passes(asked, Layer.empty)]) {
        expect(Buffer.from(bytes)).toEqual(recorded)
        expect(headers["content-encoding"]).toBeUndefined()
      }
    }),
  )
})
