/**
 * An admission gate: first come, first served, under a count limit, a byte budget and a window that admits nothing.
 * Every change is synchronous and O(1), and calls back only the waiters that it admits. (`Effect.Semaphore` hangs on a
 * request above its size, wakes all waiters at every release, and is not FIFO.)
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import * as Runtime from "effect/Runtime"
import type * as Scope from "effect/Scope"
import { type Time, timeBy } from "../util/MonotonicClock.ts"

/** Limits that apply while a window is open, and for `linger` after its end. */
export interface Throttle {
  readonly limit: number
  /** Multiplies weights. */
  readonly factor: number
  readonly linger: Duration.Duration
  /**
   * One back-off for this many admissions is a single refusal among many accepted requests: it throttles the gate but
   * opens no window. Two are forgiven in advance if twice as many passed before.
   */
  readonly aloneAfter: number
}

export interface Options<E> {
  /** Limits how many may be inside at once. */
  readonly limit: number
  /** The balance of an empty gate, in the unit of the weights. */
  readonly budget: number
  readonly throttle?: Throttle
  /**
   * Returns the error for waiters when the gate's scope closes. They must not hang, must not be interrupted, and must
   * not be admitted either: thousands would pass at once without a limit. Places that are held stay valid.
   */
  readonly closed: () => E
}

export interface Stats {
  readonly inFlight: number
  readonly waiting: number
  readonly balance: number
  /** How often the head of the queue was examined: the work done so far. */
  readonly checks: number
  /** Whether a timer is running. */
  readonly timer: boolean
}

export interface Gate<E> {
  /**
   * Asks for a place. Calls `onAdmitted` once, possibly before it returns: when the place is free, or with the error of
   * a closed gate. The callback must not throw. The returned function gives the place back, or stops waiting for it; it
   * has to be called however the caller ends, and only its first call counts.
   */
  readonly enter: (weight: number, onAdmitted: (admission: Exit.Exit<void, E>) => void) => () => void
  /** Runs the effect inside the gate. Its place is free again however the effect ends. */
  readonly withPlace: (weight: number) => <A, E2, R>(effect: Effect.Effect<A, E2, R>) => Effect.Effect<A, E | E2, R>
  /** Opens the window, or extends it; never shortens it. Returns whether it holds back all callers. */
  readonly backOff: (duration: Duration.DurationInput) => boolean
  /** The rest of the window. */
  readonly window: Effect.Effect<Option.Option<Duration.Duration>>
  readonly setBudget: (budget: number) => Effect.Effect<void>
  readonly stats: Effect.Effect<Stats>
}

const Phase = { waiting: 0, admitted: 1, closed: 2, gone: 3 } as const
type State = (typeof Phase)[keyof typeof Phase]

class Waiter<E> {
  state: State = Phase.waiting
  /** The charge at admission, which is given back whatever the gate's state is by then. */
  charge = 0
  previous: Waiter<E> | undefined = undefined
  next: Waiter<E> | undefined = undefined
  readonly weight: number
  readonly onAdmitted: (admission: Exit.Exit<void, E>) => void
  constructor(weight: number, onAdmitted: (admission: Exit.Exit<void, E>) => void) {
    this.weight = weight
    this.onAdmitted = onAdmitted
  }
}

// Whole and finite, so that the balance always returns to exactly its old value.
const maxWeight = 2 ** 45
const wholeWeight = (weight: number): number => (weight > 0 ? Math.min(Math.ceil(weight), maxWeight) : 0)

// Timers longer than a 32-bit count of milliseconds never fire; waking early is harmless.
const maxSleep = 2 ** 31 - 1

const nothing = () => {}

class Impl<E> implements Gate<E> {
  private head: Waiter<E> | undefined = undefined
  private tail: Waiter<E> | undefined = undefined
  private waiting = 0
  private inFlight = 0
  private balance: number
  private budget: number
  private checks = 0
  /** Admissions that have not paid for a forgiven back-off yet. */
  private passed = 0
  private windowEnd = Number.NEGATIVE_INFINITY
  private throttledUntil = Number.NEGATIVE_INFINITY
  private timer: { readonly at: number; fiber: Fiber.RuntimeFiber<void> | undefined } | undefined = undefined
  private isClosed = false
  private isPumping = false

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

  enter(weight: number, onAdmitted: (admission: Exit.Exit<void, E>) => void): () => void {
    if (this.isClosed) {
      onAdmitted(Exit.fail(this.options.closed()))
      return nothing
    }
    const waiter = this.enqueue(weight, onAdmitted)
    return () => this.forget(waiter)
  }

  withPlace(weight: number) {
    return <A, E2, R>(effect: Effect.Effect<A, E2, R>): Effect.Effect<A, E | E2, R> =>
      // No interruption can come between entering and the handler that leaves.
      Effect.uninterruptibleMask((restore) => {
        const entry = new Entry<E>()
        const leave = this.enter(weight, (admission) => entry.admit(admission))
        const inside = entry.isAdmitted ? restore(effect) : Effect.zipRight(restore(entry.admitted), restore(effect))
        return Effect.matchCauseEffect(inside, {
          onFailure: (cause) => {
            leave()
            return Effect.failCause(cause)
          },
          onSuccess: (value) => {
            leave()
            return Effect.succeed(value)
          },
        })
      })
  }

  backOff(duration: Duration.DurationInput): boolean {
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
  }

  readonly window: Effect.Effect<Option.Option<Duration.Duration>> = Effect.sync(() => {
    const left = this.windowEnd - this.now()
    return left > 0 ? Option.some(Duration.millis(left)) : Option.none()
  })

  setBudget(budget: number): Effect.Effect<void> {
    return Effect.sync(() => {
      // A budget below zero would admit nothing.
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
    let waiter = this.head
    this.head = undefined
    this.tail = undefined
    this.waiting = 0
    while (waiter !== undefined) {
      const { next } = waiter
      waiter.state = Phase.closed
      waiter.onAdmitted(Exit.fail(this.options.closed()))
      waiter = next
    }
  })

  private now(): number {
    return this.time.uptime()
  }

  private enqueue(weight: number, onAdmitted: (admission: Exit.Exit<void, E>) => void): Waiter<E> {
    const waiter = new Waiter<E>(wholeWeight(weight), onAdmitted)
    waiter.previous = this.tail
    if (this.tail === undefined) this.head = waiter
    else this.tail.next = waiter
    this.tail = waiter
    this.waiting++
    // A new waiter behind others changes nothing for the head.
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

  /** Admits the head while it may pass. Leaves a timer running exactly if only time can help. */
  private pump(): void {
    // A callback may change the gate; the loop that called it continues with the new state.
    if (this.isPumping) return
    this.isPumping = true
    while (this.admitHead());
    this.isPumping = false
  }

  /** Admits the head if it may pass; returns whether to look at the next one. */
  private admitHead(): boolean {
    const waiter = this.head
    if (this.isClosed) return false
    if (waiter === undefined) {
      this.stopTimer()
      return false
    }
    this.checks++
    const { limit, throttle } = this.options
    // Without a window so far the time does not matter.
    const now =
      this.throttledUntil === Number.NEGATIVE_INFINITY && this.windowEnd === Number.NEGATIVE_INFINITY ? 0 : this.now()
    const throttled = throttle !== undefined && now < this.throttledUntil
    if (now < this.windowEnd) {
      this.setTimer(now, this.windowEnd)
      return false
    }
    if (this.balance < 0 || this.inFlight >= limit) {
      this.stopTimer()
      return false
    }
    if (throttled && this.inFlight >= throttle.limit) {
      this.setTimer(now, this.throttledUntil)
      return false
    }
    this.unlink(waiter)
    waiter.state = Phase.admitted
    waiter.charge = throttled ? waiter.weight * throttle.factor : waiter.weight
    this.balance -= waiter.charge
    this.inFlight++
    waiter.onAdmitted(Exit.void)
    return true
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

/** The admission of a fiber that may ask for it before or after it came. */
class Entry<E> {
  private admission: Exit.Exit<void, E> | undefined = undefined
  private resume: ((admission: Exit.Exit<void, E>) => void) | undefined = undefined

  admit(admission: Exit.Exit<void, E>): void {
    this.admission = admission
    this.resume?.(admission)
  }

  get isAdmitted(): boolean {
    return this.admission?._tag === "Success"
  }

  readonly admitted: Effect.Effect<void, E> = Effect.async<void, E>((resume) => {
    if (this.admission === undefined) this.resume = resume
    else resume(this.admission)
  })
}

/** Creates a gate in the current scope, on the current clock. */
export const make = <E>(options: Options<E>): Effect.Effect<Gate<E>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const time = timeBy(yield* Effect.clock)
    const runtime = yield* Effect.runtime<never>()
    const scope = yield* Effect.scope
    const gate = new Impl(options, time, runtime, scope)
    yield* Effect.addFinalizer(() => gate.close)
    return gate
  })
