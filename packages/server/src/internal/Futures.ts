/** Accepts requests that are answered later: stores them, runs them in order and keeps their results. */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { Accepted } from "effect-tinker/protocol/schemas/Futures"
import { randomUUID } from "node:crypto"
import type { StoreError } from "../Store.ts"
import type { Core } from "./Core.ts"
import { Refusal, refuse } from "./Refusal.ts"
import { type Future, hourOf, type Job, type Lane, type Outcome, type Taken } from "./State.ts"

/** A request that has not been accepted yet. */
export interface Submission extends Pick<Future, "owner" | "sessionId" | "lane" | "seq" | "operation" | "hash"> {
  readonly contentType: string
  readonly body: Uint8Array
  readonly job: Job
  readonly sampleSequenceIds?: ReadonlyArray<string>
  readonly modelId?: string
}

const encodeAccepted = Schema.encodeSync(Accepted)

export const unsafeFuture = (
  row: Pick<Future, "id" | "owner" | "sessionId" | "lane" | "seq" | "operation" | "hash" | "accepted" | "createdAt">,
  job: Job | undefined,
): Future => ({
  ...row,
  stored: Deferred.unsafeMake(FiberId.none),
  done: Deferred.unsafeMake(FiberId.none),
  job,
  status: "waiting",
  waitsFor: undefined,
  outcome: undefined,
  failed: false,
  size: 0,
  finished: undefined,
  queuedBytes: 0,
})

/** Converts a store failure to a 503: nothing was started, and the client may retry. */
export const storeUnavailable = (error: StoreError): Refusal => new Refusal({ status: 503, detail: error.message })

/**
 * Stores a request. `reserve` runs synchronously, in the same step as the caller's check that the slot is free;
 * `release` undoes it if the store fails.
 */
export const accept = (
  core: Core,
  submission: Submission,
  slot: { readonly reserve: (future: Future) => void; readonly release: () => void },
): Effect.Effect<Future, Refusal> =>
  Effect.uninterruptible(
    Effect.flatMap(Clock.currentTimeMillis, (createdAt) => {
      const { body, contentType, job, modelId, sampleSequenceIds, ...row } = submission
      const id = randomUUID()
      const accepted: Accepted = {
        requestId: id,
        modelId: Option.fromNullable(modelId),
        sampleSequenceIds: Option.fromNullable(sampleSequenceIds),
      }
      const future = unsafeFuture({ ...row, id, accepted, createdAt }, job)
      slot.reserve(future)
      core.state.futures.set(id, future)
      return core.store
        .accept({
          ...row,
          seq: row.seq ?? null,
          id,
          accepted: JSON.stringify(encodeAccepted(accepted)),
          createdAt,
          contentType,
          body,
        })
        .pipe(
          Effect.mapError(storeUnavailable),
          Effect.tapError(() =>
            Effect.sync(() => {
              core.state.futures.delete(id)
              slot.release()
            }),
          ),
          Effect.onExit((exit) => Deferred.done(future.stored, exit)),
          Effect.as(future),
        )
    }),
  )

/**
 * Returns the original acknowledgment for a repeated request; refuses a different request in the same slot with 409.
 */
export const acknowledgeRepeat = (known: Future, hash: string, what: string): Effect.Effect<Accepted, Refusal> =>
  known.hash === hash
    ? Effect.as(Deferred.await(known.stored), known.accepted)
    : refuse(409, `${what} is already used by another request`)

const encoder = new TextEncoder()

export const bytesOf = (body: Uint8Array | string): Uint8Array =>
  typeof body === "string" ? encoder.encode(body) : body

const rowOf = (outcome: Outcome) => {
  switch (outcome._tag) {
    case "Result":
      return {
        state: "result",
        contentType: outcome.payload.contentType,
        result: bytesOf(outcome.payload.body),
      } as const
    case "Failed": {
      const { category, error } = outcome
      return {
        state: "failed",
        contentType: "application/json",
        result: bytesOf(JSON.stringify({ error, category })),
      } as const
    }
    case "Refused": {
      const { detail, status } = outcome
      return {
        state: "refused",
        contentType: "application/json",
        result: bytesOf(JSON.stringify({ status, detail })),
      } as const
    }
  }
}

/** Converts a stored row back to an outcome. */
export const outcomeOf = (row: {
  readonly state: "result" | "failed" | "refused"
  readonly contentType: string
  readonly result: Uint8Array
}): Outcome => {
  if (row.state === "result") return { _tag: "Result", payload: { contentType: row.contentType, body: row.result } }
  const stored = JSON.parse(new TextDecoder().decode(row.result))
  return row.state === "failed" ? { _tag: "Failed", ...stored } : { _tag: "Refused", ...stored }
}

/**
 * Caches an outcome. Most results are retrieved right away, so the newest stay in memory; others are read from the
 * store.
 */
const cache = ({ settings, state }: Core, future: Future, outcome: Outcome): void => {
  future.outcome = outcome
  state.cachedResults.push(future)
  state.cachedBytes += future.size
  while (state.cachedBytes > settings.resultsInMemory) {
    const oldest = state.cachedResults.shift()
    if (oldest === undefined) return
    state.cachedBytes -= oldest.size
    oldest.outcome = undefined
  }
}

/** Records the outcome of a future: stores it first, then makes it visible. */
export const settle = (core: Core, future: Future, outcome: Outcome): Effect.Effect<void> =>
  Effect.uninterruptible(
    Effect.gen(function* () {
      if (future.status === "done") return
      const ran = future.status === "running"
      future.status = "done"
      const row = rowOf(outcome)
      const { job } = future
      const now = yield* Clock.currentTimeMillis
      const finished = ++core.state.finished
      // Failed work is repeated after a restart, too: it may have consumed gradients.
      const kept = ran && outcome._tag !== "Refused" && job?.changes === true
      const isStored = yield* core.store
        .finish(future.id, finished, row, {
          keepBody: kept,
          usage:
            outcome._tag === "Result"
              ? (job?.counts ?? []).map(({ count, kind }) => ({
                  bucket: hourOf(now),
                  owner: future.owner,
                  sessionId: future.sessionId,
                  baseModel: job?.baseModel ?? "",
                  kind,
                  count,
                }))
              : [],
        })
        .pipe(
          Effect.as(true),
          Effect.catchAll((error) =>
            // The work is done but cannot be stored: the outcome stays in memory, and a restart would repeat the work.
            Effect.as(Effect.logError(error.message), false),
          ),
        )
      future.finished = finished
      future.failed = outcome._tag !== "Result"
      future.size = row.result.length
      future.job = undefined
      core.state.queuedBytes -= future.queuedBytes
      future.queuedBytes = 0
      if (isStored) cache(core, future, outcome)
      else future.outcome = outcome
      yield* Deferred.succeed(future.done, undefined)
    }),
  )

/** Runs the job of a request and records its outcome. Never fails. */
export const runJob = (core: Core, future: Future): Effect.Effect<void> =>
  Effect.suspend(() => {
    const { job } = future
    if (job === undefined || future.status === "done") return Effect.void
    future.status = "running"
    return job.run.pipe(
      Effect.map((payload): Outcome => ({ _tag: "Result", payload })),
      Effect.catchTags({
        HostError: ({ message, reason }) =>
          Effect.succeed<Outcome>({
            _tag: "Failed",
            error: message,
            category: reason === "invalid" ? "user" : "server",
          }),
        Refusal: ({ message, status }) =>
          Effect.succeed<Outcome>({
            _tag: "Failed",
            error: message,
            category: status >= 500 ? "server" : "user",
          }),
      }),
      Effect.catchAllDefect((defect) =>
        Effect.as(Effect.logError(`${future.operation} failed with a defect`, Cause.die(defect)), {
          _tag: "Failed",
          error: "Internal error",
          category: "server",
        } satisfies Outcome),
      ),
      Effect.flatMap((outcome) => settle(core, future, outcome)),
      Effect.zipRight(job.after ?? Effect.void),
    )
  })

// Lanes: the requests of a model, ordered by sequence number

/** Returns the next request that can start: late ones with a skipped number first, then the next in order. */
const runnable = (lane: Lane): Future | undefined => {
  const late = [...lane.held.keys()].filter((seq) => seq < lane.next)
  if (late.length > 0) return lane.held.get(Math.min(...late))
  while (lane.taken.get(lane.next) === "refused") lane.next++
  return lane.held.get(lane.next)
}

/** Starts the next request of a lane, one at a time. */
export const startNext = (core: Core, lane: Lane): Effect.Effect<void> =>
  Effect.suspend(() => {
    if (lane.busy || lane.closed) return Effect.void
    const future = runnable(lane)
    if (future === undefined) return watchGap(core, lane)
    lane.busy = true
    const seq = future.seq ?? 0
    lane.held.delete(seq)
    lane.next = Math.max(lane.next, seq + 1)
    return runJob(core, future).pipe(
      Effect.ensuring(
        Effect.suspend(() => {
          lane.busy = false
          return startNext(core, lane)
        }),
      ),
      Effect.interruptible,
      Effect.forkIn(core.scope),
      Effect.asVoid,
    )
  })

/**
 * Fails the first held request if the sequence number that it waits for does not arrive in time, and continues the
 * lane.
 */
const watchGap = (core: Core, lane: Lane): Effect.Effect<void> =>
  Effect.suspend(() => {
    if (lane.watched || lane.held.size === 0) return Effect.void
    lane.watched = true
    const missing = lane.next
    for (const future of lane.held.values()) future.waitsFor = `seq_id ${missing} has not arrived`
    return Effect.sleep(core.settings.gapTimeout).pipe(
      Effect.zipRight(
        Effect.suspend(() => {
          lane.watched = false
          if (lane.next !== missing || lane.busy || lane.closed) return startNext(core, lane)
          const seq = Math.min(...lane.held.keys())
          const future = lane.held.get(seq)
          if (future === undefined) return Effect.void
          lane.held.delete(seq)
          lane.next = seq + 1
          return settle(core, future, {
            _tag: "Failed",
            error: `seq_id ${missing} never arrived; this request had to wait for it`,
            category: "user",
          }).pipe(Effect.zipRight(startNext(core, lane)))
        }),
      ),
      Effect.interruptible,
      Effect.forkIn(core.scope),
      Effect.asVoid,
    )
  })

/** Accepts a request of a model at its position in the lane. */
export const submit = (
  core: Core,
  lane: Lane,
  submission: Submission & { readonly seq: number },
): Effect.Effect<Accepted, Refusal> =>
  Effect.suspend(() => {
    const { hash, seq } = submission
    const before: Taken | undefined = lane.taken.get(seq)
    if (before !== undefined && before !== "refused") return acknowledgeRepeat(before.future, hash, `seq_id ${seq}`)
    const bytes = submission.job.bytes ?? 0
    // The request that others wait for is always accepted: it gives memory back.
    if (seq !== lane.next && core.state.queuedBytes + bytes > core.settings.maxQueuedBytes)
      return new Refusal({
        status: 429,
        detail: "too many queued passes; retry later",
        headers: { "retry-after": "1" },
      })
    return accept(core, submission, {
      reserve: (future) => {
        lane.taken.set(seq, { future })
        future.queuedBytes = bytes
        core.state.queuedBytes += bytes
      },
      release: () => {
        core.state.queuedBytes -= bytes
        if (before === undefined) lane.taken.delete(seq)
        else lane.taken.set(seq, before)
      },
    }).pipe(
      Effect.tap((future) => {
        lane.held.set(seq, future)
        return startNext(core, lane)
      }),
      Effect.map(({ accepted }) => accepted),
      Effect.uninterruptible,
    )
  })

/** Marks the sequence number of a refused request, so that later requests do not wait for it. */
export const skip = (core: Core, lane: Lane, seq: number): Effect.Effect<void> =>
  Effect.suspend(() => {
    if (lane.taken.has(seq)) return Effect.void
    lane.taken.set(seq, "refused")
    return Effect.zipRight(
      Effect.ignore(core.store.put("refused", `${lane.key}#${seq}`, { lane: lane.key, seq })),
      startNext(core, lane),
    )
  })
