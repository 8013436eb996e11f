import { describe, expect, it } from "@effect/vitest"
import { Clock, Deferred, Duration, Effect, Exit, Fiber, Inspectable, Option, Redacted, Scope, TestClock } from "effect"
import { BaseUrl } from "effect-tinker/http/BaseUrl"
import { RateLimiter } from "effect-tinker/RateLimiter"
import * as Limits from "effect-tinker/RateLimiter"
import * as TinkerConfig from "effect-tinker/TinkerConfig"
import { ClientClosed } from "effect-tinker/TinkerError"
import * as CountingClock from "./support/CountingClock.ts"

const key = (secret: string, baseUrl = "https://one.example"): Limits.Key => ({
  baseUrl: BaseUrl.make(baseUrl),
  credential: Redacted.make(secret),
})

const settle = Effect.repeatN(Effect.yieldNow(), 12)

/** Starts `n` samples that stay admitted until released, and counts the admitted ones. */
const crowd = (limiter: Limits.Limiter, n: number, bytes: number) =>
  Effect.gen(function* () {
    const leave: Array<Deferred.Deferred<void>> = []
    let inside = 0
    const fibers = yield* Effect.forEach(Array.from({ length: n }), () =>
      Effect.gen(function* () {
        const done = yield* Deferred.make<void>()
        const body = Effect.sync(() => {
          inside++
          leave.push(done)
        }).pipe(Effect.zipRight(Deferred.await(done)), Effect.ensuring(Effect.sync(() => inside--)))
        return yield* Effect.fork(limiter.sampling(bytes)(body))
      }),
    )
    yield* settle
    return {
      fibers,
      inside: () => inside,
      finish: (count: number) =>
        Effect.zipRight(
          Effect.forEach(leave.splice(0, count), (done) => Deferred.succeed(done, undefined)),
          settle,
        ),
    }
  })

const startedAt = (limiter: Limits.Limiter) => Effect.fork(limiter.sampling(10)(Clock.currentTimeMillis))

describe("RateLimiter", () => {
  it.scoped("clients with equal keys share a limiter, and clients with different keys don't", () =>
    Effect.gen(function* () {
      const { limiter } = yield* RateLimiter
      const one = yield* limiter(key("k1"))
      expect(yield* limiter(key("k1"))).toBe(one)
      expect(yield* limiter(key("k2"))).not.toBe(one)
      expect(yield* limiter(key("k1", "https://two.example"))).not.toBe(one)
    }).pipe(Effect.provide(Limits.layer)),
  )

  it.effect("RateLimiter.keyOf depends on the server and the credential of a configuration", () =>
    Effect.gen(function* () {
      const keyFor = (values: TinkerConfig.Values) => Effect.map(TinkerConfig.make(values), Limits.keyOf)
      const [command, apiKey] = [Redacted.make("tml-a"), Redacted.make("tml-a")]
      const plain = yield* keyFor({ baseUrl: "http://host", apiKey })
      expect(yield* keyFor({ baseUrl: "HTTP://Host:80/", apiKey, credentialCommand: command })).toEqual(plain)
      const others = yield* Effect.all([
        keyFor({ baseUrl: "http://host/prefix", apiKey }),
        keyFor({ baseUrl: "http://host", apiKey: Redacted.make("tml-b") }),
        keyFor({ baseUrl: "http://host", credentialCommand: command }),
        keyFor({ baseUrl: "http://host", credentialsFile: "tml-a" }),
      ])
      const seen = new Set([plain, ...others].map((key) => `${key.baseUrl} ${Redacted.value(key.credential)}`))
      expect(seen.size).toBe(5)
    }),
  )

  it.scoped("two registries share no limiters", () =>
    Effect.gen(function* () {
      const [one, two] = yield* Effect.all([Limits.make(), Limits.make()])
      const a = yield* one.limiter(key("k"))
      const b = yield* two.limiter(key("k"))
      expect(a).not.toBe(b)
      yield* a.backOff("1 minute")
      expect(yield* b.window).toEqual(Option.none())
      expect(yield* b.sampling(1)(Effect.succeed("at once"))).toBe("at once")
    }),
  )

  it.scoped("a single rate limit response after many completions throttles samples without stopping them", () =>
    Effect.gen(function* () {
      const { limiter } = yield* RateLimiter
      const limits = yield* limiter(key("k"))
      const pass = Effect.repeatN(limits.sampling(1)(Effect.void), 19)
      yield* pass
      expect(yield* limits.backOff("1 minute")).toBe(false)
      expect(yield* limits.window).toEqual(Option.none())
      const inside = yield* Effect.fork(
        Effect.forEach(Array.from({ length: 30 }), () => limits.sampling(1)(Effect.never), {
          concurrency: "unbounded",
        }),
      )
      yield* Effect.repeatN(Effect.yieldNow(), 10)
      expect((yield* limits.stats).sampling).toMatchObject({ inFlight: 10, waiting: 20 })
      yield* Fiber.interrupt(inside)
      // The next one comes too soon to count as a single one.
      yield* limits.sampling(1)(Effect.void)
      yield* limits.backOff("1 second")
      yield* Effect.repeatN(limits.sampling(1)(Effect.void), 5).pipe(Effect.fork)
      expect(yield* limits.backOff("1 minute")).toBe(true)
      expect(yield* limits.window).toEqual(Option.some(Duration.minutes(1)))
    }).pipe(Effect.provide(Limits.layer)),
  )

  it.scoped("after many completions two rate limit responses are forgiven, but not a third", () =>
    Effect.gen(function* () {
      const { limiter } = yield* RateLimiter
      const limits = yield* limiter(key("k"))
      const pass = (times: number) => Effect.repeatN(limits.sampling(1)(Effect.void), times - 1)
      const refusals = (times: number) => Effect.replicateEffect(limits.backOff("1 second"), times)
      yield* pass(1_000)
      expect(yield* refusals(3)).toEqual([false, false, true])
      yield* TestClock.adjust("1 second")
      yield* pass(39)
      expect(yield* refusals(2)).toEqual([false, true])
      yield* TestClock.adjust("1 second")
      yield* pass(40)
      expect(yield* refusals(1)).toEqual([false])
      yield* pass(10)
      expect(yield* refusals(2)).toEqual([false, true])
    }).pipe(Effect.provide(Limits.layer)),
  )

  it.scoped("a limiter is released when its last holder is gone, and not before", () =>
    Effect.gen(function* () {
      const { limiter } = yield* RateLimiter
      const scopeA = yield* Scope.make()
      const scopeB = yield* Scope.make()
      const first = yield* Scope.extend(limiter(key("k")), scopeA)
      expect(yield* Scope.extend(limiter(key("k")), scopeB)).toBe(first)
      yield* Scope.close(scopeA, Exit.void)
      expect(yield* first.sampling(1)(Effect.succeed(1))).toBe(1)
      yield* Scope.close(scopeB, Exit.void)
      expect(yield* Effect.exit(first.sampling(1)(Effect.void))).toEqual(
        Exit.fail(new ClientClosed({ operation: "rate limiter" })),
      )
      expect(yield* limiter(key("k"))).not.toBe(first)
    }).pipe(Effect.provide(Limits.layer)),
  )

  it.scoped("an idle limiter can be retained, so that a back-off outlives a client", () =>
    Effect.gen(function* () {
      const { limiter } = yield* RateLimiter
      const first = yield* Effect.scoped(Effect.tap(limiter(key("k")), (limiter) => limiter.backOff("20 seconds")))
      yield* TestClock.adjust("15 seconds")
      const again = yield* Effect.scoped(limiter(key("k")))
      expect(again).toBe(first)
      expect(yield* again.window).toEqual(Option.some(Duration.seconds(5)))
      yield* TestClock.adjust("31 seconds")
      expect(yield* limiter(key("k"))).not.toBe(first)
    }).pipe(Effect.provide(Limits.layerWith({ idleTimeToLive: "30 seconds" }))),
  )

  it.effect("limiters of a closed registry fail with ClientClosed and interrupt nothing", () =>
    Effect.gen(function* () {
      const service = yield* Effect.provide(RateLimiter, Limits.layer)
      const limiter = yield* Effect.scoped(service.limiter(key("k")))
      const exit = yield* Effect.exit(limiter.training(1)(Effect.void))
      expect(exit).toEqual(Exit.fail(new ClientClosed({ operation: "rate limiter" })))
    }),
  )

  it.scoped("a back-off window stops all samples with the same key and no others", () =>
    Effect.gen(function* () {
      const { limiter } = yield* RateLimiter
      const mine = yield* limiter(key("k"))
      const alsoMine = yield* limiter(key("k"))
      const other = yield* limiter(key("other"))
      yield* mine.backOff("1 second")
      const samples = yield* Effect.all([startedAt(mine), startedAt(alsoMine), startedAt(other)])
      yield* TestClock.adjust("999 millis")
      expect((yield* mine.stats).sampling).toMatchObject({ waiting: 2, inFlight: 0 })
      expect(yield* mine.training(1)(Clock.currentTimeMillis)).toBe(999)
      yield* TestClock.adjust("1 millis")
      expect(yield* Fiber.joinAll(samples)).toEqual([1000, 1000, 0])
    }).pipe(Effect.provide(Limits.layer)),
  )

  it.scoped("a back-off window is extended, never shortened", () =>
    Effect.gen(function* () {
      const limiter = yield* (yield* RateLimiter).limiter(key("k"))
      expect(yield* limiter.window).toEqual(Option.none())
      yield* limiter.backOff("5 seconds")
      yield* limiter.backOff("1 second")
      expect(yield* limiter.window).toEqual(Option.some(Duration.seconds(5)))
      const sample = yield* startedAt(limiter)
      yield* TestClock.adjust("4 seconds")
      yield* limiter.backOff("3 seconds")
      expect(yield* limiter.window).toEqual(Option.some(Duration.seconds(3)))
      yield* TestClock.adjust("1 minute")
      expect(yield* Fiber.join(sample)).toBe(7000)
      expect(yield* limiter.window).toEqual(Option.none())
    }).pipe(Effect.provide(Limits.layer)),
  )

  it.scoped("at most 400 samples are submitted concurrently", () =>
    Effect.gen(function* () {
      const limiter = yield* (yield* RateLimiter).limiter(key("k"))
      const { inside, finish } = yield* crowd(limiter, 460, 30)
      expect(inside()).toBe(400)
      yield* finish(10)
      expect(inside()).toBe(400)
      yield* finish(400)
      expect(inside()).toBe(50)
    }).pipe(Effect.provide(Limits.layer)),
  )

  it.scoped("after a back-off window at most 10 samples are admitted for ten seconds, then all", () =>
    Effect.gen(function* () {
      const limiter = yield* (yield* RateLimiter).limiter(key("k"))
      yield* limiter.backOff("1 second")
      const { inside, finish } = yield* crowd(limiter, 30, 30)
      expect(inside()).toBe(0)
      yield* TestClock.adjust("1 second")
      expect(inside()).toBe(10)
      yield* finish(4)
      expect(inside()).toBe(10)
      yield* TestClock.adjust("9999 millis")
      expect(inside()).toBe(10)
      yield* TestClock.adjust("1 millis")
      expect(inside()).toBe(26)
    }).pipe(Effect.provide(Limits.layer)),
  )

  it.scoped("after a back-off window bytes count 20 times, and the same amount is released", () =>
    Effect.gen(function* () {
      const limiter = yield* (yield* RateLimiter).limiter(key("k"))
      yield* limiter.configure({ sampleBytes: 1000 })
      yield* limiter.backOff("1 second")
      // 600 each while throttled: the second makes the balance negative.
      const { inside, finish } = yield* crowd(limiter, 6, 30)
      yield* TestClock.adjust("1 second")
      expect(inside()).toBe(2)
      expect((yield* limiter.stats).sampling.balance).toBe(-200)
      // Only a release helps here, not time.
      expect((yield* limiter.stats).sampling.timer).toBe(false)
      yield* TestClock.adjust("10 seconds")
      expect(inside()).toBe(2)
      yield* finish(1)
      expect(inside()).toBe(5)
      yield* finish(5)
      expect((yield* limiter.stats).sampling.balance).toBe(1000)
    }).pipe(Effect.provide(Limits.layer)),
  )

  it.scoped("samples are admitted while the byte balance is not negative: 30 + 30 of 50", () =>
    Effect.gen(function* () {
      const limiter = yield* (yield* RateLimiter).limiter(key("k"))
      yield* limiter.configure({ sampleBytes: 50 })
      const { inside, finish } = yield* crowd(limiter, 4, 30)
      expect(inside()).toBe(2)
      expect((yield* limiter.stats).sampling.balance).toBe(-10)
      yield* finish(1)
      expect(inside()).toBe(2)
      // A larger budget admits waiters.
      yield* limiter.configure({ sampleBytes: 5000 })
      yield* settle
      expect(inside()).toBe(3)
    }).pipe(Effect.provide(Limits.layer)),
  )

  it.scoped("training requests are limited by bytes alone, and an oversized one is admitted alone", () =>
    Effect.gen(function* () {
      const limiter = yield* (yield* RateLimiter).limiter(key("k"))
      expect((yield* limiter.stats).training.balance).toBe(50_000_000)
      yield* limiter.configure({ trainingBytes: 100 })
      yield* limiter.backOff("1 hour")
      const release = yield* Deferred.make<void>()
      const big = yield* Effect.fork(limiter.training(1_000_000)(Deferred.await(release)))
      yield* settle
      const small = yield* Effect.fork(limiter.training(1)(Effect.succeed("after it")))
      yield* settle
      expect((yield* limiter.stats).training).toMatchObject({ inFlight: 1, waiting: 1, balance: 100 - 1_000_000 })
      yield* Deferred.succeed(release, undefined)
      yield* Fiber.join(big)
      expect(yield* Fiber.join(small)).toBe("after it")
      expect((yield* limiter.stats).training).toMatchObject({ inFlight: 0, waiting: 0, balance: 100 })
    }).pipe(Effect.provide(Limits.layer)),
  )

  it.scoped("interrupting a sample releases its permit immediately, whether waiting or admitted", () =>
    Effect.gen(function* () {
      const limiter = yield* (yield* RateLimiter).limiter(key("k"))
      const { fibers, inside } = yield* crowd(limiter, 402, 10)
      const [first, last] = [fibers[0], fibers[401]]
      if (first === undefined || last === undefined) return expect.fail("no fibers")
      yield* Fiber.interrupt(last)
      expect((yield* limiter.stats).sampling).toMatchObject({ inFlight: 400, waiting: 1 })
      yield* Fiber.interrupt(first)
      yield* settle
      expect((yield* limiter.stats).sampling).toMatchObject({ inFlight: 400, waiting: 0 })
      expect(inside()).toBe(400)
    }).pipe(Effect.provide(Limits.layer)),
  )

  it.scoped("failures and defects pass through and release the permit", () =>
    Effect.gen(function* () {
      const limiter = yield* (yield* RateLimiter).limiter(key("k"))
      expect(yield* Effect.exit(limiter.sampling(5)(Effect.fail("no")))).toEqual(Exit.fail("no"))
      expect(yield* Effect.exit(limiter.training(5)(Effect.die("bug")))).toEqual(Exit.die("bug"))
      expect(yield* limiter.stats).toMatchObject({
        sampling: { inFlight: 0, balance: 10_485_760 },
        training: { inFlight: 0, balance: 50_000_000 },
      })
    }).pipe(Effect.provide(Limits.layer)),
  )

  it.scoped("at most one timer runs, and none after the last waiter is gone", () =>
    Effect.gen(function* () {
      const { asleep: timers, clock: counting } = yield* CountingClock.make
      const registry = yield* Effect.withClock(Limits.make(), counting)
      const limiter = yield* registry.limiter(key("k"))
      yield* limiter.backOff("1 minute")
      expect(timers()).toBe(0)
      const samples = yield* Effect.all([startedAt(limiter), startedAt(limiter), startedAt(limiter)])
      yield* settle
      expect(timers()).toBe(1)
      yield* limiter.backOff("2 minutes")
      yield* settle
      expect(timers()).toBe(1)
      yield* Fiber.interruptAll(samples)
      yield* settle
      expect(timers()).toBe(0)
      const last = yield* startedAt(limiter)
      yield* settle
      expect(timers()).toBe(1)
      yield* TestClock.adjust("2 minutes")
      expect(yield* Fiber.join(last)).toBe(120_000)
      expect(timers()).toBe(0)
    }),
  )

  it.scoped("a printed limiter key does not reveal the credential", () =>
    Effect.gen(function* () {
      const service = yield* RateLimiter
      const limiter = yield* service.limiter(key("tml-secret"))
      for (const value of [service, limiter, yield* limiter.stats, key("tml-secret")]) {
        expect(Inspectable.format(value)).not.toContain("tml-secret")
      }
    }).pipe(Effect.provide(Limits.layer)),
  )
})
