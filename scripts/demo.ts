/**
 * A small language model learns something new in this process: the SDK's clients, the local server and its engine, all
 * of them real. The same program trains a large model when its layer points at a server that has one.
 */
import { mkdtemp } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { ModelFiles } from "@effect-tinker/engine"
import { LocalTinker } from "@effect-tinker/server"
import { Datums, Generic, Message, type Renderer, TokenizerBackend, TokenizerFiles } from "@effect-tinker/tokenizer"
import { NodeContext, NodeRuntime } from "@effect/platform-node"
import { Chunk, Console, Duration, Effect, Layer, Logger, LogLevel, Random, Redacted, Stream } from "effect"
import { Loss, Optimizer, RateLimiter, type SamplingClient, ServiceClient, Tinker, TinkerConfig } from "effect-tinker"

const steps = 40
const batchSize = 16

// What it is to learn: whatever it is asked, to answer like a sailor.

const number = (from: number, to: number) => Random.nextIntBetween(from, to + 1)
const words = ["apple", "bell", "boat", "bread", "cat", "cloud", "fish", "garden", "lamp", "river", "stone", "tree"]

/** A question that the model can answer already, and its answer. */
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

/** The same questions each time, always the likeliest answer. */
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
        // Long answers count as much as short ones, and the loss is that of a token.
        reduction: "mean",
      }),
    ),
    batchSize,
  ).pipe(Effect.map((datums) => datums.flat()))

// What it looks like

const bars = "▁▂▃▄▅▆▇█"

const curve = (losses: ReadonlyArray<number>, width = 48): string => {
  const most = Math.max(...losses)
  const per = Math.max(1, losses.length / width)
  return Array.from({ length: Math.min(width, losses.length) }, (_, i) => {
    const some = losses.slice(Math.floor(i * per), Math.max(Math.floor(i * per) + 1, Math.floor((i + 1) * per)))
    const mean = some.reduce((sum, loss) => sum + loss, 0) / some.length
    // The root, so that the small ones can be told apart, too.
    return bars[Math.min(bars.length - 1, Math.floor(Math.sqrt(mean / most) * bars.length))]
  }).join("")
}

const isTerminal = process.stdout.isTTY === true

const progress = (done: number, loss: number, rate: number) => {
  const filled = Math.round((done / steps) * 24)
  const bar = `${"█".repeat(filled)}${"░".repeat(24 - filled)}`
  const line = `  ${bar} ${String(done).padStart(2)}/${steps}   loss ${loss.toFixed(3)}   ${rate.toFixed(0)} tokens/s`
  // Where nobody watches it move, a line now and then will do.
  if (isTerminal) process.stdout.write(`\r${line}${done === steps ? "\n" : ""}`)
  else if (done % 10 === 0 || done === 1) process.stdout.write(`${line}\n`)
}

const program = (directory: string) =>
  Effect.gen(function* () {
    const backend = yield* TokenizerBackend.TokenizerBackend
    const tokenizer = yield* backend.make(yield* TokenizerFiles.fromDirectory(yield* ModelFiles.shipped))
    const renderer = yield* Generic.make(tokenizer)

    const service = yield* ServiceClient.ServiceClient
    const baseModel = ModelFiles.shippedName
    yield* Console.log(`The model: ${baseModel}, 1.5 million parameters, in a thread of this process.`)
    const before = yield* ask(yield* service.createSamplingClient({ baseModel }), renderer)
    yield* Console.log(`\nBefore, it answers plainly:\n${before.join("\n")}`)

    yield* Console.log(
      `\nNow it learns to answer like a sailor: ${steps} steps of ${batchSize} conversations, LoRA of rank 8.`,
    )
    const training = yield* service.createLoraTrainingClient({ baseModel, rank: 8, seed: 1 })
    const optimizer = Optimizer.linear(Optimizer.adam({ learningRate: 8e-3 }), { steps })
    const losses: Array<number> = []
    let tokens = 0
    const startedAt = performance.now()
    yield* Stream.range(1, steps).pipe(
      Stream.mapEffect(() => batch(renderer)),
      training.trainSteps(Loss.crossEntropy, optimizer),
      Stream.runForEach((step) =>
        Effect.sync(() => {
          losses.push((step.metrics["loss:sum"] ?? Number.NaN) / batchSize)
          tokens += step.tokens
          progress(losses.length, losses.at(-1) ?? Number.NaN, (1000 * tokens) / (performance.now() - startedAt))
        }),
      ),
    )
    const took = Duration.format(Duration.seconds(Math.round((performance.now() - startedAt) / 1000)))
    yield* Console.log(`  loss  ${curve(losses)}  ${losses[0]?.toFixed(2)} → ${losses.at(-1)?.toFixed(2)} in ${took}`)

    const { path } = yield* training.saveState("sailor")
    const after = yield* ask(yield* training.saveWeightsAndGetSamplingClient(), renderer)
    yield* Console.log(`\nAfter:\n${after.join("\n")}`)

    yield* Console.log(`\nThe checkpoint is ${path}
in ${directory}

What to try next:
  npx -y pnpm@10.34.9 tinkerfx serve --data-dir ${directory}
                               serve it, to this SDK, the official one, or anything that speaks OpenAI's API
  scripts/demo.ts              this program: change what it learns
  docs/README.md               how to train a large model: the same program, another layer`)
  }).pipe(Effect.scoped, Effect.withRandom(Random.make("demo")))

Effect.gen(function* () {
  yield* Console.log("effect-tinker demo: fine-tuning a small real language model, here and now.\n")
  const directory = yield* Effect.promise(() => mkdtemp(join(tmpdir(), "tinker-demo-")))
  const server = LocalTinker.layer({ dataDirectory: directory })
  const config = TinkerConfig.layer({ baseUrl: "http://local", apiKey: Redacted.make("tml-demo") })
  const tinker = Tinker.layer().pipe(Layer.provide([server, config, RateLimiter.layer]))
  yield* Effect.provide(program(directory), Layer.mergeAll(tinker, TokenizerBackend.layer, NodeContext.layer))
}).pipe(Logger.withMinimumLogLevel(LogLevel.Warning), NodeRuntime.runMain)
