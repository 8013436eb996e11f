/**
 * Fine-tunes a small language model in this process with the real clients, local server and engine. The same program
 * trains a large model if its layer points at a server that has one.
 */
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { ModelFiles } from "@effect-tinker/engine"
import { LocalTinker } from "@effect-tinker/server"
import { Datums, Generic, Message, type Renderer, TokenizerBackend, TokenizerFiles } from "@effect-tinker/tokenizer"
import { NodeContext, NodeRuntime } from "@effect/platform-node"
import { Chunk, Console, Duration, Effect, Exit, Layer, Logger, LogLevel, Random, Redacted, Stream } from "effect"
import { Loss, Optimizer, RateLimiter, type SamplingClient, ServiceClient, Tinker, TinkerConfig } from "effect-tinker"

const steps = 40
const batchSize = 16

// Task: answer every question like a sailor.

const number = (from: number, to: number) => Random.nextIntBetween(from, to + 1)
const words = ["apple", "bell", "boat", "bread", "cat", "cloud", "fish", "garden", "lamp", "river", "stone", "tree"]

/** A question that the base model can answer, and its answer. */
const task = Effect.gen(function* () {
  switch (yield* number(0, 2)) {
    case 0: {
      const [a, b] = [yield* number(1, 10), yield* number(1, 9)]
      return [`What is ${a} + ${b}?`, `${a + b}`] as const
    }
    case 1: {
      const from = yield* number(1, 12)
      const numbers = Array.from({ length: yield* number(2, 4) }, (_, i) => from + i)
      return [`Count from ${from} to ${from + numbers.length - 1}.`, numbers.join(" ")] as const
    }
    default: {
      const some = Chunk.toReadonlyArray(yield* Random.shuffle(words)).slice(0, yield* number(2, 3))
      return [`Repeat: ${some.join(" ")}`, some.join(" ")] as const
    }
  }
})

const sailor = (answer: string) => `Ahoy! ${answer}, captain.`

const questions = ["What is 7 + 6?", "Count from 14 to 17.", "Repeat: boat river lamp", "What is 10 + 9?"]

/** Asks fixed questions and returns the most likely answers. */
const ask = (sampler: SamplingClient.Service, renderer: Renderer.Renderer) =>
  Effect.forEach(
    questions,
    (question) =>
      Effect.gen(function* () {
        const prompt = yield* renderer.generationPrompt([Message.user(question)])
        const params = { maxTokens: 40, temperature: 0, seed: 1, stop: renderer.stopSequences }
        const { sequences } = yield* sampler.sample({ prompt, params })
        const { message } = yield* renderer.parse(sequences[0]?.tokens ?? [])
        return `  ${question.padEnd(24)} ${Message.textOf(message).trim()}`
      }),
    { concurrency: "unbounded" },
  )

const batch = (renderer: Renderer.Renderer) =>
  Effect.replicateEffect(
    Effect.flatMap(task, ([question, answer]) =>
      Datums.fromConversation(renderer, [Message.user(question), Message.assistant(sailor(answer))], {
        trainOn: "last_assistant_message",
        // Gives long and short answers the same weight; the loss is per token.
        reduction: "mean",
      }),
    ),
    batchSize,
  ).pipe(Effect.map((datums) => datums.flat()))

// Output

const bars = "▁▂▃▄▅▆▇█"

const curve = (losses: ReadonlyArray<number>, width = 48): string => {
  const most = Math.max(...losses)
  const per = Math.max(1, losses.length / width)
  return Array.from({ length: Math.min(width, losses.length) }, (_, i) => {
    const some = losses.slice(Math.floor(i * per), Math.max(Math.floor(i * per) + 1, Math.floor((i + 1) * per)))
    const mean = some.reduce((sum, loss) => sum + loss, 0) / some.length
    // Square root, so that small values remain distinguishable.
    return bars[Math.min(bars.length - 1, Math.floor(Math.sqrt(mean / most) * bars.length))]
  }).join("")
}

const isTerminal = process.stdout.isTTY === true && process.env["TERM"] !== "dumb"

const progress = (done: number, loss: number, rate: number) => {
  const width = Math.max(4, Math.min(24, (process.stdout.columns ?? 80) - 48))
  const filled = Math.round((done / steps) * width)
  const bar = `${"█".repeat(filled)}${"░".repeat(width - filled)}`
  const line = `  ${bar} ${String(done).padStart(2)}/${steps}   loss ${loss.toFixed(3)}   ${rate.toFixed(0)} tokens/s`
  // On a terminal, overwrites the previous line; otherwise prints a line every ten steps.
  if (isTerminal) process.stdout.write(`\r${line}\u001B[K${done === steps ? "\n" : ""}`)
  else if (done % 10 === 0 || done === 1) process.stdout.write(`${line}\n`)
}

const program = (directory: string) =>
  Effect.gen(function* () {
    const backend = yield* TokenizerBackend.TokenizerBackend
    const tokenizer = yield* backend.make(yield* TokenizerFiles.fromDirectory(yield* ModelFiles.shipped))
    const renderer = yield* Generic.make(tokenizer)

    const service = yield* ServiceClient.ServiceClient
    const baseModel = ModelFiles.shippedName
    yield* Console.log(`Model: ${baseModel}, 1.5 million parameters, on a thread of this process.`)
    const before = yield* ask(yield* service.createSamplingClient({ baseModel }), renderer)
    yield* Console.log(`\nAnswers before training:\n${before.join("\n")}`)

    yield* Console.log(
      `\nTraining it to answer like a sailor: ${steps} steps of ${batchSize} conversations, LoRA rank 8.`,
    )
    const training = yield* service.createLoraTrainingClient({ baseModel, rank: 8, seed: 1 })
    const optimizer = Optimizer.linear(Optimizer.adam({ learningRate: 8e-3 }), { steps })
    const losses: Array<number> = []
    const rows = ["step,loss,tokens,seconds"]
    let tokens = 0
    const startedAt = performance.now()
    yield* Stream.range(1, steps).pipe(
      Stream.mapEffect(() => batch(renderer)),
      training.trainSteps(Loss.crossEntropy, optimizer),
      Stream.runForEach((step) =>
        Effect.sync(() => {
          losses.push((step.metrics["loss:sum"] ?? Number.NaN) / batchSize)
          tokens += step.tokens
          const seconds = (performance.now() - startedAt) / 1000
          rows.push(`${losses.length},${losses.at(-1)},${tokens},${seconds.toFixed(3)}`)
          progress(losses.length, losses.at(-1) ?? Number.NaN, tokens / seconds)
        }),
      ),
    )
    const took = Duration.format(Duration.seconds(Math.round((performance.now() - startedAt) / 1000)))
    yield* Console.log(`  loss  ${curve(losses)}  ${losses[0]?.toFixed(2)} → ${losses.at(-1)?.toFixed(2)} in ${took}`)

    yield* Effect.promise(() => writeFile(join(directory, "losses.csv"), `${rows.join("\n")}\n`))

    const { path: state } = yield* training.saveState("sailor")
    const { path: modelPath } = yield* training.saveWeightsForSampler("sailor")
    const after = yield* ask(yield* service.createSamplingClient({ modelPath }), renderer)
    yield* Console.log(`\nAnswers after training:\n${after.join("\n")}

Files in ${directory}:
  ${state}
      checkpoint to resume training from
  ${modelPath}
      weights to sample from
  losses.csv

Next steps:
  npx -y pnpm@10.34.9 tinkerfx serve --data-dir ${directory}
      serves them to this SDK, the official SDK, and any OpenAI-compatible client. Then, in another terminal:
  curl http://127.0.0.1:8000/oai/api/v1/chat/completions -H 'authorization: Bearer tml-demo' \\
    -H 'content-type: application/json' -d '{"model": "${modelPath}", "temperature": 0,
    "messages": [{"role": "user", "content": "What is 7 + 6?"}]}'
  scripts/demo.ts
      is the source of this demo; change what the model learns
  docs/README.md
      explains how to train a large model with the same program and another layer`)
  }).pipe(Effect.scoped, Effect.withRandom(Random.make("demo")))

Effect.gen(function* () {
  yield* Console.log("effect-tinker demo: fine-tuning a small language model in this process.\n")
  const directory = yield* Effect.promise(() => mkdtemp(join(tmpdir(), "tinker-demo-")))
  const server = LocalTinker.layer({ dataDirectory: directory })
  const config = TinkerConfig.layer({ baseUrl: "http://local", apiKey: Redacted.make("tml-demo") })
  const tinker = Tinker.layer().pipe(Layer.provide([server, config, RateLimiter.layer]))
  yield* Effect.provide(program(directory), Layer.mergeAll(tinker, TokenizerBackend.layer, NodeContext.layer)).pipe(
    // Removes the files of an interrupted demo.
    Effect.onInterrupt(() =>
      Effect.zipRight(
        Effect.promise(() => rm(directory, { recursive: true, force: true })),
        Console.log("\nStopped. All files were removed."),
      ),
    ),
  )
}).pipe(Logger.withMinimumLogLevel(LogLevel.Warning), (demo) =>
  NodeRuntime.runMain(demo, {
    // An interruption by the user is not a failure.
    teardown: (exit, onExit) => onExit(Exit.isSuccess(exit) || Exit.isInterrupted(exit) ? 0 : 1),
  }),
)
