// Our SDK, installed as published and used as in its README: one layer for Node with default settings. Clients live as
// long as the process.
import { NodeTinker } from "@effect-tinker/node"
import { Effect, ManagedRuntime, Scope } from "effect"
import { Loss, Optimizer, ServiceClient } from "effect-tinker"
import { main } from "./kernels.mjs"

const { runPromise } = ManagedRuntime.make(NodeTinker.layerConfig())
const scope = Effect.runSync(Scope.make())

/** Creates a client with `ServiceClient`. */
const client = (make) =>
  runPromise(Effect.provideService(Effect.flatMap(ServiceClient.ServiceClient, make), Scope.Scope, scope))

const adam = Optimizer.adam({ learningRate: 1e-4 })

await main("ours", {
  sampler: async () => {
    const sampler = await client((service) => service.createSamplingClient({ baseModel: "mock/base" }))
    return {
      sample: async (prompt, maxTokens) => {
        const { sequences } = await Effect.runPromise(sampler.sample({ prompt, params: { maxTokens, temperature: 1 } }))
        const [{ logprobs, tokens }] = sequences
        return { tokens, logprobs: logprobs.value }
      },
    }
  },
  trainer: async () => {
    const training = await client((service) => service.createLoraTrainingClient({ baseModel: "mock/base", rank: 32 }))
    return {
      forwardBackward: async (data) => {
        const { metrics, outputs } = await Effect.runPromise(
          training.forwardBackward(
            data.map(({ targets, tokens, weights }) => ({
              modelInput: tokens,
              inputs: { targetTokens: targets, weights },
            })),
            Loss.crossEntropy,
          ),
        )
        return { metrics, outputs: outputs.map(({ logprobs }) => ({ logprobs: logprobs.data })) }
      },
      optimStep: () => Effect.runPromise(training.optimStep(adam)),
    }
  },
})
