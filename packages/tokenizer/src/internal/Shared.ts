/**
 * Shares loaded values. The `RcMap` holds loaders instead of values: a failed load is not kept, and an interrupted
 * caller leaves the load running for the others.
 */
import * as Cause from "effect/Cause"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as RcMap from "effect/RcMap"
import type * as Scope from "effect/Scope"

export interface Shared<K, A, E> {
  readonly get: (source: K) => Effect.Effect<A, E, Scope.Scope>
}

export interface Options<K, A, E, E2> {
  readonly load: (source: K) => Effect.Effect<A, E>
  readonly idleTimeToLive: Duration.DurationInput
  /** The error for callers when the scope is closed. */
  readonly closed: (source: K) => E2
}

/** Joins the running or successful load, or starts one in the scope. */
const makeLoader = <A, E>(load: Effect.Effect<A, E>, scope: Scope.Scope): Effect.Effect<Exit.Exit<A, E>> => {
  let current: Fiber.RuntimeFiber<A, E> | undefined
  return Effect.uninterruptibleMask((restore) =>
    Effect.suspend(() => {
      if (current !== undefined) return restore(Fiber.await(current))
      return Effect.flatMap(Effect.forkIn(Effect.interruptible(load), scope), (fiber) => {
        current = fiber
        fiber.addObserver((exit) => {
          if (Exit.isFailure(exit)) current = undefined
        })
        return restore(Fiber.await(fiber))
      })
    }),
  )
}

/** Creates a shared store. Sources that are equal (see `Data`) share one value. */
export const make = <K, A, E, E2>({
  closed,
  idleTimeToLive,
  load,
}: Options<K, A, E, E2>): Effect.Effect<Shared<K, A, E | E2>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const loaders = yield* RcMap.make({
      lookup: (source: K) => Effect.map(Effect.scope, (scope) => makeLoader(load(source), scope)),
      idleTimeToLive,
    })
    let open = true
    yield* Effect.addFinalizer(() => Effect.sync(() => (open = false)))

    return {
      get: (source) =>
        Effect.gen(function* () {
          // A closed RcMap would interrupt the caller.
          if (!open) return yield* Effect.fail(closed(source))
          const exit = yield* Effect.flatten(RcMap.get(loaders, source))
          if (Exit.isFailure(exit) && Cause.isInterrupted(exit.cause)) return yield* Effect.fail(closed(source))
          return yield* exit
        }),
    }
  })
