/** Endpoints that create, train, save and load models. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Api from "effect-tinker/protocol/Api"
import type { Accepted } from "effect-tinker/protocol/schemas/Futures"
import * as Training from "effect-tinker/protocol/schemas/Training"
import { adamw } from "effect-tinker/Optimizer"
import type { AdapterConfig, HostError } from "../../ModelHost.ts"
import { type Call, jsonOf, read, type Route, route, write } from "../Call.ts"
import * as Canonical from "../Canonical.ts"
import { baseModelOf, type Core } from "../Core.ts"
import * as Futures from "../Futures.ts"
import type { JsonObject } from "../Json.ts"
import * as Models from "../Models.ts"
import { operations, trainingWeights } from "../Operations.ts"
import * as Owned from "../Owned.ts"
import { bad, type Refusal, refuse } from "../Refusal.ts"
import { type CheckpointRow, type Job, type Model, newLane, type Payload, type Session } from "../State.ts"

const modelIdOf = (sessionId: string, number: number): string => `${sessionId}:train:${number}`

/** Derives a seed from the id of the model, for requests without one. */
const seedOf = (modelId: string): number =>
  Number.parseInt(Canonical.ofJson(modelId).replaceAll(/\D/g, "").slice(0, 9) || "1", 10)

interface ModelSpec {
  readonly config: AdapterConfig
  readonly optimizerConfig: JsonObject
  readonly userMetadata: JsonObject | undefined
}

export const unsafeModel = (
  session: Session,
  number: number,
  { config, optimizerConfig, userMetadata }: ModelSpec,
  now: number,
): Model => {
  const id = modelIdOf(session.id, number)
  return {
    id,
    owner: session.owner,
    sessionId: session.id,
    number,
    config,
    optimizerConfig,
    userMetadata,
    createdAt: now,
    snapshot: -1,
    lane: newLane(id),
    lastRequest: now,
    state: "creating",
    updates: 0,
  }
}

/** Creates the adapter and optionally loads weights into it. If that fails, the model is unloaded. */
export const creationJob = (
  core: Core,
  model: Model,
  payload: Payload,
  load?: Effect.Effect<void, HostError | Refusal>,
): Job => ({
  run: core.host.create(model.id, model.config).pipe(
    Effect.zipRight(load ?? Effect.void),
    Effect.tapBoth({
      onSuccess: () => Effect.sync(() => (model.state = "ready")),
      onFailure: () =>
        Effect.zipRight(
          Effect.ignore(core.host.drop(model.id)),
          Effect.sync(() => (model.state = "unloaded")),
        ),
    }),
    // The client may delete the source checkpoint as soon as it has the result.
    Effect.zipRight(load === undefined ? Effect.void : Models.snapshot(core, model, 0)),
    Effect.as(payload),
  ),
  changes: true,
  baseModel: model.config.baseModel,
  counts: [],
  ...(load !== undefined && { after: Models.dropBodies(core, model) }),
})

const makeModel = (
  core: Core,
  call: Call,
  operation: string,
  session: Session,
  number: number,
  spec: Effect.Effect<ModelSpec, Refusal>,
  jobOf: (model: Model) => Job,
): Effect.Effect<Accepted, Refusal> =>
  Effect.gen(function* () {
    const hash = Canonical.ofJson(Either.getOrElse(jsonOf(call), () => ({})))
    const known = core.state.models.get(modelIdOf(session.id, number))?.lane.taken.get(0)
    if (known !== undefined && known !== "refused")
      return yield* Futures.acknowledgeRepeat(known.future, hash, `model_seq_id ${number}`)
    const model = unsafeModel(session, number, yield* spec, call.now)
    if (core.state.models.has(model.id))
      return yield* refuse(409, `model_seq_id ${number} is in use by another request`)
    core.state.models.set(model.id, model)
    session.models.set(model.id, model)
    const forget = Effect.sync(() => {
      core.state.models.delete(model.id)
      session.models.delete(model.id)
    })
    yield* core.store.put("model", model.id, Models.modelRow(model)).pipe(
      Effect.mapError(Futures.storeUnavailable),
      Effect.tapError(() => forget),
    )
    return yield* Futures.submit(core, model.lane, {
      owner: call.owner,
      sessionId: session.id,
      lane: model.id,
      seq: 0,
      operation,
      hash,
      contentType: "application/json",
      body: call.request.body,
      job: jobOf(model),
      modelId: model.id,
    }).pipe(Effect.tapError(() => forget))
  }).pipe(Effect.uninterruptible)

const configOf = (core: Core, input: typeof Training.CreateModelRequest.Type): Effect.Effect<ModelSpec, Refusal> =>
  Effect.gen(function* () {
    const base = baseModelOf(core, input.baseModel)
    if (base === undefined)
      return yield* bad(
        "base_model",
        `"${input.baseModel}" is not served; available models: ${core.host.models.map(({ name }) => name).join(", ")}`,
      )
    const { rank = 32, seed, trainAttn = true, trainMlp = true, trainUnembed = true } = input.loraConfig ?? {}
    if (rank > base.maxRank) return yield* bad("lora_config.rank", `expected at most ${base.maxRank}, got ${rank}`)
    if (!trainAttn && !trainMlp && !trainUnembed)
      return yield* bad("lora_config", "enable at least one of train_attn, train_mlp and train_unembed")
    const optimizerConfig = input.optimizerConfig ?? adamw
    if (!base.optimizers.includes(optimizerConfig.type))
      return yield* bad(
        "optimizer_config.type",
        `"${optimizerConfig.type}" is not supported; available optimizers: ${base.optimizers.join(", ")}`,
      )
    return {
      config: {
        baseModel: base.name,
        rank,
        seed: seed ?? seedOf(modelIdOf(input.sessionId, input.modelSeqId)),
        trainAttn,
        trainMlp,
        trainUnembed,
        optimizer: optimizerConfig.type,
      },
      optimizerConfig,
      userMetadata: input.userMetadata,
    }
  })

const createModel = (core: Core) =>
  route(Api.createModel, (input, call) =>
    Effect.flatMap(Owned.session(core, call, input.sessionId), (session) =>
      makeModel(core, call, "create_model", session, input.modelSeqId, configOf(core, input), (model) =>
        creationJob(core, model, Models.result(Training.CreateModelResult, { modelId: model.id })),
      ),
    ),
  )

const loadAsModel = (core: Core, call: Call): Effect.Effect<Accepted, Refusal> =>
  Effect.gen(function* () {
    const input = yield* read(Api.loadWeightsAsModel, call)
    const session = yield* Owned.session(core, call, input.sessionId)
    const row = yield* trainingWeights(core, call, input)
    if (input.baseModel !== undefined && input.baseModel !== row.config.baseModel)
      return yield* bad("base_model", `${input.path} was trained on ${row.config.baseModel}`)
    const spec: ModelSpec = {
      config: row.config,
      optimizerConfig: input.optimizerConfig ?? row.optimizerConfig,
      userMetadata: input.userMetadata,
    }
    const { optimizer, path } = input
    return yield* makeModel(core, call, "load_weights", session, input.modelSeqId, Effect.succeed(spec), (model) =>
      loadJob(core, model, row, { optimizer, path }),
    )
  })

const loadJob = (
  core: Core,
  model: Model,
  row: CheckpointRow,
  { optimizer, path }: { readonly optimizer: boolean; readonly path: string },
): Job =>
  creationJob(
    core,
    model,
    Models.result(Training.LoadWeightsResult, { path: Option.some(path), modelId: Option.some(model.id) }),
    Effect.flatMap(Models.readWeights(core, row, row.path), (weights) =>
      core.host.restore(model.id, weights, optimizer),
    ),
  )

const reloadJob = (
  core: Core,
  call: Call,
  model: Model,
  input: typeof Training.LoadWeightsAsModelRequest.Type,
): Effect.Effect<Job, Refusal> =>
  Effect.map(trainingWeights(core, call, input), (row) => loadJob(core, model, row, input))

/** Recreates the job that creates a model, from the original request. */
export const recreationJob = (core: Core, model: Model, operation: string, call: Call): Effect.Effect<Job, Refusal> =>
  operation === "create_model"
    ? Effect.succeed(creationJob(core, model, Models.result(Training.CreateModelResult, { modelId: model.id })))
    : Effect.flatMap(read(Api.loadWeightsAsModel, call), (input) => reloadJob(core, call, model, input))

/** Accepts a request with a sequence number. */
const sequenced = (core: Core, operation: string, call: Call): Effect.Effect<Accepted, Refusal> => {
  const prepare = operations[operation]
  if (prepare === undefined) return refuse(404, "Not Found")
  return prepare(core, call).pipe(
    Effect.flatMap(({ hash, job, model, seq }) =>
      seq < 0
        ? Effect.fail(bad("seq_id", `expected a number of at least 0, got ${seq}`))
        : // Number 0 belongs to the creation of the model, so it is a conflict here.
          Futures.submit(core, model.lane, {
            owner: call.owner,
            sessionId: model.sessionId,
            lane: model.id,
            seq,
            operation,
            hash,
            contentType: call.request.headers["content-type"] ?? "application/json",
            body: call.request.body,
            job,
          }),
    ),
  )
}

export const training = (core: Core): ReadonlyArray<Route> => {
  const submitted = (endpoint: typeof Api.optimStep | typeof Api.forwardBackward, operation: string): Route => ({
    endpoint,
    answer: (call) => Effect.map(sequenced(core, operation, call), (accepted) => write(Api.createModel, accepted)),
  })
  return [
    createModel(core),
    { ...submitted(Api.forwardBackward, "forward_backward"), isPass: true },
    { ...submitted(Api.forwardBackward, "forward"), endpoint: Api.forwardJson, isPass: true },
    submitted(Api.optimStep, "optim_step"),
    { ...submitted(Api.optimStep, "save_weights"), endpoint: Api.saveWeights },
    { ...submitted(Api.optimStep, "save_weights_for_sampler"), endpoint: Api.saveWeightsForSampler },
    { ...submitted(Api.optimStep, "save_weights_external"), endpoint: Api.saveWeightsExternal },
    {
      endpoint: Api.loadWeights,
      // One path serves two requests: loading into an existing model, or creating a new one in a session.
      answer: (call) => {
        const body = Either.getOrElse(jsonOf(call), () => ({}))
        const named = typeof body === "object" && body !== null && Reflect.get(body, "model_id") !== undefined
        return Effect.map(named ? sequenced(core, "load_weights", call) : loadAsModel(core, call), (accepted) =>
          write(Api.createModel, accepted),
        )
      },
    },
    route(Api.unloadModel, ({ modelId }, call) =>
      Effect.flatMap(Owned.model(core, call, modelId), (model) =>
        Effect.map(
          Futures.accept(
            core,
            {
              owner: call.owner,
              sessionId: model.sessionId,
              lane: `${model.id} unload`,
              seq: undefined,
              operation: "unload_model",
              hash: "",
              contentType: "application/json",
              body: call.request.body,
              job: {
                run: Effect.as(
                  Models.dropModel(core, model),
                  Models.result(Training.UnloadModelResult, {
                    modelId: Option.some(modelId),
                    status: Option.some("unloaded"),
                  }),
                ),
                changes: false,
                baseModel: model.config.baseModel,
                counts: [],
              },
            },
            { reserve: () => {}, release: () => {} },
          ).pipe(Effect.tap((future) => Effect.forkIn(Futures.runJob(core, future), core.scope))),
          ({ accepted }) => accepted,
        ),
      ),
    ),
    route(Api.getInfo, ({ modelId }, call) =>
      Effect.map(Owned.model(core, call, modelId), ({ config, optimizerConfig }) => {
        const base = baseModelOf(core, config.baseModel)
        return {
          modelId,
          modelData: {
            arch: Option.fromNullable(base?.arch),
            modelName: Option.some(config.baseModel),
            tokenizerId: Option.fromNullable(base?.tokenizerId),
          },
          isLora: Option.some(true),
          loraRank: Option.some(config.rank),
          modelName: Option.some(config.baseModel),
          optimizerConfig: optimizerConfig as typeof adamw,
        }
      }),
    ),
    route(Api.createCustomLoss, () =>
      Effect.fail(
        bad(
          "graph",
          "server-side custom losses are not supported; run the loss in the client (custom_loss_server_side is off)",
        ),
      ),
    ),
  ]
}
