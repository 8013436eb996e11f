/**
 * Decodes and validates the operations of a model and turns them into jobs, both when a request arrives and when its
 * stored body is replayed after a restart.
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Api from "effect-tinker/protocol/Api"
import * as Training from "effect-tinker/protocol/schemas/Training"
import * as Optimizer from "effect-tinker/Optimizer"
import * as ResultMessages from "effect-tinker/protocol/ResultMessages"
import * as TensorData from "effect-tinker/TensorData"
import { type BaseModel, type Example, HostError, type PassOutput, type Tensor, type Update } from "../ModelHost.ts"
import { type Call, jsonOf, read } from "./Call.ts"
import * as Canonical from "./Canonical.ts"
import { checkLoss, exampleOf } from "./CheckPass.ts"
import { baseModelOf, type Core } from "./Core.ts"
import { slices, yieldToEventLoop } from "./EventLoop.ts"
import { skip } from "./Futures.ts"
import * as Models from "./Models.ts"
import * as Owned from "./Owned.ts"
import * as PassBody from "./PassBody.ts"
import { ownerOf } from "./Auth.ts"
import { bad, type Refusal } from "./Refusal.ts"
import { makeSampler } from "./Samplers.ts"
import type { Job, Model, Payload } from "./State.ts"

/** A valid request of a model. */
export interface Prepared {
  readonly model: Model
  readonly seq: number
  readonly hash: string
  readonly job: Job
}

type Prepare = (core: Core, call: Call) => Effect.Effect<Prepared, Refusal>

interface Address {
  readonly modelId: string
  readonly seq: number
}

/** Returns the model and the sequence number of a JSON request, even if the rest of it is invalid. */
const addressOf = (call: Call): Address | undefined => {
  const body = Either.getOrElse(jsonOf(call), () => undefined)
  if (typeof body !== "object" || body === null) return undefined
  const modelId: unknown = Reflect.get(body, "model_id")
  const seq: unknown = Reflect.get(body, "seq_id")
  return typeof modelId === "string" && typeof seq === "number" ? { modelId, seq } : undefined
}

/** Skips the number of a refused request, so that later requests are not blocked. */
const skipRefused =
  (core: Core, call: Call, address: () => Address | undefined) =>
  <A>(prepare: Effect.Effect<A, Refusal>): Effect.Effect<A, Refusal> =>
    Effect.tapError(prepare, () => {
      const at = address()
      const model = at === undefined ? undefined : core.state.models.get(at.modelId)
      return at === undefined || model?.owner !== call.owner ? Effect.void : skip(core, model.lane, at.seq)
    })

const bodyHash = (call: Call, without: ReadonlyArray<string> = []): string => {
  const body = Either.getOrElse(jsonOf(call), () => ({}))
  return Canonical.ofJson(
    typeof body === "object" && body !== null
      ? Object.fromEntries(Object.entries(body).filter(([name]) => !without.includes(name)))
      : body,
  )
}

/** Fails if the model is not loaded. */
const onModel = <E>(model: Model, run: Effect.Effect<Payload, E>): Effect.Effect<Payload, E | HostError> =>
  Effect.suspend((): Effect.Effect<Payload, E | HostError> =>
    model.state === "ready"
      ? run
      : new HostError({ reason: "invalid", message: `Model ${model.id} failed to load or was unloaded` }),
  )

interface Work {
  readonly model: Model
  readonly seq: number
  readonly hash: string
  readonly run: Effect.Effect<Payload, HostError | Refusal>
  readonly changes: boolean
  readonly counts?: Job["counts"]
  /** The size of what the work keeps in memory. */
  readonly bytes?: number
  readonly after?: Effect.Effect<void>
}

const prepared = ({ after, bytes = 0, changes, counts = [], hash, model, run, seq }: Work): Prepared => ({
  model,
  seq,
  hash,
  job: {
    run: onModel(model, run),
    changes,
    baseModel: model.config.baseModel,
    bytes,
    counts,
    ...(after !== undefined && { after }),
  },
})

const oneCheckpoint: Job["counts"] = [{ kind: "checkpoint", count: 1 }]

// Passes

const tensorData = ({ data, shape }: Tensor): TensorData.TensorData =>
  data instanceof Float32Array
    ? Either.getOrThrow(TensorData.float32(data, { shape }))
    : Either.getOrThrow(TensorData.int64(data, { shape }))

const passPayload = ({ metrics, outputs }: PassOutput): Payload =>
  ResultMessages.trainingPayload(
    {
      outputType: "ArrayRecord",
      outputs: outputs.map((output) =>
        Object.fromEntries(Object.entries(output).map(([name, tensor]) => [name, tensorData(tensor)])),
      ),
      metrics,
    },
    "protobuf",
  )

/** Decodes, checks and hashes the data one by one, and lets others have their turn in between. */
const readData = (call: Call, body: PassBody.PassBody, base: BaseModel) =>
  Effect.gen(function* () {
    const { header } = body
    yield* checkLoss(header.loss, body.count, base)
    const pause = slices(call.request.body.length)
    const hash = Canonical.ofPass(header)
    const examples: Array<Example> = []
    for (let index = 0; index < body.count; index++) {
      const datum = yield* body.datum(index)
      hash.add(datum)
      examples.push(yield* exampleOf(datum, header.loss, base, { bytes: body.size(index), field: `data[${index}]` }))
      yield* pause
    }
    return { hash: hash.digest(), examples }
  })

const pass =
  (path: "forward" | "forward_backward"): Prepare =>
  (core, call) =>
    Effect.flatMap(PassBody.open(call.request, path), (body) =>
      Effect.gen(function* () {
        const { config, forwardOnly, loss, modelId, seqId } = body.header
        const model = yield* Owned.model(core, call, modelId)
        const base = baseModelOf(core, model.config.baseModel)
        if (base === undefined) return yield* bad("model_id", `${model.config.baseModel} is no longer served`)
        const { examples, hash } = yield* readData(call, body, base)
        const pause = yieldToEventLoop(call.request.body.length)
        yield* pause
        return prepared({
          model,
          seq: seqId,
          hash,
          bytes: call.request.body.length,
          run: Effect.suspend(() => core.host.pass(model.id, { forwardOnly, loss, config, examples })).pipe(
            Effect.zipLeft(pause),
            Effect.map(passPayload),
            Effect.zipLeft(pause),
          ),
          changes: !forwardOnly,
          counts: [{ kind: "training", count: examples.reduce((sum, { tokens }) => sum + tokens.length, 0) }],
        })
      }).pipe(skipRefused(core, call, () => ({ modelId: body.header.modelId, seq: body.header.seqId }))),
    )

// Updates

const updateOf = (params: typeof Training.OptimStepRequest.Type): Update | undefined => {
  const { adamParams, optimizerParams } = params
  if (adamParams !== undefined) return { ...adamParams, type: "adamw" }
  if (optimizerParams === undefined) return undefined
  const { beta1, gradClipNorm, learningRate, type } = optimizerParams
  return { ...Optimizer.adam({ beta1, gradClipNorm, learningRate }), type }
}

const snakeCase = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

/** Returns the first number of an update that float32, the precision of the weights, cannot represent. */
const tooLarge = (update: Update): readonly [string, number] | undefined =>
  Object.entries(update).find(
    (entry): entry is [string, number] => typeof entry[1] === "number" && !Number.isFinite(Math.fround(entry[1])),
  )

/** Adds the suffix that defines how the metric is combined across requests, where it is missing. */
const withReduction = (metrics: Readonly<Record<string, number>>) =>
  Object.fromEntries(
    Object.entries(metrics).map(([name, value]) => [name.includes(":") ? name : `${name}:unique`, value]),
  )

const optimStep: Prepare = (core, call) =>
  Effect.gen(function* () {
    const input = yield* read(Api.optimStep, call)
    const model = yield* Owned.model(core, call, input.modelId)
    const update = updateOf(input)
    if (update === undefined) return yield* bad("adam_params", "is missing")
    if (update.type !== model.config.optimizer)
      return yield* bad(
        update.type === "adamw" ? "adam_params" : "optimizer_params",
        `the model was created with the optimizer ${model.config.optimizer}, got ${update.type}`,
      )
    const large = tooLarge(update)
    if (large !== undefined)
      return yield* bad(`adam_params.${snakeCase(large[0])}`, `${large[1]} exceeds the range of float32`)
    return prepared({
      model,
      seq: input.seqId,
      hash: bodyHash(call),
      run: Effect.map(core.host.step(model.id, update), (metrics) =>
        Models.result(Training.OptimStepResult, { metrics: withReduction(metrics) }),
      ),
      changes: true,
      after: Effect.suspend(() =>
        ++model.updates >= core.settings.snapshotEvery ? Models.snapshot(core, model, input.seqId) : Effect.void,
      ),
    })
  })

// Weights

const saveWeights: Prepare = (core, call) =>
  Effect.gen(function* () {
    const input = yield* read(Api.saveWeights, call)
    const model = yield* Owned.model(core, call, input.modelId)
    const name = yield* Models.checkName(input.path)
    yield* Models.checkTtl(input.ttlSeconds)
    const path = Models.pathOf(model.id, "training", name)
    return prepared({
      model,
      seq: input.seqId,
      hash: bodyHash(call),
      run: Effect.suspend(() => {
        const before = core.state.checkpoints.get(path)
        const isOwn = before?.savedBy === Models.savedBy(model, input.seqId)
        if (input.overwrite !== true && before !== undefined && !isOwn)
          return bad("path", `${path} already exists; set "overwrite": true to replace it`)
        return Effect.as(
          Models.saveCheckpoint(core, model, "training", name, input),
          Models.result(Training.SaveWeightsResult, { path }),
        )
      }),
      changes: false,
      counts: oneCheckpoint,
    })
  })

const saveWeightsExternal: Prepare = (core, call) =>
  Effect.gen(function* () {
    const input = yield* read(Api.saveWeightsExternal, call)
    const model = yield* Owned.model(core, call, input.modelId)
    const name = yield* Models.checkName(input.path)
    yield* Models.checkTtl(input.ttlSeconds)
    if ((input.ageEncryptionRecipients ?? []).length > 0)
      return yield* bad("age_encryption_recipients", "encryption is not supported; omit it")
    return prepared({
      model,
      seq: input.seqId,
      hash: bodyHash(call),
      run: Effect.map(Models.saveCheckpoint(core, model, "external", name, input), ({ path, size }) =>
        Models.result(Training.SaveWeightsExternalResult, { path, sizeBytes: Option.some(size) }),
      ),
      changes: false,
      counts: oneCheckpoint,
    })
  })

const savedForSampler = (result: Partial<typeof Training.SaveWeightsForSamplerResult.Type>): Payload =>
  Models.result(Training.SaveWeightsForSamplerResult, {
    path: Option.none(),
    samplingSessionId: Option.none(),
    ...result,
  })

const saveWeightsForSampler: Prepare = (core, call) =>
  Effect.gen(function* () {
    const input = yield* read(Api.saveWeightsForSampler, call)
    const model = yield* Owned.model(core, call, input.modelId)
    const { path, samplingSessionSeqId } = input
    yield* Models.checkTtl(input.ttlSeconds)
    const run =
      path === undefined
        ? Effect.gen(function* () {
            const written = yield* Models.writeWeights(core, yield* core.host.save(model.id, false))
            const id = `${model.sessionId}:sample:${samplingSessionSeqId ?? 0}`
            const sampler = yield* makeSampler(core, {
              id,
              owner: model.owner,
              sessionId: model.sessionId,
              hash: `${model.id} ${input.seqId}`,
              baseModel: model.config.baseModel,
              modelPath: undefined,
              weights: { ...written, config: model.config, of: id },
              clients: 0,
            })
            return savedForSampler({ samplingSessionId: Option.some(sampler.id) })
          })
        : Effect.map(Models.saveCheckpoint(core, model, "sampler", yield* Models.checkName(path), input), (row) =>
            savedForSampler({ path: Option.some(row.path) }),
          )
    return prepared({
      model,
      seq: input.seqId,
      // The official SDK sends a new sampler number with every retry of the same save.
      hash: bodyHash(call, ["sampling_session_seq_id"]),
      run,
      changes: false,
      counts: path === undefined ? [] : oneCheckpoint,
    })
  })

const loadWeights: Prepare = (core, call) =>
  Effect.gen(function* () {
    const input = yield* read(Api.loadWeights, call)
    const model = yield* Owned.model(core, call, input.modelId)
    const row = yield* trainingWeights(core, call, input)
    const { config } = row
    if (config.baseModel !== model.config.baseModel || config.rank !== model.config.rank)
      return yield* bad(
        "path",
        `the checkpoint is for ${config.baseModel} with rank ${config.rank}, but the model is ${model.config.baseModel} with rank ${model.config.rank}`,
      )
    return prepared({
      model,
      seq: input.seqId,
      hash: bodyHash(call),
      run: Models.readWeights(core, row, row.path).pipe(
        Effect.flatMap((weights) => core.host.restore(model.id, weights, input.optimizer)),
        // The client may delete the checkpoint as soon as it has the result.
        Effect.zipRight(Models.snapshot(core, model, input.seqId)),
        Effect.as(
          Models.result(Training.LoadWeightsResult, { path: Option.some(row.path), modelId: Option.some(model.id) }),
        ),
      ),
      changes: true,
      after: Models.dropBodies(core, model),
    })
  })

/** Finds a checkpoint from which training can continue. */
export const trainingWeights = (
  core: Core,
  call: Call,
  { path, weightsAccessToken }: Pick<typeof Training.LoadWeightsRequest.Type, "path" | "weightsAccessToken">,
) =>
  Effect.gen(function* () {
    const token =
      weightsAccessToken === undefined ? undefined : ownerOf(core, Redacted.value(weightsAccessToken), call.now)
    const row = yield* Owned.checkpoint(core, call, path, [token])
    return row.kind === "training"
      ? row
      : yield* bad(
          "path",
          `${path} holds ${row.kind === "sampler" ? "sampler" : "external"} weights; training can only continue from training weights`,
        )
  })

const skipping =
  (prepare: Prepare): Prepare =>
  (core, call) =>
    skipRefused(core, call, () => addressOf(call))(prepare(core, call))

/** The operations, by the name under which they are stored. If a request is refused, its number is skipped. */
export const operations: Readonly<Record<string, Prepare>> = {
  forward: pass("forward"),
  forward_backward: pass("forward_backward"),
  optim_step: skipping(optimStep),
  save_weights: skipping(saveWeights),
  save_weights_for_sampler: skipping(saveWeightsForSampler),
  save_weights_external: skipping(saveWeightsExternal),
  load_weights: skipping(loadWeights),
}
