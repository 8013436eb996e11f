import { expect, layer } from "@effect/vitest"
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

layer(local, { excludeTestServices: true, timeout: "2 minutes" })("Supervised.train", (it) => {
  it.effect("supervised training on the local model lowers the loss on held-out conversations", () =>
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
    }),
  )

  it.effect("accumulated passes train like large batches, and batches by tokens have at most that many tokens", () =>
    Effect.gen(function* () {
      const few: Supervised.Input = { ...config, heldOut: undefined, epochs: 1, checkpoints: { everySteps: 0 } }
      const lossesOf = (input: Supervised.Input) =>
        Effect.gen(function* () {
          const events = yield* train(yield* RunStore.memory(), input)
          return events.flatMap((event) => (event._tag === "Step" ? [event.metrics] : []))
        })
      const large = yield* lossesOf({ ...few, batchSize: 12 })
      const accumulated = yield* lossesOf({ ...few, batchSize: 4, accumulate: 3 })
      expect(accumulated.map((metrics) => metrics["num_sequences"])).toEqual([12, 12, 12])
      large.forEach((metrics, step) => {
        const found = accumulated[step]?.["train_mean_nll"]
        expect(found).toBeCloseTo(metrics["train_mean_nll"] ?? Number.NaN, 5)
      })
      const tokens = yield* lossesOf({ ...few, batchSize: undefined, batchTokens: 200 })
      const counts = tokens.map((metrics) => metrics["num_tokens"] ?? Number.NaN)
      expect(counts.length).toBeGreaterThan(4)
      expect(Math.max(...counts)).toBeLessThanOrEqual(200)
      expect(tokens.reduce((sum, metrics) => sum + (metrics["num_sequences"] ?? 0), 0)).toBe(40)
      const both = yield* Effect.flip(lossesOf({ ...few, batchTokens: 200 }))
      expect(both).toMatchObject({ _tag: "InvalidInput", path: "config.batchTokens" })
    }),
  )

  it.effect("every conversation counts the same by default, as in the official cookbook, or every token with sum", () =>
    Effect.gen(function* () {
      const renderer = yield* LocalTinker.renderer
      const answers = ["Ahoy!", "Ahoy! The cat sleeps on deck, captain, and the dog sleeps too."]
      const rows = answers.map((answer) => ({ messages: [Message.user("Who?"), Message.assistant(answer)] }))
      const first = (some: typeof rows, reduction?: "mean" | "sum") =>
        Effect.gen(function* () {
          const data = yield* Table.fromArray(some, { name: "sailor" })
          const once: Supervised.Input = {
            ...config,
            ...(reduction === undefined ? {} : { reduction }),
            epochs: 1,
            heldOut: undefined,
            checkpoints: { everySteps: 0 },
          }
          const events = yield* Supervised.train({ config: once, renderer, data }).pipe(
            Stream.runCollect,
            Effect.provide(RunStore.layerMemory),
          )
          const [metrics] = Chunk.toReadonlyArray(events).flatMap((event) =>
            event._tag === "Step" ? [event.metrics] : [],
          )
          return { nll: metrics?.["train_mean_nll"] ?? Number.NaN, weight: metrics?.["num_loss_tokens"] ?? Number.NaN }
        })
      const [short, long] = yield* Effect.forEach(rows, (row) => first([row], "sum"))
      if (short === undefined || long === undefined) return expect.unreachable("two rows are trained on")
      expect(long.weight).toBeGreaterThan(3 * short.weight)
      const [mean, sum] = [yield* first(rows), yield* first(rows, "sum")]
      expect(mean.weight).toBeCloseTo(2, 5)
      expect(mean.nll).toBeCloseTo((short.nll + long.nll) / 2, 5)
      expect(sum.weight).toBe(short.weight + long.weight)
      expect(sum.nll).toBeCloseTo((short.nll * short.weight + long.nll * long.weight) / sum.weight, 5)
    }),
  )

  it.effect("rows that are too long or have no answer are left out and counted if the settings say so", () =>
    Effect.gen(function* () {
      const renderer = yield* LocalTinker.renderer
      const long = [Message.user("Ahoy?"), Message.assistant("Ahoy! ".repeat(100))]
      const rows = [...conversations(8), { messages: [Message.user("Ahoy?")] }, { messages: long }]
      const data = yield* Table.fromArray(rows, { name: "sailor" })
      const settings = { ...config, heldOut: undefined, epochs: 1, batchSize: 4, maxLength: 64 }
      const run = (more: Partial<Supervised.Input>) =>
        Supervised.train({ config: { ...settings, ...more }, renderer, data }).pipe(
          Stream.runCollect,
          Effect.provide(RunStore.layerMemory),
        )
      const events = Chunk.toReadonlyArray(yield* run({ onLongRow: "skip", onBadRow: "skip" }))
      expect(events[0]).toMatchObject({
        _tag: "Warning",
        reason: "rows_skipped",
        message: expect.stringMatching(
          /^2 of 10 rows of sailor are left out: sailor, row 9, field messages: nothing to learn: .*; sailor, row 10, field messages: it has \d+ tokens, \d+ too many$/,
        ),
      })
      expect(events.filter(({ _tag }) => _tag === "Step")).toHaveLength(2)
      expect(yield* Effect.flip(run({ onLongRow: "fail", onBadRow: "skip" }))).toMatchObject({
        _tag: "BadRow",
        reason: "TooLong",
        row: 10,
        field: "messages",
      })
      expect(yield* Effect.flip(run({ onLongRow: "skip" }))).toMatchObject({ _tag: "BadRow", row: 9 })
      expect(yield* Effect.flip(run({ onLongRow: "skip", maxLength: undefined }))).toMatchObject({
        _tag: "InvalidInput",
        path: "config.onLongRow",
      })
    }),
  )

  it.effect("a table without rows is an error that names it", () =>
    Effect.gen(function* () {
      const renderer = yield* LocalTinker.renderer
      const data = yield* Table.fromArray<Message.Conversation>([], { name: "sailor" })
      const error = yield* Supervised.train({ config, renderer, data }).pipe(
        Stream.runDrain,
        Effect.provide(RunStore.layerMemory),
        Effect.flip,
      )
      expect(error).toMatchObject({ _tag: "InvalidInput", message: "data: sailor has no rows" })
    }),
  )

  it.effect("a model without a recommended learning rate needs one in its configuration", () =>
    Effect.gen(function* () {
      const renderer = yield* LocalTinker.renderer
      const data = yield* Table.fromArray(conversations(8), { name: "sailor" })
      const error = yield* Supervised.train({ config: { model: ModelFiles.shippedName }, renderer, data }).pipe(
        Stream.runDrain,
        Effect.provide(RunStore.layerMemory),
        Effect.flip,
      )
      expect(error._tag).toBe("ModelNotCalibrated")
    }),
  )

  it.effect("a conversation without an answer is an error that names its row", () =>
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
    }),
  )
})
