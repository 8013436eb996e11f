/** The program that faults are injected into: it trains, saves, samples, loads, lists and downloads. */
import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { FileJournal } from "@effect-tinker/node"
import { Chunk, Effect, Option, Stream } from "effect"
import {
  Archive,
  Download,
  Loss,
  RestClient,
  type SamplingClient,
  ServiceClient,
  type TrainingClient,
} from "effect-tinker"
import { batch, optimizer, passDigest, sampleDigest, sha256, stepDigest } from "./Data.ts"
import type { Recorder } from "./Recorder.ts"
import { modelName } from "./Settings.ts"

/** The operations of each part in the order of the sequence, by wire name. */
const step = ["forward_backward", "forward_backward", "forward_backward", "optim_step"]
export const operations: Readonly<Record<string, ReadonlyArray<string>>> = {
  "step 0": step,
  "step 1": step,
  "step 2": step,
  "save first": ["save_weights"],
  forward: ["forward_backward", "forward_backward", "forward_backward"],
  sampler: ["save_weights_for_sampler"],
  "step 3": step,
  load: ["load_weights"],
  "step 3 again": step,
  "save last": ["save_weights"],
  "save weights": ["save_weights_for_sampler"],
}

const pathOf = ({ path }: { readonly path: string }) => path.split("/").slice(-2).join("/")

const trainSteps = ({ part }: Recorder, training: TrainingClient.Service) =>
  Effect.gen(function* () {
    const pull = yield* Stream.range(0, 2).pipe(
      Stream.map(batch),
      training.trainSteps(Loss.crossEntropy, optimizer),
      Stream.rechunk(1),
      Stream.toPull,
    )
    for (let i = 0; i < 3; i++)
      yield* part(
        `step ${i}`,
        Effect.catchAll(pull, Option.match({ onNone: () => Effect.dieMessage("too few steps"), onSome: Effect.fail })),
        (chunk) => stepDigest(Chunk.unsafeHead(chunk)),
      )
  }).pipe(Effect.scoped)

const sample = ({ part }: Recorder, sampler: SamplingClient.Service) =>
  Effect.forEach(
    [0, 1, 2, 3],
    (index) =>
      Effect.ignore(
        part(
          `sample ${index}`,
          sampler.sample({ prompt: [10, 11, 12 + index], params: { maxTokens: 6, temperature: 1, seed: index } }),
          sampleDigest,
        ),
      ),
    { concurrency: "unbounded", discard: true },
  )

const hashesIn = (directory: string) =>
  Effect.promise(async () => {
    const names = (await readdir(directory)).toSorted()
    return Promise.all(names.map(async (name) => [name, sha256(await readFile(join(directory, name)))]))
  })

const download = (rest: RestClient.Service, path: string, directory: string) =>
  Effect.gen(function* () {
    const archive = join(directory, "weights.tar")
    yield* Download.toFile(rest.getCheckpointArchiveUrl(path), archive)
    yield* Archive.unpack(archive, join(directory, "unpacked"))
    return yield* hashesIn(join(directory, "unpacked"))
  })

/** Runs the program in a directory and calls `onModel` with the id of its model. */
export const run = (recorder: Recorder, directory: string, onModel: (id: string) => void) =>
  Effect.gen(function* () {
    const { part } = recorder
    const service = yield* ServiceClient.ServiceClient
    const rest = yield* RestClient.RestClient
    const journal = yield* part("journal", FileJournal.make(join(directory, "journal")), () => "open")
    const training = yield* part(
      "model",
      service.createLoraTrainingClient({ baseModel: modelName, rank: 4, seed: 5, journal }),
      () => "created",
    )
    onModel(training.modelId)
    yield* trainSteps(recorder, training)
    const first = yield* part("save first", training.saveState("first"), pathOf)
    yield* part("forward", training.forward(batch(9), Loss.crossEntropy), passDigest)
    const sampler = yield* part("sampler", training.saveWeightsAndGetSamplingClient(), () => "created")
    yield* sample(recorder, sampler)
    yield* part("step 3", training.trainStep(batch(3), Loss.crossEntropy, optimizer(3)), stepDigest)
    yield* part("load", training.loadStateWithOptimizer(first.path), () => "loaded")
    yield* part("step 3 again", training.trainStep(batch(3), Loss.crossEntropy, optimizer(3)), stepDigest)
    yield* part("save last", training.saveState("last"), pathOf)
    const weights = yield* part("save weights", training.saveWeightsForSampler("weights"), pathOf)
    yield* part("list", rest.listCheckpoints(training.modelId), ({ checkpoints }) =>
      checkpoints.map(({ tinkerPath }) => pathOf({ path: tinkerPath })).toSorted(),
    )
    yield* part("download", download(rest, weights.path, directory), (files) => files)
  }).pipe(Effect.scoped)
