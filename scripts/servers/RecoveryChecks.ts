/** Checks resuming from a checkpoint, from a journal, and after lost requests. */
import { NodeTinker } from "@effect-tinker/node"
import { Context, Effect, Either, Layer, Option, Redacted } from "effect"
import { Loss, ServiceClient, type TrainingClient, TrainingJournal } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import * as FaultyProxy from "./FaultyProxy.ts"
import { adam, currentLoss, near, train } from "./Learning.ts"
import { expect, type Report } from "./Report.ts"
import { type Address, modelName } from "./Server.ts"
import * as ToyTask from "./ToyTask.ts"

const four = (loss: number) => loss.toFixed(4)

/** Checks resuming from a checkpoint, in place and as a new model, with and without the optimizer state. */
export const resuming = ({ check, probe }: Report, training: TrainingClient.Service, statePath: string) =>
  Effect.gen(function* () {
    const service = yield* ServiceClient.ServiceClient
    const saved = yield* check("loss at the checkpoint", currentLoss(training), String)
    const steps = 3
    const onwards = yield* check("three more steps", train(training, steps, adam), (losses) =>
      losses.map(four).join(" "),
    )
    /** Checks equality within the variation of a server. */
    const same = (losses: ReadonlyArray<number>) =>
      Effect.forEach(losses, (loss, i) => near(loss, onwards[i] ?? Number.NaN, 1e-4))
    const loaded = (client: TrainingClient.Service) =>
      Effect.flatMap(currentLoss(client), (loss) => near(loss, saved, 1e-4))

    yield* probe("load weights in place", Effect.zipRight(training.loadState(statePath), loaded(training)))
    yield* probe(
      "load weights and optimizer in place gives the same steps",
      Effect.zipRight(training.loadStateWithOptimizer(statePath), Effect.tap(train(training, steps, adam), same)),
    )
    yield* probe(
      "new model from weights",
      Effect.flatMap(service.createTrainingClientFromCheckpoint(statePath), loaded),
    )
    yield* probe(
      "new model from weights and optimizer gives the same steps",
      Effect.flatMap(service.createTrainingClientFromCheckpoint(statePath, { withOptimizer: true }), (client) =>
        Effect.tap(train(client, steps, adam), same),
      ),
    )
    yield* probe(
      "resume from a journal finds the pending request and continues training",
      Effect.gen(function* () {
        const journal = yield* TrainingJournal.memory
        const options = { baseModel: modelName, rank: ToyTask.rank, seed: ToyTask.seed, journal }
        const alone = Effect.gen(function* () {
          const client = yield* service.createLoraTrainingClient(options)
          yield* client.trainStep(ToyTask.data, Loss.crossEntropy, adam)
          yield* client.submit.forwardBackward(ToyTask.data, Loss.crossEntropy, { tag: "in flight" })
        })
        yield* Effect.scoped(alone)
        const { client, completed, pending } = yield* service.resumeTrainingClient({ journal })
        yield* expect(completed.length === 2, `expected 2 completed requests, got ${completed.length}`)
        yield* expect(pending.length === 1, `expected 1 pending request, got ${pending.length}`)
        yield* Effect.forEach(pending, ({ future }) => future.await)
        yield* client.optimStep(adam)
        const loss = yield* currentLoss(client)
        yield* expect(loss < 6.379723, `after two updates the loss is ${loss}`)
        return loss
      }),
      (loss) => `after two updates the loss is ${four(loss)}`,
    )
  }).pipe(Effect.scoped)

/** Checks that a lost request is applied once, or that the client stops with an unknown outcome. */
export const faults = ({ probe }: Report, { apiKey, baseUrl }: Address, statePath: string) =>
  Effect.gen(function* () {
    const service = yield* ServiceClient.ServiceClient
    const proxy = yield* FaultyProxy.make(baseUrl)
    const behind = NodeTinker.layer({ baseUrl: proxy.baseUrl, apiKey: Redacted.make(apiKey) })
    const unlucky = Context.get(yield* Layer.build(behind), ServiceClient.ServiceClient)
    const { operation } = Api.optimStep
    /** The sequence number of the update, after loading and the pass. */
    const update = 3
    const resumed = { withOptimizer: true }

    /** Returns the loss after one step from the checkpoint, with a fault during the update. */
    const after = (fault: Option.Option<FaultyProxy.Fault>) =>
      Effect.gen(function* () {
        const client = yield* (Option.isSome(fault) ? unlucky : service).createTrainingClientFromCheckpoint(
          statePath,
          resumed,
        )
        yield* client.forwardBackward(ToyTask.data, Loss.crossEntropy)
        if (Option.isSome(fault)) yield* proxy.lose(fault.value, operation)
        yield* client.optimStep(adam)
        return yield* currentLoss(client)
      }).pipe(Effect.scoped)

    const once = (fault: FaultyProxy.Fault) =>
      Effect.gen(function* () {
        const wanted = yield* after(Option.none())
        const outcome = yield* Effect.either(after(Option.some(fault)))
        if (Either.isRight(outcome)) {
          yield* near(outcome.right, wanted, 1e-4)
          return "it was applied once"
        }
        const error = outcome.left
        const isHonest = error._tag === "SequenceBroken" && error.seq === update && error.applied === "unknown"
        yield* expect(isHonest, `${error._tag}: ${error.message}`)
        return `the client stopped: ${error.message}`
      })
    yield* probe("a lost update request is applied once or reported as unknown", once("request"), (words) => words)
    yield* probe(
      "an update with a lost response is applied once or reported as unknown",
      once("answer"),
      (words) => words,
    )
  }).pipe(Effect.scoped)
