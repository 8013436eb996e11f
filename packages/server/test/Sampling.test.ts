import { describe, expect, it } from "@effect/vitest"
import { Effect, Option } from "effect"
import { Loss, Optimizer, RestClient, ServiceClient } from "effect-tinker"
import * as Local from "./support/Local.ts"

const adam = Optimizer.adam({ learningRate: 0.3 })
const codes = (text: string) => [...text].map((char) => char.charCodeAt(0))
const greedy = { maxTokens: 4, temperature: 0, stop: [] }

const trained = Effect.gen(function* () {
  const service = yield* ServiceClient.ServiceClient
  const training = yield* service.createLoraTrainingClient({ baseModel: Local.baseModel, rank: 8, seed: 3 })
  for (let step = 0; step < 12; step++) yield* training.trainStep(Local.batch("abcabcabcabc"), Loss.crossEntropy, adam)
  return training
})

describe("samples", () => {
  it.effect("say what was learnt", () =>
    Local.run(
      Effect.gen(function* () {
        const training = yield* trained
        const sampler = yield* training.saveWeightsAndGetSamplingClient()
        const { sequences } = yield* sampler.sample({ prompt: codes("a"), params: greedy })
        expect(String.fromCharCode(...(sequences[0]?.tokens ?? []))).toBe("bcab")
      }),
    ),
  )

  it.effect("honour seeds, and number of samples, and give prompt logprobs", () =>
    Local.run(
      Effect.gen(function* () {
        const service = yield* ServiceClient.ServiceClient
        const sampler = yield* service.createSamplingClient({ baseModel: Local.baseModel })
        const params = { maxTokens: 8, stop: [] }
        const ask = (seed: number) =>
          sampler.sample({ prompt: codes("ab"), numSamples: 3, params: { ...params, seed }, promptLogprobs: true })
        const [first, again, other] = [yield* ask(1), yield* ask(1), yield* ask(2)]
        expect(first.sequences.map(({ tokens }) => [...tokens])).toEqual(
          again.sequences.map(({ tokens }) => [...tokens]),
        )
        expect([...(first.sequences[0]?.tokens ?? [])]).not.toEqual([...(other.sequences[0]?.tokens ?? [])])
        expect(first.sequences.length).toBe(3)
        const prompt = Option.getOrThrow(first.promptLogprobs)
        expect([Number.isNaN(prompt[0]), (prompt[1] ?? 0) < 0]).toEqual([true, true])
      }),
    ),
  )

  it.effect("of an old checkpoint leave training alone", () =>
    Local.run(
      Effect.gen(function* () {
        const service = yield* ServiceClient.ServiceClient
        const training = yield* trained
        const old = yield* training.saveWeightsForSampler("old")
        for (let step = 0; step < 5; step++) yield* training.trainStep(Local.batch(), Loss.crossEntropy, adam)
        const before = yield* training.forward(Local.batch(), Loss.crossEntropy)
        const sampler = yield* service.createSamplingClient({ modelPath: old.path })
        const { sequences } = yield* sampler.sample({ prompt: codes("a"), params: greedy })
        expect(String.fromCharCode(...(sequences[0]?.tokens ?? []))).toBe("bcab")
        const after = yield* training.forward(Local.batch(), Loss.crossEntropy)
        expect(after.metrics).toEqual(before.metrics)
      }),
    ),
  )
})

describe("checkpoints", () => {
  it.effect("are trained on from, with the optimizer", () =>
    Local.run(
      Effect.gen(function* () {
        const service = yield* ServiceClient.ServiceClient
        const training = yield* trained
        const { path } = yield* training.saveState("mid")
        const step = (client: typeof training) =>
          Effect.map(client.trainStep(Local.batch(), Loss.crossEntropy, adam), ({ metrics }) => metrics)
        yield* step(training)
        const expected = yield* step(training)
        const other = yield* service.createTrainingClientFromCheckpoint(path, { withOptimizer: true })
        yield* step(other)
        expect(yield* step(other)).toEqual(expected)
        // Without it the next step is another one.
        const bare = yield* service.createTrainingClientFromCheckpoint(path)
        yield* step(bare)
        expect(yield* step(bare)).not.toEqual(expected)
      }),
    ),
  )

  it.effect("are listed, published, given a time to live and deleted", () =>
    Local.run(
      Effect.gen(function* () {
        const rest = yield* RestClient.RestClient
        const training = yield* trained
        const { path } = yield* training.saveState("one")
        yield* training.saveWeightsForSampler("two")
        const { trainingRunId } = (yield* rest.listTrainingRuns()).trainingRuns[0] ?? { trainingRunId: "" }
        expect(trainingRunId).toBe(training.modelId)
        const listed = yield* rest.listCheckpoints(trainingRunId)
        expect(listed.checkpoints.map(({ checkpointId }) => checkpointId)).toEqual([
          "sampler_weights/two",
          "weights/one",
        ])
        yield* rest.publishCheckpoint(path)
        yield* rest.setCheckpointTtl(path, "1 hour")
        const [changed] = (yield* rest.listCheckpoints(trainingRunId)).checkpoints.filter(
          ({ checkpointId }) => checkpointId === "weights/one",
        )
        expect([changed?.public, Option.isSome(changed?.expiresAt ?? Option.none())]).toEqual([true, true])
        yield* rest.unpublishCheckpoint(path)
        yield* rest.deleteCheckpointByPath(path)
        expect((yield* rest.listUserCheckpoints()).checkpoints.length).toBe(1)
        expect((yield* Effect.flip(rest.getWeightsInfo(path)))._tag).toBe("NotFound")
      }),
    ),
  )
})
