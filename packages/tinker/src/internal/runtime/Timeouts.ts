/**
 * Time limits for thousands of concurrent operations. All limits of one length share a timer: they end in the order in
 * which they began. (`Effect.timeout` costs two fibers and a timer each.)
 */
import type * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Runtime from "effect/Runtime"
import type * as Scope from "effect/Scope"
import { surroundings } from "../util/RunBeside.ts"
import { clockOf, preciseUptime } from "../util/MonotonicClock.ts"

export interface Timeouts {
  /** Calls `expire` after this many milliseconds, unless the returned function is called first. */
  readonly after: (millis: number, expire: () => void) => () => void
}

const never = () => {}

// Timers longer than a 32-bit count of milliseconds never fire; waking early is harmless.
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
  private sleeper: Fiber.RuntimeFiber<void> | undefined = undefined
  private readonly owner: Owner

  constructor(owner: Owner) {
    this.owner = owner
  }

  add(millis: number, expire: () => void): Limit {
    const limit = new Limit(this.now() + millis, expire)
    limit.previous = this.tail
    if (this.tail === undefined) this.head = limit
    else this.tail.next = limit
    this.tail = limit
    // A timer that fires early looks again, so a running one is enough.
    if (!this.isAsleep) this.sleep(millis)
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
    if (this.owner.isClosed) this.rest()
  }

  /** Stops the timer if the line has no limit left. */
  rest(): void {
    if (this.head !== undefined) return
    this.sleeper?.unsafeInterruptAsFork(FiberId.none)
    this.awake()
  }

  private get isAsleep(): boolean {
    return this.owner.sleeping.has(this)
  }

  private awake(): void {
    this.sleeper = undefined
    this.owner.sleeping.delete(this)
  }

  private now(): number {
    return preciseUptime(this.owner.clock)
  }

  private sleep(millis: number): void {
    const { clock, runtime, sleeping } = this.owner
    sleeping.add(this)
    const sleeper = Runtime.runFork(
      runtime,
      Effect.map(clock.sleep(Duration.millis(Math.min(millis, maxSleep))), () => {
        this.awake()
        const now = this.now()
        while (this.head !== undefined && this.head.due <= now) {
          const limit = this.head
          this.remove(limit)
          limit.expire()
        }
        if (this.head !== undefined && !this.isAsleep) this.sleep(this.head.due - now)
      }),
    )
    // A clock may wake at once, and the line may sleep again already.
    if (this.isAsleep) this.sleeper ??= sleeper
  }
}

/** The parts that all lines share. */
interface Owner {
  readonly clock: Clock.Clock
  readonly runtime: Runtime.Runtime<never>
  /** Lines with a running timer. */
  readonly sleeping: Set<Line>
  /** Whether timers stop with their last limit. */
  isClosed: boolean
}

const timeoutsOf = (owner: Owner): Timeouts => {
  const lines = new Map<number, Line>()
  return {
    after: (millis, expire) => {
      if (!Number.isFinite(millis)) return never
      let line = lines.get(millis)
      if (line === undefined) {
        // Most lengths are configured, not computed. Computed lengths must not fill the memory.
        if (lines.size > 1_000) lines.clear()
        line = new Line(owner)
        lines.set(millis, line)
      }
      const limit = line.add(millis, expire)
      return () => line.remove(limit)
    },
  }
}

/** Timers that run on the clock of the fiber that asks for one. */
export interface Timers {
  readonly of: (fiber: Fiber.RuntimeFiber<unknown, unknown>) => Timeouts
}

/**
 * Creates timers in the current scope. When the scope closes, pending limits stay: a call may outlive the client that
 * sent it, but not its time. Only timers without a pending limit are stopped.
 */
export const makeTimers: Effect.Effect<Timers, never, Scope.Scope> = Effect.gen(function* () {
  const clock = yield* Effect.clock
  const byClock = new Map<Clock.Clock, { readonly owner: Owner; readonly timeouts: Timeouts }>()
  let isClosed = false
  const add = (clock: Clock.Clock, runtime: Runtime.Runtime<never>) => {
    const owner: Owner = { clock, runtime, sleeping: new Set(), isClosed }
    const known = { owner, timeouts: timeoutsOf(owner) }
    byClock.set(clock, known)
    return known
  }
  const own = add(clock, yield* Effect.runtime<never>())
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      isClosed = true
      for (const { owner } of byClock.values()) {
        owner.isClosed = true
        for (const line of owner.sleeping) line.rest()
      }
    }),
  )
  return {
    of: (fiber) => {
      const current = clockOf(fiber)
      if (current === clock) return own.timeouts
      return (byClock.get(current) ?? add(current, surroundings(fiber))).timeouts
    },
  }
})

/** Creates time limits that run on the current clock, in the current scope. */
export const make: Effect.Effect<Timeouts, never, Scope.Scope> = Effect.flatMap(makeTimers, ({ of }) =>
  Effect.withFiberRuntime((fiber) => Effect.succeed(of(fiber))),
)
