/**
 * An admission gate: first come, first served, under a count limit, a balance of bytes and a window during which
 * nobody passes. Everything that changes the gate is synchronous and O(1); only the waiters that are admitted are
 * woken. (`Effect.Semaphore` hangs on a request above its size, wakes all waiters at every release, and is not FIFO.)
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import * as Runtime from "effect/Runtime"
import type * as Scope from "effect/Scope"
import { type Time, timeBy } from "../util/MonotonicClock.ts"

/** What counts while a window is open, and for `linger` after it ended. */
export interface Throttle {
  readonly limit: number
  /** Weights count this many times. */
  readonly factor: number
  readonly linger: Duration.Duration
  /**
   * One back-off for so many that passed is a single refusal among many that were accepted: it throttles, but lets the
   * others go on. Two are forgiven in advance, if twice as many passed before.
   */
  readonly aloneAfter: number
}

export interface Options<E> {
  /** How many may be inside at once. */
  readonly limit: number
  /** The balance of an empty gate, in whatever unit the weights have. */
  readonly budget: number
  readonly throttle?: Throttle
  /**
   * What a waiter gets when the gate's scope closes. It must not hang, must not get an interruption that nobody asked
   * for, and must not be let in either: thousands would pass at once the moment the limit is gone. So it fails, and
   * the failure is in the type of everything that waits here. Who is inside already is left alone.
   */
  readonly closed: () => E
}

export interface Stats {
  readonly inFlight: number
  readonly waiting: number
  readonly balance: number
  /** How often the head of the queue was looked at since the gate was made: the work it did. */
  readonly checks: number
  /** Is a timer running? */
  readonly timer: boolean
}

/** A place, or the wish for one. */
export interface Place<E> {
  /** Waits until it is one; interrupted, it still has to be left. */
  readonly admitted: Effect.Effect<void, E> | undefined
  /** However it ended. */
  readonly leave: () => void
}

export interface Gate<E> {
  /** For who sees to it itself that the place is left. */
  readonly enter: (weight: number) => Place<E>
  /** A place that is free now, or nothing; gives the way to leave it. */
  readonly enterNow: (weight: number) => (() => void) | undefined
  /** Runs the effect inside the gate; its place is free again however the effect ends. */
  readonly withPlace: (weight: number) => <A, E2, R>(effect: Effect.Effect<A, E2, R>) => Effect.Effect<A, E | E2, R>
  /** Opens the window, or extends it; never shortens it. Tells whether all who come have to wait. */
  readonly backOff: (duration: Duration.DurationInput) => Effect.Effect<boolean>
  /** What is left of the window. */
  readonly window: Effect.Effect<Option.Option<Duration.Duration>>
  readonly setBudget: (budget: number) => Effect.Effect<void>
  readonly stats: Effect.Effect<Stats>
}

const Phase = { waiting: 0, admitted: 1, closed: 2, gone: 3 } as const
type State = (typeof Phase)[keyof typeof Phase]

class Waiter<E> {
  state: State = Phase.waiting
  /** As charged at admission: what is given back is the same, whatever the gate's state is by then. */
  charge = 0
  resume: ((effect: Effect.Effect<void, E>) => void) | undefined = undefined
  previous: Waiter<E> | undefined = undefined
  next: Waiter<E> | undefined = undefined
  readonly weight: number
  constructor(weight: number) {
    this.weight = weight
  }
}

// Whole and finite, so that the balance always comes back to exactly where it was.
const maxWeight = 2 ** 45
const wholeWeight = (weight: number): number => (weight > 0 ? Math.min(Math.ceil(weight), maxWeight) : 0)

// Longer timers than a 32 bit count of milliseconds never fire; waking early is harmless.
const maxSleep = 2 ** 31 - 1

class Impl<E> implements Gate<E> {
  private head: Waiter<E> | undefined = undefined
  private tail: Waiter<E> | undefined = undefined
  private waiting = 0
  private inFlight = 0
  private balance: number
  private budget: number
  private checks = 0
  /** How many went through for which no back-off was forgiven yet. */
  private passed = 0
  private windowEnd = Number.NEGATIVE_INFINITY
  private throttledUntil = Number.NEGATIVE_INFINITY
  private timer: { readonly at: number; fiber: Fiber.RuntimeFiber<void> | undefined } | undefined = undefined
  private isClosed = false

  private readonly options: Options<E>
  private readonly time: Time
  private readonly runtime: Runtime.Runtime<never>
  private readonly scope: Scope.Scope

  constructor(options: Options<E>, time: Time, runtime: Runtime.Runtime<never>, scope: Scope.Scope) {
    this.options = options
    this.time = time
    this.runtime = runtime
    this.scope = scope
    this.budget = Math.max(0, options.budget)
    this.balance = this.budget
  }

  withPlace(weight: number) {
    return <A, E2, R>(effect: Effect.Effect<A, E2, R>): Effect.Effect<A, E | E2, R> =>
      // The waiter is made and given up where no interruption can come between: one that was admitted and is
      // interrupted before it goes on still passes through `forget`.
      Effect.uninterruptibleMask((restore) => {
        if (this.isClosed) return Effect.fail(this.options.closed())
        const waiter = this.enqueue(weight)
        const inside =
          waiter.state === Phase.admitted
            ? restore(effect)
            : Effect.zipRight(restore(this.admission(waiter)), restore(effect))
        return Effect.matchCauseEffect(inside, {
          onFailure: (cause) => {
            this.forget(waiter)
            return Effect.failCause(cause)
          },
          onSuccess: (value) => {
            this.forget(waiter)
            return Effect.succeed(value)
          },
        })
      })
  }

  enter(weight: number): Place<E> {
    if (this.isClosed) return { admitted: Effect.fail(this.options.closed()), leave: () => {} }
    const waiter = this.enqueue(weight)
    return {
      admitted: waiter.state === Phase.admitted ? undefined : this.admission(waiter),
      leave: () => this.forget(waiter),
    }
  }

  enterNow(weight: number): (() => void) | undefined {
    if (this.isClosed || this.head !== undefined) return undefined
    const waiter = this.enqueue(weight)
    if (waiter.state === Phase.admitted) return () => this.forget(waiter)
    this.forget(waiter)
    return undefined
  }

  backOff(duration: Duration.DurationInput): Effect.Effect<boolean> {
    return Effect.sync(() => {
      const now = this.now()
      const end = now + Duration.toMillis(duration)
      const { throttle } = this.options
      const isAlone = throttle !== undefined && this.passed >= throttle.aloneAfter && now >= this.windowEnd
      this.passed = isAlone ? Math.min(this.passed, 2 * throttle.aloneAfter) - throttle.aloneAfter : 0
      if (throttle !== undefined) {
        this.throttledUntil = Math.max(this.throttledUntil, end + Duration.toMillis(throttle.linger))
      }
      if (!isAlone && end > this.windowEnd) this.windowEnd = end
      this.pump()
      return !isAlone
    })
  }

  readonly window: Effect.Effect<Option.Option<Duration.Duration>> = Effect.sync(() => {
    const left = this.windowEnd - this.now()
    return left > 0 ? Option.some(Duration.millis(left)) : Option.none()
  })

  setBudget(budget: number): Effect.Effect<void> {
    return Effect.sync(() => {
      // Below zero nobody could ever pass.
      const next = Math.max(0, budget)
      this.balance += next - this.budget
      this.budget = next
      this.pump()
    })
  }

  readonly stats: Effect.Effect<Stats> = Effect.sync(() => ({
    inFlight: this.inFlight,
    waiting: this.waiting,
    balance: this.balance,
    checks: this.checks,
    timer: this.timer !== undefined,
  }))

  readonly close: Effect.Effect<void> = Effect.sync(() => {
    this.isClosed = true
    this.stopTimer()
    for (let waiter = this.head; waiter !== undefined; waiter = waiter.next) {
      waiter.state = Phase.closed
      waiter.resume?.(Effect.fail(this.options.closed()))
    }
    this.head = undefined
    this.tail = undefined
    this.waiting = 0
  })

  private admission(waiter: Waiter<E>): Effect.Effect<void, E> {
    return Effect.async<void, E>((resume) => {
      // Time has passed since the waiter was made: it may have been dealt with already.
      if (waiter.state === Phase.waiting) waiter.resume = resume
      else resume(waiter.state === Phase.closed ? Effect.fail(this.options.closed()) : Effect.void)
    })
  }

  private now(): number {
    return this.time.uptime()
  }

  private enqueue(weight: number): Waiter<E> {
    const waiter = new Waiter<E>(wholeWeight(weight))
    waiter.previous = this.tail
    if (this.tail === undefined) this.head = waiter
    else this.tail.next = waiter
    this.tail = waiter
    this.waiting++
    // Behind others nothing can have changed for the head.
    if (this.head === waiter) this.pump()
    return waiter
  }

  private forget(waiter: Waiter<E>): void {
    switch (waiter.state) {
      case Phase.waiting: {
        waiter.state = Phase.gone
        const wasHead = this.head === waiter
        this.unlink(waiter)
        if (wasHead) this.pump()
        return
      }
      case Phase.admitted:
        waiter.state = Phase.gone
        this.passed++
        this.inFlight--
        this.balance += waiter.charge
        if (this.head !== undefined) this.pump()
        return
      case Phase.closed:
      case Phase.gone:
        return
    }
  }

  private unlink(waiter: Waiter<E>): void {
    if (waiter.previous === undefined) this.head = waiter.next
    else waiter.previous.next = waiter.next
    if (waiter.next === undefined) this.tail = waiter.previous
    else waiter.next.previous = waiter.previous
    waiter.previous = undefined
    waiter.next = undefined
    this.waiting--
  }

  /** Admits the head as long as it may pass, then sees to it that a timer runs exactly if only time can help. */
  private pump(): void {
    if (this.isClosed) return
    const { limit, throttle } = this.options
    // Without a window so far there is no need to know the time.
    const now =
      this.throttledUntil === Number.NEGATIVE_INFINITY && this.windowEnd === Number.NEGATIVE_INFINITY ? 0 : this.now()
    const throttled = throttle !== undefined && now < this.throttledUntil
    const places = throttled ? Math.min(limit, throttle.limit) : limit
    while (this.head !== undefined) {
      this.checks++
      if (now < this.windowEnd) return this.setTimer(now, this.windowEnd)
      if (this.balance < 0 || this.inFlight >= limit) return this.stopTimer()
      if (this.inFlight >= places) return this.setTimer(now, this.throttledUntil)
      const waiter = this.head
      this.unlink(waiter)
      waiter.state = Phase.admitted
      waiter.charge = throttled ? waiter.weight * throttle.factor : waiter.weight
      this.balance -= waiter.charge
      this.inFlight++
      waiter.resume?.(Effect.void)
    }
    this.stopTimer()
  }

  private setTimer(now: number, at: number): void {
    if (this.timer?.at === at) return
    this.stopTimer()
    const timer: typeof this.timer = { at, fiber: undefined }
    this.timer = timer
    const wake = Effect.sync(() => {
      if (this.timer !== timer) return
      this.timer = undefined
      this.pump()
    })
    const sleep = this.time.clock.sleep(Duration.millis(Math.min(at - now, maxSleep)))
    timer.fiber = Runtime.runFork(this.runtime, Effect.zipRight(sleep, wake), { scope: this.scope })
  }

  private stopTimer(): void {
    const timer = this.timer
    if (timer === undefined) return
    this.timer = undefined
    timer.fiber?.unsafeInterruptAsFork(FiberId.none)
  }
}

/** A gate in the current scope. Its time is the clock of the effect that makes it. */
export const make = <E>(options: Options<E>): Effect.Effect<Gate<E>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const time = timeBy(yield* Effect.clock)
    const runtime = yield* Effect.runtime<never>()
    const scope = yield* Effect.scope
    const gate = new Impl(options, time, runtime, scope)
    yield* Effect.addFinalizer(() => gate.close)
    return gate
  })
