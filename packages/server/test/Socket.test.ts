import { connect } from "node:net"
import { describe, expect, it } from "@effect/vitest"
import { NodeTinker } from "@effect-tinker/node"
import { ModelHost, NodeTinkerServer, TinkerServer } from "@effect-tinker/server"
import { Effect, Redacted, Stream } from "effect"
import { Loss, Optimizer, ServiceClient } from "effect-tinker"
import * as Local from "./support/Local.ts"
import * as StandInModel from "./support/StandInModel.ts"

const listen = (options: NodeTinkerServer.ListenOptions = {}) =>
  Effect.gen(function* () {
    const server = yield* Effect.provideService(
      TinkerServer.make(),
      ModelHost.ModelHost,
      ModelHost.inline(StandInModel.make()),
    )
    return yield* NodeTinkerServer.listen(server, { port: 0, ...options })
  })

/** Writes a raw request and returns the raw response. */
const raw = (port: number, text: string) =>
  Effect.async<string>((resume) => {
    const socket = connect(port, "127.0.0.1", () => socket.write(text))
    let all = ""
    socket.on("data", (part) => (all += part))
    socket.on("error", () => {})
    socket.on("close", () => resume(Effect.succeed(all)))
  })

describe("NodeTinkerServer", () => {
  it.live("NodeTinker clients train and sample over a socket", () =>
    Effect.gen(function* () {
      const { url } = yield* listen()
      const program = Effect.gen(function* () {
        const service = yield* ServiceClient.ServiceClient
        const training = yield* service.createLoraTrainingClient({ baseModel: Local.baseModel })
        const losses = yield* Stream.range(0, 5).pipe(
          Stream.map(() => Local.batch()),
          training.trainSteps(Loss.crossEntropy, () => Optimizer.adam({ learningRate: 0.3 })),
          Stream.runCollect,
          Effect.map((all) => [...all].map(({ metrics }) => metrics["loss:sum"] ?? 0)),
        )
        expect(losses.at(-1)).toBeLessThan(losses[0] ?? 0)
        const sampler = yield* training.saveWeightsAndGetSamplingClient()
        const samples = yield* Effect.forEach(
          [1, 2, 3, 4, 5, 6, 7, 8],
          (seed) => sampler.sample({ prompt: [104], params: { maxTokens: 4, seed, stop: [] } }),
          { concurrency: "unbounded" },
        )
        expect(samples.every(({ sequences }) => sequences[0]?.tokens.length === 4)).toBe(true)
      })
      yield* program.pipe(
        Effect.scoped,
        Effect.provide(NodeTinker.layer({ baseUrl: url, apiKey: Redacted.make("tml-a") })),
      )
    }).pipe(Effect.scoped),
  )

  it.live("NodeTinkerServer refuses a body larger than maxBodyBytes, with and without content-length", () =>
    Effect.gen(function* () {
      const { port } = yield* listen({ maxBodyBytes: 1000 })
      const reply = yield* raw(
        port,
        "POST /api/v1/telemetry HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n",
      )
      expect(reply).toMatch(/^HTTP\/1\.1 413 [^]*content-length: \d+[^]*exceeds 1000 bytes/)
      const chunk = `${(600).toString(16)}\r\n${"x".repeat(600)}\r\n`
      const chunked = yield* raw(
        port,
        `POST /api/v1/telemetry HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n${chunk}${chunk}`,
      )
      expect(chunked).toContain("413")
    }).pipe(Effect.scoped),
  )

  it.live("NodeTinkerServer refuses oversized headers and slow clients", () =>
    Effect.gen(function* () {
      const { port } = yield* listen({ maxHeaderBytes: 2000, requestTimeout: "400 millis" })
      expect(yield* raw(port, `GET /api/v1/healthz HTTP/1.1\r\nx-large: ${"x".repeat(5000)}\r\n\r\n`)).toContain("431")
      expect(
        yield* raw(
          port,
          "POST /api/v1/telemetry HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\nabc",
        ),
      ).toContain("408")
    }).pipe(Effect.scoped),
  )

  it.live("listen fails with a ListenError if the port is in use", () =>
    Effect.gen(function* () {
      const { port } = yield* listen()
      const error = yield* Effect.flip(listen({ port }))
      expect(error.message).toContain(`cannot listen on 127.0.0.1:${port}`)
    }).pipe(Effect.scoped),
  )
})
