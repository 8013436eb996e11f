/**
 * Measures how fast a server answers while its engine computes: heartbeats, ready results, and submissions of one
 * tenant during steps and saves of another. The server is a separate process with a data directory. Goal: p99 below 50
 * ms on an otherwise idle machine. Prints milliseconds, idle and busy, and their ratio.
 *
 *   npx -y pnpm@10.34.9 exec tsx scripts/bench/server.ts
 */
import { type ChildProcess, spawn } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import { NodeTinker } from "@effect-tinker/node"
import { Console, Effect, Fiber, Redacted, type Scope } from "effect"
import { Loss, Optimizer, ServiceClient } from "effect-tinker"

const baseModel = "effect-tinker/valley-1.5m"
const kinds = ["heartbeat", "result", "submit"] as const
type Times = Record<(typeof kinds)[number], Array<number>>

const quantile = (times: ReadonlyArray<number>, part: number): number => {
  const sorted = times.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN
}

const serve: Effect.Effect<string, never, Scope.Scope> = Effect.gen(function* () {
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "bench-server-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true })),
  )
  const bin = fileURLToPath(new URL("../../packages/cli/src/internal/bin.ts", import.meta.url))
  const keys = ["--api-key", "tml-probe", "--api-key", "tml-bench"]
  const child = yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn(process.execPath, ["--import", "tsx", bin, "serve", "--port", "0", "--data-dir", directory, ...keys], {
        stdio: ["ignore", "pipe", "inherit"],
      }),
    ),
    (child: ChildProcess) => Effect.sync(() => child.kill("SIGTERM")),
  )
  return yield* Effect.async<string>((resume) => {
    createInterface({ input: child.stdout! }).on("line", (line) => {
      const at = /^listening on (http:\S+)$/.exec(line)?.[1]
      if (at !== undefined) resume(Effect.succeed(at))
    })
  })
})

const prober = (url: string) =>
  Effect.gen(function* () {
    const headers = { "x-api-key": "tml-probe", "content-type": "application/json" }
    const post = (path: string, body: object) =>
      Effect.promise(async () => {
        const answer = await fetch(`${url}/api/v1/${path}`, { method: "POST", headers, body: JSON.stringify(body) })
        const value: Record<string, string> = await answer.json()
        if (answer.status !== 200) throw new Error(`${path}: ${answer.status} ${JSON.stringify(value)}`)
        return value
      })
    const { session_id = "" } = yield* post("create_session", { sdk_version: "bench" })
    const { request_id } = yield* post("create_model", { session_id, model_seq_id: 0, base_model: baseModel })
    yield* post("retrieve_future", { request_id, allow_metadata_only: false })
    const request = { session_id, sampling_session_seq_id: 0, base_model: baseModel }
    const { sampling_session_id } = yield* post("create_sampling_session", request)
    let seq = 0
    const ask: Record<keyof Times, () => Effect.Effect<unknown>> = {
      heartbeat: () => post("session_heartbeat", { session_id }),
      result: () => post("retrieve_future", { request_id, allow_metadata_only: false }),
      submit: () =>
        post("asample", {
          sampling_session_id,
          seq_id: seq++,
          prompt: { chunks: [{ type: "encoded_text", tokens: [1, 2, 3] }] },
          sampling_params: { max_tokens: 1 },
          num_samples: 1,
        }),
    }
    return (count: number) =>
      Effect.gen(function* () {
        const times: Times = { heartbeat: [], result: [], submit: [] }
        for (let i = 0; i < count; i++)
          for (const kind of kinds) {
            const before = performance.now()
            yield* ask[kind]()
            times[kind].push(performance.now() - before)
            yield* Effect.sleep("5 millis")
          }
        return times
      })
  })

/** Trains with steps of 4096 tokens and saves occasionally. */
const busy = Effect.gen(function* () {
  const service = yield* ServiceClient.ServiceClient
  const training = yield* service.createLoraTrainingClient({ baseModel, rank: 32 })
  const tokens = Array.from({ length: 257 }, (_, i) => (i * 7) % 1000)
  const data = Array.from({ length: 16 }, () => ({
    modelInput: tokens.slice(0, -1),
    inputs: { targetTokens: tokens.slice(1), weights: tokens.slice(1).map(() => 1) },
  }))
  let steps = 0
  const step = Effect.gen(function* () {
    yield* training.trainStep(data, Loss.crossEntropy, Optimizer.adam())
    yield* training.saveState(`step-${steps++}`)
  })
  const fiber = yield* Effect.fork(Effect.forever(step))
  return { steps: () => steps, stop: Fiber.interrupt(fiber) }
})

const program = Effect.gen(function* () {
  const url = yield* serve
  const probe = yield* prober(url)
  yield* probe(30)
  const idle = yield* probe(150)
  const loaded = yield* Effect.gen(function* () {
    const work = yield* busy
    yield* Effect.sleep("2 seconds")
    const times = yield* probe(150)
    yield* work.stop
    yield* Console.log(`during ${work.steps()} training steps of 4096 tokens with saves`)
    return times
  }).pipe(Effect.scoped, Effect.provide(NodeTinker.layer({ baseUrl: url, apiKey: Redacted.make("tml-bench") })))
  for (const kind of kinds)
    for (const [name, part] of [
      ["p50", 0.5],
      ["p99", 0.99],
    ] as const) {
      const [a, b] = [quantile(idle[kind], part), quantile(loaded[kind], part)]
      yield* Console.log(
        `${kind.padEnd(10)} ${name}   idle ${a.toFixed(1)} ms   busy ${b.toFixed(1)} ms   ratio ${(b / a).toFixed(1)}`,
      )
    }
}).pipe(Effect.scoped)

Effect.runPromise(program).then(
  () => process.exit(0),
  (error) => {
    console.error(error)
    process.exit(1)
  },
)
