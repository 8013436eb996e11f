// Our SDK, installed as published and used as in its README: one layer for Node with default settings. Clients live as
// long as the process.
import { NodeTinker } from "@effect-tinker/node"
import { Effect, ManagedRuntime, Scope, Tracer } from "effect"
import { Loss, Optimizer, ServiceClient } from "effect-tinker"
import { main } from "./kernels.mjs"

const { runPromise } = ManagedRuntime.make(NodeTinker.layerConfig())
const scope = Effect.runSync(Scope.make())

/** Creates a client with `ServiceClient`. */
const client = (make) =>
  runPromise(Effect.provideService(Effect.flatMap(ServiceClient.ServiceClient, make), Scope.Scope, scope))

/** Keeps its ends only, like the spans of a tracer that does not sample. */
class Span {
  _tag = "Span"
  spanId = "0000000000000000"
  traceId = "00000000000000000000000000000000"
  sampled = false
  attributes = noAttributes
  constructor(name, parent, context, links, startTime, kind) {
    this.name = name
    this.parent = parent
    this.context = context
    this.links = links
    this.kind = kind
    this.status = { _tag: "Started", startTime }
  }
  attribute() {}
  event() {}
  addLinks() {}
  end(endTime, exit) {
    this.status = { _tag: "Ended", startTime: this.status.startTime, endTime, exit }
  }
}
const noAttributes = new Map()

/** A tracer that records nothing, if `BENCH_TRACER` is set: what remains is the cost of being traced. */
const tracer = Tracer.make({
  span: (name, parent, context, links, startTime, kind) => new Span(name, parent, context, links, startTime, kind),
  context: (execution) => execution(),
})
const run = process.env.BENCH_TRACER
  ? (effect) => Effect.runPromise(Effect.withTracer(effect, tracer))
  : Effect.runPromise

const adam = Optimizer.adam({ learningRate: 1e-4 })

await main("ours", {
  sampler: async () => {
    const sampler = await client((service) => service.createSamplingClient({ baseModel: "mock/base" }))
    return {
      sample: async (prompt, maxTokens) => {
        const { sequences } = await run(sampler.sample({ prompt, params: { maxTokens, temperature: 1 } }))
        const [{ logprobs, tokens }] = sequences
        return { tokens, logprobs: logprobs.value }
      },
    }
  },
  trainer: async () => {
    const training = await client((service) => service.createLoraTrainingClient({ baseModel: "mock/base", rank: 32 }))
    return {
      forwardBackward: async (data) => {
        const { metrics, outputs } = await run(
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
      optimStep: () => run(training.optimStep(adam)),
    }
  },
})
