/**
 * Jobs, done one after the other in the order in which they were asked for, by one fiber. (A semaphore gives mutual
 * exclusion but no order.) Whoever asked resumes, however that fiber ends.
 */
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Scope from "effect/Scope"

export interface Job<E> {
  /** What can be done for it while the one before it is under way. It must not throw. */
  readonly prepare?: () => void
  /** It has dealt with its own failure. */
  readonly run: Effect.Effect<unknown>
  /** It will not be run, or not to its end. Called at most once more after `run` began, and must be harmless then. */
  readonly giveUp: (error: E) => void
}

export interface Turns<E> {
  /** Puts the job in the line; gives the reason if there is none any more. For who waits for the job anyway. */
  readonly join: (job: Job<E>) => E | undefined
  /** The same, and waits while too many are in the line. */
  readonly enqueue: (job: Job<E>) => Effect.Effect<void, E>
  /** Takes it out of the line, if it is there. */
  readonly leave: (job: Job<E>) => void
  /** For the job that is under way, when there is time for the one that comes after it. */
  readonly prepareNext: () => void
  /** Runs something between two jobs. */
  readonly exclusively: <A, E2, R>(effect: Effect.Effect<A, E2, R>) => Effect.Effect<A, E2, R>
  /** Gives up what is queued and, after the grace, what is running. Only the first reason counts. */
  readonly end: (error: E, grace: Duration.Duration) => Effect.Effect<void>
}

export interface Options<E> {
  /** With how many in the line who wants to enqueue another one has to wait. */
  readonly capacity: number
  readonly closeGrace: Duration.Duration
  /** What those get who still wait when the scope closes, or after it. */
  readonly closed: () => E
}

/** In the current scope. */
export const make = <E>(options: Options<E>): Effect.Effect<Turns<E>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const capacity = Math.max(1, options.capacity)
    const turn = yield* Effect.makeSemaphore(1)
    const workers = yield* Scope.make()
    let ended: { readonly error: E } | undefined
    /** All that is not begun, in the order of the calls. */
    const line = new Set<Job<E>>()
    /** Those of the line who wait for its being shorter, in the same order, and how they go on. */
    const outside = new Map<Job<E>, () => void>()
    let running: Job<E> | undefined
    let wake: (() => void) | undefined

    const leave = (job: Job<E>) => {
      line.delete(job)
      letIn(job)
      for (const waiting of outside.keys()) {
        if (line.size - outside.size >= capacity) return
        letIn(waiting)
      }
    }
    const letIn = (job: Job<E>) => {
      const enter = outside.get(job)
      outside.delete(job)
      enter?.()
    }

    const someone = Effect.async<void>((resume) => {
      if (line.size > 0) return resume(Effect.void)
      wake = () => resume(Effect.void)
      return Effect.sync(() => {
        wake = undefined
      })
    })
    const runFirst = Effect.suspend(() => {
      const [job] = line
      if (job === undefined) return Effect.void
      running = job
      leave(job)
      // If it is interrupted, or dies, so does the worker, and nothing runs any more.
      return Effect.map(job.run, () => {
        running = undefined
      })
    })
    const runInTurn = turn.withPermits(1)(runFirst)
    const work: Effect.Effect<never> = Effect.flatMap(someone, () => Effect.flatMap(runInTurn, () => work))

    const giveUp = (jobs: Iterable<Job<E>>, error: E) => {
      for (const job of jobs) {
        leave(job)
        try {
          job.giveUp(error)
        } catch {
          // Of one, e.g. a tracer of the user's that throws: the others still have to be told.
        }
      }
    }
    const giveUpAll = (error: E) => {
      giveUp(running === undefined ? [] : [running], error)
      running = undefined
      giveUp(line, error)
    }

    const end = (error: E, grace: Duration.Duration): Effect.Effect<void> =>
      Effect.uninterruptible(
        Effect.gen(function* () {
          ended ??= { error }
          const reason = ended.error
          giveUp(line, reason)
          yield* turn.withPermits(1)(Effect.void).pipe(Effect.interruptible, Effect.timeout(grace), Effect.ignore)
          yield* Scope.close(workers, Exit.void)
          giveUpAll(reason)
        }),
      )

    yield* Effect.addFinalizer(() => end(options.closed(), options.closeGrace))
    const worker = yield* Effect.forkIn(Effect.interruptible(work), workers)
    // It does not end by itself; if somebody ends it nevertheless, nobody must wait for ever.
    worker.addObserver(() => {
      ended ??= { error: options.closed() }
      giveUpAll(ended.error)
    })

    const add = (job: Job<E>) => {
      line.add(job)
      wake?.()
      wake = undefined
    }
    return {
      join: (job) => {
        if (ended === undefined) add(job)
        return ended?.error
      },
      enqueue: (job) =>
        Effect.async<void, E>((resume) => {
          if (ended !== undefined) return resume(Effect.fail(ended.error))
          add(job)
          if (line.size - outside.size <= capacity) return resume(Effect.void)
          outside.set(job, () => resume(Effect.void))
          return Effect.sync(() => leave(job))
        }),
      leave,
      prepareNext: () => {
        const [job] = line
        job?.prepare?.()
      },
      exclusively: turn.withPermits(1),
      end,
    }
  })
