import { describe, expect, it } from "@effect/vitest"
import { NodeContext } from "@effect/platform-node"
import { ModelFiles } from "@effect-tinker/engine"
import { Evaluate, PromptDistillation, RunStore, Table } from "@effect-tinker/recipes"
import { LocalTinker } from "@effect-tinker/server"
import { Message } from "@effect-tinker/tokenizer"
import { Chunk, Deferred, Effect, Exit, Layer, Stream } from "effect"
import { Cost, ServiceClient } from "effect-tinker"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import { renderer as letters } from "./support/Answers.ts"
import { dying } from "./support/Dying.ts"
import { weights } from "./support/Rollouts.ts"
import { clients, onServer } from "./support/Scripted.ts"

/** Tries every write instead of every fifth. */
const isFull = process.env["TINKER_TESTS"] === "all"

const local = Layer.merge(LocalTinker.layerTinker(), NodeContext.layer)

describe("PromptDistillation.train on the local model", () => {
  it.live("the student answers like the teacher with its prompt, without seeing the prompt", () =>
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
            model: ModelFiles.shippedName,
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
        yield* service.createSamplingClient({ baseModel: ModelFiles.shippedName }),
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
    }).pipe(Effect.scoped, Effect.provide(local)),
  )
})

const questions = ["a", "b", "c", "d", "a"].map((text) => ({
  messages: [Message.user(text), Message.assistant("unused")],
}))

const small: PromptDistillation.Input = {
  model: "m",
  systemPrompt: "be brief",
  maxTokens: 3,
  epochs: 2,
  batchSize: 2,
  learningRate: 1e-3,
  checkpoints: { everySteps: 0, rollingEverySteps: 2 },
}

/** A user's program. */
const program = (
  store: RunStore.Service,
  config: PromptDistillation.Input = small,
  more: Partial<PromptDistillation.Options> = {},
) =>
  Effect.gen(function* () {
    const data = yield* Table.fromArray(questions, { name: "questions" })
    return Chunk.toReadonlyArray(
      yield* Stream.runCollect(PromptDistillation.train({ config, renderer: letters, data, ...more })),
    )
  }).pipe(Effect.scoped, Effect.provideService(RunStore.RunStore, store), Effect.provide(clients))

/** The prompts that were sampled from, as text. */
const sampled = Effect.flatMap(ScriptedServer.ScriptedServer, ({ requestsTo }) =>
  Effect.map(requestsTo("asample"), (requests) =>
    requests.map(({ json }) => {
      const { prompt } = json as {
        readonly prompt: { readonly chunks: ReadonlyArray<{ readonly tokens: ReadonlyArray<number> }> }
      }
      return prompt.chunks.map(({ tokens }) => String.fromCodePoint(...tokens)).join("")
    }),
  ),
)

describe("PromptDistillation.train", () => {
  it.effect("a run that dies after any write samples no answer again and ends with the same weights", () =>
    Effect.gen(function* () {
      const whole = yield* onServer(
        Effect.gen(function* () {
          const store = yield* RunStore.memory()
          const events = yield* program(store)
          expect(events.at(-1)).toMatchObject({ _tag: "Done", step: 4, outcome: "complete" })
          return { answers: (yield* store.lines("answers.jsonl")).toSorted(), weights: yield* weights }
        }),
      )
      // Two of the five questions are the same.
      expect(whole.answers).toHaveLength(4)
      let deaths = 0
      for (let writes = 1; ; writes += isFull ? 1 : 3) {
        const died = yield* onServer(
          Effect.gen(function* () {
            const store = yield* RunStore.memory()
            const exit = yield* Effect.exit(program(dying(store, writes)))
            if (Exit.isSuccess(exit)) return false
            const finished = (yield* store.lines("answers.jsonl")).length
            const before = (yield* sampled).length
            yield* program(store)
            expect({ writes, sampled: (yield* sampled).length - before }).toEqual({ writes, sampled: 4 - finished })
            expect((yield* store.lines("answers.jsonl")).toSorted()).toEqual(whole.answers)
            expect(yield* weights).toEqual(whole.weights)
            return true
          }),
        )
        if (!died) break
        deaths++
      }
      expect(deaths).toBeGreaterThan(isFull ? 20 : 6)
    }),
  )

  it.effect("only the teacher sees the prompt, also in front of a system message of the conversation", () =>
    onServer(
      Effect.gen(function* () {
        const rows = [
          [Message.user("a"), Message.assistant("unused")],
          [Message.system("own"), Message.user("b")],
        ]
        const data = yield* Table.fromArray(rows.map((messages) => ({ messages })))
        const events = yield* program(yield* RunStore.memory(), { ...small, epochs: 1 }, { data })
        expect((yield* sampled).toSorted()).toEqual([
          "system:be brief\n\nown\nuser:b\na:",
          "system:be brief\nuser:a\na:",
        ])
        // Questions without the prompt, answers of three tokens, and their ends; the last one is only a target.
        const [a, b] = ["user:a\na:", "system:own\nuser:b\na:"].map(({ length }) => length + 3)
        expect(events.find(({ _tag }) => _tag === "Step")).toMatchObject({
          metrics: { num_tokens: (a ?? NaN) + (b ?? NaN), num_loss_tokens: 8 },
        })
      }),
    ),
  )

  it.effect("a question whose answer has no end is left out and counted, or ends the run", () =>
    onServer(
      Effect.gen(function* () {
        const cut: typeof letters = {
          ...letters,
          parse: (tokens) =>
            Effect.map(letters.parse(tokens), (parsed) =>
              parsed.message.content === first ? { ...parsed, termination: "malformed" as const } : parsed,
            ),
        }
        const probe = yield* RunStore.memory()
        yield* program(probe)
        const first = JSON.parse((yield* probe.lines("answers.jsonl"))[1] ?? "").message.content
        const events = yield* program(yield* RunStore.memory(), small, { renderer: cut })
        expect(events[0]).toMatchObject({
          _tag: "Warning",
          reason: "rows_skipped",
          message:
            "1 of 5 rows of questions are left out: questions, row 2, field messages: the teacher's answer has no end within 3 tokens",
        })
        const failed = program(yield* RunStore.memory(), { ...small, onBadRow: "fail" }, { renderer: cut })
        expect(yield* Effect.flip(failed)).toMatchObject({ _tag: "BadRow", file: "questions", row: 2 })
      }),
    ),
  )

  it.effect("another prompt is another run, and no answer to the old one is used", () =>
    onServer(
      Effect.gen(function* () {
        const store = yield* RunStore.memory()
        const dies: RunStore.Service = {
          ...store,
          append: (file, lines) => (file === "events.jsonl" ? Effect.die("killed") : store.append(file, lines)),
        }
        expect(Exit.isFailure(yield* Effect.exit(program(dies)))).toBe(true)
        const other = { ...small, systemPrompt: "be rude" }
        const before = (yield* sampled).length
        expect(yield* Effect.flip(program(store, other))).toMatchObject({
          _tag: "ConfigurationChanged",
          message: expect.stringContaining("systemPrompt"),
        })
        expect(yield* sampled).toHaveLength(before)
        yield* program(store, other, { allowChanges: true })
        expect((yield* sampled).slice(before)).toHaveLength(4)
      }),
    ),
  )

  it.effect("a run that is asked to stop or has spent its budget stops before the answers are complete", () =>
    onServer(
      Effect.gen(function* () {
        const store = yield* RunStore.memory()
        const stop = yield* Deferred.make<void>()
        yield* Deferred.succeed(stop, undefined)
        expect(yield* Effect.flip(program(store, small, { stop: Deferred.await(stop) }))).toMatchObject({
          _tag: "RunStopped",
          step: 0,
        })
        // Each question has 25 tokens.
        const prices = { ...Cost.free, models: { m: { train: 0, sample: 0, prefill: 1e6, cachedPrefill: 1e6 } } }
        const costly = yield* RunStore.memory()
        const error = yield* Effect.flip(program(costly, small, { cost: { prices, budget: Cost.usd(60) } }))
        expect(error).toMatchObject({ _tag: "RunStopped", message: expect.stringContaining("budget") })
        expect(yield* costly.lines("answers.jsonl")).toHaveLength(2)
        yield* program(costly, small, { cost: { prices, budget: Cost.usd(100) } })
        expect(yield* costly.lines("answers.jsonl")).toHaveLength(4)
      }),
    ),
  )
})
