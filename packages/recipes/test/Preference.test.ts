import { describe, expect, it } from "@effect/vitest"
import { NodeContext } from "@effect/platform-node"
import { ModelFiles } from "@effect-tinker/engine"
import { Preference, RunStore, Table } from "@effect-tinker/recipes"
import { LocalTinker } from "@effect-tinker/server"
import { Message } from "@effect-tinker/tokenizer"
import { Chunk, Effect, Layer, Stream } from "effect"
import { conversations } from "./support/Sailor.ts"

const pairs = conversations(16).flatMap(({ messages: [question, answer] }) =>
  question === undefined || answer === undefined
    ? []
    : [{ prompt: [question], chosen: [answer], rejected: [Message.assistant("I do not know.")] }],
)

const config: Preference.Input = {
  model: ModelFiles.shippedName,
  rank: 8,
  epochs: 3,
  batchSize: 8,
  learningRate: 2e-3,
  checkpoints: { everySteps: 0 },
}

const local = Layer.merge(LocalTinker.layerTinker(), NodeContext.layer)

describe("Preference.train", () => {
  it.live(
    "preference tuning on the local model raises the margin, with reference log probabilities computed once",
    () =>
      Effect.gen(function* () {
        const store = yield* RunStore.memory()
        const renderer = yield* LocalTinker.renderer
        const data = yield* Table.fromArray(pairs, { name: "pairs" })
        const events = Chunk.toReadonlyArray(
          yield* Preference.train({ config, renderer, data }).pipe(
            Stream.provideService(RunStore.RunStore, store),
            Stream.runCollect,
          ),
        )
        const steps = events.flatMap((event) => (event._tag === "Step" ? [event.metrics] : []))
        expect(steps).toHaveLength(6)
        // The model is its own reference before the first update.
        expect(steps[0]?.["dpo_loss"]).toBeCloseTo(Math.LN2, 4)
        expect(steps[0]?.["margin"]).toBeCloseTo(0, 4)
        expect(steps.at(-1)?.["margin"]).toBeGreaterThan(0.5)
        expect(steps.at(-1)?.["accuracy"]).toBe(1)
        expect(yield* store.lines("reference.jsonl")).toHaveLength(32)
      }).pipe(Effect.provide(local)),
  )

  it.live("a misspelled setting is an error that names it, before anything is sent", () =>
    Effect.gen(function* () {
      const renderer = yield* LocalTinker.renderer
      const data = yield* Table.fromArray(pairs, { name: "pairs" })
      const misspelled: Preference.Input & { readonly learningrate: number } = { ...config, learningrate: 1 }
      const error = yield* Preference.train({ config: misspelled, renderer, data }).pipe(
        Stream.runDrain,
        Effect.provide(RunStore.layerMemory),
        Effect.flip,
      )
      expect(error).toMatchObject({ _tag: "InvalidInput", message: expect.stringContaining("learningrate") })
    }).pipe(Effect.provide(local)),
  )
})
