/**
 * Runs programs in virtual time: whenever all fibers of a program are waiting, the clock jumps to the next wake-up. A
 * day of heartbeats, pauses and retries takes only as long as its work. Use `TestClock` to stop at a moment and inspect
 * the state; use this for programs that run from start to end.
 *
 * Only for programs that run in memory: virtual time does not wait for real sockets or timers.
 *
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import * as Scheduler from "effect/Scheduler"

interface Native {
  readonly setImmediate?: (task: () => void) => void
}

const { setImmediate }: Native = globalThis as Native

/** Runs a task after everything that can run now, including promises. */
const afterAll = (task: () => void): void => {
  if (setImmediate === undefined) setTimeout(task, 0)
  else setImmediate(task)
}

interface Sleeper {
  readonly wakesAt: number
  readonly wake: () => void
}

/** A clock and scheduler that advances the time when no task is running. */
class Time extends Scheduler.MixedScheduler implements Clock.Clock {
  readonly [Clock.ClockTypeId]: Clock.ClockTypeId = Clock.ClockTypeId
  private now: number
  /** Ordered so that the next to wake is last; with equal times, the one that slept first. */
  private readonly sleepers: Array<Sleeper> = []
  private tasks = 0
  private watching = false

  constructor(now: number) {
    super(2048)
    this.now = now
  }

  private watch(): void {
    if (this.watching || this.tasks > 0) return
    this.watching = true
    afterAll(() => {
      this.watching = false
      const next = this.tasks > 0 ? undefined : this.sleepers.pop()
      if (next === undefined) return
      this.now = next.wakesAt
      next.wake()
      this.watch()
    })
  }

  readonly currentTimeMillis = Effect.sync(() => this.unsafeCurrentTimeMillis())
  readonly currentTimeNanos = Effect.sync(() => this.unsafeCurrentTimeNanos())

  unsafeCurrentTimeMillis(): number {
    return this.now
  }

  unsafeCurrentTimeNanos(): bigint {
    return BigInt(Math.floor(this.now * 1_000_000))
  }

  sleep(duration: Duration.Duration): Effect.Effect<void> {
    if (!Duration.isFinite(duration)) return Effect.never
    return Effect.async<void>((resume) => {
      const sleeper = { wakesAt: this.now + Duration.toMillis(duration), wake: () => resume(Effect.void) }
      const before = this.sleepers.findLastIndex(({ wakesAt }) => wakesAt > sleeper.wakesAt)
      this.sleepers.splice(before + 1, 0, sleeper)
      this.watch()
      return Effect.sync(() => {
        const index = this.sleepers.indexOf(sleeper)
        if (index >= 0) this.sleepers.splice(index, 1)
      })
    })
  }

  override scheduleTask(task: Scheduler.Task, priority: number, fiber?: Fiber.RuntimeFiber<unknown, unknown>): void {
    this.tasks++
    super.scheduleTask(
      () => {
        this.tasks--
        task()
        this.watch()
      },
      priority,
      fiber,
    )
  }
}

/**
 * Runs a program in virtual time, which starts at `startsAt` milliseconds since 1970 (default: 0). Sleeps take no real
 * time.
 *
 * @since 0.1.0
 * @category running
 */
export const run = <A, E, R>(
  program: Effect.Effect<A, E, R>,
  options?: { readonly startsAt?: number | undefined },
): Effect.Effect<A, E, R> =>
  Effect.suspend(() => {
    const time = new Time(options?.startsAt ?? 0)
    return program.pipe(Effect.withClock(time), Effect.withScheduler(time))
  })
