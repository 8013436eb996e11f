/** The program that is killed: a training run that continues from its journal, and what it leaves at its end. */
import { join } from "node:path"
import { FileJournal } from "@effect-tinker/node"
import { Effect, Option, Stream } from "effect"
import { Loss, ServiceClient } from "effect-tinker"
import { batch, optimizer, passDigest, sampleDigest } from "./Data.ts"
import type { Recorder } from "./Recorder.ts"
import { modelName } from "./Settings.ts"

export const steps = 6

const open = (directory: string) =>
  Effect.gen(function* () {
    const service = yield* ServiceClient.ServiceClient
    const journal = yield* FileJournal.make(join(directory, "journal"))
    const resumed = yield* service.resumeTrainingClient({ journal }).pipe(
      Effect.asSome,
      Effect.catchIf(
        (error) => error._tag === "JournalFailed" && error.reason === "Empty",
        () => Effect.succeedNone,
      ),
    )
    if (Option.isNone(resumed)) {
      const client = yield* service.createLoraTrainingClient({ baseModel: modelName, rank: 4, seed: 5, journal })
      return { client, startAt: 0 }
    }
    const { client, finishStep, nextStep, pending } = resumed.value
    yield* finishStep(optimizer)
    yield* Effect.forEach(pending, ({ future }) => future.await, { discard: true })
    return { client, startAt: nextStep }
  })

/** Trains to the end, wherever a killed process stopped, and reports what the model is like then. */
export const run = ({ part }: Recorder, directory: string, onModel: (id: string) => void) =>
  Effect.gen(function* () {
    const { client, startAt } = yield* part("open", open(directory), () => "open")
    onModel(client.modelId)
    const remaining =
      startAt >= steps
        ? Effect.void
        : Stream.range(startAt, steps - 1).pipe(
            Stream.map(batch),
            client.trainSteps(Loss.crossEntropy, optimizer, { startAt }),
            Stream.runDrain,
          )
    yield* part("train", remaining, () => "trained")
    yield* part("forward", client.forward(batch(9), Loss.crossEntropy), passDigest)
    yield* part("save", client.saveState("last", { overwrite: true }), ({ path }) => path.split("/").at(-1))
    const sampler = yield* part("sampler", client.saveWeightsAndGetSamplingClient(), () => "created")
    const params = { maxTokens: 6, temperature: 1, seed: 3 }
    yield* part("sample", sampler.sample({ prompt: [10, 11, 12], params }), sampleDigest)
  }).pipe(Effect.scoped)
