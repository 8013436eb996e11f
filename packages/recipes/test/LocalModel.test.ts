/**
 * Recipes on a model that really learns. The programs in docs/recipes.md, which another test runs, show that each recipe
 * reaches its goal.
 */
import { expect, layer } from "@effect/vitest"
import { NodeContext } from "@effect/platform-node"
import { ModelFiles } from "@effect-tinker/engine"
import {
  DecisionRenderer,
  Decisions,
  DecisionScores,
  Environment,
  Evaluate,
  Preference,
  PromptDistillation,
  Rl,
  type RunEvent,
  RunStore,
  Supervised,
  Table,
} from "@effect-tinker/recipes"
import { LocalTinker } from "@effect-tinker/server"
import { Message } from "@effect-tinker/tokenizer"
import { Chunk, Effect, Layer, Stream } from "effect"
import { type SamplingClient, ServiceClient } from "effect-tinker"
import { expectClose } from "./support/Goldens.ts"
import { conversations, decisions } from "./support/Sailor.ts"

/** Also trains until answers change. */
const isFull = process.env["TINKER_TESTS"] === "all"

const model = ModelFiles.shippedName

const local = Layer.merge(LocalTinker.layerTinker(), NodeContext.layer)

const pairs = conversations(16).flatMap(({ messages: [question, answer] }) =>
  question === undefined || answer === undefined
    ? []
    : [{ prompt: [question], chosen: [answer], rejected: [Message.assistant("I do not know.")] }],
)

/** Returns the events of a run that is kept nowhere. */
const collected = <E, R>(events: Stream.Stream<RunEvent.RunEvent, E, R>) =>
  events.pipe(Stream.runCollect, Effect.map(Chunk.toReadonlyArray), Effect.provide(RunStore.layerMemory))

layer(local, { excludeTestServices: true, timeout: "2 minutes" })("on the local model", (it) => {
  it.effect("the server trains with exactly the probabilities that it samples with, and the reward rises", () =>
    Effect.gen(function* () {
      const renderer = yield* LocalTinker.renderer
      const config: Rl.Input = {
        model,
        rank: 8,
        iterations: isFull ? 5 : 1,
        groupsPerIteration: isFull ? 4 : 2,
        groupSize: isFull ? 8 : 2,
        maxTokens: 24,
        learningRate: 8e-3,
        checkpoints: { everySteps: 0 },
      }
      const questions = ["Tell me a story.", "Say something.", "Who are you?", "What do you see?"]
      const task = (index: number) =>
        Environment.question({
          renderer,
          messages: [Message.user(questions[index % questions.length] ?? "")],
          reward: (answer) => [...answer].filter((letter) => letter === "a").length / 10,
        })
      const events = yield* collected(Rl.train({ config, tasks: "letters", task }))
      const steps = events.flatMap((event) => (event._tag === "Step" ? [event.metrics] : []))
      expect(steps).toHaveLength(config.iterations)
      expect(steps[0]).toMatchObject({ "optim/kl_sample_train_v2": 0 })
      if (!isFull) return
      const [first = NaN, last = NaN] = [steps[0], steps.at(-1)].map((metrics) => metrics?.["env/all/reward/total"])
      expect(last).toBeGreaterThan(first + 0.1)
    }),
  )

  it.effect("preference tuning raises the margin, and the reference is computed once for each answer", () =>
    Effect.gen(function* () {
      const store = yield* RunStore.memory()
      const renderer = yield* LocalTinker.renderer
      const data = yield* Table.fromArray(pairs, { name: "pairs" })
      const config = { model, rank: 8, batchSize: 8, learningRate: 2e-3, checkpoints: { everySteps: 0 } }
      const events = Chunk.toReadonlyArray(
        yield* Preference.train({ config, renderer, data }).pipe(
          Stream.provideService(RunStore.RunStore, store),
          Stream.runCollect,
        ),
      )
      const steps = events.flatMap((event) => (event._tag === "Step" ? [event.metrics] : []))
      expect(steps).toHaveLength(2)
      // The model is its own reference before the first update.
      expect(steps[0]?.["dpo_loss"]).toBeCloseTo(Math.LN2, 4)
      expect(steps[0]?.["margin"]).toBeCloseTo(0, 4)
      expect(steps.at(-1)?.["margin"]).toBeGreaterThan(0)
      expect(yield* store.lines("reference.jsonl")).toHaveLength(32)
    }),
  )

  if (isFull)
    it.effect("the student answers like the teacher with its prompt, without seeing the prompt", () =>
      Effect.gen(function* () {
        const renderer = yield* LocalTinker.renderer
        const systemPrompt = "Repeat: boat garden"
        const words = ["something", "anything", "hello", "more", "one thing", "a word", "what you like", "it again"]
        const questions = words.map((word) => ({ messages: [Message.user(`Say ${word}.`)] }))
        const data = yield* Table.fromArray(questions, { name: "questions" })
        const store = yield* RunStore.memory()
        const events = Chunk.toReadonlyArray(
          yield* PromptDistillation.train({
            config: {
              model,
              rank: 8,
              systemPrompt,
              temperature: 0,
              maxTokens: 64,
              epochs: 10,
              batchSize: 8,
              learningRate: 8e-3,
              checkpoints: { everySteps: 0 },
            },
            renderer,
            data,
          }).pipe(Stream.provideService(RunStore.RunStore, store), Stream.runCollect),
        )
        expect(yield* store.lines("answers.jsonl")).toHaveLength(8)
        const service = yield* ServiceClient.ServiceClient
        const path = events.flatMap((event) => (event._tag === "Checkpoint" ? (event.samplerPath ?? []) : []))[0] ?? ""
        const [base, student] = [
          yield* service.createSamplingClient({ baseModel: model }),
          yield* service.createSamplingClient({ modelPath: path }),
        ]
        const taught = yield* Effect.forEach(questions, ({ messages }) =>
          Effect.gen(function* () {
            const prompt = yield* renderer.generationPrompt([Message.system(systemPrompt), ...messages])
            const params = { maxTokens: 64, temperature: 0, stop: renderer.stopSequences }
            const { sequences } = yield* base.sample({ prompt, params })
            const { message } = yield* renderer.parse(sequences[0]?.tokens ?? [])
            return { messages, answers: [Message.textOf(message)] }
          }),
        )
        const evaluation = Evaluate.exactMatch({ renderer, questions: taught, maxTokens: 64 })
        const { base: before, tuned } = yield* Evaluate.compare(base, student, evaluation)
        expect(before.metrics["exact_match"]).toBeLessThan(0.5)
        expect(tuned.metrics["exact_match"]).toBe(1)
      }).pipe(Effect.scoped),
    )

  if (isFull)
    it.effect("training raises the accuracy and lowers the log loss of held-out decisions", () =>
      Effect.gen(function* () {
        const renderer = yield* LocalTinker.renderer
        const data = yield* Table.fromArray(decisions(24), { name: "tasks" })
        const events = Chunk.toReadonlyArray(
          yield* Decisions.train({
            config: {
              model,
              rank: 8,
              choices: ["numbers", "words"],
              epochs: 8,
              batchSize: 8,
              learningRate: 4e-3,
              heldOut: 8,
              evaluateEverySteps: 100,
              checkpoints: { everySteps: 0 },
            },
            renderer,
            data,
          }).pipe(Stream.runCollect, Effect.provide(RunStore.layerMemory)),
        )
        const [before, after] = events.flatMap((event) => (event._tag === "Evaluation" ? [event.metrics] : []))
        expect(Object.keys(before ?? {}).toSorted()).toEqual([
          "test/accuracy",
          "test/brier",
          "test/calibration_error",
          "test/log_loss",
        ])
        expect(before?.["test/accuracy"]).toBeLessThan(0.6)
        expect(after?.["test/accuracy"]).toBe(1)
        expect(after?.["test/log_loss"]).toBeLessThan(0.2)
        expect(after?.["test/calibration_error"]).toBeLessThan(0.2)
        expect(events.find(({ _tag }) => _tag === "Sample")).toMatchObject({
          tokens: [{ text: expect.stringMatching(/^numbers [\d.]+%, words [\d.]+%$/) }],
        })
      }),
    )

  it.effect("one request gives the probabilities that asking for each label would give", () =>
    Effect.gen(function* () {
      const renderer = yield* LocalTinker.renderer
      const service = yield* ServiceClient.ServiceClient
      const base = yield* service.createSamplingClient({ baseModel: model })
      const requests: Array<SamplingClient.Request> = []
      const counting: SamplingClient.Service = {
        ...base,
        sample: (request, options) => {
          requests.push(request)
          return base.sample(request, options)
        },
      }
      const rendered = yield* DecisionRenderer.make(renderer).render({
        question: "What is a cat?",
        choices: ["an animal that has four legs", "a fruit", { label: "unknown", id: "?" }],
      })
      const found = yield* Decisions.probabilities(counting, rendered)
      expect(requests).toHaveLength(1)
      expect(found.map(({ label }) => label)).toEqual(["an animal that has four legs", "a fruit", "unknown"])
      const before = rendered.prompt.chunks.flatMap((chunk) => (chunk.type === "encoded_text" ? [...chunk.tokens] : []))
      const single = yield* Effect.forEach(rendered.tokens, (token) =>
        Effect.map(base.computeLogprobs([...before.slice(0, -1), token]), (logprobs) => logprobs.at(-1) ?? NaN),
      )
      expectClose(
        found.map(({ probability }) => probability),
        DecisionScores.softmax(single),
      )
    }).pipe(Effect.scoped),
  )

  if (isFull)
    it.effect("training with Supervised improves the likelihood and the answers, as its own evaluations report", () =>
      Effect.gen(function* () {
        const renderer = yield* LocalTinker.renderer
        const store = yield* RunStore.memory()
        const data = yield* Table.fromArray(conversations(40), { name: "sailor" })
        const config: Supervised.Input = {
          model,
          rank: 8,
          epochs: 2,
          batchSize: 8,
          learningRate: 8e-3,
          checkpoints: { everySteps: 0, best: { metric: "sailor/score", direction: "highest" } },
        }
        const greeting = Evaluate.judge({
          name: "sailor",
          renderer,
          questions: conversations(8).map(({ messages }) => ({ messages: messages.slice(0, 1) })),
          maxTokens: 16,
          score: ({ text }) => (text.startsWith("Ahoy!") ? 1 : 0),
        })
        const evaluations = [Evaluate.inRun(greeting, { everySteps: 5, samples: 2 })]
        const events = Chunk.toReadonlyArray(
          yield* Supervised.train({ config, renderer, data, evaluations }).pipe(
            Stream.provideService(RunStore.RunStore, store),
            Stream.runCollect,
          ),
        )
        const scores = events.flatMap((event) => (event._tag === "Evaluation" ? [event.metrics["sailor/score"]] : []))
        expect(scores[0]).toBe(0)
        expect(scores.at(-1)).toBe(1)
        const samples = events.flatMap((event) => (event._tag === "Sample" ? [event] : []))
        expect(samples).toHaveLength(2 * scores.length)
        expect(samples.at(-1)).toMatchObject({ source: "sailor", reward: 1 })
        const path = events.flatMap((event) => (event._tag === "Checkpoint" ? [event.samplerPath ?? ""] : [])).at(-1)
        const service = yield* ServiceClient.ServiceClient
        const base = yield* service.createSamplingClient({ baseModel: model })
        const tuned = yield* service.createSamplingClient({ modelPath: path ?? "" })
        const result = yield* Evaluate.compare(base, tuned, Evaluate.likelihood({ renderer, data }))
        expect(result.verdict).toBe("improved")
        expect((yield* Evaluate.compare(base, tuned, greeting)).verdict).toBe("improved")
      }).pipe(Effect.scoped),
    )

  it.effect("attempts of one request differ, and Preference accepts evaluations", () =>
    Effect.gen(function* () {
      const renderer = yield* LocalTinker.renderer
      const questions = [{ messages: [Message.user("Tell me a story.")] }]
      const evaluation = yield* Evaluate.passAtK({
        name: "story",
        renderer,
        questions,
        maxTokens: 12,
        k: 4,
        isSolved: ({ text }) => text.length > 0,
      })
      const service = yield* ServiceClient.ServiceClient
      const sampler = yield* service.createSamplingClient({ baseModel: model })
      const { outcomes } = yield* Evaluate.run(sampler, evaluation)
      const [outcome] = outcomes
      const texts = outcome?._tag === "Answered" ? outcome.answer.map(({ text }) => text) : []
      expect(new Set(texts).size).toBe(4)
      const data = yield* Table.fromArray(
        [{ prompt: [Message.user("Hi")], chosen: [Message.assistant("Ahoy")], rejected: [Message.assistant("No")] }],
        { name: "pairs" },
      )
      const config = { model, rank: 4, batchSize: 1, checkpoints: { everySteps: 0 } }
      const evaluations = [Evaluate.inRun(evaluation, { everySteps: 1 })]
      const events = yield* Preference.train({ config, renderer, data, evaluations }).pipe(
        Stream.runCollect,
        Effect.provide(RunStore.layerMemory),
      )
      expect([...events].filter(({ _tag }) => _tag === "Evaluation")).toHaveLength(2)
    }).pipe(Effect.scoped),
  )
})
