/** Checks that the SDK works with a custom `HttpClient`: every operation works over fetch, on a real socket. */
import { FetchHttpClient, type HttpClient } from "@effect/platform"
import { describe, expect, it } from "@effect/vitest"
import { UndiciHttpClient } from "@effect-tinker/node"
import { Arbitrary, Chunk, Effect, Either, FastCheck, Layer, Option, Predicate, Redacted, Schema, Stream } from "effect"
import {
  CustomLoss,
  Loss,
  Optimizer,
  RateLimiter,
  RetryPolicy,
  SamplingClient,
  ServiceClient,
  Tinker,
  TinkerConfig,
} from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import * as Endpoint from "effect-tinker/protocol/Endpoint"
import * as Transport from "effect-tinker/Transport"
import { listen, type Request, scripted } from "./support/ScriptedSocket.ts"

const on = (http: Layer.Layer<HttpClient.HttpClient>, baseUrl: string) =>
  Tinker.layer().pipe(
    Layer.provideMerge(
      Layer.mergeAll(http, TinkerConfig.layer({ baseUrl, apiKey: Redacted.make("tml-secret-key") }), RateLimiter.layer),
    ),
  )

const data = [{ modelInput: [1, 2, 3], inputs: { targetTokens: [2, 3, 4], weights: [0, 1, 1] } }]
const adam = Optimizer.adam({ learningRate: 1e-4 })

/** Returns the operations that were not tried; a new operation must be added to the test. */
const untried = (operations: object, tried: ReadonlyArray<string>) =>
  Object.keys(operations).filter((name) => !tried.includes(name))

describe("SDK over fetch", () => {
  it.scopedLive("every operation of a training client works over fetch", () =>
    Effect.gen(function* () {
      const url = yield* scripted
      yield* Effect.gen(function* () {
        const service = yield* ServiceClient.ServiceClient
        expect((yield* service.getServerCapabilities).supportedModels.length).toBeGreaterThan(0)
        const training = yield* service.createLoraTrainingClient({ baseModel: "Qwen/Qwen3-8B", rank: 8 })
        const { path } = yield* training.saveState("first")
        const custom = CustomLoss.analytic((scored) => ({
          loss: 1,
          gradients: scored.map(({ logprobs }) => Float32Array.from(logprobs, () => 0.5)),
        }))
        const operations = {
          forward: training.forward(data, Loss.crossEntropy),
          forwardBackward: training.forwardBackward(data, Loss.crossEntropy),
          forwardBackwardCustom: training.forwardBackwardCustom(data, custom),
          optimStep: training.optimStep(adam),
          saveState: training.saveState("second"),
          saveWeightsForSampler: training.saveWeightsForSampler("third"),
          saveWeightsExternal: training.saveWeightsExternal("fourth"),
          loadState: training.loadState(path),
          loadStateWithOptimizer: training.loadStateWithOptimizer(path),
        }
        const failed: Record<string, unknown> = {}
        for (const [name, operation] of Object.entries(operations)) {
          const result = yield* Effect.either(operation as Effect.Effect<unknown, unknown>)
          if (Either.isLeft(result)) failed[name] = result.left
        }
        expect(failed).toEqual({})
        expect(untried(training.submit, Object.keys(operations))).toEqual([])
        expect(untried(training.enqueue, Object.keys(operations))).toEqual([])

        const submitted = yield* training.submit.forwardBackward(data, Loss.crossEntropy)
        const enqueued = yield* training.enqueue.optimStep(adam)
        expect((yield* submitted.await).outputs.length).toBe(1)
        yield* enqueued.await
        const step = yield* training.trainStep(data, Loss.crossEntropy, adam)
        expect(step.pass.outputs.length).toBe(1)
        const steps = yield* Stream.runCollect(
          training.trainSteps(Loss.crossEntropy, adam)(Stream.make(data, data, data)),
        )
        expect(Chunk.toReadonlyArray(steps).map(({ step }) => step)).toEqual([0, 1, 2])
        expect((yield* training.getInfo).modelId).toBe(training.modelId)
        yield* training.createSamplingClient((yield* training.saveWeightsForSampler("fifth")).path)
        yield* training.saveWeightsAndGetSamplingClient()
        expect(yield* training.broken).toEqual(Option.none())
        yield* training.unload
      }).pipe(Effect.scoped, Effect.provide(on(FetchHttpClient.layer, url)))
    }),
  )

  it.scopedLive("sampling, log probabilities and handles work over fetch", () =>
    Effect.gen(function* () {
      const url = yield* scripted
      yield* Effect.gen(function* () {
        const service = yield* ServiceClient.ServiceClient
        const sampler = yield* service.createSamplingClient({ baseModel: "Qwen/Qwen3-8B" })
        const request = { prompt: [1, 2, 3], params: { maxTokens: 4 } }
        const samples = yield* Effect.forEach(Array.from({ length: 20 }), () => sampler.sample(request), {
          concurrency: "unbounded",
        })
        expect(samples.map(({ sequences }) => sequences.length)).toEqual(samples.map(() => 1))
        expect((yield* sampler.computeLogprobs([1, 2, 3])).length).toBe(3)
        expect((yield* (yield* sampler.submit.sample(request)).await).sequences.length).toBe(1)
        expect(yield* sampler.getBaseModel).toBe("Qwen/Qwen3-8B")
        const other = yield* SamplingClient.fromHandle(yield* sampler.handle)
        expect((yield* other.sample(request)).sequences.length).toBe(1)
      }).pipe(Effect.scoped, Effect.provide(on(FetchHttpClient.layer, url)))
    }),
  )

  it.scopedLive("every endpoint sends the same request over fetch as over undici", () =>
    Effect.gen(function* () {
      const seen: Array<Request> = []
      const url = yield* listen((request) =>
        Effect.sync(() => {
          if (!request.path.endsWith("/client/config")) seen.push(request)
          return { status: 200, headers: { "content-type": "application/json" }, body: "{}" }
        }),
      )
      // Passes are covered by the tests above.
      const endpoints = Object.values(Api).flatMap((endpoint: unknown) => {
        const candidate = endpoint as Partial<Endpoint.Endpoint<unknown, unknown>>
        return candidate.operation === undefined || candidate.body?.kind === "bytes"
          ? []
          : [endpoint as Endpoint.Endpoint<unknown, unknown>]
      })
      expect(endpoints.length).toBeGreaterThan(40)
      const calls = endpoints.map((endpoint) => ({ endpoint, input: inputOf(endpoint) }))
      const all = Effect.gen(function* () {
        const { call } = yield* Transport.Transport
        const from = seen.length
        const results = yield* Effect.forEach(calls, ({ endpoint, input }) =>
          Effect.either(call(endpoint, input, { idempotencyKey: "same", retryPolicy: RetryPolicy.none })),
        )
        return {
          requests: seen.slice(from).map(comparable),
          results: results.map(Either.mapBoth({ onLeft: ({ _tag }) => _tag, onRight: withoutMeans })),
        }
      })
      const ours = yield* Effect.scoped(Effect.provide(all, on(UndiciHttpClient.layer(), url)))
      const theirs = yield* Effect.scoped(Effect.provide(all, on(FetchHttpClient.layer, url)))
      expect(ours.requests.length).toBeGreaterThanOrEqual(endpoints.length - 1)
      expect(theirs.requests).toEqual(ours.requests)
      expect(theirs.results).toEqual(ours.results)
    }),
  )
})

/** Creates a valid input for an endpoint. */
const inputOf = (endpoint: Endpoint.Endpoint<unknown, unknown>): unknown => {
  const { body, params, query } = endpoint
  const schemas = [params, query, body.kind === "json" ? body.schema : undefined].filter(
    (schema) => schema !== undefined,
  )
  const parts = schemas.map((schema) => Arbitrary.make(Schema.typeSchema(schema)))
  const candidates = FastCheck.sample(FastCheck.tuple(...parts), { seed: 1, numRuns: 20 })
  const inputs = candidates.map((parts) => Object.assign({}, ...parts) as unknown)
  const input = inputs.find((input) => Either.isRight(Endpoint.render(endpoint, input)))
  if (input === undefined) throw new Error(`nothing fits ${endpoint.operation}`)
  return input
}

/** Returns the content of a raw response. */
const withoutMeans = (answer: unknown): unknown =>
  Predicate.isRecord(answer) && answer["body"] instanceof Uint8Array
    ? { status: answer["status"], body: Buffer.from(answer["body"]).toString() }
    : answer

/** Removes headers of the connection and its client. */
const comparable = ({ body, headers, method, path }: Request) => {
  const own = [
    "connection",
    "host",
    "accept-language",
    "sec-fetch-mode",
    "accept-encoding",
    "content-length",
    "keep-alive",
  ]
  return {
    method,
    path,
    headers: Object.fromEntries(Object.entries(headers).filter(([name]) => !own.includes(name))),
    body: body.toString("utf8"),
  }
}
