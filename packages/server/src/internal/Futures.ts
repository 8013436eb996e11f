/** Requests that are accepted now and answered later: written down, worked on in order, asked for. */
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
import type { Future, Job, Lane, Outcome, Taken } from "./State.ts"

/** What a request is, before it is accepted. */
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
})

/** The disk did not take it: nothing was begun, and the client may try again. */
export const unstored = (error: StoreError): Refusal => new Refusal({ status: 503, detail: error.message })

/**
 * Writes a request down. `reserve` gives it its place at once, in the same step as it was looked for; `release` takes
 * that back should the disk refuse.
 */
export const accept = (
  core: Core,
  submission: Submission,
  place: { readonly reserve: (future: Future) => void; readonly release: () => void },
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
      place.reserve(future)
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
          Effect.mapError(unstored),
          Effect.tapError(() =>
            Effect.sync(() => {
              core.state.futures.delete(id)
              place.release()
            }),
          ),
          Effect.onExit((exit) => Deferred.done(future.stored, exit)),
          Effect.as(future),
        )
    }),
  )

/** The same request again gets the same answer; another one in its place gets 409. */
export const again = (known: Future, hash: string, what: string): Effect.Effect<Accepted, Refusal> =>
  known.hash === hash
    ? Effect.as(Deferred.await(known.stored), known.accepted)
    : refuse(409, `${what} was used by another request`)

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

/** What is in the store, as it was. */
export const outcomeOf = (row: {
  readonly state: "result" | "failed" | "refused"
  readonly contentType: string
  readonly result: Uint8Array
}): Outcome => {
  if (row.state === "result") return { _tag: "Result", payload: { contentType: row.contentType, body: row.result } }
  const told = JSON.parse(new TextDecoder().decode(row.result))
  return row.state === "failed" ? { _tag: "Failed", ...told } : { _tag: "Refused", ...told }
}

/** Results are mostly asked for at once: the newest are at hand, the others are read from the store. */
const keep = ({ settings, state }: Core, future: Future, outcome: Outcome): void => {
  future.outcome = outcome
  state.atHand.push(future)
  state.atHandBytes += future.size
  while (state.atHandBytes > settings.resultsInMemory) {
    const oldest = state.atHand.shift()
    if (oldest === undefined) return
    state.atHandBytes -= oldest.size
    oldest.outcome = undefined
  }
}

const hour = 3_600_000

/** Stored first, then visible. */
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
      // What failed is repeated after a restart, too: it may have used gradients up.
      const kept = ran && outcome._tag !== "Refused" && job?.changes === true
      const isStored = yield* core.store
        .finish(future.id, finished, row, {
          keepBody: kept,
          usage:
            outcome._tag === "Result"
              ? (job?.counts ?? []).map(({ count, kind }) => ({
                  bucket: Math.floor(now / hour) * hour,
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
            // It happened, and can't be written: what is in memory still tells it, a restart would do it again.
            Effect.as(Effect.logError(error.message), false),
          ),
        )
      future.finished = finished
      future.failed = outcome._tag !== "Result"
      future.size = row.result.length
      future.job = undefined
      if (isStored) keep(core, future, outcome)
      else future.outcome = outcome
      yield* Deferred.succeed(future.done, undefined)
    }),
  )

/** Does the work of a request and tells what came of it. It never fails. */
export const work = (core: Core, future: Future): Effect.Effect<void> =>
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
        Effect.as(Effect.logError(`${future.operation} died`, Cause.die(defect)), {
          _tag: "Failed",
          error: "Internal error",
          category: "server",
        } satisfies Outcome),
      ),
      Effect.flatMap((outcome) => settle(core, future, outcome)),
      Effect.zipRight(job.after ?? Effect.void),
    )
  })

// Lanes: the requests of a model, by their numbers

/** What can begin now: numbers that were passed by first, then the next. */
const runnable = (lane: Lane): Future | undefined => {
  const late = [...lane.held.keys()].filter((seq) => seq < lane.next)
  if (late.length > 0) return lane.held.get(Math.min(...late))
  while (lane.taken.get(lane.next) === "refused") lane.next++
  return lane.held.get(lane.next)
}

/** Begins what can begin, one after another. */
export const pump = (core: Core, lane: Lane): Effect.Effect<void> =>
  Effect.suspend(() => {
    if (lane.busy || lane.closed) return Effect.void
    const future = runnable(lane)
    if (future === undefined) return watchGap(core, lane)
    lane.busy = true
    const seq = future.seq ?? 0
    lane.held.delete(seq)
    lane.next = Math.max(lane.next, seq + 1)
    return work(core, future).pipe(
      Effect.ensuring(
        Effect.suspend(() => {
          lane.busy = false
          return pump(core, lane)
        }),
      ),
      Effect.interruptible,
      Effect.forkIn(core.scope),
      Effect.asVoid,
    )
  })

/** Who waits for a number that does not come is told so in the end, and does not keep others waiting. */
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
          if (lane.next !== missing || lane.busy || lane.closed) return pump(core, lane)
          const seq = Math.min(...lane.held.keys())
          const future = lane.held.get(seq)
          if (future === undefined) return Effect.void
          lane.held.delete(seq)
          lane.next = seq + 1
          return settle(core, future, {
            _tag: "Failed",
            error: `seq_id ${missing} never arrived, and this request came after it`,
            category: "user",
          }).pipe(Effect.zipRight(pump(core, lane)))
        }),
      ),
      Effect.interruptible,
      Effect.forkIn(core.scope),
      Effect.asVoid,
    )
  })

/** A request of a model, in its place. */
export const submit = (
  core: Core,
  lane: Lane,
  submission: Submission & { readonly seq: number },
): Effect.Effect<Accepted, Refusal> =>
  Effect.suspend(() => {
    const { hash, seq } = submission
    const before: Taken | undefined = lane.taken.get(seq)
    if (before !== undefined && before !== "refused") return again(before.future, hash, `seq_id ${seq}`)
    return accept(core, submission, {
      reserve: (future) => lane.taken.set(seq, { future }),
      release: () => (before === undefined ? lane.taken.delete(seq) : lane.taken.set(seq, before)),
    }).pipe(
      Effect.tap((future) => {
        lane.held.set(seq, future)
        return pump(core, lane)
      }),
      Effect.map(({ accepted }) => accepted),
      Effect.uninterruptible,
    )
  })

/** A number whose request was refused is not waited for. */
export const skip = (core: Core, lane: Lane, seq: number): Effect.Effect<void> =>
  Effect.suspend(() => {
    if (lane.taken.has(seq)) return Effect.void
    lane.taken.set(seq, "refused")
    return Effect.zipRight(
      Effect.ignore(core.store.put("refused", `${lane.key}#${seq}`, { lane: lane.key, seq })),
      pump(core, lane),
    )
  })
