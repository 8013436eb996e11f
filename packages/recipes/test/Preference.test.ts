import { describe, expect, it } from "@effect/vitest"
import { Preference, RunStore, Table } from "@effect-tinker/recipes"
import { Message } from "@effect-tinker/tokenizer"
import { Chunk, Effect, Stream } from "effect"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import { renderer } from "./support/Answers.ts"
import { afterAnyWrite } from "./support/Dying.ts"
import { weights } from "./support/Rollouts.ts"
import { clients, onServer } from "./support/Scripted.ts"

/** Tries every write instead of a few. */
const isFull = process.env["TINKER_TESTS"] === "all"

const pairs = ["a", "b", "c", "d"].map((letter) => ({
  prompt: [Message.user(letter)],
  chosen: [Message.assistant(`yes ${letter}`)],
  rejected: [Message.assistant(`no ${letter}`)],
}))

const small: Preference.Input = {
  model: "m",
  epochs: 2,
  batchSize: 2,
  learningRate: 1e-3,
  checkpoints: { everySteps: 0, rollingEverySteps: 2 },
}

/** A user's program. */
const program = (store: RunStore.Service, config: Preference.Input = small) =>
  Effect.gen(function* () {
    const data = yield* Table.fromArray(pairs, { name: "pairs" })
    return Chunk.toReadonlyArray(yield* Stream.runCollect(Preference.train({ config, renderer, data })))
  }).pipe(Effect.scoped, Effect.provideService(RunStore.RunStore, store), Effect.provide(clients))

describe("Preference.train", () => {
  it.effect(
    "a run that dies after any write computes the reference of no answer again and ends with the same weights",
    () =>
      Effect.gen(function* () {
        const whole = yield* onServer(
          Effect.gen(function* () {
            const store = yield* RunStore.memory()
            const events = yield* program(store)
            expect(events.at(-1)).toMatchObject({ _tag: "Done", step: 4, outcome: "complete" })
            return { reference: (yield* store.lines("reference.jsonl")).toSorted(), weights: yield* weights }
          }),
        )
        expect(whole.reference).toHaveLength(8)
        yield* afterAnyWrite({ every: isFull ? 1 : 9, atLeast: isFull ? 20 : 3 }, ({ die, store, writes }) =>
          Effect.gen(function* () {
            yield* die((store) => program(store))
            const finished = (yield* store.lines("reference.jsonl")).length
            const { requestsTo } = yield* ScriptedServer.ScriptedServer
            const before = (yield* requestsTo("asample")).length
            yield* program(store)
            const computed = (yield* requestsTo("asample")).length - before
            expect({ writes, computed }).toEqual({ writes, computed: 8 - finished })
            expect((yield* store.lines("reference.jsonl")).toSorted()).toEqual(whole.reference)
            expect(yield* weights).toEqual(whole.weights)
          }),
        )
      }),
  )

  it.effect("a misspelled setting is an error that names it, before anything is sent", () =>
    onServer(
      Effect.gen(function* () {
        const misspelled: Preference.Input & { readonly learningrate: number } = { ...small, learningrate: 1 }
        const error = yield* Effect.flip(program(yield* RunStore.memory(), misspelled))
        expect(error).toMatchObject({ _tag: "InvalidInput", message: expect.stringContaining("learningrate") })
        const { requestsTo } = yield* ScriptedServer.ScriptedServer
        expect(yield* requestsTo("create_model")).toEqual([])
      }),
    ),
  )
})
