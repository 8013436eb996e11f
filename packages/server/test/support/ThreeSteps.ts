/** A training run of three steps, and the loss that it ends with. */
import { Effect } from "effect"
import { Loss, Optimizer, ServiceClient, type TrainingClient, type TrainingJournal } from "effect-tinker"
import * as Local from "./Local.ts"

export const adam = Optimizer.adam({ learningRate: 0.3 })

export const create = (journal?: TrainingJournal.Journal) =>
  Effect.flatMap(ServiceClient.ServiceClient, (service) =>
    service.createLoraTrainingClient({ baseModel: Local.baseModel, seed: 5, journal }),
  )

export const run = (training: TrainingClient.Service, from = 0) =>
  Effect.gen(function* () {
    for (let step = from; step < 3; step++) yield* training.trainStep(Local.batch(), Loss.crossEntropy, adam)
    const { metrics } = yield* training.forward(Local.batch(), Loss.crossEntropy)
    return metrics["loss:sum"]
  })
