/**
 * Jobs, done one after the other in the order in which they were asked for, by one fiber. (A semaphore gives mutual
 * exclusion but no order.) Whoever asked resumes, however that fiber ends.
 */
import * as Chunk from "effect/Chunk"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Queue from "effect/Queue"
import * as Scope from "effect/Scope"

export interface Job<E> {
  /** It has dealt with its own failure. */
  readonly run: Effect.Effect<void>
  /** It will not be run, or not to its end. Called at most once more after `run` began, and must be harmless then. */
  readonly giveUp: (error: E) => void
}

export interface Turns<E> {
  /** Completes when the job has its place in the queue, which is at once unless the queue is full. */
  readonly enqueue: (job: Job<E>) => Effect.Effect<void, E>
  /** Runs something between two jobs. */
  readonly exclusively: <A, E2, R>(effect: Effect.Effect<A, E2, R>) => Effect.Effect<A, E2, R>
  /** Gives up what is queued and, after the grace, what is running. Only the first reason counts. */
  readonly end: (error: E, grace: Duration.Duration) => Effect.Effect<void>
}

export interface Options<E> {
  /** How many jobs may wait. */
  readonly capacity: number
  readonly closeGrace: Duration.Duration
  /** What those get who still wait when the scope closes, or after it. */
  readonly closed: () => E
}

/** In the current scope. */
export const make = <E>(options: Options<E>): Effect.Effect<Turns<E>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const queue = yield* Queue.bounded<Job<E>>(Math.max(1, options.capacity))
    const turn = yield* Effect.makeSemaphore(1)
    const workers = yield* Scope.make()
    let ended: { readonly error: E } | undefined
    /** All that is not done: a queue alone would lose the one that is being handed over. */
    const open = new Set<Job<E>>()
    let running: Job<E> | undefined

    const work = Effect.flatMap(Queue.take(queue), (job) =>
      turn.withPermits(1)(
        Effect.suspend(() => {
          if (!open.has(job)) return Effect.void
          running = job
          return Effect.ensuring(
            job.run,
            Effect.sync(() => {
              running = undefined
            }),
          )
        }).pipe(Effect.zipRight(Effect.sync(() => open.delete(job)))),
      ),
    ).pipe(Effect.forever)

    /** Those who wait for a place are moved up while the queue is emptied. */
    const empty: Effect.Effect<void> = Effect.flatMap(Queue.takeAll(queue), (jobs) =>
      Chunk.isEmpty(jobs) ? Effect.void : empty,
    )

    const giveUp = (which: (job: Job<E>) => boolean, error: E): Effect.Effect<void> =>
      Effect.suspend(() => {
        for (const job of open) {
          if (!which(job)) continue
          open.delete(job)
          job.giveUp(error)
        }
        return empty
      })

    const end = (error: E, grace: Duration.Duration): Effect.Effect<void> =>
      Effect.uninterruptible(
        Effect.gen(function* () {
          ended ??= { error }
          const reason = ended.error
          yield* giveUp((job) => job !== running, reason)
          yield* turn.withPermits(1)(Effect.void).pipe(Effect.interruptible, Effect.timeout(grace), Effect.ignore)
          yield* Scope.close(workers, Exit.void)
          yield* giveUp(() => true, reason)
        }),
      )

    yield* Effect.addFinalizer(() => end(options.closed(), options.closeGrace))
    const worker = yield* Effect.forkIn(Effect.interruptible(work), workers)
    // It does not end by itself; if somebody ends it nevertheless, nobody must wait for ever.
    worker.addObserver(() => {
      ended ??= { error: options.closed() }
      Effect.runFork(giveUp(() => true, ended.error))
    })

    return {
      enqueue: (job) =>
        Effect.suspend(() => {
          if (ended !== undefined) return Effect.fail(ended.error)
          open.add(job)
          return Effect.onInterrupt(Queue.offer(queue, job), () => Effect.sync(() => open.delete(job)))
        }),
      exclusively: turn.withPermits(1),
      end,
    }
  })
