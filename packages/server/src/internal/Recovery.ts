/** Restores all acknowledged state at startup and resumes unfinished work. */
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { Accepted } from "effect-tinker/protocol/schemas/Futures"
import * as Api from "effect-tinker/protocol/Api"
import type { FileError } from "../CheckpointFiles.ts"
import type { StoreError, StoredFuture } from "../Store.ts"
import { type Call, makeCall, read } from "./Call.ts"
import type { Core } from "./Core.ts"
import * as Futures from "./Futures.ts"
import * as Models from "./Models.ts"
import { operations } from "./Operations.ts"
import { startSample } from "./routes/Sampling.ts"
import { recreationJob } from "./routes/Training.ts"
import { sampleJob, unsafeSampler } from "./Samplers.ts"
import {
  type CheckpointRow,
  type Future,
  type Model,
  type ModelRow,
  newLane,
  type SamplerRow,
  type SessionRow,
} from "./State.ts"
import { uptime } from "./Uptime.ts"

const decodeAccepted = Schema.decodeSync(Schema.parseJson(Accepted))

/** Rebuilds the original request. */
const callOf = ({ body, contentType, owner }: StoredFuture, now: number): Call =>
  makeCall({
    request: {
      method: "POST",
      path: "",
      headers: { "content-type": contentType },
      body: body ?? new Uint8Array(0),
    },
    owner,
    now,
    params: {},
    query: {},
  })

const futureOf = (core: Core, row: StoredFuture): Future => {
  const future = Futures.unsafeFuture(
    { ...row, seq: row.seq ?? undefined, accepted: decodeAccepted(row.accepted) },
    undefined,
  )
  Deferred.unsafeDone(future.stored, Effect.void)
  if (row.state !== "queued") {
    future.status = "done"
    future.failed = row.state !== "result"
    future.size = row.size
    future.finished = row.finished ?? undefined
    Deferred.unsafeDone(future.done, Effect.void)
  }
  core.state.futures.set(row.id, future)
  core.state.finished = Math.max(core.state.finished, row.finished ?? 0)
  return future
}

/** Fails a request that cannot be repeated, e.g. because an object that it needs no longer exists. */
const giveUp = (core: Core, future: Future, error: string): Effect.Effect<void> =>
  Futures.settle(core, future, { _tag: "Failed", error, category: "server" })

/**
 * Restores a model from its snapshot and repeats every later update in order. The same work on the same weights gives
 * the same numbers, so results that clients already have remain valid.
 */
const recoverModel = (core: Core, model: Model, rows: ReadonlyArray<StoredFuture>): Effect.Effect<void> =>
  Effect.gen(function* () {
    const now = yield* Clock.currentTimeMillis
    const { lane } = model
    const open: Array<Future> = []
    const repeat: Array<Effect.Effect<unknown, { readonly message?: string }>> = []
    for (const row of rows) {
      const future = futureOf(core, row)
      const seq = row.seq ?? 0
      lane.taken.set(seq, { future })
      const done = row.state !== "queued"
      if (done) lane.next = Math.max(lane.next, seq + 1)
      // The process was killed after the snapshot, but before the result was stored: the model is created again.
      else if (seq === 0) model.snapshot = -1
      // Covered by the snapshot, or nothing to repeat.
      if (done && seq <= model.snapshot) continue
      if (done && row.body === null) continue
      const call = callOf(row, now)
      const prepared = seq === 0 ? yield* Effect.either(recreationJob(core, model, row.operation, call)) : undefined
      if (prepared !== undefined) {
        if (prepared._tag === "Left") return yield* Effect.fail(prepared.left)
        future.job = prepared.right
      } else {
        // Prepared only when its turn comes: it may load a checkpoint that an earlier request of this list saves.
        future.job = {
          changes: true,
          baseModel: model.config.baseModel,
          counts: [],
          run: Effect.flatMap(
            Effect.suspend(() => operations[row.operation]?.(core, call) ?? Effect.dieMessage(row.operation)),
            ({ job }) => {
              future.job = job
              return Effect.zipLeft(job.run, done ? Effect.void : (job.after ?? Effect.void))
            },
          ),
        }
      }
      if (done) {
        const { job } = future
        future.job = undefined
        // A request that failed before is expected to fail again.
        if (job !== undefined) repeat.push(row.state === "result" ? job.run : Effect.ignore(job.run))
      } else open.push(future)
    }
    if (model.snapshot >= 0) {
      yield* Models.restoreSnapshot(core, model)
      model.state = "ready"
    }
    for (const run of repeat) yield* run
    model.updates = repeat.length
    for (const future of open) lane.held.set(future.seq ?? 0, future)
    yield* Futures.startNext(core, lane)
  }).pipe(
    Effect.catchAll((error) =>
      Effect.gen(function* () {
        yield* Effect.logError(`failed to restore ${model.id}: ${error.message}`)
        model.lostBecause = `it could not be restored after a server restart: ${error.message}`
        for (const row of rows) {
          const future = core.state.futures.get(row.id) ?? futureOf(core, row)
          if (future.status !== "done") yield* giveUp(core, future, `Model ${model.id} was lost: ${model.lostBecause}`)
        }
        yield* Models.dropModel(core, model)
      }),
    ),
  )

const recoverSample = (core: Core, row: StoredFuture): Effect.Effect<void> =>
  Effect.gen(function* () {
    const future = futureOf(core, row)
    const sampler = core.state.samplers.get(row.lane)
    if (sampler === undefined) {
      if (future.status !== "done") yield* giveUp(core, future, "the sampler no longer exists")
      return
    }
    sampler.taken.set(row.seq ?? 0, future)
    if (future.status === "done") {
      sampler.finished.push(future)
      return
    }
    const now = yield* Clock.currentTimeMillis
    const job = yield* Effect.either(
      Effect.flatMap(read(Api.sample, callOf(row, now)), (input) => sampleJob(core, sampler, input)),
    )
    if (job._tag === "Left") return yield* giveUp(core, future, job.left.message)
    future.job = job.right
    yield* startSample(core, sampler, future)
  })

export const recover = (core: Core): Effect.Effect<void, StoreError | FileError> =>
  Effect.gen(function* () {
    const { state, store } = core
    const now = yield* uptime
    // The row types hold because the store refuses data of newer versions.
    for (const row of (yield* store.all("session")) as ReadonlyArray<SessionRow>)
      // Clients could not send heartbeats while the server was down.
      state.sessions.set(row.id, {
        ...row,
        lastSeen: now,
        resultsDropped: false,
        models: new Map(),
        samplers: new Map(),
      })
    for (const row of (yield* store.all("checkpoint")) as ReadonlyArray<CheckpointRow>)
      state.checkpoints.set(row.path, row)
    for (const row of (yield* store.all("sampler")) as ReadonlyArray<SamplerRow>) {
      const sampler = unsafeSampler(row)
      state.samplers.set(row.id, sampler)
      state.sessions.get(row.sessionId)?.samplers.set(row.id, sampler)
    }
    for (const row of (yield* store.all("model")) as ReadonlyArray<ModelRow>) {
      const session = state.sessions.get(row.sessionId)
      const isActive = session?.state === "active"
      const model: Model = {
        ...row,
        lane: newLane(row.id),
        lastRequest: row.createdAt,
        state: isActive ? "creating" : "unloaded",
        updates: 0,
      }
      model.lane.closed = !isActive
      state.models.set(row.id, model)
      session?.models.set(row.id, model)
    }
    for (const { lane, seq } of (yield* store.all("refused")) as ReadonlyArray<{ lane: string; seq: number }>)
      state.models.get(lane)?.lane.taken.set(seq, "refused")
    yield* Models.removeOrphanedFiles(core)
    const byModel = new Map<string, Array<StoredFuture>>()
    for (const row of yield* store.futures) {
      const model = state.models.get(row.lane)
      if (model !== undefined && model.state === "creating") {
        const rows = byModel.get(row.lane) ?? []
        rows.push(row)
        byModel.set(row.lane, rows)
      } else if (row.operation === "asample") yield* recoverSample(core, row)
      else {
        const future = futureOf(core, row)
        if (future.status === "done") continue
        if (row.operation === "unload_model") {
          yield* Futures.settle(core, future, {
            _tag: "Result",
            payload: { contentType: "application/json", body: JSON.stringify({ type: "unload_model" }) },
          })
        } else yield* giveUp(core, future, "the server was restarted")
      }
    }
    for (const sampler of state.samplers.values())
      sampler.finished.sort(({ finished: a = 0 }, { finished: b = 0 }) => a - b)
    for (const [id, rows] of byModel) {
      const model = state.models.get(id)
      if (model === undefined) continue
      yield* recoverModel(
        core,
        model,
        rows.toSorted((a, b) => (a.seq ?? 0) - (b.seq ?? 0)),
      )
    }
  })
