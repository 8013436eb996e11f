/** Models: made, kept on disk often enough, saved, loaded, and ended. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import * as Checkpoint from "effect-tinker/Checkpoint"
import { randomUUID } from "node:crypto"
import type { FileError } from "../CheckpointFiles.ts"
import type { HostError } from "../ModelHost.ts"
import type { StoreError } from "../Store.ts"
import type { Core } from "./Core.ts"
import { settle } from "./Futures.ts"
import { bad, Refusal } from "./Refusal.ts"
import {
  type CheckpointRow,
  type Future,
  type Model,
  type ModelRow,
  newLane,
  type Payload,
  type Session,
  type SessionRow,
} from "./State.ts"

export const weightsKey = (file: string): ReadonlyArray<string> => ["weights", file]
const snapshotName = (modelId: string, seq: number): string => `${modelId} ${seq}`
const snapshotKey = (modelId: string, seq: number): ReadonlyArray<string> => ["snapshots", snapshotName(modelId, seq)]

/** Trouble with the disk: the work could not be done, and it is not the caller's fault. */
export const broken = (error: FileError | StoreError): Refusal => new Refusal({ status: 503, detail: error.message })

export const result = <A, I>(schema: Schema.Schema<A, I>, value: A): Payload => ({
  contentType: "application/json",
  body: JSON.stringify(Schema.encodeSync(schema)(value)),
})

export const modelRow = ({
  lane: _lane,
  lastRequest: _at,
  state: _state,
  updates: _updates,
  ...row
}: Model): ModelRow => row

export const sessionRow = ({
  isForgotten: _forgotten,
  lastSeen: _seen,
  models: _models,
  samplers: _samplers,
  ...row
}: Session): SessionRow => row

/** What the snapshot has is not done again. A token in a body, e.g. for the weights of somebody else, goes with it. */
export const forgetBodies = ({ store }: Core, model: Model): Effect.Effect<void> =>
  Effect.ignore(store.dropBodies(model.id, model.snapshot))

/** The model as it is after this number, on disk; what came before it need not be done again after a restart. */
export const snapshot = (core: Core, model: Model, seq: number): Effect.Effect<void> =>
  Effect.gen(function* () {
    if (!core.store.durable || model.state !== "ready") return
    const bytes = yield* core.host.save(model.id, true)
    yield* core.files.write(snapshotKey(model.id, seq), bytes)
    const before = model.snapshot
    model.snapshot = seq
    model.updates = 0
    yield* core.store.put("model", model.id, modelRow(model))
    yield* forgetBodies(core, model)
    if (before >= 0 && before !== seq) yield* core.files.remove(snapshotKey(model.id, before))
  }).pipe(
    // Without it a restart takes longer, no more.
    Effect.catchAll((error) => Effect.logWarning(`no snapshot of ${model.id}: ${error.message}`)),
  )

/** The adapter as its snapshot has it. */
export const restoreSnapshot = (core: Core, model: Model): Effect.Effect<void, HostError | FileError> =>
  Effect.gen(function* () {
    yield* core.host.create(model.id, model.config)
    yield* core.host.restore(model.id, yield* core.files.read(snapshotKey(model.id, model.snapshot)), true)
  })

/** A name that can be a part of a path. */
export const checkName = (name: string): Effect.Effect<string, Refusal> =>
  /^[\w][\w.\- ]{0,127}$/.test(name) && !name.includes("..")
    ? Effect.succeed(name)
    : Effect.fail(
        bad("path", `"${name.slice(0, 80)}" is no name: letters, digits, ".", "-", "_" and spaces, at most 128`),
      )

export const pathOf = (trainingRunId: string, kind: Checkpoint.Kind, name: string): string =>
  Either.getOrThrow(Checkpoint.make({ trainingRunId, kind, name })).toString()

/** Those that can be sampled from: a sampler ends with its session. */
const openSamplers = ({ state }: Core) =>
  [...state.samplers.values()].filter(({ sessionId }) => state.sessions.get(sessionId)?.state === "active")

/** Is it still the file of a checkpoint, or of a sampler? */
const isUsed = (core: Core, file: string): boolean =>
  [...core.state.checkpoints.values()].some((row) => row.file === file) ||
  openSamplers(core).some((sampler) => sampler.weights?.file === file)

/** Removes a file that nobody has a use for any more. */
export const forgetFile = (core: Core, file: string): Effect.Effect<void> =>
  isUsed(core, file) ? Effect.void : Effect.ignore(core.files.remove(weightsKey(file)))

/** Files that were written for what a killed process never said yes to, or has forgotten since. */
export const removeStrays = (core: Core): Effect.Effect<void, FileError> => {
  const snapshots = new Set(
    [...core.state.models.values()]
      .filter(({ state }) => state !== "gone")
      .map(({ id, snapshot }) => snapshotName(id, snapshot)),
  )
  const sweep = (folder: string, isKept: (name: string) => boolean) =>
    Effect.flatMap(core.files.list([folder]), (names) =>
      Effect.forEach(
        names.filter((name) => !isKept(name)),
        (name) => core.files.remove([folder, name]),
        { discard: true },
      ),
    )
  return Effect.zipRight(
    sweep("weights", (name) => isUsed(core, name)),
    sweep("snapshots", (name) => snapshots.has(name)),
  )
}

export interface SaveOptions {
  readonly userMetadata?: CheckpointRow["userMetadata"]
  readonly ttlSeconds?: number | undefined
  /** The number of the request. */
  readonly seqId: number
}

/** Who saves: a model, by a request. */
export const savedBy = (model: Model, seqId: number): string => `${model.id} ${seqId}`

/** The weights of a model under a file name of their own. */
export const writeWeights = (
  core: Core,
  model: Model,
  optimizer: boolean,
): Effect.Effect<{ readonly file: string; readonly size: number }, HostError | Refusal> =>
  Effect.gen(function* () {
    const bytes = yield* core.host.save(model.id, optimizer)
    const file = randomUUID()
    yield* Effect.mapError(core.files.write(weightsKey(file), bytes), broken)
    return { file, size: bytes.length }
  })

/** The run of a copy: it was never trained here, and can be looked up like any other. */
export const keepRun = (
  core: Core,
  id: string,
  { config, optimizerConfig, userMetadata }: CheckpointRow,
  { now, owner }: { readonly now: number; readonly owner: string },
  projectId: string | undefined,
): Effect.Effect<void, Refusal> => {
  const row: ModelRow = {
    id,
    owner,
    sessionId: "",
    number: 0,
    config,
    optimizerConfig,
    userMetadata,
    createdAt: now,
    projectId,
    snapshot: -1,
  }
  return Effect.map(Effect.mapError(core.store.put("model", id, row), broken), () => {
    core.state.models.set(id, {
      ...row,
      lane: { ...newLane(id), closed: true },
      lastRequest: now,
      state: "gone",
      updates: 0,
    })
  })
}

/** Known from now on, and after a power cut. What was under the same name is no more. */
export const keepCheckpoint = (
  core: Core,
  row: CheckpointRow,
  event = "checkpoint_saved",
): Effect.Effect<void, Refusal> =>
  Effect.gen(function* () {
    yield* Effect.mapError(core.store.put("checkpoint", row.path, row, { flushed: true }), broken)
    const before = core.state.checkpoints.get(row.path)
    core.state.checkpoints.set(row.path, row)
    if (before !== undefined && before.file !== row.file) yield* forgetFile(core, before.file)
    yield* record(core, row, event)
  })

export const record = (core: Core, row: CheckpointRow, event: string): Effect.Effect<void> =>
  Effect.flatMap(Clock.currentTimeMillis, (time) =>
    Effect.ignore(core.store.record({ time, owner: row.owner, event, modelId: row.trainingRunId, path: row.path })),
  )

export const removeCheckpoint = (core: Core, row: CheckpointRow, event: string): Effect.Effect<void, Refusal> =>
  Effect.gen(function* () {
    yield* Effect.mapError(core.store.remove("checkpoint", row.path), broken)
    core.state.checkpoints.delete(row.path)
    yield* forgetFile(core, row.file)
    yield* record(core, row, event)
  })

export const saveCheckpoint = (
  core: Core,
  model: Model,
  kind: Checkpoint.Kind,
  name: string,
  options: SaveOptions,
): Effect.Effect<CheckpointRow, HostError | Refusal> =>
  Effect.gen(function* () {
    const before = core.state.checkpoints.get(pathOf(model.id, kind, name))
    // Killed between keeping it and telling so.
    if (before?.savedBy === savedBy(model, options.seqId)) return before
    const { file, size } = yield* writeWeights(core, model, kind === "training")
    const createdAt = yield* Clock.currentTimeMillis
    const row: CheckpointRow = {
      path: pathOf(model.id, kind, name),
      owner: model.owner,
      trainingRunId: model.id,
      kind,
      name,
      createdAt,
      size,
      config: model.config,
      optimizerConfig: model.optimizerConfig,
      userMetadata: options.userMetadata,
      sessionId: model.sessionId,
      public: false,
      expiresAt: options.ttlSeconds === undefined ? undefined : createdAt + options.ttlSeconds * 1000,
      file,
      savedBy: savedBy(model, options.seqId),
    }
    yield* keepCheckpoint(core, row)
    return row
  })

export const readWeights = (core: Core, file: string): Effect.Effect<Uint8Array, Refusal> =>
  Effect.mapError(core.files.read(weightsKey(file)), broken)

/** Of what is still open, everybody hears that it will not be. */
const settleAll = (core: Core, futures: Iterable<Future>, detail: string): Effect.Effect<void> =>
  Effect.forEach(
    [...futures].filter(({ status }) => status !== "done"),
    (future) => settle(core, future, { _tag: "Refused", status: 410, detail }),
    { discard: true },
  )

/** Ends a model: its weights are gone, its run and checkpoints stay. */
export const dropModel = (core: Core, model: Model): Effect.Effect<void> =>
  Effect.gen(function* () {
    if (model.state === "gone") return
    model.state = "gone"
    model.lane.closed = true
    yield* settleAll(core, model.lane.held.values(), `Model ${model.id} is gone`)
    model.lane.held.clear()
    yield* Effect.ignore(core.host.drop(model.id))
    if (model.snapshot >= 0) yield* Effect.ignore(core.files.remove(snapshotKey(model.id, model.snapshot)))
  })

/** What the host has open, and nobody samples from any more. */
const closeUnused = (core: Core): Effect.Effect<void> => {
  const used = new Set(openSamplers(core).map(({ baseModel, weights }) => weights?.file ?? baseModel))
  return Effect.forEach(
    [...core.state.opened.keys()].filter((key) => !used.has(key) && (core.state.talking.get(key) ?? 0) === 0),
    (key) => {
      core.state.opened.delete(key)
      return Effect.zipRight(Effect.ignore(core.host.closeSampler(key)), forgetFile(core, key))
    },
    { discard: true },
  )
}

/** The end of a session, however it comes: models and samplers end with it, checkpoints and what was counted stay. */
export const endSession = (
  core: Core,
  session: Session,
  end: Pick<Session, "state" | "reason" | "detail">,
): Effect.Effect<void> =>
  Effect.gen(function* () {
    if (session.state !== "active") return
    session.state = end.state
    session.reason = end.reason
    session.detail = end.detail
    session.endedAt = yield* Clock.currentTimeMillis
    yield* Effect.forEach(session.models.values(), (model) => dropModel(core, model), { discard: true })
    yield* settleAll(
      core,
      [...core.state.futures.values()].filter(({ sessionId }) => sessionId === session.id),
      `Session ${session.id} is ${end.state}`,
    )
    yield* closeUnused(core)
    for (const { weights } of session.samplers.values())
      if (weights !== undefined) yield* forgetFile(core, weights.file)
    yield* Effect.ignore(core.store.put("session", session.id, sessionRow(session)))
  })
