/** Trains a model on the toy task and measures the loss. */
import { Chunk, Effect, Stream } from "effect"
import { Loss, Optimizer, type TrainingClient, type TrainingResult } from "effect-tinker"
import { expect } from "./Report.ts"
import * as ToyTask from "./ToyTask.ts"

/** Returns the log probabilities of each datum. */
export const logprobs = ({ outputs }: TrainingResult.TrainingResult): ReadonlyArray<ArrayLike<number>> =>
  outputs.map((output) => Array.from(output["logprobs"]?.data ?? [], Number))

export const lossOf = (result: TrainingResult.TrainingResult) => ToyTask.meanLoss(logprobs(result))

export const currentLoss = (training: TrainingClient.Service) =>
  Effect.map(training.forward(ToyTask.data, Loss.crossEntropy), lossOf)

/** Checks that a number is within a tolerance. */
export const near = (actual: number, wanted: number, by: number) =>
  expect(Math.abs(actual - wanted) <= by, `expected ${wanted}, got ${actual}`)

export const adam = Optimizer.adam(ToyTask.adam)

/** Trains and returns the losses before each step. */
export const train = (training: TrainingClient.Service, steps: number, optimizer: Optimizer.Optimizer) =>
  Stream.range(1, steps).pipe(
    Stream.map(() => ToyTask.data),
    training.trainSteps(Loss.crossEntropy, optimizer),
    Stream.map(({ pass }) => lossOf(pass)),
    Stream.runCollect,
    Effect.map(Chunk.toReadonlyArray),
  )
