/**
 * A training run, end to end, over a real socket. The server is scripted: its model is a number that every step changes,
 * so nothing is learnt yet; everything on this side of the socket is the real thing.
 */
import { mkdtemp, rm } from "node:fs/promises"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { FileJournal, NodeTinker } from "@effect-tinker/node"
import { NodeRuntime } from "@effect/platform-node"
import { Console, Duration, Effect, Exit, Option, Redacted, Runtime, Scope, Stream } from "effect"
import { Loss, Optimizer, ServiceClient } from "effect-tinker"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"

/** The scripted server behind a socket of this machine. */
const listen = Effect.gen(function* () {
  const scripted = yield* ScriptedServer.make({
    work: "5 millis",
    metrics: ({ operation, steps }) =>
      operation === "optim_step" ? { "grad_norm:mean": 1 / steps } : { "perplexity:mean": 1 + 20 * 0.8 ** steps },
    faults: [{ on: "optim_step", nth: 3, status: 503, body: { detail: "busy" }, headers: { "retry-after-ms": "300" } }],
  })
  const runtime = yield* Effect.runtime<never>()
  const server = yield* Effect.acquireRelease(
    Effect.async<ReturnType<typeof createServer>>((resume) => {
      const server = createServer((request, response) => {
        const chunks: Array<Buffer> = []
        request.on("data", (chunk: Buffer) => chunks.push(chunk))
        request.on("end", () => {
          const headers = Object.fromEntries(
            Object.entries(request.headers).map(([name, value]) => [name, String(value)]),
          )
          Runtime.runFork(runtime)(
            Effect.match(
              scripted.handle({
                method: request.method ?? "GET",
                path: request.url ?? "/",
                headers,
                body: Buffer.concat(chunks),
              }),
              {
                onSuccess: ({ body, headers, status }) => response.writeHead(status, headers).end(body),
                onFailure: () => request.destroy(),
              },
            ),
          )
        })
      })
      server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
    }),
    (server) => Effect.sync(() => server.close()),
  )
  const { port } = server.address() as AddressInfo
  return `http://127.0.0.1:${port}`
})

const temporary = Effect.acquireRelease(
  Effect.promise(() => mkdtemp(join(tmpdir(), "tinker-demo-"))),
  (path) => Effect.promise(() => rm(path, { recursive: true, force: true })),
)

const adam = Optimizer.cosine(Optimizer.adam({ learningRate: 1e-4 }), { steps: 8 })
const batch = (step: number) =>
  Array.from({ length: 4 }, (_, i) => ({
    modelInput: [step, i, i + 1],
    inputs: { targetTokens: [i, i + 1, i + 2], weights: [0, 1, 1] },
  }))

const show = Stream.runForEach(
  ({
    duration,
    metrics,
    step,
    tokens,
  }: {
    duration: Duration.Duration
    metrics: Record<string, number>
    step: number
    tokens: number
  }) =>
    Console.log(
      `  step ${step}   perplexity ${metrics["perplexity:mean"]?.toFixed(2)}   ${tokens} tokens   ${Duration.format(duration)}`,
    ),
)

const program = Effect.gen(function* () {
  const service = yield* ServiceClient.ServiceClient
  const { supportedModels } = yield* service.getServerCapabilities
  const [first] = supportedModels
  const baseModel = Option.getOrElse(first?.modelName ?? Option.none(), () => "Qwen/Qwen3-8B")
  yield* Console.log(`The server offers ${supportedModels.length} models; this is ${baseModel}.`)

  const directory = yield* temporary
  const file = join(directory, "run.journal")

  yield* Console.log("\nFour steps, each written into a journal first. The third update gets a 503, which is retried:")
  const crashing = yield* Scope.make()
  yield* Effect.gen(function* () {
    const journal = yield* FileJournal.make(file)
    const training = yield* service.createLoraTrainingClient({ baseModel, rank: 32, journal })
    yield* Stream.range(0, 3).pipe(Stream.map(batch), training.trainSteps(Loss.crossEntropy, adam), show)
  }).pipe(Scope.extend(crashing))
  yield* Scope.close(crashing, Exit.die("the demo's crash"))

  yield* Console.log("\nThe client is gone. Another one goes on from its journal:")
  const journal = yield* FileJournal.make(file)
  const { client, completed, nextStep } = yield* service.resumeTrainingClient({ journal })
  yield* Console.log(`  ${completed.length} requests were completed, the next step is ${nextStep}`)
  yield* Stream.range(nextStep, 7).pipe(
    Stream.map(batch),
    client.trainSteps(Loss.crossEntropy, adam, { startAt: nextStep }),
    show,
  )

  const { path } = yield* client.saveState("demo")
  yield* Console.log(`\nSaved as ${path}`)
  const sampler = yield* client.saveWeightsAndGetSamplingClient()
  const samples = yield* Effect.forEach(
    [1, 2, 3],
    (seed) => sampler.sample({ prompt: [1, 2, 3], params: { maxTokens: 6, seed } }),
    {
      concurrency: "unbounded",
    },
  )
  for (const { sequences } of samples) yield* Console.log(`Sampled  ${sequences[0]?.tokens.join(" ")}`)

  const error = yield* Effect.flip(client.loadState("tinker://nobody/weights/nothing"))
  yield* Console.log(`\nAn error looks like this\n  ${error._tag}: ${error.message}`)
}).pipe(Effect.scoped)

Effect.gen(function* () {
  yield* Console.log("effect-tinker demo: a training run over a real socket.")
  yield* Console.log("The server is SCRIPTED: its numbers are made up, and no model is trained.\n")
  const url = yield* listen
  yield* Effect.provide(program, NodeTinker.layer({ baseUrl: url, apiKey: Redacted.make("tml-demo") }))
}).pipe(Effect.scoped, NodeRuntime.runMain)
