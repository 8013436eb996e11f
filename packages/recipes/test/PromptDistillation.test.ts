import { describe, expect, it } from "@effect/vitest"
import { PromptDistillation, RunStore, Table } from "@effect-tinker/recipes"
import { Message } from "@effect-tinker/tokenizer"
import { Chunk, Deferred, Effect, Exit, Stream } from "effect"
import { Cost } from "effect-tinker"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import { renderer as letters } from "./support/Answers.ts"
import { afterAnyWrite } from "./support/Dying.ts"
import { weights } from "./support/Rollouts.ts"
import { clients, onServer } from "./support/Scripted.ts"

/** Tries every write instead of a few. */
const isFull = process.env["TINKER_TESTS"] === "all"

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
      yield* afterAnyWrite({ every: isFull ? 1 : 7, atLeast: isFull ? 20 : 3 }, ({ die, store, writes }) =>
        Effect.gen(function* () {
          yield* die((store) => program(store))
          const finished = (yield* store.lines("answers.jsonl")).length
          const before = (yield* sampled).length
          yield* program(store)
          expect({ writes, sampled: (yield* sampled).length - before }).toEqual({ writes, sampled: 4 - finished })
          expect((yield* store.lines("answers.jsonl")).toSorted()).toEqual(whole.answers)
          expect(yield* weights).toEqual(whole.weights)
        }),
      )
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
