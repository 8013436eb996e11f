/** Where a model is: on the hosted service, or on the embedded engine with the data of a directory. */
import * as NodeTinker from "@effect-tinker/node/NodeTinker"
import * as Report from "@effect-tinker/recipes/Report"
import * as LocalTinker from "@effect-tinker/server/LocalTinker"
import * as RestClient from "effect-tinker/RestClient"
import * as Checkpoint from "effect-tinker/Checkpoint"
import * as RetryPolicy from "effect-tinker/RetryPolicy"
import type * as Tinker from "effect-tinker/Tinker"
import * as Effect from "effect/Effect"
import type * as Layer from "effect/Layer"
import { existsSync } from "node:fs"
import { join, resolve } from "node:path"
import { Failure } from "./Failure.ts"
import * as Files from "./Files.ts"
import * as LocalModel from "./LocalModel.ts"
import * as Rendering from "./Rendering.ts"
import * as RunFile from "./RunFile.ts"
import { Shell } from "./Shell.ts"

/** The options that choose a place. */
export interface Options {
  readonly local: boolean
  /** NAME=DIR */
  readonly localModel: string | undefined
}

/** The clients of a place. */
export type Clients = Layer.Layer<Tinker.Tinker, unknown>

/** The clients of the hosted service, or of the server that the environment names. */
const hosted = (retryPolicy?: RetryPolicy.RetryPolicy): Clients => NodeTinker.layerConfig({ retryPolicy })

/** The clients of the embedded engine. Its data are in a directory, or lost at the end. */
const embedded = (models: ReadonlyArray<LocalModel.LocalModel>, dataDirectory?: string): Clients =>
  LocalTinker.layerTinker({ dataDirectory, models: models.length === 0 ? undefined : models })

const modelsOf = ({ localModel }: Pick<Options, "localModel">, directory: string) =>
  localModel === undefined
    ? Effect.succeed([])
    : Effect.map(LocalModel.parse("local-model", directory)(localModel), (model) => [model])

/** Where a run is trained. The data of a local run are kept with it. */
export const ofRun = (options: Options, directory: string, out: string) =>
  Effect.gen(function* () {
    const models = yield* modelsOf(options, directory)
    const isLocal = options.local || models.length > 0
    return {
      isLocal,
      clients: isLocal ? embedded(models, join(out, "server")) : hosted(),
      model: models[0]?.name ?? (isLocal ? Rendering.localModel : undefined),
      tokenizer: models[0]?.directory,
    }
  })

/** A model that answers. */
export interface Target {
  readonly clients: Clients
  /** A base model, or the path of a checkpoint. */
  readonly model: string
  /** The base model, from which tokenizer and renderer follow. */
  readonly baseModel: string
  /** The directory of a local model, which has its tokenizer. */
  readonly tokenizer: string | undefined
  readonly renderer: string | undefined
}

const checkpointOf = (directory: string) =>
  Effect.gen(function* () {
    const text = yield* Files.read(join(directory, "events.jsonl"))
    const events = Report.decodeLines(text.split("\n").slice(0, -1))
    const path = events.flatMap((event) => (event._tag === "Checkpoint" ? (event.samplerPath ?? []) : [])).at(-1)
    if (path === undefined)
      return yield* new Failure({
        message: `${directory} has no checkpoint to sample from yet`,
        hint: "Let the run save one, e.g. with --checkpoints.every-steps, or wait for its end.",
      })
    return path
  })

/** The base model of a checkpoint, as its server knows it. */
const baseModelOf = (path: string, clients: Clients) =>
  Effect.gen(function* () {
    const parsed = yield* Effect.mapError(
      Checkpoint.parse(path),
      () =>
        new Failure({
          message: `Invalid checkpoint path: ${path}`,
          hint: "Checkpoint path must be in the format: tinker://run-id/sampler_weights/0001",
        }),
    )
    const { getTrainingRun } = yield* RestClient.RestClient
    return (yield* getTrainingRun(parsed.trainingRunId)).baseModel
  }).pipe(Effect.provide(clients))

/** Finds a model: the newest checkpoint of a run's directory, a checkpoint, or a base model. */
export const find = (given: string | undefined, options: Options): Effect.Effect<Target, unknown, Shell> =>
  Effect.gen(function* () {
    const { directory } = yield* Shell
    const models = yield* modelsOf(options, directory)
    const isLocal = options.local || models.length > 0
    const patient = hosted(RetryPolicy.make({ maxElapsed: "30 seconds", billingPause: 0 }))
    const clients = isLocal ? embedded(models) : patient
    if (given === undefined) {
      const model = models[0]?.name ?? Rendering.localModel
      if (isLocal) return { clients, model, baseModel: model, tokenizer: models[0]?.directory, renderer: undefined }
      return yield* new Failure({
        message: "No model was named",
        hint: "Name a base model, a tinker:// path or the directory of a run, or use --local for the model of the engine.",
      })
    }
    const path = resolve(directory, given)
    if (RunFile.exists(path)) {
      const { settings } = yield* RunFile.read(path)
      const own = yield* ofRun(settings, path, path)
      const baseModel = settings.model ?? own.model ?? ""
      const { renderer, tokenizer = own.tokenizer } = settings
      return {
        clients: own.isLocal ? own.clients : patient,
        model: yield* checkpointOf(path),
        baseModel,
        tokenizer,
        renderer,
      }
    }
    if (given.startsWith("tinker://"))
      return {
        clients,
        model: given,
        baseModel: yield* baseModelOf(given, clients),
        tokenizer: undefined,
        renderer: undefined,
      }
    if (existsSync(path))
      return yield* new Failure({
        message: `${given} is not the directory of a run`,
        hint: "A run that 'tinkerfx train' has started contains train.json.",
      })
    const tokenizer = models.find(({ name }) => name === given)?.directory
    return { clients, model: given, baseModel: given, tokenizer, renderer: undefined }
  })
