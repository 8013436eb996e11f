import { describe, expect, it } from "@effect/vitest"
import { Effect, Either, Option, TestClock } from "effect"
import {
  Loss,
  Optimizer,
  RestClient,
  SampleResult,
  type SamplingClient,
  ServiceClient,
  TensorData,
} from "effect-tinker"
import * as Local from "./support/Local.ts"
import * as Raw from "./support/Raw.ts"

const adam = Optimizer.adam({ learningRate: 0.3 })
const codes = (text: string) => [...text].map((char) => char.charCodeAt(0))
const greedy = { maxTokens: 4, temperature: 0, stop: [] }

const trained = Effect.gen(function* () {
  const service = yield* ServiceClient.ServiceClient
  const training = yield* service.createLoraTrainingClient({ baseModel: Local.baseModel, rank: 8, seed: 3 })
  for (let step = 0; step < 12; step++) yield* training.trainStep(Local.batch("abcabcabcabc"), Loss.crossEntropy, adam)
  return training
})

describe("sampling", () => {
  it.effect("a trained sampler continues the training text", () =>
    Local.run(
      Effect.gen(function* () {
        const training = yield* trained
        const sampler = yield* training.saveWeightsAndGetSamplingClient()
        const { sequences } = yield* sampler.sample({ prompt: codes("a"), params: greedy })
        expect(String.fromCharCode(...(sequences[0]?.tokens ?? []))).toBe("bcab")
      }),
    ),
  )

  it.effect("sample follows the seed, returns numSamples sequences, and returns prompt logprobs", () =>
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

  it.effect("sampling from an older checkpoint does not affect training", () =>
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

describe("prompt log probabilities", () => {
  /** Returns the log probability of any token at any prompt position. */
  const known = Effect.gen(function* () {
    const service = yield* ServiceClient.ServiceClient
    const sampler = yield* service.createSamplingClient({ baseModel: Local.baseModel })
    const prompt = codes("abcd")
    const whole = yield* sampler.sample({ prompt, topkPromptLogprobs: 128, params: { maxTokens: 1 } })
    const topk = Option.getOrThrow(whole.topkPromptLogprobs)
    const at = (position: number, token: number) =>
      SampleResult.topkRow(topk, position)?.find(([id]) => id === token)?.[1]
    return { sampler, prompt, at }
  })

  it.effect("targetPromptLogprobs scores dense and sparse targets: row i refers to token i + 1, and -1 gives 0", () =>
    Local.run(
      Effect.gen(function* () {
        const { at, prompt, sampler } = yield* known
        const ask = (targetPromptLogprobs: TensorData.Int64Tensor) =>
          Effect.map(
            sampler.sample({ prompt, targetPromptLogprobs, params: { maxTokens: 1 } }),
            ({ targetPromptLogprobs }) => Option.getOrThrow(targetPromptLogprobs),
          )
        const dense = yield* ask(
          Either.getOrThrow(
            TensorData.int64([
              [98, -1],
              [-1, -1],
              [7, 100],
            ]),
          ),
        )
        expect([dense.shape, dense.sparse, [...dense.data]]).toEqual([
          [3, 2],
          undefined,
          [at(1, 98), 0, 0, 0, at(3, 7), at(3, 100)],
        ])
        const sparse = { crowIndices: [0, 0, 2, 3], colIndices: [0, 3, 1] }
        const some = yield* ask(Either.getOrThrow(TensorData.int64([5, -1, 9], { shape: [3, 4], sparse })))
        expect([some.shape, [...some.data]]).toEqual([
          [3, 4],
          [at(2, 5), 0, at(3, 9)],
        ])
        expect([...(some.sparse?.crowIndices ?? [])]).toEqual(sparse.crowIndices)
        expect([...(some.sparse?.colIndices ?? [])]).toEqual(sparse.colIndices)
      }),
    ),
  )

  it.effect("promptAltTokensK samples alternative tokens for each prompt position", () =>
    Local.run(
      Effect.gen(function* () {
        const { at, prompt, sampler } = yield* known
        const ask = (seed: number) =>
          Effect.map(
            sampler.sample({ prompt, promptAltTokensK: 20, params: { maxTokens: 1, seed } }),
            ({ promptAltTokens }) => Option.getOrThrow(promptAltTokens),
          )
        const { logprobs, tokens } = yield* ask(1)
        expect([tokens.dtype, tokens.shape, logprobs.shape]).toEqual(["int64", [3, 20], [3, 20]])
        expect([...logprobs.data]).toEqual(
          [...tokens.data].map((token, i) => at(1 + Math.floor(i / 20), Number(token))),
        )
        // Sampled by seed, not the most likely in order.
        expect(new Set([...tokens.data].slice(0, 20)).size).toBeGreaterThan(5)
        expect((yield* ask(1)).tokens.data).toEqual(tokens.data)
        expect((yield* ask(2)).tokens.data).not.toEqual(tokens.data)
      }),
    ),
  )

  it.effect("promptLogprobsLastN limits prompt and top-k log probabilities to the last tokens", () =>
    Local.run(
      Effect.gen(function* () {
        const { at, prompt, sampler } = yield* known
        const { promptLogprobs, topkPromptLogprobs } = yield* sampler.sample({
          prompt,
          promptLogprobs: true,
          promptLogprobsLastN: 2,
          topkPromptLogprobs: 3,
          params: { maxTokens: 1 },
        })
        const expected = [Number.NaN, Number.NaN, at(2, 99), at(3, 100)]
        expect([...Option.getOrThrow(promptLogprobs)]).toEqual(expected)
        const topk = Option.getOrThrow(topkPromptLogprobs)
        expect([0, 1, 2, 3].map((row) => SampleResult.topkRow(topk, row)?.length ?? null)).toEqual([null, null, 3, 3])
        expect([...(yield* sampler.computeLogprobs(prompt, { lastN: 2 }))]).toEqual(expected)
      }),
    ),
  )

  it.effect("sample refuses invalid prompt options by field name", () =>
    Local.run(
      Effect.gen(function* () {
        const { prompt, sampler } = yield* known
        const targets = (rows: ReadonlyArray<ReadonlyArray<number>>) => ({
          targetPromptLogprobs: Either.getOrThrow(TensorData.int64(rows)),
        })
        const refused: ReadonlyArray<readonly [Partial<SamplingClient.Request>, string]> = [
          [targets([[1], [1], [1], [1]]), "target_prompt_logprobs: expected a row for each of the 3 tokens"],
          [targets([[1], [128], [1]]), "target_prompt_logprobs[1]: 128 is neither -1 nor in the vocabulary"],
          [targets([[1], [-2], [1]]), "target_prompt_logprobs[1]: -2"],
          [targets([[-1], [-1], [-1]]), "target_prompt_logprobs: contains no token"],
          [{ promptLogprobs: true, promptLogprobsLastN: 4 }, "prompt_logprobs_last_n: expected at most 3"],
          [{ promptAltTokensK: 129 }, "prompt_alt_tokens_k: expected at most 128"],
          [{ topkPromptLogprobs: 129 }, "topk_prompt_logprobs: expected at most 128"],
          [{ topkSampleLogprobs: 129 }, "topk_sample_logprobs: expected at most 128"],
        ]
        for (const [request, words] of refused) {
          const error = yield* Effect.flip(sampler.sample({ prompt, params: { maxTokens: 1 }, ...request }))
          expect([error._tag, error.message]).toEqual(["RequestRejected", expect.stringContaining(words)])
        }
      }),
    ),
  )
})

describe("checkpoints", () => {
  it.effect("training continues from a checkpoint with its optimizer state", () =>
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
        // Without the optimizer state, the next step differs.
        const bare = yield* service.createTrainingClientFromCheckpoint(path)
        yield* step(bare)
        expect(yield* step(bare)).not.toEqual(expected)
      }),
    ),
  )

  it.effect("checkpoints can be listed, published, given a TTL and deleted", () =>
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

describe("polls", () => {
  it.effect("polls are held for a shorter time while there are many, so that others get their connections", () =>
    Effect.gen(function* () {
      const { model, post, session } = yield* Raw.make()
      const id = yield* model(yield* session)
      // Waits for number 1, which never arrives.
      const { body } = yield* post("optim_step", Raw.step(id, 2))
      const request = { request_id: body.request_id, allow_metadata_only: false }
      let ended = 0
      const polled = Effect.map(post("retrieve_future", request), ({ status }) => {
        expect(status).toBe(408)
        ended++
      })
      for (let i = 0; i < 1001; i++) yield* Effect.fork(polled)
      yield* TestClock.adjust("4 seconds")
      expect(ended).toBe(0)
      yield* TestClock.adjust("1 second")
      expect(ended).toBe(1)
      yield* Effect.fork(polled)
      yield* TestClock.adjust("5 seconds")
      expect(ended).toBe(2)
      yield* TestClock.adjust("20 seconds")
      expect(ended).toBe(1002)
    }).pipe(Effect.scoped),
  )
})
