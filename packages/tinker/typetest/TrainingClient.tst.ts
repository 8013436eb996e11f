import { Effect, Redacted, Stream } from "effect"
import type { Context, Layer, Option, Scope } from "effect"
import type { ModelInfo, OptimStepResult } from "effect-tinker/protocol/schemas/Training"
import type * as ApiFuture from "effect-tinker/ApiFuture"
import * as CustomLoss from "effect-tinker/CustomLoss"
import type { Datum } from "effect-tinker/Datum"
import * as Loss from "effect-tinker/Loss"
import * as Optimizer from "effect-tinker/Optimizer"
import type { RateLimiter } from "effect-tinker/RateLimiter"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import type { ServerConfig } from "effect-tinker/protocol/ServerConfig"
import type { Session } from "effect-tinker/Session"
import type { TinkerConfig } from "effect-tinker/TinkerConfig"
import type { FutureError, SequenceBroken, SubmitError, TinkerError, TrainingError } from "effect-tinker/TinkerError"
import * as TrainingClient from "effect-tinker/TrainingClient"
import type { Journal } from "effect-tinker/TrainingJournal"
import type { TrainingResult } from "effect-tinker/TrainingResult"
import type { Transport } from "effect-tinker/Transport"
import { describe, expect, it } from "tstyche"

declare const client: TrainingClient.Service
declare const journal: Journal
declare const service: Context.Tag<"Service", number>
declare const evaluation: CustomLoss.Evaluation

const modelInput = [1, 2, 3]
const targetTokens = [2, 3, 4]
const weights = [0, 1, 1]
const data = [{ modelInput, inputs: { targetTokens, weights } }]
const misspelled = [{ modelInput, inputs: { targetTokens, wieghts: weights } }]
const extraInput = data.map(({ inputs }) => ({ modelInput, inputs: { ...inputs, wieghts: weights } }))
const incomplete = [{ modelInput, inputs: { targetTokens } }]
const { crossEntropy } = Loss
const adam = Optimizer.adam()

interface Path {
  readonly path: string
}
interface External extends Path {
  readonly sizeBytes: Option.Option<number>
}
type Enqueued<A> = Effect.Effect<TrainingClient.Ticket<A>, SubmitError>
type Submitted<A> = Effect.Effect<ApiFuture.ApiFuture<A>, SubmitError>
type Done<A> = Effect.Effect<A, TrainingError>

describe("three forms of every operation", () => {
  it("enqueue returns a ticket and fails with SubmitError", () => {
    const { enqueue } = client
    expect(enqueue.forward(data, crossEntropy)).type.toBe<Enqueued<TrainingResult>>()
    expect(enqueue.forwardBackward(data, crossEntropy)).type.toBe<Enqueued<TrainingResult>>()
    expect(enqueue.optimStep(adam)).type.toBe<Enqueued<OptimStepResult>>()
    expect(enqueue.saveState("a")).type.toBe<Enqueued<Path>>()
    expect(enqueue.saveWeightsForSampler("a")).type.toBe<Enqueued<Path>>()
    expect(enqueue.saveWeightsExternal("a")).type.toBe<Enqueued<External>>()
    expect(enqueue.loadState("tinker://a")).type.toBe<Enqueued<void>>()
    expect(enqueue.loadStateWithOptimizer("tinker://a")).type.toBe<Enqueued<void>>()
  })

  it("submit returns a future", () => {
    const { submit } = client
    expect(submit.forward(data, crossEntropy)).type.toBe<Submitted<TrainingResult>>()
    expect(submit.forwardBackward(data, crossEntropy)).type.toBe<Submitted<TrainingResult>>()
    expect(submit.optimStep(adam)).type.toBe<Submitted<OptimStepResult>>()
    expect(submit.saveState("a")).type.toBe<Submitted<Path>>()
    expect(submit.saveWeightsForSampler("a")).type.toBe<Submitted<Path>>()
    expect(submit.saveWeightsExternal("a")).type.toBe<Submitted<External>>()
    expect(submit.loadState("tinker://a")).type.toBe<Submitted<void>>()
    expect(submit.loadStateWithOptimizer("tinker://a")).type.toBe<Submitted<void>>()
  })

  it("the plain form returns the result", () => {
    expect(client.forward(data, crossEntropy)).type.toBe<Done<TrainingResult>>()
    expect(client.forwardBackward(data, crossEntropy)).type.toBe<Done<TrainingResult>>()
    expect(client.optimStep(adam)).type.toBe<Done<OptimStepResult>>()
    expect(client.saveState("a")).type.toBe<Done<Path>>()
    expect(client.saveWeightsForSampler("a")).type.toBe<Done<Path>>()
    expect(client.saveWeightsExternal("a")).type.toBe<Done<External>>()
    expect(client.loadState("tinker://a")).type.toBe<Done<void>>()
    expect(client.loadStateWithOptimizer("tinker://a")).type.toBe<Done<void>>()
  })

  it("a ticket can be awaited or canceled", () => {
    const ticket = Effect.runSync(client.enqueue.optimStep(adam))
    expect(ticket.acknowledged).type.toBe<Submitted<OptimStepResult>>()
    expect(ticket.await).type.toBe<Done<OptimStepResult>>()
    expect(ticket.cancel).type.toBe<Effect.Effect<boolean>>()
    expect(ticket.queueState).type.toBe<Stream.Stream<ApiFuture.QueueState>>()
  })
})

describe("training data", () => {
  it("data with a misspelled input do not compile", () => {
    expect(client.forward).type.not.toBeCallableWith(misspelled, crossEntropy)
    expect(client.forwardBackward).type.not.toBeCallableWith(misspelled, crossEntropy)
    expect(client.submit.forwardBackward).type.not.toBeCallableWith(misspelled, crossEntropy)
    expect(client.enqueue.forwardBackward).type.not.toBeCallableWith(misspelled, crossEntropy)
    expect(client.trainStep).type.not.toBeCallableWith(misspelled, crossEntropy, adam)
    expect(client.trainSteps(crossEntropy, adam)).type.not.toBeCallableWith(Stream.make(misspelled))
  })

  it("data with a missing input do not compile", () => {
    expect(client.forward).type.not.toBeCallableWith(incomplete, crossEntropy)
    expect(client.forwardBackward).type.not.toBeCallableWith(incomplete, crossEntropy)
    expect(client.submit.forwardBackward).type.not.toBeCallableWith(incomplete, crossEntropy)
    expect(client.enqueue.forwardBackward).type.not.toBeCallableWith(incomplete, crossEntropy)
    expect(client.trainStep).type.not.toBeCallableWith(incomplete, crossEntropy, adam)
    expect(client.trainSteps(crossEntropy, adam)).type.not.toBeCallableWith(Stream.make(incomplete))
  })

  it("data with an extra input do not compile, even if they are not literals", () => {
    expect(client.forward).type.not.toBeCallableWith(extraInput, crossEntropy)
    expect(client.forwardBackward).type.not.toBeCallableWith(extraInput, crossEntropy)
    expect(client.submit.forwardBackward).type.not.toBeCallableWith(extraInput, crossEntropy)
    expect(client.enqueue.forwardBackward).type.not.toBeCallableWith(extraInput, crossEntropy)
    expect(client.trainStep).type.not.toBeCallableWith(extraInput, crossEntropy, adam)
    expect(client.trainSteps(crossEntropy, adam)).type.not.toBeCallableWith(Stream.make(extraInput))
  })

  it("data must match the loss", () => {
    const policy = [{ modelInput, inputs: { targetTokens, logprobs: [-0.5], advantages: [1] } }]
    expect(client.forwardBackward).type.toBeCallableWith(policy, Loss.ppo())
    expect(client.forwardBackward).type.not.toBeCallableWith(policy, crossEntropy)
    expect(client.forwardBackward).type.not.toBeCallableWith(data, Loss.ppo())
    const declared: ReadonlyArray<Datum<Loss.CrossEntropyInputs>> = data
    expect(client.forwardBackward).type.toBeCallableWith(declared, crossEntropy)
    expect(client.trainStep).type.toBeCallableWith(declared, crossEntropy, adam)
    expect(client.trainSteps(crossEntropy, adam)).type.toBeCallableWith(Stream.make(declared))
  })
})

describe("training steps", () => {
  it("trainStep returns a Step and fails with StepFailed", () => {
    expect(client.trainStep(data, crossEntropy, adam)).type.toBe<
      Effect.Effect<TrainingClient.Step, TrainingError | TrainingClient.StepFailed>
    >()
    expect(client.trainStep).type.not.toBeCallableWith(data, adam, crossEntropy)
  })

  it("a step with a custom loss keeps the loss function's errors and requirements", () => {
    const rated = [{ modelInput, inputs: { targetTokens } }]
    const loss: CustomLoss.CustomLoss<CustomLoss.Inputs, "mine", "Judge"> = CustomLoss.effect(() => Effect.never)
    expect(client.trainStep(rated, loss, adam)).type.toBe<
      Effect.Effect<TrainingClient.Step, TrainingError | TrainingClient.StepFailed | "mine", "Judge">
    >()
    expect(Stream.make(rated).pipe(client.trainSteps(loss, adam))).type.toBe<
      Stream.Stream<TrainingClient.PlacedStep<void>, TrainingError | TrainingClient.StepFailed | "mine", "Judge">
    >()
  })

  it("afterUpdate adds its value, errors and requirements to the steps", () => {
    const afterUpdate = (step: number): Effect.Effect<number, "full", "Disk"> => Effect.succeed(step)
    expect(Stream.make(data).pipe(client.trainSteps(crossEntropy, adam, { afterUpdate }))).type.toBe<
      Stream.Stream<TrainingClient.PlacedStep<number>, TrainingError | TrainingClient.StepFailed | "full", "Disk">
    >()
  })

  it("trainSteps keeps the errors and requirements of its source", () => {
    const batches: Stream.Stream<typeof data, "source", "Service"> = Stream.empty
    expect(batches.pipe(client.trainSteps(crossEntropy, adam))).type.toBe<
      Stream.Stream<TrainingClient.PlacedStep<void>, "source" | TrainingError | TrainingClient.StepFailed, "Service">
    >()
    expect(Stream.make(data).pipe(client.trainSteps(crossEntropy, adam, { startAt: 3, ahead: 2 }))).type.toBe<
      Stream.Stream<TrainingClient.PlacedStep<void>, TrainingError | TrainingClient.StepFailed>
    >()
    expect(
      Stream.range(0, 3).pipe(
        Stream.map((token) => [{ modelInput: [token], inputs: { targetTokens: [token], weights: [1] } }]),
        client.trainSteps(crossEntropy, adam),
        Stream.map(({ metrics }) => metrics["loss:sum"]),
      ),
    ).type.toBe<Stream.Stream<number | undefined, TrainingError | TrainingClient.StepFailed>>()
  })

  it("trainSteps takes an optimizer or a schedule", () => {
    expect(client.trainSteps).type.toBeCallableWith(crossEntropy, Optimizer.dimuon({ learningRate: 1 }))
    expect(client.trainSteps).type.toBeCallableWith(crossEntropy, Optimizer.cosine(adam, { steps: 10 }))
    expect(client.trainSteps).type.toBeCallableWith(crossEntropy, (step: number) =>
      step < 10 ? adam : Optimizer.dimuon({ learningRate: 1 }),
    )
    expect(client.trainSteps).type.not.toBeCallableWith(crossEntropy, (step: number) => step)
    expect(client.trainSteps).type.not.toBeCallableWith(crossEntropy, adam, { tag: "mine" })
  })
})

describe("forwardBackwardCustom", () => {
  interface Rated extends CustomLoss.Inputs {
    readonly advantages: Float32Array
  }
  const rated: ReadonlyArray<Datum<Rated>> = []
  const pure = CustomLoss.analytic(() => evaluation)
  const loss = CustomLoss.effect<Rated, "failed", "Service">(() => Effect.as(service, evaluation))

  it("forwardBackwardCustom adds the errors and requirements of the loss in every form", () => {
    expect(client.enqueue.forwardBackwardCustom(rated, loss)).type.toBe<
      Effect.Effect<TrainingClient.Ticket<TrainingResult, "failed" | FutureError>, SubmitError, "Service">
    >()
    expect(client.submit.forwardBackwardCustom(rated, loss)).type.toBe<
      Effect.Effect<ApiFuture.ApiFuture<TrainingResult>, "failed" | SubmitError | FutureError, "Service">
    >()
    expect(client.forwardBackwardCustom(rated, loss)).type.toBe<
      Effect.Effect<TrainingResult, "failed" | TrainingError, "Service">
    >()
  })

  it("forwardBackwardCustom adds nothing for a pure loss", () => {
    expect(client.forwardBackwardCustom(data, pure)).type.toBe<Done<TrainingResult>>()
  })

  it("forwardBackwardCustom rejects data without the declared inputs", () => {
    expect(client.forwardBackwardCustom).type.toBeCallableWith(rated, loss)
    expect(client.forwardBackwardCustom).type.toBeCallableWith(rated, pure)
    expect(client.forwardBackwardCustom).type.not.toBeCallableWith(data, loss)
    expect(client.forwardBackwardCustom).type.not.toBeCallableWith([{ modelInput, inputs: {} }], pure)
  })
})

describe("other TrainingClient methods", () => {
  it("a TrainingClient describes, samples from and unloads its model", () => {
    expect(client.getInfo).type.toBe<Effect.Effect<ModelInfo, TinkerError>>()
    expect(client.createSamplingClient("tinker://a")).type.toBe<
      Effect.Effect<SamplingClient.Service, TinkerError, Scope.Scope>
    >()
    expect(client.saveWeightsAndGetSamplingClient()).type.toBe<
      Effect.Effect<SamplingClient.Service, TrainingError, Scope.Scope>
    >()
    expect(client.unload).type.toBe<Effect.Effect<void, TrainingError>>()
    expect(client.broken).type.toBe<Effect.Effect<Option.Option<SequenceBroken>>>()
    expect(client.acceptPartial).type.toBe<Effect.Effect<void>>()
  })

  it("each TrainingClient operation accepts only its own options", () => {
    const token = Redacted.make("t")
    expect(client.optimStep).type.toBeCallableWith(adam, { tag: "mine", deadline: "1 minute", stalledAfter: 1000 })
    expect(client.saveState).type.toBeCallableWith("a", { ttl: "1 hour", overwrite: true, userMetadata: { a: 1 } })
    expect(client.saveWeightsForSampler).type.not.toBeCallableWith("a", { overwrite: true })
    expect(client.saveWeightsExternal).type.toBeCallableWith("a", { ageEncryptionRecipients: ["age1"] })
    expect(client.saveState).type.not.toBeCallableWith("a", { ageEncryptionRecipients: ["age1"] })
    expect(client.loadState).type.toBeCallableWith("tinker://a", { weightsAccessToken: token })
    expect(client.loadState).type.not.toBeCallableWith("tinker://a", { weightsAccessToken: "t" })
    expect(client.saveState).type.not.toBeCallableWith("a", { ttlSeconds: 1 })
    expect(client.optimStep).type.not.toBeCallableWith({ learningRate: 1 })
  })
})

describe("creating a TrainingClient", () => {
  type Environment = Transport | Session | ApiFuture.Futures | RateLimiter | TinkerConfig

  it("a TrainingClient is created in a scope or as a layer", () => {
    expect(TrainingClient.makeLora({ baseModel: "m" })).type.toBe<
      Effect.Effect<TrainingClient.Service, TrainingError, Environment | Scope.Scope>
    >()
    expect(TrainingClient.makeFromCheckpoint("tinker://a")).type.toBe<
      Effect.Effect<TrainingClient.Service, TrainingError, Environment | Scope.Scope>
    >()
    expect(TrainingClient.layerLora({ baseModel: "m" })).type.toBe<
      Layer.Layer<TrainingClient.TrainingClient, TrainingError, Environment>
    >()
    expect(TrainingClient.layerFromCheckpoint("tinker://a")).type.toBe<
      Layer.Layer<TrainingClient.TrainingClient, TrainingError, Environment>
    >()
  })

  it("TrainingClient.resume continues from a journal in its session", () => {
    expect(TrainingClient.resume({ journal })).type.toBe<
      Effect.Effect<
        TrainingClient.Resumed,
        TrainingError,
        Transport | ServerConfig | RateLimiter | TinkerConfig | Scope.Scope
      >
    >()
    expect(TrainingClient.resume).type.not.toBeCallableWith({})
  })

  it("a pending call has the type of its result", () => {
    const [pending] = ({} as TrainingClient.Resumed).pending
    if (pending?.kind === "pass") expect(pending.future).type.toBe<ApiFuture.ApiFuture<TrainingResult>>()
    if (pending?.kind === "update") expect(pending.future).type.toBe<ApiFuture.ApiFuture<OptimStepResult>>()
    if (pending?.kind === "other") expect(pending.future).type.toBe<ApiFuture.ApiFuture<unknown>>()
  })

  it("TrainingClient.makeLora and makeFromCheckpoint accept only their own options", () => {
    expect(TrainingClient.makeLora).type.toBeCallableWith({
      baseModel: "m",
      rank: 8,
      seed: 1,
      trainAttn: false,
      optimizer: adam,
      onUnknownOutcome: "resend",
      journal,
    })
    expect(TrainingClient.makeLora).type.not.toBeCallableWith({})
    expect(TrainingClient.makeLora).type.not.toBeCallableWith({ baseModel: "m", onUnknownOutcome: "guess" })
    expect(TrainingClient.makeLora).type.not.toBeCallableWith({ baseModel: "m", lora_rank: 8 })
    expect(TrainingClient.makeFromCheckpoint).type.toBeCallableWith("tinker://a", {
      withOptimizer: true,
      baseModel: "m",
      optimizer: adam,
      weightsAccessToken: Redacted.make("t"),
    })
    expect(TrainingClient.makeFromCheckpoint).type.not.toBeCallableWith("tinker://a", { rank: 8 })
  })
})
