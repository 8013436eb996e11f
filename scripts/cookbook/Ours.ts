/** Trains with our recipes, in directories that the cookbook's tools read. */
import { ModelFiles } from "@effect-tinker/engine"
import { NodeTinker } from "@effect-tinker/node"
import { Batches, type Environment, Rl, RunDirectory, Supervised, Table } from "@effect-tinker/recipes"
import { Message, RoleColon, type Renderer, TokenizerBackend, TokenizerFiles } from "@effect-tinker/tokenizer"
import { NodeContext } from "@effect/platform-node"
import { Chunk, Effect, Layer, Redacted, Stream } from "effect"
import { ServiceClient } from "effect-tinker"
import * as Plan from "./Plan.ts"

const connected = (baseUrl: string) =>
  Layer.merge(NodeTinker.layer({ baseUrl, apiKey: Redacted.make("tml-cookbook") }), NodeContext.layer)

const tokenizer = Effect.gen(function* () {
  const backend = yield* TokenizerBackend.TokenizerBackend
  return yield* backend.make(yield* TokenizerFiles.fromDirectory(yield* ModelFiles.shipped))
}).pipe(Effect.provide(TokenizerBackend.layer))

const data = Table.fromArray(Plan.conversations, { name: "sailor" })

/** Returns the rows as our recipe uses them: those of each batch of each epoch, and those that are held out. */
export const order = Effect.gen(function* () {
  const { batchSize, epochs, heldOut, seed } = Plan.supervised
  const { heldOut: test, train } = yield* Table.split(yield* data, { heldOut: { count: heldOut }, seed })
  const batches = yield* Batches.make(train, { size: { rows: batchSize }, epochs, seed, lastBatch: "drop" })
  const all = Chunk.toReadonlyArray(yield* Stream.runCollect(batches.from(0)))
  return {
    epochs: Array.from({ length: epochs }, (_, epoch) =>
      all.filter((batch) => batch.epoch === epoch).map(({ rows }) => rows.map(({ value }) => value)),
    ),
    heldOut: Chunk.toReadonlyArray(yield* Stream.runCollect(Table.rows(test))).map(({ value }) => value),
  }
})

/** Fine-tunes on conversations. */
export const supervised = (baseUrl: string, directory: string) =>
  Effect.gen(function* () {
    const own = yield* tokenizer
    const renderer = yield* RoleColon.make(own)
    yield* Stream.runDrain(
      Supervised.train({ config: Plan.supervised, renderer, tokenizer: own, data: yield* data }),
    ).pipe(Effect.provide(RunDirectory.layer(directory)))
  }).pipe(Effect.provide(connected(baseUrl)))

/**
 * The counterpart of the cookbook's `ProblemEnv`: rates an answer and whether it ends by itself. Rewards are multiples of
 * 1/16, which single precision holds exactly: the cookbook computes advantages in it.
 */
const problem = (renderer: Renderer.Renderer, question: string): Environment.Task<unknown> => ({
  name: question,
  make: Effect.succeed({
    start: Effect.map(renderer.generationPrompt([Message.user(question)]), (prompt) => ({
      prompt,
      stop: renderer.stopSequences,
    })),
    act: ({ tokens }) =>
      Effect.map(renderer.parse(tokens), ({ message, termination }) => {
        const text = Message.textOf(message)
        const format = termination !== "malformed" && text.trim() !== "" ? 1 : 0
        const correct = Math.min(1, text.split("a").length / 16)
        return { reward: Plan.formatCoefficient * (format - 1) + correct, metrics: { format, correct } }
      }),
  }),
})

/** Trains by reinforcement. */
export const reinforced = (baseUrl: string, directory: string, config: Rl.Input) =>
  Effect.gen(function* () {
    const renderer = yield* RoleColon.make(yield* tokenizer)
    const task = (index: number) => problem(renderer, Plan.question(index))
    yield* Stream.runDrain(Rl.train({ config, task, tasks: "the letter a" })).pipe(
      Effect.provide(RunDirectory.layer(directory)),
    )
  }).pipe(Effect.provide(connected(baseUrl)))

/** Returns the log probabilities of the conversations under saved weights. */
export const logprobs = (baseUrl: string, modelPath: string) =>
  Effect.gen(function* () {
    const renderer = yield* RoleColon.make(yield* tokenizer)
    const service = yield* ServiceClient.ServiceClient
    const sampler = yield* service.createSamplingClient({ modelPath })
    const all = yield* Effect.forEach(Plan.conversations.slice(0, 8), ({ messages }) =>
      Effect.flatMap(renderer.generationPrompt(messages), (prompt) => sampler.computeLogprobs(prompt)),
    )
    return all.flatMap((some) => [...some.subarray(1)])
  }).pipe(Effect.scoped, Effect.provide(connected(baseUrl)))
