/**
 * Trains and samples with our SDK what `suite.py` trains and samples with the official one on the same server, and
 * prints all numbers as JSON for comparison.
 *
 *   tsx scripts/python/peer.ts BASE_URL MODEL SEED
 */
import { NodeTinker } from "@effect-tinker/node"
import { Console, Effect, Option, Redacted } from "effect"
import { Loss, Optimizer, ServiceClient, type TrainingResult } from "effect-tinker"

const [baseUrl = "", baseModel = "", seed = ""] = process.argv.slice(2)

const pairs = Array.from({ length: 8 }, (_, i) => [10, 20 + i, 30 + i, 40 + i, 50 + i, 60 + i])
const supervised = pairs.map((tokens) => ({
  modelInput: tokens.slice(0, -1),
  inputs: { targetTokens: tokens.slice(1), weights: [0.5, 1, 1, 1, 2] },
}))
const reinforced = pairs.map((tokens, i) => ({
  modelInput: tokens.slice(0, -1),
  inputs: {
    targetTokens: tokens.slice(1),
    logprobs: [-1, -1.5, -2, -2.5, -3],
    advantages: tokens.slice(1).map(() => (i % 2 === 0 ? 1 : -0.5)),
  },
}))

const numbers = ({ metrics, outputs }: TrainingResult.TrainingResult) => ({
  loss: metrics["loss:sum"],
  logprobs: outputs.map(({ logprobs }) => [...(logprobs?.data ?? [])]),
})

const program = Effect.gen(function* () {
  const service = yield* ServiceClient.ServiceClient
  const training = yield* service.createLoraTrainingClient({ baseModel, rank: 8, seed: Number(seed) })
  const adam = Optimizer.adam({ learningRate: 5e-3, weightDecay: 0.01, gradClipNorm: 1 })
  const passes = []
  for (let step = 0; step < 6; step++) {
    const pass = yield* training.submit.forwardBackward(supervised, Loss.crossEntropy)
    const update = yield* training.submit.optimStep(adam)
    passes.push(numbers(yield* pass.await))
    yield* update.await
  }
  for (let step = 0; step < 2; step++) {
    passes.push(numbers(yield* training.forwardBackward(reinforced, Loss.ppo())))
    yield* training.optimStep(adam)
  }
  const sampler = yield* training.saveWeightsAndGetSamplingClient()
  const { promptLogprobs, sequences } = yield* sampler.sample({
    prompt: [10, 21],
    numSamples: 3,
    params: { maxTokens: 8, seed: 7, topK: 50, topP: 0.95, stop: [] },
    promptLogprobs: true,
  })
  const samples = sequences.map(({ logprobs, tokens }) => ({
    tokens: [...tokens],
    logprobs: [...Option.getOrElse(logprobs, () => [])],
  }))
  yield* Console.log(JSON.stringify({ passes, samples, prompt: Option.getOrThrow(promptLogprobs)[1] }))
})

Effect.runPromise(
  program.pipe(Effect.scoped, Effect.provide(NodeTinker.layer({ baseUrl, apiKey: Redacted.make("tml-suite") }))),
).then(
  () => process.exit(0),
  (error) => {
    console.error(error)
    process.exit(1)
  },
)
