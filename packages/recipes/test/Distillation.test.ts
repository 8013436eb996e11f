import { describe, expect, it } from "@effect/vitest"
import { Distillation, Environment, type RunEvent, RunStore, Table } from "@effect-tinker/recipes"
import { Message, type RendererError } from "@effect-tinker/tokenizer"
import { Chunk, Effect, Option, Stream } from "effect"
import { Cost, ModelInput, ServiceClient } from "effect-tinker"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import { renderer as letters } from "./support/Answers.ts"
import { afterAnyWrite } from "./support/Dying.ts"
import { weights } from "./support/Rollouts.ts"
import { clients, onServer } from "./support/Scripted.ts"

/** Tries every write instead of a few. */
const isFull = process.env["TINKER_TESTS"] === "all"

const metricsOf = (events: ReadonlyArray<RunEvent.RunEvent>) =>
  events.flatMap((event) => (event._tag === "Step" ? [event.metrics] : []))

const questions = ["a", "b", "c", "d"].map((text) => ({ messages: [Message.user(text), Message.assistant("unused")] }))

const small: Distillation.Input = {
  model: "m",
  teacher: "teacher",
  groupsPerIteration: 2,
  groupSize: 2,
  maxTokens: 3,
  updatesPerIteration: 2,
  learningRate: 1e-3,
  checkpoints: { everySteps: 0, rollingEverySteps: 2 },
}

/** A user's program, which shows tokens as numbers. */
const program = (
  store: RunStore.Service,
  config: Distillation.Input = small,
  more: Pick<Distillation.Options<Message.Conversation, RendererError.Failure>, "task" | "cost"> = {},
) =>
  Effect.gen(function* () {
    const data = yield* Table.fromArray(questions, { name: "questions" })
    const decode = (tokens: Int32Array) => Effect.succeed(tokens.join(" "))
    return Chunk.toReadonlyArray(
      yield* Stream.runCollect(Distillation.train({ config, renderer: letters, data, decode, ...more })),
    )
  }).pipe(Effect.scoped, Effect.provideService(RunStore.RunStore, store), Effect.provide(clients))

const samplesOf = (events: ReadonlyArray<RunEvent.RunEvent>) =>
  events.flatMap((event) => (event._tag === "Sample" ? [event] : []))

describe("Distillation.train", () => {
  it.effect("a run that dies after any write samples no finished rollout again and ends with the same weights", () =>
    Effect.gen(function* () {
      const whole = yield* onServer(
        Effect.gen(function* () {
          const store = yield* RunStore.memory()
          yield* program(store)
          return { rollouts: (yield* store.lines("rollouts.jsonl")).toSorted(), weights: yield* weights }
        }),
      )
      expect(whole.rollouts).toHaveLength(8)
      yield* afterAnyWrite({ every: isFull ? 1 : 11, atLeast: isFull ? 25 : 3 }, ({ die, store, writes }) =>
        Effect.gen(function* () {
          yield* die((store) => program(store))
          const finished = yield* store.lines("rollouts.jsonl")
          yield* program(store)
          const rollouts = yield* store.lines("rollouts.jsonl")
          expect(rollouts.slice(0, finished.length)).toEqual(finished)
          expect({ writes, rollouts: rollouts.toSorted() }).toEqual({ writes, rollouts: whole.rollouts })
          expect(yield* weights).toEqual(whole.weights)
        }),
      )
    }),
  )

  it.effect("the advantage of a token is what the teacher finds it likelier than the student, beside the reward", () =>
    onServer(
      Effect.gen(function* () {
        const config: Distillation.Input = { ...small, maxIterations: 1, updatesPerIteration: 1, klPenalty: 0.5 }
        const events = yield* program(yield* RunStore.memory(), config)
        const samples = samplesOf(events)
        expect(samples).toHaveLength(4)
        // The answer in the data is not part of the question.
        expect(samples.map(({ prompt }) => prompt)).toEqual(
          expect.arrayContaining([expect.stringMatching(/^user: \w$/)]),
        )
        const teacher = yield* Effect.flatMap(ServiceClient.ServiceClient, (service) =>
          service.createSamplingClient({ baseModel: "teacher" }),
        )
        const distances = yield* Effect.forEach(samples, ({ prompt, tokens }) =>
          Effect.gen(function* () {
            const { chunks } = yield* letters.generationPrompt([Message.user(prompt.slice(-1))])
            const own = Int32Array.from(tokens, ({ text }) => Number(text))
            const all = chunks.flatMap((chunk) => (chunk.type === "encoded_text" ? [...chunk.tokens] : []))
            const parts = [[...all, ...own.subarray(0, -1)], own.subarray(-1)].map(
              (tokens) => ({ type: "encoded_text", tokens: Int32Array.from(tokens) }) as const,
            )
            const logprobs = yield* teacher.computeLogprobs(ModelInput.fromChunks(parts))
            const scores = logprobs.subarray(-own.length)
            return tokens.map(({ logprob = NaN }, at) => logprob - (scores[at] ?? NaN))
          }),
        )
        const all = distances.flat()
        expect(metricsOf(events)[0]?.["teacher_kl"]).toBeCloseTo(all.reduce((a, b) => a + b, 0) / all.length, 5)
        for (const [index, { tokens }] of samples.entries())
          for (const [at, { advantage }] of tokens.entries())
            expect(advantage).toBeCloseTo(-0.5 * (distances[index]?.[at] ?? NaN), 4)

        const rewarded = yield* program(yield* RunStore.memory(), config, {
          task: ({ messages }) =>
            Environment.question({
              renderer: letters,
              messages: messages.slice(0, 1),
              reward: (_, { content }) => (typeof content === "string" ? (content.codePointAt(0) ?? 0) : 0),
            }),
        })
        const rewards = samplesOf(rewarded).map(({ reward = NaN }) => reward)
        for (const [index, { tokens }] of samplesOf(rewarded).entries()) {
          const group = Math.floor(index / 2) * 2
          const mean = ((rewards[group] ?? NaN) + (rewards[group + 1] ?? NaN)) / 2
          for (const [at, { advantage }] of tokens.entries())
            expect(advantage).toBeCloseTo((rewards[index] ?? NaN) - mean - 0.5 * (distances[index]?.[at] ?? NaN), 3)
        }
        expect(new Set(rewards).size).toBeGreaterThan(1)
      }).pipe(Effect.scoped, Effect.provide(clients)),
    ),
  )

  it.effect("the teacher is a base model or a checkpoint, and a run is not continued with another one", () =>
    onServer(
      Effect.gen(function* () {
        const { requestsTo } = yield* ScriptedServer.ScriptedServer
        const store = yield* RunStore.memory()
        yield* program(store)
        const [first] = yield* requestsTo("create_sampling_session")
        expect(first?.json).toMatchObject({ base_model: "teacher" })
        const error = yield* Effect.flip(program(store, { ...small, teacher: "other" }))
        expect(error).toMatchObject({ _tag: "ConfigurationChanged", message: expect.stringContaining("teacher") })
        const written = JSON.parse(Option.getOrElse(yield* store.read("config.json"), () => ""))
        expect(written).toMatchObject({ recipe: "distillation", teacher: "teacher", renderer: "letters" })
      }),
    ),
  )

  it.effect("what the teacher computes counts against the budget, at the teacher's prices", () =>
    onServer(
      Effect.gen(function* () {
        const free = { train: 0, sample: 0, prefill: 0, cachedPrefill: 0 }
        const config: Distillation.Input = { ...small, maxIterations: 1, updatesPerIteration: 1 }
        const store = yield* RunStore.memory()
        const models = { m: free, teacher: { ...free, prefill: 1e6 } }
        yield* program(store, config, { cost: { prices: { ...Cost.free, models } } })
        const { spent } = JSON.parse(Option.getOrElse(yield* store.read("spending.json"), () => "{}"))
        // Four sequences of nine tokens and an answer of three.
        expect(Number(spent) / 1e12).toBe(4 * 12)
        const cost = { prices: { ...Cost.free, models: { m: free } } }
        expect(yield* Effect.flip(program(yield* RunStore.memory(), config, { cost }))).toMatchObject({
          _tag: "InvalidInput",
          path: "cost.prices",
          message: expect.stringContaining("teacher"),
        })
      }),
    ),
  )

  it.effect("a row without a question and a misspelled setting are errors that name them", () =>
    onServer(
      Effect.gen(function* () {
        const data = yield* Table.fromArray([{ messages: [Message.assistant("hi")] }], { name: "questions" })
        const train = (config: Distillation.Input) =>
          Distillation.train({ config, renderer: letters, data }).pipe(
            Stream.runDrain,
            Effect.provide([RunStore.layerMemory, clients]),
            Effect.flip,
          )
        expect(yield* train(small)).toMatchObject({ _tag: "BadRow", file: "questions", row: 1, field: "messages" })
        const misspelled: Distillation.Input & { readonly techer: string } = { ...small, techer: "t" }
        expect(yield* train(misspelled)).toMatchObject({
          _tag: "InvalidInput",
          message: expect.stringContaining("did you mean teacher?"),
        })
      }),
    ),
  )
})
