/**
 * Shares named resources: created on first use, and kept while in use and for some time after. `RcMap` is similar, but
 * it caches failures, creates resources in the context of the first caller (spans, log annotations, services), confuses
 * an entry invalidated in use with its successor, and closes entries sequentially.
 */
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Runtime from "effect/Runtime"
import * as Scope from "effect/Scope"

export interface LeaseMap<A, E> {
  /** Returns a resource and holds it until the scope closes. Concurrent callers wait for the same one. */
  readonly get: (name: string) => Effect.Effect<A, E, Scope.Scope>
  /** Makes later callers get a new resource; the old one is closed when it is no longer held. */
  readonly invalidate: (name: string) => Effect.Effect<void>
}

export interface Options<A, E, E2, R> {
  readonly make: (name: string) => Effect.Effect<A, E, R>
  /** How long an unused resource is kept. */
  readonly idleTimeToLive: Duration.Duration
  /** Creates the error for callers after the map is closed. */
  readonly closed: () => E2
}

/** A resource from its first request to the end of its scope. */
interface Life<A, E> {
  readonly name: string
  readonly made: Deferred.Deferred<A, E>
  /** The exit with which to close its scope. */
  readonly over: Deferred.Deferred<Exit.Exit<unknown, unknown>>
  stage: "making" | "made" | "over"
  holders: number
  idleSince: number
  fiber: Fiber.RuntimeFiber<void> | undefined
  timer: Fiber.RuntimeFiber<void> | undefined
}

/**
 * Creates a map in the current scope. Closing the scope closes all resources, even those in use, and waits for them.
 */
export const make = <A, E, E2, R>(
  options: Options<A, E, E2, R>,
): Effect.Effect<LeaseMap<A, E | E2>, never, Exclude<R, Scope.Scope> | Scope.Scope> =>
  Effect.gen(function* () {
    // Resources live in the context of the map, not in that of a caller.
    const runtime = yield* Effect.runtime<Exclude<R, Scope.Scope>>()
    const clock = yield* Effect.clock
    const uptime = () => Number(clock.unsafeCurrentTimeNanos() / 1_000_000n)
    const timeToLive = Duration.toMillis(options.idleTimeToLive)
    /** The resources that are handed out. */
    const current = new Map<string, Life<A, E | E2>>()
    /** The current resources and remaining earlier ones. */
    const all = new Set<Life<A, E | E2>>()
    let closed = false

    const isCurrent = (life: Life<A, E | E2>) => current.get(life.name) === life
    const forget = (life: Life<A, E | E2>) => isCurrent(life) && current.delete(life.name)

    const live = (life: Life<A, E | E2>): Effect.Effect<void, never, Exclude<R, Scope.Scope>> =>
      Effect.uninterruptibleMask((restore) =>
        Effect.gen(function* () {
          const scope = yield* Scope.make()
          const made = yield* Effect.exit(restore(Scope.extend(options.make(life.name), scope)))
          if (Exit.isFailure(made)) forget(life)
          if (life.stage === "making") life.stage = "made"
          const ended = Exit.isFailure(made) && Cause.isInterrupted(made.cause)
          Deferred.unsafeDone(life.made, ended ? Exit.fail(options.closed()) : made)
          yield* Scope.close(scope, Exit.isFailure(made) ? made : yield* Deferred.await(life.over))
        }),
      )

    const begin = (name: string): Life<A, E | E2> => {
      const life: Life<A, E | E2> = {
        name,
        made: Deferred.unsafeMake(FiberId.none),
        over: Deferred.unsafeMake(FiberId.none),
        stage: "making",
        holders: 0,
        idleSince: 0,
        fiber: undefined,
        timer: undefined,
      }
      const fiber = Runtime.runFork(runtime, live(life), { immediate: false })
      // An observer is used because a fiber interrupted before its first step runs none of its own finalizers.
      fiber.addObserver(() => {
        all.delete(life)
        Deferred.unsafeDone(life.made, Exit.fail(options.closed()))
      })
      life.fiber = fiber
      current.set(name, life)
      all.add(life)
      return life
    }

    const end = (life: Life<A, E | E2>, exit: Exit.Exit<unknown, unknown>) => {
      forget(life)
      life.timer?.unsafeInterruptAsFork(FiberId.none)
      // Only while it is being created: a later interruption would abort interruptible parts of finalizers.
      if (life.stage === "making") life.fiber?.unsafeInterruptAsFork(FiberId.none)
      life.stage = "over"
      Deferred.unsafeDone(life.over, Effect.succeed(exit))
    }

    const expire = (life: Life<A, E | E2>): Effect.Effect<void> =>
      Effect.suspend(() => {
        const left = life.idleSince + timeToLive - uptime()
        if (life.holders === 0 && left > 0) return Effect.zipRight(Effect.sleep(left), expire(life))
        life.timer = undefined
        if (life.holders === 0) end(life, Exit.void)
        return Effect.void
      })

    const release = (life: Life<A, E | E2>) =>
      Effect.sync(() => {
        life.holders--
        if (life.holders > 0 || life.stage === "over") return
        if (!isCurrent(life) || life.stage === "making" || timeToLive === 0) {
          return end(life, Exit.void)
        }
        life.idleSince = uptime()
        if (Number.isFinite(timeToLive)) {
          life.timer ??= Runtime.runFork(runtime, expire(life), { immediate: false })
        }
      })

    yield* Effect.addFinalizer((exit) =>
      Effect.suspend(() => {
        closed = true
        const fibers = [...all].flatMap(({ fiber }) => fiber ?? [])
        for (const life of all) end(life, exit)
        return Fiber.awaitAll(fibers)
      }),
    )

    return {
      get: (name) =>
        Effect.uninterruptibleMask((restore) =>
          Effect.suspend(() => {
            if (closed) return Effect.fail(options.closed())
            const life = current.get(name) ?? begin(name)
            life.holders++
            return Effect.onExit(restore(Deferred.await(life.made)), (exit) =>
              Exit.isSuccess(exit) ? Effect.addFinalizer(() => release(life)) : release(life),
            )
          }),
        ),
      invalidate: (name) =>
        Effect.sync(() => {
          const life = current.get(name)
          if (life === undefined) return
          if (life.holders === 0) end(life, Exit.void)
          else forget(life)
        }),
    }
  })
