import { NodeContext } from "@effect/platform-node"
import { expect, layer } from "@effect/vitest"
import { ModelFiles } from "@effect-tinker/engine"
import { Check } from "@effect-tinker/recipes"
import { EngineHost, LocalTinker, ModelHost } from "@effect-tinker/server"
import { TokenizerBackend, TokenizerFiles } from "@effect-tinker/tokenizer"
import { Effect, Layer, Redacted } from "effect"
import { Loss, Optimizer, RateLimiter, ServiceClient, Tinker, TinkerConfig, type TrainingClient } from "effect-tinker"

const baseModel = ModelFiles.shippedName

/** A server on the engine of all tests, with a part of it replaced. */
const server = (change: (host: ModelHost.Service) => Partial<ModelHost.Service> = () => ({})) => {
  const host = Layer.effect(
    ModelHost.ModelHost,
    Effect.map(ModelHost.ModelHost, (host) => ({ ...host, ...change(host) })),
  )
  const http = Layer.provide(LocalTinker.layerOn(), Layer.fresh(host))
  return Layer.provideMerge(
    Layer.fresh(
      Tinker.layer().pipe(
        Layer.provide([
          TinkerConfig.layer({ baseUrl: "http://local", apiKey: Redacted.make("tml-local") }),
          RateLimiter.layer,
        ]),
      ),
    ),
    http,
  )
}

const example = (...tokens: ReadonlyArray<number>) => ({
  modelInput: tokens.slice(0, -1),
  inputs: { targetTokens: tokens.slice(1), weights: tokens.slice(1).map(() => 1) },
})
const data = [example(10, 20, 30, 40, 50), example(60, 70, 80, 90, 100)]

const outcomes = ({ ways }: Check.ResumeReport) => ways.map(({ outcome }) => outcome)

const tokenizer = Effect.gen(function* () {
  const backend = yield* TokenizerBackend.TokenizerBackend
  return yield* backend.make(yield* TokenizerFiles.fromDirectory(yield* ModelFiles.shipped))
}).pipe(Effect.provide(TokenizerBackend.layer))

/** A client whose weights are far from those of the base model. */
const trained = Effect.gen(function* () {
  const service = yield* ServiceClient.ServiceClient
  const client = yield* service.createLoraTrainingClient({ baseModel, rank: 8, seed: 1 })
  for (let step = 0; step < 4; step++)
    yield* client.trainStep(data, Loss.crossEntropy, Optimizer.adam({ learningRate: 2e-2 }))
  return client
})

const check = Check.resume({ model: { baseModel, rank: 8 }, data })
const prompts = [Array.from({ length: 70 }, (_, at) => 10 + at), [40, 50]]

layer(Layer.merge(EngineHost.layer(), NodeContext.layer), { excludeTestServices: true, timeout: "2 minutes" })(
  "checks",
  (it) => {
    it.layer(server())("of a healthy server", (it) => {
      it.effect("a server that keeps weights and optimizer passes, and nothing is left on it", () =>
        Effect.gen(function* () {
          const report = yield* check
          expect(report.problems).toEqual([])
          expect(outcomes(report)).toEqual(["same", "same", "new_optimizer"])
          expect(report.ways.map(({ nextLoss }) => nextLoss)).toEqual(
            Array.from({ length: 3 }, () => report.uninterrupted.nextLoss),
          )
          expect(Check.format(report)).toMatch(/^Passed: resume after 3 steps\n {2}uninterrupted: loss /)
          const { rest } = yield* ServiceClient.ServiceClient
          const { checkpoints } = yield* rest.listUserCheckpoints()
          expect(checkpoints.filter(({ tinkerPath }) => tinkerPath.includes("check-resume"))).toEqual([])
        }),
      )

      it.effect("steps that are too small to notice a lost optimizer do not pass", () =>
        Effect.gen(function* () {
          const report = yield* Check.resume({
            model: { baseModel, rank: 8 },
            data,
            optimizer: Optimizer.adam({ learningRate: 1e-9 }),
          })
          expect(report.passed).toBe(false)
          expect(report.problems).toEqual([expect.stringContaining("a lost one can't be noticed")])
          const few = Check.resume({ model: { baseModel }, data: data.slice(1) })
          expect(yield* Effect.flip(few)).toMatchObject({ _tag: "InvalidInput", path: "data" })
        }),
      )

      it.scoped("sampler and trainer of a healthy server agree, before and after training", () =>
        Effect.gen(function* () {
          const client = yield* trained
          const report = yield* Check.numerics({
            client,
            prompts,
            maxTokens: 24,
            tokenizer: yield* tokenizer,
            worst: 3,
          })
          expect(report.problems).toEqual([])
          expect(report.metrics["optim/kl_sample_train_v2"]).toBeLessThan(1e-6)
          expect(report.sequences).toBe(8)
          expect(report.worst).toHaveLength(3)
          expect(report.depths.reduce((sum, { tokens }) => sum + tokens, 0)).toBe(report.tokens)
          expect(report.depths.map(({ from }) => from)).toEqual([0, 64])
        }),
      )

      const url = "http://local/services/tinker-prod/oai/api/v1"
      const short = [[10, 20, 30], [60, 70, 80], [5]]
      const serving = (model: (path: string) => string) =>
        Effect.gen(function* () {
          const client = yield* trained
          const { path } = yield* client.saveWeightsForSampler("served")
          const sampler = yield* client.createSamplingClient(path)
          const endpoint = { url, model: model(path), apiKey: Redacted.make("tml-local") }
          return yield* Check.serving({ sampler, endpoint, prompts: short, tokenizer: yield* tokenizer })
        })

      it.scoped("a server with the weights of the sampler passes", () =>
        Effect.gen(function* () {
          const report = yield* serving((path) => path)
          expect(report.problems).toEqual([])
          expect(report.meanDifference).toBeLessThan(1e-4)
          expect(report.tokens).toBeGreaterThan(30)
          expect(report.prompts.map(({ parting }) => parting)).toEqual([undefined, undefined, undefined])
          expect(Check.format(report)).toMatch(/^Passed: serving of tinker:/)
        }),
      )

      it.scoped("a server with other weights does not pass, and the first other token is reported", () =>
        Effect.gen(function* () {
          const report = yield* serving(() => baseModel)
          expect(report.passed).toBe(false)
          const parting = report.prompts.flatMap(({ parting }) => parting ?? [])
          expect(parting.length).toBeGreaterThan(0)
          expect(parting[0]).toMatchObject({ position: 0, served: '" near"', isTie: false })
          expect(Check.format(report)).toMatch(/\n {4}then .* instead of /)
        }),
      )

      it.scoped("an endpoint that refuses the key or the model is an error without the key", () =>
        Effect.gen(function* () {
          const service = yield* ServiceClient.ServiceClient
          const sampler = yield* service.createSamplingClient({ baseModel })
          const endpoint = { url, model: "unknown/model", apiKey: Redacted.make("tml-secret") }
          const error = yield* Effect.flip(Check.serving({ sampler, endpoint, prompts: short }))
          expect(error).toMatchObject({ _tag: "EndpointFailed", status: 404 })
          expect(JSON.stringify(error) + error.message).not.toContain("tml-secret")
          // Without a tokenizer, texts can't be compared with ids.
          const texts = Check.serving({ sampler, endpoint: { ...endpoint, model: baseModel }, prompts: short })
          expect(yield* Effect.flip(texts)).toMatchObject({ _tag: "InvalidInput", path: "tokenizer" })
        }),
      )
    })

    it.effect("a server that drops the state of the optimizer is found and named", () =>
      Effect.gen(function* () {
        const report = yield* check
        expect(outcomes(report)).toEqual(["optimizer_dropped", "optimizer_dropped", "new_optimizer"])
        expect(report.problems[0]).toMatch(/^loading the state .* drops the optimizer: /)
        const failed = yield* Effect.flip(Check.orFail(report))
        expect(failed._tag).toBe("CheckFailed")
        expect(failed.message).toMatch(/^Failed: resume after 3 steps\n {2}loading the state /)
      }).pipe(Effect.provide(server(({ restore }) => ({ restore: (id, weights) => restore(id, weights, false) })))),
    )

    it.effect("a server that does not load weights is found", () =>
      Effect.gen(function* () {
        expect(outcomes(yield* check)).toEqual(["other_weights", "other_weights", "other_weights"])
      }).pipe(Effect.provide(server(() => ({ restore: () => Effect.void })))),
    )

    it.effect("a sampler without the trained weights is found, with the tokens that differ most", () =>
      Effect.gen(function* () {
        const client: TrainingClient.Service = yield* trained
        const report = yield* Check.numerics({ client, prompts, maxTokens: 24, tokenizer: yield* tokenizer })
        expect(report.passed).toBe(false)
        expect(report.worst).toHaveLength(10)
        const [worst, ...rest] = report.worst
        for (const { difference } of rest)
          expect(Math.abs(difference)).toBeLessThanOrEqual(Math.abs(worst?.difference ?? 0))
        expect(worst?.difference).toBeCloseTo((worst?.sampled ?? 0) - (worst?.trained ?? 0), 5)
        expect(worst?.text).toEqual(expect.any(String))
        const [title, problem, kl] = Check.format(report).split("\n")
        expect(title).toBe(`Failed: numerics of ${report.tokens} tokens in 8 sequences`)
        expect(problem).toMatch(/^ {2}sampler and trainer are [\d.]+ apart, more than 0.01/)
        expect(kl).toMatch(/^ {2}KL of sampler and trainer {2}v1 -?[\d.]+ {2}v2 [\d.]+ {2}entropy [\d.]+$/)
      }).pipe(
        Effect.scoped,
        Effect.provide(server(({ openSampler }) => ({ openSampler: (id, base) => openSampler(id, base, undefined) }))),
      ),
    )
  },
)
