import { describe, expect, it } from "@effect/vitest"
import { NodeContext } from "@effect/platform-node"
import { ModelFiles } from "@effect-tinker/engine"
import { Run, RunStore, Supervised, Table } from "@effect-tinker/recipes"
import { LocalTinker } from "@effect-tinker/server"
import { Message } from "@effect-tinker/tokenizer"
import { Chunk, Effect, Layer, Stream } from "effect"
import { ServiceClient } from "effect-tinker"
import { conversations } from "./support/Sailor.ts"

const config: Supervised.Input = {
  model: ModelFiles.shippedName,
  rank: 8,
  epochs: 2,
  batchSize: 8,
  learningRate: 8e-3,
  heldOut: 8,
  evaluateEverySteps: 4,
  checkpoints: { everySteps: 4, rollingEverySteps: 1, best: { metric: "test/nll", direction: "lowest" } },
}

const train = (store: RunStore.Service, input: Supervised.Input = config) =>
  Effect.gen(function* () {
    const renderer = yield* LocalTinker.renderer
    const data = Table.fromArray(conversations(40), { name: "sailor" })
    return Chunk.toReadonlyArray(
      yield* Stream.runCollect(
        Supervised.train({ config: input, renderer, data: yield* data }).pipe(
          Stream.provideService(RunStore.RunStore, store),
        ),
      ),
    )
  })

const local = Layer.merge(LocalTinker.layerTinker(), NodeContext.layer)

describe("Supervised.train", () => {
  it.live("supervised training on the local model lowers the loss on held-out conversations", () =>
    Effect.gen(function* () {
      const store = yield* RunStore.memory()
      const events = yield* train(store)
      const nll = events.flatMap((event) => (event._tag === "Evaluation" ? [event.metrics["test/nll"] ?? NaN] : []))
      expect(nll).toHaveLength(3)
      expect(nll.at(-1)).toBeLessThan(0.5 * (nll[0] ?? NaN))
      const steps = events.flatMap((event) => (event._tag === "Step" ? [event] : []))
      expect(steps).toHaveLength(8)
      expect(Object.keys(steps[0]?.metrics ?? {})).toEqual(
        expect.arrayContaining([
          "epoch",
          "progress",
          "learning_rate",
          "num_sequences",
          "num_tokens",
          "num_loss_tokens",
          "train_mean_nll",
        ]),
      )
      expect(steps.at(-1)?.metrics).toMatchObject({ epoch: 1, progress: 1, num_sequences: 8 })
      // Nothing is left of the rolling checkpoints and of the evaluations that were not the best.
      const { rest } = yield* ServiceClient.ServiceClient
      const paths = Chunk.toReadonlyArray(yield* Stream.runCollect(rest.stream.listUserCheckpoints())).map(
        ({ tinkerPath }) => tinkerPath.split("/").slice(-2).join("/"),
      )
      expect(paths.toSorted()).toEqual([
        "sampler_weights/000004",
        "sampler_weights/evaluation-000008",
        "sampler_weights/final",
        "weights/000004",
        "weights/final",
      ])
      expect(yield* train(store)).toEqual([])
      expect((yield* Run.readEvents(store)).length).toBe(events.length)
    }).pipe(Effect.provide(local)),
  )

  it.live("a model without a recommended learning rate needs one in its configuration", () =>
    Effect.gen(function* () {
      const renderer = yield* LocalTinker.renderer
      const data = yield* Table.fromArray(conversations(8), { name: "sailor" })
      const error = yield* Supervised.train({ config: { model: ModelFiles.shippedName }, renderer, data }).pipe(
        Stream.runDrain,
        Effect.provide(RunStore.layerMemory),
        Effect.flip,
      )
      expect(error._tag).toBe("ModelNotCalibrated")
    }).pipe(Effect.provide(local)),
  )

  it.live("a conversation without an answer is an error that names its row", () =>
    Effect.gen(function* () {
      const renderer = yield* LocalTinker.renderer
      const data = yield* Table.fromArray([...conversations(3), { messages: [Message.user("Ahoy?")] }], {
        name: "sailor",
      })
      const error = yield* Supervised.train({
        config: { ...config, heldOut: undefined, batchSize: 4 },
        renderer,
        data,
      }).pipe(Stream.runDrain, Effect.provide(RunStore.layerMemory), Effect.flip)
      expect(error).toMatchObject({ _tag: "BadRow", file: "sailor", row: 4 })
    }).pipe(Effect.provide(local)),
  )
})
