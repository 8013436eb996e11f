/** Manages models: snapshots, checkpoints and unloading, and the end of sessions. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import * as Checkpoint from "effect-tinker/Checkpoint"
import { randomUUID } from "node:crypto"
import type { DamagedFile, FileError } from "../CheckpointFiles.ts"
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
  type Weights,
  type WeightsFile,
} from "./State.ts"

export const weightsKey = (file: string): ReadonlyArray<string> => ["weights", file]
const snapshotName = (modelId: string, seq: number): string => `${modelId} ${seq}`
const snapshotKey = (modelId: string, seq: number): ReadonlyArray<string> => ["snapshots", snapshotName(modelId, seq)]

/** Converts a disk failure to a 503: the server could not do the work, and the caller is not at fault. */
export const storageFailure = (error: FileError | StoreError): Refusal =>
  new Refusal({ status: 503, detail: error.message })

export const result = <A, I>(schema: Schema.Schema<A, I>, value: A): Payload => ({
  contentType: "application/json",
  body: JSON.stringify(Schema.encodeSync(schema)(value)),
})

export const modelRow = ({
  lane: _lane,
  lastRequest: _at,
  lostBecause: _because,
  state: _state,
  updates: _updates,
  ...row
}: Model): ModelRow => row

export const sessionRow = ({
  resultsDropped: _dropped,
  lastSeen: _seen,
  models: _models,
  samplers: _samplers,
  ...row
}: Session): SessionRow => row

/** Deletes the request bodies that the snapshot covers. This also deletes access tokens that they may contain. */
export const dropBodies = ({ store }: Core, model: Model): Effect.Effect<void> =>
  Effect.ignore(store.dropBodies(model.id, model.snapshot))

/**
 * Writes the model to disk as it is after a sequence number; a restart does not repeat the requests up to that number.
 */
export const snapshot = (core: Core, model: Model, seq: number): Effect.Effect<void> =>
  Effect.gen(function* () {
    if (!core.store.durable || model.state !== "ready") return
    const bytes = yield* core.host.save(model.id, true)
    const checksum = yield* core.files.write(snapshotKey(model.id, seq), bytes)
    const before = model.snapshot
    model.snapshot = seq
    model.snapshotChecksum = checksum
    model.updates = 0
    yield* core.store.put("model", model.id, modelRow(model))
    yield* dropBodies(core, model)
    if (before >= 0 && before !== seq) yield* core.files.remove(snapshotKey(model.id, before))
  }).pipe(
    // A missing snapshot only makes a restart slower.
    Effect.catchAll((error) => Effect.logWarning(`failed to write a snapshot of ${model.id}: ${error.message}`)),
  )

/** Creates the adapter from its snapshot. */
export const restoreSnapshot = (core: Core, model: Model): Effect.Effect<void, HostError | FileError | DamagedFile> =>
  Effect.gen(function* () {
    const bytes = yield* core.files.read(snapshotKey(model.id, model.snapshot), model.snapshotChecksum)
    yield* core.host.create(model.id, model.config)
    yield* core.host.restore(model.id, bytes, true)
  })

/** Checks that a checkpoint name is valid as part of a path. */
export const checkName = (name: string): Effect.Effect<string, Refusal> =>
  /^[\w][\w.\- ]{0,127}$/.test(name) && !name.includes("..")
    ? Effect.succeed(name)
    : Effect.fail(
        bad(
          "path",
          `"${name.slice(0, 80)}" is not a valid name; use at most 128 letters, digits, ".", "-", "_" and spaces`,
        ),
      )

export const pathOf = (trainingRunId: string, kind: Checkpoint.Kind, name: string): string =>
  Either.getOrThrow(Checkpoint.make({ trainingRunId, kind, name })).toString()

/** Returns the samplers of active sessions: a sampler ends with its session. */
const openSamplers = ({ state }: Core) =>
  [...state.samplers.values()].filter(({ sessionId }) => state.sessions.get(sessionId)?.state === "active")

/** Checks whether a checkpoint or an open sampler uses the file. */
const isUsed = (core: Core, file: string): boolean =>
  [...core.state.checkpoints.values()].some((row) => row.file === file) ||
  openSamplers(core).some((sampler) => sampler.weights?.file === file)

/** Removes a weight file unless it is still in use. */
export const removeUnusedFile = (core: Core, file: string): Effect.Effect<void> =>
  isUsed(core, file) ? Effect.void : Effect.ignore(core.files.remove(weightsKey(file)))

/** Removes weight and snapshot files that nothing refers to, e.g. after a process was killed. */
export const removeOrphanedFiles = (core: Core): Effect.Effect<void, FileError> => {
  const snapshots = new Set(
    [...core.state.models.values()]
      .filter(({ state }) => state !== "unloaded")
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

/** The time to live of a checkpoint, in seconds: at least an hour, like that of the service, and at most 100 years. */
const ttlBounds = { from: 3600, to: 100 * 365 * 86_400 }

export const checkTtl = (seconds: number | null | undefined): Effect.Effect<void, Refusal> =>
  seconds === undefined || seconds === null || (seconds >= ttlBounds.from && seconds <= ttlBounds.to)
    ? Effect.void
    : Effect.fail(bad("ttl_seconds", `expected ${ttlBounds.from} to ${ttlBounds.to}, got ${seconds}`))

export interface SaveOptions {
  readonly userMetadata?: CheckpointRow["userMetadata"]
  readonly ttlSeconds?: number | undefined
  /** The sequence number of the request. */
  readonly seqId: number
}

/** Identifies the request that saves a checkpoint. */
export const savedBy = (model: Model, seqId: number): string => `${model.id} ${seqId}`

/** Writes weights to a new file. */
export const writeWeights = (core: Core, bytes: Uint8Array): Effect.Effect<WeightsFile, Refusal> => {
  const file = randomUUID()
  return Effect.mapBoth(core.files.write(weightsKey(file), bytes), {
    onFailure: storageFailure,
    onSuccess: (checksum) => ({ file, checksum }),
  })
}

/** Stores a training run for copied weights. It was never trained here, but can be looked up like any other. */
export const storeCopiedRun = (
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
  return Effect.map(Effect.mapError(core.store.put("model", id, row), storageFailure), () => {
    core.state.models.set(id, {
      ...row,
      lane: { ...newLane(id), closed: true },
      lastRequest: now,
      state: "unloaded",
      updates: 0,
    })
  })
}

/** Stores a checkpoint durably, replacing any previous one of the same name. */
export const storeCheckpoint = (
  core: Core,
  row: CheckpointRow,
  event = "checkpoint_saved",
): Effect.Effect<void, Refusal> =>
  Effect.gen(function* () {
    yield* Effect.mapError(core.store.put("checkpoint", row.path, row, { flushed: true }), storageFailure)
    const before = core.state.checkpoints.get(row.path)
    core.state.checkpoints.set(row.path, row)
    if (before !== undefined && before.file !== row.file) yield* removeUnusedFile(core, before.file)
    yield* record(core, row, event)
  })

export const record = (core: Core, row: CheckpointRow, event: string): Effect.Effect<void> =>
  Effect.flatMap(Clock.currentTimeMillis, (time) =>
    Effect.ignore(core.store.record({ time, owner: row.owner, event, modelId: row.trainingRunId, path: row.path })),
  )

export const removeCheckpoint = (core: Core, row: CheckpointRow, event: string): Effect.Effect<void, Refusal> =>
  Effect.gen(function* () {
    yield* Effect.mapError(core.store.remove("checkpoint", row.path), storageFailure)
    core.state.checkpoints.delete(row.path)
    yield* removeUnusedFile(core, row.file)
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
    // The process was killed after the checkpoint was stored, but before the result was.
    if (before?.savedBy === savedBy(model, options.seqId)) return before
    const bytes = yield* core.host.save(model.id, kind === "training")
    const written = yield* writeWeights(core, bytes)
    const createdAt = yield* Clock.currentTimeMillis
    const row: CheckpointRow = {
      path: pathOf(model.id, kind, name),
      owner: model.owner,
      trainingRunId: model.id,
      kind,
      name,
      createdAt,
      size: bytes.length,
      config: model.config,
      optimizerConfig: model.optimizerConfig,
      userMetadata: options.userMetadata,
      sessionId: model.sessionId,
      public: false,
      expiresAt: options.ttlSeconds === undefined ? undefined : createdAt + options.ttlSeconds * 1000,
      ...written,
      savedBy: savedBy(model, options.seqId),
    }
    yield* storeCheckpoint(core, row)
    return row
  })

/** Returns what a sampler of the checkpoint needs. */
export const weightsOf = ({ checksum, config, file, path }: CheckpointRow): Weights => ({
  file,
  checksum,
  config,
  of: path,
})

/** Reads weights that `name` describes to the caller. Damaged ones are refused, and a retry would not help. */
export const readWeights = (
  core: Core,
  { checksum, file }: WeightsFile,
  name: string,
): Effect.Effect<Uint8Array, Refusal> =>
  Effect.catchTags(core.files.read(weightsKey(file), checksum), {
    FileError: storageFailure,
    DamagedFile: ({ message }) =>
      new Refusal({
        status: 500,
        detail: `The weights of ${name} cannot be used: ${message}`,
        headers: { "x-should-retry": "false" },
      }),
  })

/** Refuses all unfinished futures with 410. */
const settleAll = (core: Core, futures: Iterable<Future>, detail: string): Effect.Effect<void> =>
  Effect.forEach(
    [...futures].filter(({ status }) => status !== "done"),
    (future) => settle(core, future, { _tag: "Refused", status: 410, detail }),
    { discard: true },
  )

/** Unloads a model and deletes its snapshot; its run and checkpoints remain. */
export const dropModel = (core: Core, model: Model): Effect.Effect<void> =>
  Effect.gen(function* () {
    if (model.state === "unloaded") return
    model.state = "unloaded"
    model.lane.closed = true
    yield* settleAll(core, model.lane.held.values(), `Model ${model.id} was unloaded`)
    model.lane.held.clear()
    yield* Effect.ignore(core.host.drop(model.id))
    if (model.snapshot >= 0) yield* Effect.ignore(core.files.remove(snapshotKey(model.id, model.snapshot)))
  })

/** Closes samplers that are no longer used. */
const closeUnused = (core: Core): Effect.Effect<void> => {
  const used = new Set(openSamplers(core).map(({ baseModel, weights }) => weights?.file ?? baseModel))
  return Effect.forEach(
    [...core.state.openSamplers.keys()].filter(
      (key) => !used.has(key) && (core.state.activeCompletions.get(key) ?? 0) === 0,
    ),
    (key) => {
      core.state.openSamplers.delete(key)
      return Effect.zipRight(Effect.ignore(core.host.closeSampler(key)), removeUnusedFile(core, key))
    },
    { discard: true },
  )
}

/** Ends a session with its models and samplers; checkpoints and usage remain. */
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
      if (weights !== undefined) yield* removeUnusedFile(core, weights.file)
    yield* Effect.ignore(core.store.put("session", session.id, sessionRow(session)))
  })
