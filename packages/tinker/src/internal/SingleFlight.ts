/** However many ask at once, the work is done once, and none of them owns it. */
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FiberId from "effect/FiberId"
import type * as Scope from "effect/Scope"

/**
 * An effect that joins the run under way or starts one in `scope`. Interrupting one caller leaves the run to the
 * others. When the scope ends the run, callers get `closed` instead of an interruption that they did not ask for.
 */
export const make = <A, E, E2>(
  work: Effect.Effect<A, E>,
  scope: Scope.Scope,
  closed: () => E2,
): Effect.Effect<A, E | E2> => {
  let current: Deferred.Deferred<A, E | E2> | undefined
  return Effect.uninterruptibleMask((restore) =>
    Effect.suspend(() => {
      if (current !== undefined) return restore(Deferred.await(current))
      const run = Deferred.unsafeMake<A, E | E2>(FiberId.none)
      current = run
      return Effect.flatMap(Effect.forkIn(Effect.interruptible(work), scope), (fiber) => {
        // An observer also hears of a fiber that never started because its scope was closed already.
        fiber.addObserver((exit) => {
          current = undefined
          const dead = Exit.isFailure(exit) && Cause.isInterrupted(exit.cause)
          Deferred.unsafeDone(run, dead ? Exit.fail(closed()) : exit)
        })
        return restore(Deferred.await(run))
      })
    }),
  )
}
