/** Routes that create, train, save and load models. */
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Api from "../../protocol/Api.ts"
import { Accepted } from "../../protocol/schemas/Futures.ts"
import * as Training from "../../protocol/schemas/Training.ts"
import * as Paths from "../../Checkpoint.ts"
import type * as Endpoint from "../../protocol/Endpoint.ts"
import { adamw } from "../../Optimizer.ts"
import * as PassRequest from "../../protocol/PassRequest.ts"
import type * as Scripted from "../../testing/ScriptedServer.ts"
import * as Answers from "./Answers.ts"
import { refuse } from "./Answers.ts"
import * as Hash from "../util/Hash.ts"
import { type Call, fieldOf } from "./Incoming.ts"
import { Lane } from "./Lane.ts"
import * as Pass from "./Pass.ts"
import { readJson, type Reply } from "./Read.ts"
import * as Results from "./Results.ts"
import { checkpointOf, modelOf, plain, type Route, route, sessionOf, write } from "./Route.ts"
import { newSampler } from "./SamplingRoutes.ts"
import type { Checkpoint, Making, Model, State } from "./State.ts"
import { type Done, once, start, submit } from "./Submit.ts"

const loraOf = (config: Training.LoraConfig = {}): Making["lora"] => ({
  rank: config.rank ?? 32,
  seed: config.seed,
  trainUnembed: config.trainUnembed ?? true,
  trainMlp: config.trainMlp ?? true,
  trainAttn: config.trainAttn ?? true,
})

const newModel = (state: State, sessionId: string, number: number, making: Making): Model => {
  const { rank, seed } = making.lora
  const model: Model = {
    ...making,
    id: `${sessionId}:train:${number}`,
    sessionId,
    applied: [],
    hash: "",
    weights: { value: [rank, seed ?? 0].reduce(Hash.mix, Hash.ofText(making.baseModel)), steps: 0 },
    gradient: 0,
    next: 1,
    running: 0,
    skipped: new Set(),
    submitted: new Map(),
    lane: new Lane(),
  }
  state.models.set(model.id, model)
  return model
}

/** Creates a model, and removes it if creation fails. Requests to it wait for its creation. */
const makeModel = (
  call: Call,
  sessionId: string,
  number: number,
  making: Making,
  done: (model: Model) => Done,
): Reply<Accepted> => {
  const { bodyHash, state } = call
  const key = `model ${number} of ${sessionId}`
  return once(state.made, key, bodyHash, () =>
    Either.map(sessionOf(state, sessionId), () => {
      const model = newModel(state, sessionId, number, making)
      const accepted = start(call, sessionId, () => done(model), {
        lane: model.lane,
        onEnd: (_, outcome) => {
          if (outcome._tag !== "Result") state.models.delete(model.id)
        },
      })
      state.made.set(key, { hash: bodyHash, accepted })
      return accepted
    }),
  )
}

const result = <A, I>(schema: Schema.Schema<A, I>, value: A): Done =>
  Either.right(Results.json(Schema.encodeSync(schema)(value)))

export const createModel = route(Api.createModel, (input, call) =>
  makeModel(
    call,
    input.sessionId,
    input.modelSeqId,
    {
      baseModel: input.baseModel,
      lora: loraOf(input.loraConfig),
      optimizerConfig: input.optimizerConfig ?? adamw,
    },
    ({ id }) => result(Training.CreateModelResult, { modelId: id }),
  ),
)

export const unloadModel = route(Api.unloadModel, ({ modelId }, call) =>
  Either.map(modelOf(call.state, modelId), (model) =>
    start(
      call,
      model.sessionId,
      () => {
        call.state.models.delete(modelId)
        return result(Training.UnloadModelResult, { modelId: Option.some(modelId), status: Option.some("unloaded") })
      },
      { lane: model.lane },
    ),
  ),
)

export const getInfo = route(Api.getInfo, ({ modelId }, { state }) =>
  Either.map(modelOf(state, modelId), ({ baseModel, lora, optimizerConfig }) => ({
    modelId,
    modelData: { arch: Option.none(), modelName: Option.some(baseModel), tokenizerId: Option.some(baseModel) },
    isLora: Option.some(true),
    loraRank: Option.some(lora.rank),
    modelName: Option.some(baseModel),
    optimizerConfig,
  })),
)

// Steps

const stepOf = (model: Model, operation: Scripted.Step["operation"], seq: number, data: number): Scripted.Step => ({
  operation,
  modelId: model.id,
  seq,
  steps: model.weights.steps,
  data,
})

/** Decodes a pass in any encoding that the server accepts. */
const readPass = (call: Call, path: "forward" | "forward_backward"): Reply<Pass.Pass> => {
  const { body, state } = call
  const { wire, wireStatus } = state.settings
  const isProtobuf = call.seen.headers["content-type"]?.startsWith("application/x-protobuf") === true
  if (path === "forward" && wire === "protobuf") return refuse(404, "Not Found")
  if (isProtobuf ? wire === "json" || path === "forward" : wire === "protobuf")
    return refuse(wireStatus, `expected application/${isProtobuf ? "json" : "x-protobuf"}`)
  const read =
    body._tag === "Protobuf"
      ? Either.mapLeft(PassRequest.fromMessage(body.message), (problem) => Answers.detail(422, problem))
      : path === "forward"
        ? Either.map(readJson(call, PassRequest.ForwardBody), PassRequest.fromBody)
        : Either.map(readJson(call, PassRequest.ForwardBackwardBody), PassRequest.fromBody)
  return Either.flatMap(read, (request) =>
    Either.mapLeft(Pass.fromRequest(request), (problem) => Answers.detail(422, problem)),
  )
}

export const pass = (endpoint: Endpoint.Endpoint<never, unknown>, path: "forward" | "forward_backward"): Route =>
  plain(endpoint, (call) => {
    const { state } = call
    return Either.merge(
      Either.gen(function* () {
        const pass = yield* readPass(call, path)
        const model = yield* modelOf(state, pass.modelId)
        const operation = pass.forwardOnly ? "forward" : "forward_backward"
        const accepted = yield* submit(call, model, pass.seqId, operation, () => {
          if (!pass.forwardOnly) model.gradient = (model.gradient + Pass.gradientOf(pass)) % 2 ** 32
          const metrics = state.settings.metrics(stepOf(model, operation, pass.seqId, pass.data.length))
          const result = Results.training(model.weights.value, pass, metrics)
          return Either.right(Results.trainingPayload(result, state.settings.results))
        })
        return write(Accepted, accepted, call)
      }),
    )
  })

export const optimStep = route(Api.optimStep, ({ modelId, seqId, ...optimizer }, call) =>
  Either.flatMap(modelOf(call.state, modelId), (model) =>
    submit(call, model, seqId, "optim_step", () => {
      const { steps, value } = model.weights
      model.weights = {
        value: [model.gradient, Hash.ofText(JSON.stringify(optimizer)), steps].reduce(Hash.mix, value),
        steps: steps + 1,
      }
      model.gradient = 0
      return result(Training.OptimStepResult, {
        metrics: call.state.settings.metrics(stepOf(model, "optim_step", seqId, 0)),
      })
    }),
  ),
)

// Weights

const pathOf = (trainingRunId: string, kind: Paths.Kind, name: string, form: "full" | "short" = "full"): string =>
  new Paths.Path({ trainingRunId, kind, name, form }).toString()

const save = (state: State, model: Model, kind: Checkpoint["kind"], path: string): string => {
  const { baseModel, id, lora, optimizerConfig, weights } = model
  const making = { baseModel, lora, optimizerConfig }
  state.checkpoints.set(path, { path, kind, modelId: id, weights, making })
  return path
}

export const saveWeights = route(Api.saveWeights, ({ modelId, overwrite, path: name, seqId }, call) =>
  Either.flatMap(modelOf(call.state, modelId), (model) =>
    submit(call, model, seqId, "save_weights", () => {
      const path = pathOf(modelId, "training", name)
      if (overwrite !== true && call.state.checkpoints.has(path)) return Either.left(`${path} exists already`)
      return result(Training.SaveWeightsResult, { path: save(call.state, model, "training", path) })
    }),
  ),
)

export const saveWeightsExternal = route(Api.saveWeightsExternal, ({ modelId, path: name, seqId }, call) =>
  Either.flatMap(modelOf(call.state, modelId), (model) =>
    submit(call, model, seqId, "save_weights_external", () =>
      result(Training.SaveWeightsExternalResult, {
        path: save(call.state, model, "external", pathOf(modelId, "external", name)),
        sizeBytes: Option.some(4096),
      }),
    ),
  ),
)

/** Returns the path of a named save, or the sampling session of an unnamed one. */
const saved = (told: Partial<typeof Training.SaveWeightsForSamplerResult.Type>): Done =>
  result(Training.SaveWeightsForSamplerResult, { path: Option.none(), samplingSessionId: Option.none(), ...told })

export const saveWeightsForSampler = route(Api.saveWeightsForSampler, (input, call) =>
  Either.flatMap(modelOf(call.state, input.modelId), (model) =>
    submit(call, model, input.seqId, "save_weights_for_sampler", () => {
      const { state } = call
      if (input.path === undefined) {
        const sampler = newSampler(state, model.sessionId, input.samplingSessionSeqId ?? 0, call.bodyHash, {
          baseModel: model.baseModel,
          modelPath: Option.none(),
          weights: model.weights,
        })
        return saved({ samplingSessionId: Option.some(sampler.id) })
      }
      const form = state.settings.samplerPath === "canonical" ? "full" : "short"
      const path = pathOf(model.id, "sampler", input.path, form)
      return saved({ path: Option.some(save(state, model, "sampler", path)) })
    }),
  ),
)

/** Restores a checkpoint; the step count stands for the optimizer state. */
const restore = (state: State, model: Model, path: string, optimizer: boolean): Done => {
  const checkpoint = state.checkpoints.get(path)
  if (checkpoint?.kind !== "training") return Either.left(`${path} not found`)
  model.weights = { value: checkpoint.weights.value, steps: optimizer ? checkpoint.weights.steps : 0 }
  model.gradient = 0
  return result(Training.LoadWeightsResult, { path: Option.some(path), modelId: Option.some(model.id) })
}

const loadIntoModel = route(Api.loadWeights, ({ modelId, optimizer, path, seqId }, call) =>
  Either.flatMap(modelOf(call.state, modelId), (model) =>
    submit(call, model, seqId, "load_weights", () => restore(call.state, model, path, optimizer)),
  ),
)

const loadAsModel = route(Api.loadWeightsAsModel, (input, call) => {
  const making = call.state.checkpoints.get(input.path)?.making
  return makeModel(
    call,
    input.sessionId,
    input.modelSeqId,
    {
      baseModel: input.baseModel ?? making?.baseModel ?? "unknown",
      lora: making?.lora ?? loraOf(),
      optimizerConfig: input.optimizerConfig ?? making?.optimizerConfig ?? adamw,
    },
    (model) => restore(call.state, model, input.path, input.optimizer),
  )
})

/** One path serves two requests: loading into an existing model, or creating a new one in a session. */
export const loadWeights = plain(Api.loadWeights, (call) =>
  (fieldOf(call.body, "model_id") === undefined ? loadAsModel : loadIntoModel).answer(call),
)

export const weightsInfo = route(Api.getWeightsInfo, ({ tinkerPath }, { state }) =>
  Either.map(checkpointOf(state, tinkerPath), ({ making: { baseModel, lora, optimizerConfig } }) => ({
    baseModel,
    isLora: true,
    loraRank: Option.some(lora.rank),
    trainUnembed: Option.some(lora.trainUnembed),
    trainMlp: Option.some(lora.trainMlp),
    trainAttn: Option.some(lora.trainAttn),
    optimizerConfig,
  })),
)
