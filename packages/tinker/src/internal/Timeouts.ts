/**
 * Time limits for what is done thousands of times at once. One timer for all limits of one length: since each is as
 * long as the others, the first that began is the first to end. (`Effect.timeout` costs two fibers and a timer each.)
 */
import type * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Runtime from "effect/Runtime"
import type * as Scope from "effect/Scope"

export interface Timeouts {
  /** Calls `expire` after so many milliseconds, unless what it gives back is called before. */
  readonly after: (millis: number, expire: () => void) => () => void
}

const never = () => {}

// Longer timers than a 32 bit count of milliseconds never fire; waking early is harmless.
const maxSleep = 2 ** 31 - 1

class Limit {
  previous: Limit | undefined = undefined
  next: Limit | undefined = undefined
  readonly due: number
  readonly expire: () => void
  constructor(due: number, expire: () => void) {
    this.due = due
    this.expire = expire
  }
}

/** Limits of one length, the first to end at the head. */
class Line {
  private head: Limit | undefined = undefined
  private tail: Limit | undefined = undefined
  private sleeping = false
  private readonly clock: Clock.Clock
  private readonly fork: (effect: Effect.Effect<void>) => void

  constructor(clock: Clock.Clock, fork: Line["fork"]) {
    this.clock = clock
    this.fork = fork
  }

  add(millis: number, expire: () => void): Limit {
    const limit = new Limit(this.now() + millis, expire)
    limit.previous = this.tail
    if (this.tail === undefined) this.head = limit
    else this.tail.next = limit
    this.tail = limit
    // A timer that fires too early looks again; so the one that runs will do.
    if (!this.sleeping) this.sleep(millis)
    return limit
  }

  remove(limit: Limit): void {
    if (limit.previous === undefined) {
      if (this.head !== limit) return
      this.head = limit.next
    } else limit.previous.next = limit.next
    if (limit.next === undefined) this.tail = limit.previous
    else limit.next.previous = limit.previous
    limit.previous = undefined
    limit.next = undefined
  }

  private now(): number {
    return Number(this.clock.unsafeCurrentTimeNanos() / 1_000n) / 1_000
  }

  private sleep(millis: number): void {
    this.sleeping = true
    this.fork(
      Effect.map(this.clock.sleep(Duration.millis(Math.min(millis, maxSleep))), () => {
        this.sleeping = false
        const now = this.now()
        while (this.head !== undefined && this.head.due <= now) {
          const limit = this.head
          this.remove(limit)
          limit.expire()
        }
        if (this.head !== undefined && !this.sleeping) this.sleep(this.head.due - now)
      }),
    )
  }
}

/** In the current scope, by the clock of the effect that makes it. */
export const make: Effect.Effect<Timeouts, never, Scope.Scope> = Effect.gen(function* () {
  const clock = yield* Effect.clock
  const runtime = yield* Effect.runtime<never>()
  // Not in the scope: what is sent while it closes has limits, too.
  const sleeping = new Set<Fiber.RuntimeFiber<void>>()
  const fork = (effect: Effect.Effect<void>) => {
    const fiber = Runtime.runFork(runtime, effect)
    sleeping.add(fiber)
    fiber.addObserver(() => sleeping.delete(fiber))
  }
  yield* Effect.addFinalizer(() => Effect.suspend(() => Fiber.interruptAll(sleeping)))
  const lines = new Map<number, Line>()
  return {
    after: (millis, expire) => {
      if (!Number.isFinite(millis)) return never
      let line = lines.get(millis)
      if (line === undefined) {
        // Lengths are configured, not computed; but who computes them must not fill the memory.
        if (lines.size > 1_000) lines.clear()
        line = new Line(clock, fork)
        lines.set(millis, line)
      }
      const limit = line.add(millis, expire)
      return () => line.remove(limit)
    },
  }
})
