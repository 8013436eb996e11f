/** Runs work once for all concurrent callers. */
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FiberId from "effect/FiberId"
import type * as Scope from "effect/Scope"

export interface SingleFlight<A, E> {
  /** Joins the current run or starts one. */
  readonly run: Effect.Effect<A, E>
  readonly isRunning: () => boolean
}

/**
 * Creates a single flight that runs in `scope`, so that interrupting one caller does not affect the others. When the
 * scope closes, callers fail with `closed` instead of being interrupted.
 */
export const make = <A, E, E2>(
  work: Effect.Effect<A, E>,
  scope: Scope.Scope,
  closed: () => E2,
): SingleFlight<A, E | E2> => {
  let current: Deferred.Deferred<A, E | E2> | undefined
  const run = Effect.uninterruptibleMask((restore) =>
    Effect.suspend(() => {
      if (current !== undefined) return restore(Deferred.await(current))
      const outcome = Deferred.unsafeMake<A, E | E2>(FiberId.none)
      current = outcome
      return Effect.flatMap(Effect.forkIn(Effect.interruptible(work), scope), (fiber) => {
        // An observer is also notified of a fiber that never started because its scope was already closed.
        fiber.addObserver((exit) => {
          current = undefined
          const dead = Exit.isFailure(exit) && Cause.isInterrupted(exit.cause)
          Deferred.unsafeDone(outcome, dead ? Exit.fail(closed()) : exit)
        })
        return restore(Deferred.await(outcome))
      })
    }),
  )
  return { run, isRunning: () => current !== undefined }
}
