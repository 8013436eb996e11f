import { Effect, type Exit, Fiber, FiberId, Scheduler } from "effect"

class Interrupting implements Scheduler.Scheduler {
  /** The number of steps the fiber has run. */
  steps = 0
  victim: Fiber.RuntimeFiber<unknown, unknown> | undefined
  private readonly at: number

  constructor(at: number) {
    this.at = at
  }

  shouldYield(fiber: Fiber.RuntimeFiber<unknown, unknown>): number | false {
    if (fiber !== this.victim || this.steps++ !== this.at) return Scheduler.defaultScheduler.shouldYield(fiber)
    fiber.unsafeInterruptAsFork(FiberId.none)
    return 0
  }

  scheduleTask(...args: Parameters<Scheduler.Scheduler["scheduleTask"]>): void {
    Scheduler.defaultScheduler.scheduleTask(...args)
  }
}

/** Runs the effect in its own fiber, which yields before its n-th step and is interrupted there. */
export const interruptedAt = <A, E, R>(
  at: number,
  effect: Effect.Effect<A, E, R>,
): Effect.Effect<{ readonly exit: Exit.Exit<A, E>; readonly wasReached: boolean }, never, R> =>
  Effect.gen(function* () {
    const scheduler = new Interrupting(at)
    const fiber = yield* Effect.fork(Effect.withScheduler(effect, scheduler))
    scheduler.victim = fiber
    const exit = yield* Fiber.await(fiber)
    return { exit, wasReached: scheduler.steps > at }
  })
