// Measures memory and cost per item for BENCH_N items, with one process per number. node --expose-gc scale.mjs
// <inflight | tenants | heartbeats | pages>
import { HttpClient } from "@effect/platform"
import { NodeTinker } from "@effect-tinker/node"
import { Effect, Layer, Redacted, Scope, Stream } from "effect"
import { RateLimiter, RestClient, ServiceClient, Tinker, TinkerConfig } from "effect-tinker"
import * as HttpDirect from "effect-tinker/http/HttpDirect"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"

const n = Number(process.env.BENCH_N)
const control = process.env.BENCH_CTL_URL

/** Returns the size of live objects, including buffers. The resident set size would mostly reflect the allocator. */
const alive = () => {
  globalThis.gc()
  const { external, heapUsed } = process.memoryUsage()
  return heapUsed + external
}
const cpu = () => {
  const { system, user } = process.cpuUsage()
  return system + user
}
const pause = (millis) => new Promise((resolve) => setTimeout(resolve, millis))

/** An in-memory server that stores nothing, so that all growth is ours. */
const inMemory = (answer) => {
  const utf8 = new TextEncoder()
  return Layer.succeed(
    HttpClient.HttpClient,
    HttpDirect.offer(
      HttpClient.make(() => Effect.dieMessage("the long way")),
      (request, done) => {
        done({
          _tag: "Answered",
          answer: { status: 200, headers: {}, body: utf8.encode(JSON.stringify(answer(request.url))) },
        })
        return () => {}
      },
    ),
  )
}

const withServer = (answer) => (program) =>
  Effect.provide(
    program,
    Layer.provide(
      Tinker.layer(),
      Layer.mergeAll(
        inMemory((url) => (url.endsWith("/client/config") ? {} : answer(url))),
        TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make("tml-bench") }),
        RateLimiter.layer,
      ),
    ),
  )

const kernels = {
  /** Samples that are awaited concurrently, over sockets. */
  inflight: Effect.gen(function* () {
    const service = yield* ServiceClient.ServiceClient
    const sampler = yield* service.createSamplingClient({ baseModel: "mock/base" })
    const prompt = Array.from({ length: 512 }, (_, i) => i)
    const sample = sampler.sample({ prompt, params: { maxTokens: 8 } })
    let crowded = 0
    const crowd = (size) =>
      Effect.forEach(
        Array.from({ length: size }),
        () =>
          Effect.tap(sample, () => {
            // All other samples are still pending.
            if (crowded === 0) crowded = alive()
          }),
        { concurrency: "unbounded", discard: true },
      )
    // Warm-up.
    yield* crowd(100)
    const before = alive()
    crowded = 0
    const began = cpu()
    yield* crowd(n)
    return { cost_us: (cpu() - began) / n, memory_kb: (crowded - before) / n / 1e3 }
  }).pipe(Effect.scoped, Effect.provide(NodeTinker.layerConfig())),

  /** Tenants, each with a session, connections and a sample. */
  tenants: Effect.gen(function* () {
    const tenants = yield* NodeTinker.makeTenants({
      lookup: (tenant) =>
        Effect.succeed({ baseUrl: control, apiKey: Redacted.make(`tml-${tenant.replace(" ", "-")}`) }),
    })
    const scope = yield* Effect.scope
    const visit = (i) =>
      Effect.gen(function* () {
        const service = yield* ServiceClient.ServiceClient
        const sampler = yield* service.createSamplingClient({ baseModel: "mock/base" })
        return yield* sampler.sample({ prompt: [i + 1], params: { maxTokens: 8 } })
      }).pipe(
        Effect.provideService(Scope.Scope, scope),
        (effect) => Effect.flatMap(tenants.get(`tenant ${i}`), (context) => Effect.provide(effect, context)),
        Effect.provideService(Scope.Scope, scope),
      )
    yield* visit(-1)
    const before = alive()
    const began = cpu()
    yield* Effect.forEach(Array.from({ length: n }), (_, i) => visit(i), { concurrency: 16, discard: true })
    const cost = (cpu() - began) / n
    return { cost_us: cost, memory_kb: (alive() - before) / n / 1e3 }
  }).pipe(Effect.scoped, Effect.provide(RateLimiter.layer)),

  /** Hours of an idle session, in virtual time. */
  heartbeats: Effect.gen(function* () {
    const service = yield* ServiceClient.ServiceClient
    const session = yield* service.session
    yield* Effect.sleep("1 hour")
    const before = alive()
    const began = cpu()
    const from = beats
    yield* Effect.sleep(`${n} hours`)
    const cost = (cpu() - began) / (beats - from)
    if (beats - from < n * 300) throw new Error(`only ${beats - from} heartbeats in ${n} hours of ${session.id}`)
    return { cost_us: cost, memory_kb: (alive() - before) / 1e3 }
  }).pipe(
    withServer((url) => {
      if (url.endsWith("/session_heartbeat")) beats++
      return url.endsWith("/create_session") ? { session_id: "session" } : { refresh_interval_sec: 300 }
    }),
    VirtualTime.run,
  ),

  /** Pages of a list, read as a stream of items. */
  pages: Effect.gen(function* () {
    const { stream } = yield* RestClient.RestClient
    const size = 2
    let before = 0
    let after = 0
    let count = 0
    const began = cpu()
    yield* Stream.runForEach(stream.listTrainingRuns({ pageSize: size }), () =>
      Effect.sync(() => {
        count++
        if (count === 200) before = alive()
        if (count === n * size - 1) after = alive()
      }),
    )
    if (count !== n * size) throw new Error(`${count} items on ${n} pages`)
    return { cost_us: (cpu() - began) / n, memory_kb: (after - before) / 1e3 }
  }).pipe(
    withServer((url) => {
      const { searchParams } = new URL(url)
      const [limit, offset] = ["limit", "offset"].map((name) => Number(searchParams.get(name)))
      return {
        training_runs: Array.from({ length: limit }, (_, i) => ({
          training_run_id: `run-${offset + i}`,
          base_model: "mock/base",
          model_owner: "me",
          is_lora: true,
          last_request_time: "2026-01-01T00:00:00Z",
        })),
        cursor: { offset, limit, total_count: 2 * n },
      }
    }),
  ),
}

let beats = 0
const metrics = await Effect.runPromise(kernels[process.argv[2]])
await pause(0)
process.stdout.write(`${JSON.stringify({ metrics })}\n`, () => process.exit(0))
