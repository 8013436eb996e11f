/**
 * How quickly a server answers while its engine computes: health, heartbeats and polls of one tenant beside the steps of
 * another, over a socket. Aim: p99 below 50 ms. Prints milliseconds, idle and busy, and their ratio.
 *
 *   npx -y pnpm@10.34.9 exec tsx scripts/bench/server.ts
 */
import { EngineHost, NodeTinkerServer, TinkerServer } from "@effect-tinker/server"
import { NodeTinker } from "@effect-tinker/node"
import { Console, Effect, Fiber, Layer, Redacted } from "effect"
import { Loss, Optimizer, ServiceClient } from "effect-tinker"

const quantile = (sorted: ReadonlyArray<number>, part: number): number =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN

const probe = (url: string, count: number) =>
  Effect.gen(function* () {
    const headers = { "x-api-key": "tml-probe", "content-type": "application/json" }
    const post = (path: string, body: object) =>
      Effect.promise(() =>
        fetch(`${url}/api/v1/${path}`, { method: "POST", headers, body: JSON.stringify(body) }).then((r) => r.json()),
      )
    const { session_id } = (yield* post("create_session", { sdk_version: "bench" })) as { session_id: string }
    const times: Array<number> = []
    for (let i = 0; i < count; i++) {
      const before = performance.now()
      if (i % 2 === 0) yield* post("session_heartbeat", { session_id })
      else yield* post("retrieve_future", { request_id: "nobody", allow_metadata_only: true })
      times.push(performance.now() - before)
      yield* Effect.sleep("5 millis")
    }
    return times.toSorted((a, b) => a - b)
  })

const busy = Effect.gen(function* () {
  const service = yield* ServiceClient.ServiceClient
  const training = yield* service.createLoraTrainingClient({ baseModel: "effect-tinker/valley-1.5m", rank: 32 })
  const tokens = Array.from({ length: 257 }, (_, i) => (i * 7) % 1000)
  const data = Array.from({ length: 2 }, () => ({
    modelInput: tokens.slice(0, -1),
    inputs: { targetTokens: tokens.slice(1), weights: tokens.slice(1).map(() => 1) },
  }))
  let steps = 0
  const loop = Effect.forever(
    Effect.tap(training.trainStep(data, Loss.crossEntropy, Optimizer.adam()), () => Effect.sync(() => steps++)),
  )
  const fiber = yield* Effect.fork(loop)
  return { steps: () => steps, stop: Fiber.interrupt(fiber) }
})

const program = Effect.gen(function* () {
  const { url } = yield* NodeTinkerServer.listen(yield* TinkerServer.TinkerServer, { port: 0 })
  yield* probe(url, 50)
  const idle = yield* probe(url, 400)
  const loaded = yield* Effect.gen(function* () {
    const work = yield* busy
    yield* Effect.sleep("2 seconds")
    const times = yield* probe(url, 400)
    yield* Console.log(`while ${work.steps()} steps of 512 tokens were trained`)
    yield* work.stop
    return times
  }).pipe(Effect.scoped, Effect.provide(NodeTinker.layer({ baseUrl: url, apiKey: Redacted.make("tml-bench") })))
  for (const [name, part] of [
    ["p50", 0.5],
    ["p99", 0.99],
  ] as const) {
    const [a, b] = [quantile(idle, part), quantile(loaded, part)]
    yield* Console.log(`${name}   idle ${a.toFixed(1)} ms   busy ${b.toFixed(1)} ms   ratio ${(b / a).toFixed(1)}`)
  }
}).pipe(Effect.scoped, Effect.provide(Layer.provide(TinkerServer.layer(), EngineHost.layer())))

Effect.runPromise(program).then(
  () => process.exit(0),
  (error) => {
    console.error(error)
    process.exit(1)
  },
)
