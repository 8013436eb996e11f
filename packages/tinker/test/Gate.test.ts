import { describe, expect, it } from "@effect/vitest"
import { Clock, Deferred, Duration, Effect, Exit, FastCheck, Fiber, Option, TestClock, Redacted } from "effect"
import { RateLimiter } from "effect-tinker/RateLimiter"
import * as Limits from "effect-tinker/RateLimiter"
import * as BaseUrl from "effect-tinker/http/BaseUrl"
import { ClientClosed } from "effect-tinker/TinkerError"

// The gate is private; a limiter contains two of them and exposes everything they do.

const key: Limits.Key = { baseUrl: BaseUrl.BaseUrl.make("http://localhost"), credential: Redacted.make("test") }

const settle = Effect.repeatN(Effect.yieldNow(), 12)

interface Task {
  readonly id: number
  readonly done: Deferred.Deferred<void, "failed">
  readonly fiber: Fiber.RuntimeFiber<void, "failed" | ClientClosed>
}

type Command =
  | { readonly type: "enqueue"; readonly weight: number }
  | { readonly type: "complete" | "fail" | "die" | "interrupt"; readonly pick: number }
  | { readonly type: "backOff" | "advance"; readonly millis: number }
  | { readonly type: "budget"; readonly bytes: number }

const pick = FastCheck.nat(1000)
const command: FastCheck.Arbitrary<Command> = FastCheck.oneof(
  {
    weight: 12,
    arbitrary: FastCheck.record({
      type: FastCheck.constant("enqueue" as const),
      weight: FastCheck.oneof(
        { weight: 4, arbitrary: FastCheck.constant(0) },
        { weight: 2, arbitrary: FastCheck.integer({ min: 0, max: 30 }) },
        { weight: 1, arbitrary: FastCheck.integer({ min: 500, max: 5000 }) },
      ),
    }),
  },
  {
    weight: 6,
    arbitrary: FastCheck.record({
      type: FastCheck.constantFrom(
        "complete" as const,
        "complete" as const,
        "fail" as const,
        "die" as const,
        "interrupt" as const,
      ),
      pick,
    }),
  },
  {
    weight: 1,
    arbitrary: FastCheck.record({
      type: FastCheck.constant("backOff" as const),
      millis: FastCheck.integer({ min: 0, max: 4000 }),
    }),
  },
  {
    weight: 2,
    arbitrary: FastCheck.record({
      type: FastCheck.constant("advance" as const),
      millis: FastCheck.integer({ min: 1, max: 8000 }),
    }),
  },
  {
    weight: 1,
    arbitrary: FastCheck.record({
      type: FastCheck.constant("budget" as const),
      bytes: FastCheck.integer({ min: 50, max: 400 }),
    }),
  },
)

/** A reference model of the gate: plain arrays, no optimization. */
class Model {
  now = 0
  balance = 100
  budget = 100
  windowEnd = -1
  throttledUntil = -1
  /** Completed entries that have not yet offset a back-off. */
  passed = 0
  readonly queue: Array<{ readonly id: number; readonly weight: number }> = []
  readonly inside = new Map<number, number>()
  readonly admitted: Array<number> = []

  settle(): void {
    for (;;) {
      const throttled = this.now < this.throttledUntil
      const head = this.queue[0]
      if (head === undefined || this.now < this.windowEnd || this.balance < 0) return
      if (this.inside.size >= (throttled ? 10 : 400)) return
      this.queue.shift()
      const charge = throttled ? head.weight * 20 : head.weight
      this.balance -= charge
      this.inside.set(head.id, charge)
      this.admitted.push(head.id)
    }
  }

  leave(id: number): void {
    const waiting = this.queue.findIndex((entry) => entry.id === id)
    if (waiting >= 0) this.queue.splice(waiting, 1)
    this.balance += this.inside.get(id) ?? 0
    if (this.inside.delete(id)) this.passed++
    this.settle()
  }

  backOff(millis: number): void {
    const end = this.now + millis
    // A single back-off after this many completions throttles new entries without stopping them.
    const isAlone = this.passed >= 20 && this.now >= this.windowEnd
    this.passed = isAlone ? Math.min(this.passed, 40) - 20 : 0
    this.throttledUntil = Math.max(this.throttledUntil, end + 10_000)
    if (!isAlone) this.windowEnd = Math.max(this.windowEnd, end)
    this.settle()
  }

  advance(millis: number): void {
    const end = this.now + millis
    for (const at of [this.windowEnd, this.throttledUntil, end].toSorted((a, b) => a - b)) {
      if (at < this.now || at > end) continue
      this.now = at
      this.settle()
    }
  }
}

describe("Gate", () => {
  it.effect.prop(
    "Gate behaves like the model for any sequence of commands",
    [FastCheck.array(command, { minLength: 1, maxLength: 80, size: "max" })],
    ([commands]) =>
      Effect.gen(function* () {
        const limiter = yield* (yield* RateLimiter).limiter(key)
        yield* limiter.configure({ sampleBytes: 100 })
        const model = new Model()
        const started: Array<number> = []
        const tasks: Array<Task> = []
        let ids = 0

        const enqueue = (weight: number) =>
          Effect.gen(function* () {
            const id = ids++
            const done = yield* Deferred.make<void, "failed">()
            const body = Effect.zipRight(
              Effect.sync(() => started.push(id)),
              Deferred.await(done),
            )
            const fiber = yield* Effect.fork(limiter.sampling(weight)(body))
            tasks.push({ id, done, fiber })
            yield* settle
            model.queue.push({ id, weight })
            model.settle()
          })

        const end = (index: number, how: "complete" | "fail" | "die" | "interrupt") =>
          Effect.gen(function* () {
            const [task] = tasks.splice(index, 1)
            if (task === undefined) return
            const inside = model.inside.has(task.id)
            if (how === "interrupt" || !inside) yield* Fiber.interrupt(task.fiber)
            else if (how === "complete") yield* Deferred.succeed(task.done, undefined)
            else if (how === "fail") yield* Deferred.fail(task.done, "failed")
            else yield* Deferred.die(task.done, "defect")
            yield* Fiber.await(task.fiber)
            yield* settle
            model.leave(task.id)
          })

        const agree = Effect.gen(function* () {
          expect(started).toEqual(model.admitted)
          const { sampling } = yield* limiter.stats
          expect(sampling.inFlight).toBe(model.inside.size)
          expect(sampling.waiting).toBe(model.queue.length)
          expect(sampling.balance).toBe(model.balance)
          // A timer runs exactly when the first waiter waits only for time.
          const byTime =
            model.queue.length > 0 &&
            (model.now < model.windowEnd || (model.balance >= 0 && model.now < model.throttledUntil))
          expect(sampling.timer).toBe(byTime)
          expect(yield* limiter.window).toEqual(
            model.now < model.windowEnd ? Option.some(Duration.millis(model.windowEnd - model.now)) : Option.none(),
          )
        })

        for (const command of commands) {
          switch (command.type) {
            case "enqueue":
              yield* enqueue(command.weight)
              break
            case "backOff":
              yield* limiter.backOff(command.millis)
              yield* settle
              model.backOff(command.millis)
              break
            case "advance":
              yield* TestClock.adjust(command.millis)
              yield* settle
              model.advance(command.millis)
              break
            case "budget":
              yield* limiter.configure({ sampleBytes: command.bytes })
              yield* settle
              model.balance += command.bytes - model.budget
              model.budget = command.bytes
              model.settle()
              break
            default:
              if (tasks.length > 0) yield* end(command.pick % tasks.length, command.type)
          }
          yield* agree
        }

        yield* TestClock.adjust("1 minute")
        yield* settle
        model.advance(60_000)
        while (tasks.length > 0) yield* end(0, "complete")
        yield* agree
        expect((yield* limiter.stats).sampling).toMatchObject({
          inFlight: 0,
          waiting: 0,
          balance: model.budget,
          timer: false,
        })
      }).pipe(Effect.scoped, Effect.provide(Limits.layer)),
    { timeout: 60_000, fastCheck: { numRuns: process.env["TINKER_TESTS"] === "all" ? 50 : 15 } },
  )

  it.scoped("a waiter that is admitted and interrupted at the same moment releases its permit", () =>
    Effect.gen(function* () {
      for (let yields = 0; yields < 14; yields++) {
        const limiter = yield* (yield* RateLimiter).limiter(key)
        yield* limiter.configure({ sampleBytes: 0 })
        const gate = yield* Deferred.make<void>()
        const first = yield* Effect.fork(limiter.sampling(1)(Deferred.await(gate)))
        yield* settle
        const second = yield* Effect.fork(limiter.sampling(1)(Effect.never))
        const third = yield* Effect.fork(limiter.sampling(1)(Clock.currentTimeMillis))
        yield* settle
        expect((yield* limiter.stats).sampling).toMatchObject({ inFlight: 1, waiting: 2 })
        yield* Deferred.succeed(gate, undefined)
        for (let i = 0; i < yields; i++) yield* Effect.yieldNow()
        yield* Fiber.interrupt(second)
        yield* Fiber.join(first)
        expect(yield* Fiber.join(third)).toBe(0)
        expect((yield* limiter.stats).sampling).toMatchObject({ inFlight: 0, waiting: 0, balance: 0 })
      }
    }).pipe(Effect.provide(Limits.layer)),
  )

  it.scoped("admitting 10,000 waiters takes linear work", () =>
    Effect.gen(function* () {
      const limiter = yield* (yield* RateLimiter).limiter(key)
      const n = 10_000
      let inside = 0
      let most = 0
      const order: Array<number> = []
      yield* Effect.forEach(
        Array.from({ length: n }, (_, index) => index),
        (index) =>
          limiter.sampling(10)(
            Effect.sync(() => {
              order.push(index)
              most = Math.max(most, ++inside)
            }).pipe(Effect.zipRight(Effect.yieldNow()), Effect.ensuring(Effect.sync(() => inside--))),
          ),
        { concurrency: "unbounded", discard: true },
      )
      const { sampling } = yield* limiter.stats
      expect(order).toEqual(Array.from({ length: n }, (_, index) => index))
      expect(most).toBe(400)
      expect(sampling).toMatchObject({ inFlight: 0, waiting: 0, balance: 10_485_760 })
      expect(sampling.checks).toBeLessThanOrEqual(3 * n)
    }).pipe(Effect.provide(Limits.layer)),
  )

  it.scoped("interrupting 10,000 waiters takes linear work", () =>
    Effect.gen(function* () {
      const limiter = yield* (yield* RateLimiter).limiter(key)
      yield* limiter.backOff("1 hour")
      const fibers = yield* Effect.forEach(Array.from({ length: 10_000 }), () =>
        Effect.fork(limiter.sampling(10)(Effect.void)),
      )
      yield* settle
      expect((yield* limiter.stats).sampling).toMatchObject({ inFlight: 0, waiting: 10_000, timer: true })
      yield* Fiber.interruptAll(fibers)
      const { sampling } = yield* limiter.stats
      expect(sampling).toMatchObject({ inFlight: 0, waiting: 0, balance: 10_485_760, timer: false })
      expect(sampling.checks).toBeLessThanOrEqual(30_000)
    }).pipe(Effect.provide(Limits.layer)),
  )

  it.scoped("NaN, negative and infinite weights leave the balance intact", () =>
    Effect.gen(function* () {
      const limiter = yield* (yield* RateLimiter).limiter(key)
      for (const weight of [Number.NaN, -5, 0.1, 0.2, Number.POSITIVE_INFINITY, Number.MAX_VALUE]) {
        yield* limiter.sampling(weight)(Effect.void)
        yield* limiter.backOff("1 millis")
        yield* TestClock.adjust("1 millis")
        yield* limiter.sampling(weight)(Effect.void)
      }
      expect((yield* limiter.stats).sampling.balance).toBe(10_485_760)
    }).pipe(Effect.provide(Limits.layer)),
  )

  it.effect("closing the scope fails waiters and lets admitted work finish", () =>
    Effect.gen(function* () {
      const release = yield* Deferred.make<void>()
      const [inside, waiting, limiter] = yield* Effect.gen(function* () {
        const limiter = yield* (yield* RateLimiter).limiter(key)
        yield* limiter.configure({ sampleBytes: 0 })
        const inside = yield* Effect.forkDaemon(limiter.sampling(1)(Deferred.await(release)))
        yield* settle
        const waiting = yield* Effect.forkDaemon(limiter.sampling(1)(Effect.void))
        yield* settle
        return [inside, waiting, limiter] as const
      }).pipe(Effect.scoped, Effect.provide(Limits.layer))
      expect(yield* Fiber.await(waiting)).toEqual(Exit.fail(new ClientClosed({ operation: "rate limiter" })))
      yield* Deferred.succeed(release, undefined)
      expect(yield* Fiber.await(inside)).toEqual(Exit.void)
      expect(yield* Effect.exit(limiter.sampling(1)(Effect.void))).toEqual(
        Exit.fail(new ClientClosed({ operation: "rate limiter" })),
      )
    }),
  )
})
