/** Checks that defects found in other servers of this API do not exist in this server and its engine. */
import { describe, expect, it, layer } from "@effect/vitest"
import { LocalTinker } from "@effect-tinker/server"
import { Effect, Layer, Option, Redacted } from "effect"
import {
  Loss,
  Optimizer,
  RateLimiter,
  RestClient,
  ServiceClient,
  TinkerConfig,
  type TrainingClient,
} from "effect-tinker"
import * as Transport from "effect-tinker/Transport"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import * as Raw from "./support/Raw.ts"

const clients = Layer.mergeAll(ServiceClient.layer(), RestClient.layer).pipe(
  Layer.provideMerge(Transport.layer),
  Layer.provideMerge(RateLimiter.layer),
  Layer.provide(TinkerConfig.layer({ baseUrl: "http://local", apiKey: Redacted.make("tml-a") })),
  Layer.provide(LocalTinker.layer()),
)

const baseModel = "effect-tinker/valley-1.5m"
const adam = Optimizer.adam({ learningRate: 1e-2 })
const datum = (modelInput: ReadonlyArray<number>, targetTokens: ReadonlyArray<number>) => ({
  modelInput: [...modelInput],
  inputs: { targetTokens: [...targetTokens], weights: targetTokens.map(() => 1) },
})
const data = Array.from({ length: 4 }, (_, i) => datum([10, 20 + i, 30 + i], [20 + i, 30 + i, 40 + i]))
const other = [datum([7, 8, 9], [100, 101, 102])]

const make = (seed = 1) =>
  Effect.flatMap(ServiceClient.ServiceClient, (service) =>
    service.createLoraTrainingClient({ baseModel, rank: 8, seed }),
  )

/** Trains for three steps and returns the losses. */
const losses = (training: TrainingClient.Service) =>
  Effect.forEach([1, 2, 3], () =>
    Effect.map(training.trainStep(data, Loss.crossEntropy, adam), ({ metrics }) => metrics["loss:sum"]),
  )

layer(clients, { excludeTestServices: true, timeout: "2 minutes" })("the server with the embedded engine", (it) => {
  it.scoped("a token outside the vocabulary is refused and affects no model", () =>
    Effect.gen(function* () {
      const expected = yield* losses(yield* make())
      const bystander = yield* make()
      const offender = yield* make()
      for (const bad of [datum([10, 5000, 30], [1, 2, 3]), datum([10, 20, 30], [1, 5000, 3])]) {
        const error = yield* Effect.flip(offender.forwardBackward([bad], Loss.crossEntropy))
        expect([error._tag, error.message]).toEqual(["RequestRejected", expect.stringContaining("5000 is not in")])
      }
      // The model that was sent the token, an existing one, and a new one.
      for (const training of [offender, bystander, yield* make()]) expect(yield* losses(training)).toEqual(expected)
    }),
  )

  it.scoped("sampling an older checkpoint does not affect training", () =>
    Effect.gen(function* () {
      const service = yield* ServiceClient.ServiceClient
      const training = yield* make()
      const { path } = yield* training.saveWeightsForSampler("old")
      yield* losses(training)
      const before = yield* training.forward(data, Loss.crossEntropy)
      const sampler = yield* service.createSamplingClient({ modelPath: path })
      yield* sampler.sample({ prompt: [10, 21], params: { maxTokens: 4, seed: 1 } })
      expect((yield* training.forward(data, Loss.crossEntropy)).metrics).toEqual(before.metrics)
    }),
  )

  it.scoped("unused gradients do not leak into other models", () =>
    Effect.gen(function* () {
      const expected = yield* losses(yield* make())
      yield* Effect.scoped(Effect.flatMap(make(), (dirty) => dirty.forwardBackward(other, Loss.crossEntropy)))
      expect(yield* losses(yield* make())).toEqual(expected)
      // They do not leak between two loaded models either.
      const dirty = yield* make()
      yield* dirty.forwardBackward(other, Loss.crossEntropy)
      expect(yield* losses(yield* make())).toEqual(expected)
      // They do count for their own model.
      expect(yield* losses(dirty)).not.toEqual(expected)
    }),
  )

  it.scoped("a refused or failed request does not block later requests", () =>
    Effect.gen(function* () {
      const expected = yield* losses(yield* make())
      const training = yield* make()
      // Refused on arrival.
      yield* Effect.flip(training.forwardBackward([datum([9999], [1])], Loss.crossEntropy))
      yield* Effect.flip(training.loadState(`tinker://${training.modelId}/weights/nothing`))
      // Accepted, but fails when it runs.
      yield* training.saveState("twice")
      const failed = yield* Effect.flip(training.saveState("twice"))
      expect(failed.message).toContain("already exists")
      expect(yield* losses(training)).toEqual(expected)
    }),
  )

  it.scoped("adapters and samples follow from their seeds", () =>
    Effect.gen(function* () {
      const [one, same, another] = [yield* make(5), yield* make(5), yield* make(6)]
      const expected = yield* losses(one)
      expect(yield* losses(same)).toEqual(expected)
      expect((yield* losses(another)).slice(1)).not.toEqual(expected.slice(1))
      const sampler = yield* one.saveWeightsAndGetSamplingClient()
      const ask = (seed: number) =>
        Effect.map(
          sampler.sample({ prompt: [10], numSamples: 2, params: { maxTokens: 12, seed, stop: [] } }),
          ({ sequences }) => sequences.map(({ tokens }) => [...tokens]),
        )
      const drawn = yield* ask(1)
      expect(yield* ask(1)).toEqual(drawn)
      expect(yield* ask(2)).not.toEqual(drawn)
      expect(drawn[0]).not.toEqual(drawn[1])
    }),
  )

  it.scoped("adapter and optimizer options take effect", () =>
    Effect.gen(function* () {
      const service = yield* ServiceClient.ServiceClient
      const after = (options: object, update: Optimizer.Optimizer) =>
        Effect.gen(function* () {
          const training = yield* service.createLoraTrainingClient({ baseModel, rank: 8, seed: 1, ...options })
          yield* training.trainStep(data, Loss.crossEntropy, update)
          return (yield* training.forward(data, Loss.crossEntropy)).metrics["loss:sum"]
        })
      const all = [
        yield* after({}, adam),
        yield* after({ trainMlp: false }, adam),
        yield* after({ trainAttn: false }, adam),
        yield* after({ trainUnembed: false }, adam),
        yield* after({ rank: 4 }, adam),
        yield* after({}, Optimizer.adam({ learningRate: 1e-2, weightDecay: 0.5 })),
        // Adam is invariant to the gradient scale except for eps.
        yield* after({}, Optimizer.adam({ learningRate: 1e-2, eps: 1e-2, gradClipNorm: 0 })),
        yield* after({}, Optimizer.adam({ learningRate: 1e-2, eps: 1e-2, gradClipNorm: 1e-3 })),
      ]
      expect(new Set(all).size).toBe(all.length)
    }),
  )

  it.scoped(
    "sequences end at the model's end token, and prompts have a log probability for each token but the first",
    () =>
      Effect.gen(function* () {
        const service = yield* ServiceClient.ServiceClient
        const sampler = yield* service.createSamplingClient({ baseModel })
        const { sequences } = yield* sampler.sample({
          prompt: [10, 20],
          numSamples: 16,
          params: { maxTokens: 200, seed: 1 },
        })
        expect(sequences.filter(({ stopReason }) => stopReason === "stop").length).toBeGreaterThan(0)
        const logprobs = yield* sampler.computeLogprobs([10, 20, 30])
        expect([...logprobs].map(Number.isNaN)).toEqual([true, false, false])
      }),
  )

  it.scoped("a checkpoint can be listed, published and unpublished, and has an expiry time", () =>
    Effect.gen(function* () {
      const rest = yield* RestClient.RestClient
      const training = yield* make()
      const { path } = yield* training.saveState("brief", { ttl: "1 hour" })
      const find = Effect.map(rest.listUserCheckpoints(), ({ checkpoints }) =>
        checkpoints.find(({ tinkerPath }) => tinkerPath === path),
      )
      const listed = yield* find
      expect(Option.isSome(listed?.expiresAt ?? Option.none())).toBe(true)
      yield* rest.publishCheckpoint(path)
      expect((yield* find)?.public).toBe(true)
      yield* rest.unpublishCheckpoint(path)
      expect((yield* find)?.public).toBe(false)
      // A URL that a client can open, not a path on the server.
      expect((yield* rest.getCheckpointArchiveUrl(path)).url).toMatch(/^http:\/\//)
    }),
  )
})

describe("invalid input", () => {
  it.effect("invalid requests get 4xx with the field name and no server internals", () =>
    Effect.gen(function* () {
      const { model, post, session } = yield* Raw.make()
      const id = yield* model(yield* session)
      const pass = (change: (input: ReturnType<typeof Raw.pass>["forward_backward_input"]) => object) => {
        const whole = Raw.pass(id, 1)
        return {
          ...whole,
          forward_backward_input: { ...whole.forward_backward_input, ...change(whole.forward_backward_input) },
        }
      }
      const first = Raw.pass(id, 1).forward_backward_input.data[0]!
      const { target_tokens: _, ...without } = first.loss_fn_inputs
      const image = { type: "image", data: "aGk=", format: "png", expected_tokens: 3 }
      const refused: ReadonlyArray<readonly [string, object, number, string]> = [
        ["forward_backward", pass(() => ({ loss_fn: "magic" })), 400, "loss_fn"],
        ["forward_backward", pass(() => ({ data: [] })), 400, "data"],
        ["forward_backward", pass(() => ({ data: [{ ...first, loss_fn_inputs: without }] })), 400, "target_tokens"],
        [
          "forward_backward",
          pass(() => ({ data: [{ ...first, model_input: { chunks: [image] } }] })),
          400,
          "only text",
        ],
        [
          "forward_backward",
          pass(() => ({ data: [{ ...first, model_input: { chunks: [{ type: "encoded_text", tokens: [1] }] } }] })),
          400,
          "target_tokens",
        ],
        ["optim_step", Raw.step("unknown:train:0", 1), 404, "unknown"],
        ["save_weights", { model_id: id, seq_id: 1, path: "bad name/../x" }, 400, "path"],
        ["retrieve_future", { request_id: "not-a-number", allow_metadata_only: false }, 404, "not-a-number"],
        ["create_model", { session_id: id.split(":")[0], model_seq_id: 3, base_model: "x" }, 400, "base_model"],
      ]
      for (const [path, body, status, words] of refused) {
        const reply = yield* post(path, body)
        expect([path, reply.status, JSON.stringify(reply.body)]).toEqual([path, status, expect.stringContaining(words)])
        expect(JSON.stringify(reply.body)).not.toMatch(/node_modules|\.ts:|at \w+ \(/)
      }
    }).pipe(Effect.scoped, VirtualTime.run),
  )
})
