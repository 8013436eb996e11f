/** Puts a server under load and prints a report: `load.js <settings as JSON>`. The process has to end by itself. */
import { NodeTinker } from "@effect-tinker/node"
import { Effect, Fiber, Layer, Logger, LogLevel, Redacted, Schedule } from "effect"
import { Loss, Optimizer, type SamplingClient, ServiceClient } from "effect-tinker"
import { batch } from "../program/Data.ts"
import { modelName } from "../program/Settings.ts"
import { keysVariable, type LoadReport, type LoadSettings, type Point } from "./Load.ts"

const settings: LoadSettings = JSON.parse(process.argv[2] ?? "{}")
const keys = (process.env[keysVariable] ?? "").split(",")

const startedAt = performance.now()
const seconds = () => (performance.now() - startedAt) / 1000

const points: Array<Point> = []
const errors: Record<string, number> = {}
let done = 0

/** Notes memory and handles every half second. */
const observe = Effect.sync(() => {
  // Garbage would look like growth.
  if (settings.kind === "soak") globalThis.gc?.()
  const { heapUsed, rss } = process.memoryUsage()
  const handles = process.getActiveResourcesInfo().length
  points.push({ seconds: seconds(), heap: heapUsed, resident: rss, handles, done })
}).pipe(Effect.repeat(Schedule.spaced("500 millis")))

const tenant = (key: string) =>
  Layer.provide(ServiceClient.layer(), NodeTinker.layer({ baseUrl: settings.baseUrl, apiKey: Redacted.make(key) }))

/** Counts a result or an error, and never fails. */
const counted = <A, E extends { readonly _tag: string }, R>(
  effect: Effect.Effect<A, E, R>,
  onDone: () => void = () => {},
): Effect.Effect<void, never, R> =>
  Effect.match(effect, {
    onSuccess: () => {
      done++
      onDone()
    },
    onFailure: ({ _tag }) => void (errors[_tag] = (errors[_tag] ?? 0) + 1),
  })

const sampleOnce = (sampler: SamplingClient.Service, seed: number) =>
  sampler.sample({ prompt: [10, 11, 12], params: { maxTokens: 1, seed } })

const openSampler = Effect.flatMap(ServiceClient.ServiceClient, (service) =>
  service.createSamplingClient({ baseModel: modelName }),
)

/** All samples at once, on one client. */
const samples = Effect.gen(function* () {
  const sampler = yield* openSampler
  yield* Effect.forEach(
    Array.from({ length: settings.count }, (_, i) => i),
    (i) => counted(sampleOnce(sampler, i)),
    {
      concurrency: "unbounded",
      discard: true,
    },
  )
}).pipe(Effect.scoped, Effect.provide(tenant(keys[0] ?? "")))

/** How many samples each tenant wants. */
const perTenant = 4
const received = Array.from({ length: settings.count }, () => 0)
let shares: ReadonlyArray<number> = []

const noteShares = () => {
  if (shares.length === 0 && done >= (settings.count * perTenant) / 2) shares = [...received]
}

/** All tenants at once, each with a key, connections and a session of its own. */
const tenants = Effect.forEach(
  keys.slice(0, settings.count),
  (key, index) =>
    Effect.flatMap(openSampler, (sampler) =>
      Effect.forEach(
        Array.from({ length: perTenant }, (_, i) => i),
        (i) =>
          counted(sampleOnce(sampler, i), () => {
            received[index] = (received[index] ?? 0) + 1
            noteShares()
          }),
        { concurrency: "unbounded", discard: true },
      ),
    ).pipe(Effect.scoped, Effect.provide(tenant(key)), (program) =>
      Effect.catchAll(program, ({ _tag }) => Effect.sync(() => void (errors[_tag] = (errors[_tag] ?? 0) + 1))),
    ),
  { concurrency: "unbounded", discard: true },
)

const adam = Optimizer.adam({ learningRate: 1e-3 })

/** Opens clients, trains, samples and closes them, again and again. */
const soak = Effect.gen(function* () {
  const service = yield* ServiceClient.ServiceClient
  const training = yield* service.createLoraTrainingClient({ baseModel: modelName, rank: 4 })
  for (let step = 0; step < 10; step++) yield* counted(training.trainStep(batch(step), Loss.crossEntropy, adam))
  const sampler = yield* training.saveWeightsAndGetSamplingClient()
  yield* Effect.forEach(
    Array.from({ length: 50 }, (_, i) => i),
    (i) => counted(sampleOnce(sampler, i)),
    {
      concurrency: "unbounded",
      discard: true,
    },
  )
}).pipe(
  Effect.scoped,
  Effect.provide(tenant(keys[0] ?? "")),
  counted,
  // Leaves room for other work on the machine: a long soak is about what is left behind, not about speed.
  Effect.repeat({ while: () => seconds() < settings.seconds, schedule: Schedule.fixed("2 seconds") }),
)

const main = Effect.gen(function* () {
  const observer = yield* Effect.fork(observe)
  yield* { samples, tenants, soak }[settings.kind]
  const took = seconds()
  yield* Effect.sleep("600 millis")
  yield* Fiber.interrupt(observer)
  const handlesLeft = process.getActiveResourcesInfo().filter((name) => name !== "PipeWrap" && name !== "TTYWrap")
  const report: LoadReport = { done, errors, seconds: took, points, shares, handlesLeft }
  yield* Effect.sync(() => process.stdout.write(`${JSON.stringify(report)}\n`))
}).pipe(Logger.withMinimumLogLevel(LogLevel.None))

Effect.runFork(main)
