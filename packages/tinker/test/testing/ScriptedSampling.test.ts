import { describe, expect, it } from "@effect/vitest"
import { Clock, Effect, Either, Option } from "effect"
import { ApiFuture, ModelInput, RetryPolicy, SampleResult, TensorData } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import type * as Endpoint from "effect-tinker/protocol/Endpoint"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import * as Rig from "./rig.ts"

const { kinds } = ApiFuture
const { ScriptedServer: Server } = ScriptedServer
const { failure } = Rig

const sessionId = "sess-0001"
const prompt = Either.getOrThrow(ModelInput.fromTokens([5, 6, 7, 8]))

const base = Effect.map(
  Rig.call(Api.createSamplingSession, { sessionId, samplingSessionSeqId: 0, baseModel: Rig.baseModel }),
  ({ samplingSessionId }) => samplingSessionId,
)

type Question = Omit<Endpoint.Input<typeof Api.sample>, "samplingSessionId" | "prompt">

const sample = (samplingSessionId: string, question: Question) =>
  Effect.flatMap(Rig.call(Api.sample, { samplingSessionId, prompt, ...question }), (accepted) =>
    Rig.result(kinds.sample, accepted),
  )

const tokens = ({ sequences }: SampleResult.SampleResult) => sequences.map(({ tokens }) => [...tokens])

describe("ScriptedServer samples", () => {
  it.effect("a scripted server gives the same sample for the same request", () =>
    Rig.run(
      Effect.gen(function* () {
        const sampler = yield* base
        const params = { maxTokens: 5, seed: 1 }
        const first = yield* sample(sampler, { seqId: 0, numSamples: 2, samplingParams: params })
        expect(tokens(first).map(({ length }) => length)).toEqual([5, 5])
        expect(tokens(first)[0]).not.toEqual(tokens(first)[1])
        expect(first.sequences.map(({ stopReason }) => stopReason)).toEqual(["length", "length"])
        for (const { logprobs } of first.sequences) {
          const values = [...Option.getOrThrow(logprobs)]
          expect(values.length).toBe(5)
          expect(values.every((value) => value < 0 && value > -10)).toBe(true)
        }
        const again = yield* sample(sampler, { seqId: 1, numSamples: 2, samplingParams: params })
        expect(again).toEqual(first)
        const other = yield* sample(sampler, { seqId: 2, numSamples: 2, samplingParams: { ...params, seed: 2 } })
        expect(tokens(other)).not.toEqual(tokens(first))
      }),
    ),
  )

  it.effect("a scripted server returns the samples of its script", () =>
    Rig.run(
      Effect.gen(function* () {
        const sampler = yield* base
        const { sequences } = yield* sample(sampler, { seqId: 0, numSamples: 2 })
        expect(
          sequences.map(({ logprobs, stopReason, tokens }) => [
            [...tokens],
            stopReason,
            [...Option.getOrThrow(logprobs)],
          ]),
        ).toEqual([
          [[4, 0], "stop", [-1, -0.5]],
          [[4, 1], "stop", [-1, -0.5]],
        ])
      }),
      {
        sample: ({ prompt }, index) => ({
          tokens: [Option.getOrElse(ModelInput.length(prompt), () => 0), index],
          stopReason: "stop",
          logprobs: [-1, -0.5],
        }),
      },
    ),
  )

  it.effect("scripted samples have all optional results, in JSON and in protobuf", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const sampler = yield* base
        const question = {
          samplingParams: { maxTokens: 3 },
          promptLogprobs: true,
          topkPromptLogprobs: 2,
          topkSampleLogprobs: 3,
          promptAltTokensK: 2,
          targetPromptLogprobs: Either.getOrThrow(
            TensorData.int64([
              [1, 2],
              [3, 4],
              [5, 6],
              [7, 8],
            ]),
          ),
        } as const
        const proto = yield* sample(sampler, { seqId: 0, ...question })
        yield* server.configure({ results: "json" })
        const json = yield* sample(sampler, { seqId: 1, ...question })
        const numbers = ({ promptAltTokens, ...rest }: SampleResult.SampleResult) => [
          rest,
          Option.map(promptAltTokens, ({ tokens }) => TensorData.toNumbers(tokens)),
          Option.map(promptAltTokens, ({ logprobs }) => TensorData.toNumbers(logprobs)),
        ]
        expect(numbers(json)).toEqual(numbers(proto))

        const logprobs = SampleResult.toNullable(Option.getOrThrow(proto.promptLogprobs))
        expect(logprobs.map((value) => value === null)).toEqual([true, false, false, false])
        const topk = Option.getOrThrow(proto.topkPromptLogprobs)
        expect([topk.k, topk.length]).toEqual([2, 4])
        expect(SampleResult.topkRow(topk, 0)).toBe(null)
        const [[likeliest, best], [other, second]] = SampleResult.topkRow(topk, 1) as [
          [number, number],
          [number, number],
        ]
        expect(best).toBeGreaterThan(second)
        expect(likeliest).not.toBe(other)
        expect(Option.getOrThrow(proto.sequences[0]!.topkLogprobs)).toMatchObject({ k: 3, length: 3 })
        expect(Option.getOrThrow(proto.targetPromptLogprobs).shape).toEqual([4, 2])
        const { logprobs: alternatives, tokens } = Option.getOrThrow(proto.promptAltTokens)
        expect([tokens.shape, alternatives.shape]).toEqual([
          [4, 2],
          [4, 2],
        ])
      }),
    ),
  )

  it.effect(
    "a scripted server returns prompt log probabilities for the last tokens, and optionally without the first token",
    () =>
      Rig.run(
        Effect.gen(function* () {
          const server = yield* Server
          const sampler = yield* base
          const ask = (question: Question) =>
            Effect.map(sample(sampler, { promptLogprobs: true, ...question }), ({ promptLogprobs }) =>
              SampleResult.toNullable(Option.getOrThrow(promptLogprobs)).map((value) => value !== null),
            )
          expect(yield* ask({ seqId: 0, promptLogprobsLastN: 2 })).toEqual([false, false, true, true])
          expect(yield* ask({ seqId: 1, promptLogprobsLastN: 9 })).toEqual([false, true, true, true])
          yield* server.configure({ promptLogprobsShort: true })
          expect(yield* ask({ seqId: 2 })).toEqual([true, true, true])
        }),
      ),
  )

  it.effect("scripted samples have sequence ids unless the server is configured without them", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const samplingSessionId = yield* base
        const submit = (seqId: number) => Rig.call(Api.sample, { samplingSessionId, prompt, seqId, numSamples: 2 })
        const first = Option.getOrThrow((yield* submit(0)).sampleSequenceIds)
        const second = Option.getOrThrow((yield* submit(1)).sampleSequenceIds)
        expect(new Set([...first, ...second]).size).toBe(4)
        yield* server.configure({ sampleSequenceIds: false })
        expect((yield* submit(2)).sampleSequenceIds).toEqual(Option.none())
      }),
    ),
  )

  it.effect("a sample with a repeated number is drawn once", () =>
    Rig.run(
      Effect.gen(function* () {
        const server = yield* Server
        const samplingSessionId = yield* base
        const submit = (seqId: number, numSamples = 1) =>
          Rig.call(Api.sample, { samplingSessionId, prompt, seqId, numSamples })
        const first = yield* submit(0)
        expect(yield* submit(0)).toEqual(first)
        expect(yield* failure(submit(0, 2))).toBe("RequestRejected Conflict")
        yield* server.configure({ mode: "anything" })
        expect((yield* submit(0)).requestId).not.toBe(first.requestId)
      }),
    ),
  )

  it.effect("a scripted server works on samples concurrently", () =>
    Rig.run(
      Effect.gen(function* () {
        const sampler = yield* base
        const ends = yield* Effect.forEach(
          [0, 1, 2],
          (seqId) => Effect.zipRight(sample(sampler, { seqId }), Clock.currentTimeMillis),
          { concurrency: "unbounded" },
        )
        expect(ends).toEqual([10_000, 20_000, 30_000])
      }),
      { work: ({ operation, seq = 0 }) => (operation === "asample" ? `${10 * (seq + 1)} seconds` : 0) },
    ),
  )

  it.effect("scripted samples can be canceled", () =>
    Rig.run(
      Effect.gen(function* () {
        const samplingSessionId = yield* base
        const { requestId } = yield* Rig.call(Api.sample, { samplingSessionId, prompt, seqId: 0 })
        yield* Rig.call(Api.cancelFuture, { requestId })
        expect(yield* failure(Rig.result(kinds.sample, { requestId }))).toBe("RequestRejected UserCategory")
        expect(yield* failure(Rig.call(Api.cancelFuture, { requestId: "nobody" }))).toBe("NotFound")
      }),
      { work: "1 hour" },
    ),
  )

  it.effect("retrieveFutures returns finished samples as they complete", () =>
    Rig.run(
      Effect.gen(function* () {
        const samplingSessionId = yield* base
        const server = yield* Server
        const submit = (seqId: number) => Rig.call(Api.sample, { samplingSessionId, prompt, seqId })
        const ask = (prevCursor: number) =>
          Rig.call(Api.retrieveFutures, { target: { samplingSessionId, clonedSamplerId: 0 }, prevCursor })
        yield* server.fault({ on: "asample", nth: 2, failFuture: { error: "no" } })
        const [a, b] = [yield* submit(0), yield* submit(1)]
        const first = yield* ask(0)
        expect(first.completions.map(({ requestId, state }) => [requestId, state])).toEqual([[a.requestId, "finished"]])
        expect(yield* Clock.currentTimeMillis).toBe(10_000)
        const second = yield* ask(first.cursor)
        expect(second.completions.map(({ requestId, state }) => [requestId, state])).toEqual([[b.requestId, "failed"]])
        // Held, and then empty.
        expect(yield* ask(second.cursor)).toMatchObject({ completions: [], cursor: 2 })
        expect(yield* Clock.currentTimeMillis).toBe(50_000)
      }),
      { work: ({ operation, seq = 0 }) => (operation === "asample" ? `${10 * (seq + 1)} seconds` : 0) },
    ),
  )
})

describe("ScriptedServer samplers", () => {
  it.effect.each([
    ["canonical", "tinker://sess-0001:train:0/sampler_weights/mine"],
    ["two-part", "tinker://sess-0001:train:0/mine"],
  ] as const)("scripted samplers are created from saved weights: %s", ([samplerPath, path]) =>
    Rig.run(
      Effect.gen(function* () {
        const modelId = yield* Rig.createModel()
        const keep = (seqId: number, samplingSessionSeqId: number) =>
          Effect.flatMap(Rig.call(Api.saveWeightsForSampler, { modelId, seqId, samplingSessionSeqId }), (accepted) =>
            Rig.result(kinds.saveSamplingSession, accepted),
          )
        const named = yield* Rig.call(Api.saveWeightsForSampler, { modelId, seqId: 1, path: "mine" })
        expect((yield* Rig.result(kinds.saveWeightsForSampler, named)).path).toBe(path)
        const made = yield* Rig.call(Api.createSamplingSession, { sessionId, samplingSessionSeqId: 0, modelPath: path })
        expect(yield* Rig.call(Api.getSampler, { samplerId: made.samplingSessionId })).toMatchObject({
          baseModel: Rig.baseModel,
          modelPath: Option.some(path),
        })
        const ephemeral = yield* keep(2, 1)
        expect(ephemeral.samplingSessionId).toBe("sess-0001:sample:1")
        // Equal weights give equal samples, different weights do not.
        yield* Rig.submitPass(modelId, 3)
        yield* Rig.submitStep(modelId, 4)
        const later = yield* keep(5, 2)
        const [a, b, c] = yield* Effect.forEach([made, ephemeral, later], ({ samplingSessionId }) =>
          Effect.map(sample(samplingSessionId, { seqId: 0 }), tokens),
        )
        expect(b).toEqual(a)
        expect(c).not.toEqual(a)
      }),
      { samplerPath },
    ),
  )

  it.effect("a scripted sampler is created once, can be joined, and is NotFound if missing", () =>
    Rig.run(
      Effect.gen(function* () {
        const id = yield* base
        expect(yield* base).toBe(id)
        const other = { sessionId, samplingSessionSeqId: 0, baseModel: "other" }
        expect(yield* failure(Rig.call(Api.createSamplingSession, other, { retryPolicy: RetryPolicy.none }))).toBe(
          "RequestRejected Conflict",
        )
        const join = Effect.map(
          Rig.call(Api.joinSamplingSession, { samplingSessionId: id }),
          ({ clientCounter }) => clientCounter,
        )
        expect([yield* join, yield* join]).toEqual([1, 2])
        expect(yield* failure(sample("nobody", { seqId: 0 }))).toBe("NotFound")
        expect(yield* failure(Rig.call(Api.getSampler, { samplerId: "nobody" }))).toBe("NotFound")
        const missing = { sessionId, samplingSessionSeqId: 1, modelPath: "tinker://nobody/weights/x" }
        expect(yield* failure(Rig.call(Api.createSamplingSession, missing))).toBe("NotFound")
      }),
    ),
  )
})
