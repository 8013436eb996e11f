import { describe, expect, it } from "@effect/vitest"
import { Cause, Clock, DateTime, Deferred, Duration, Effect, Exit, FastCheck, Fiber, Option, Schedule } from "effect"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"

describe("VirtualTime", () => {
  it.effect.prop(
    "VirtualTime wakes all sleepers on time and in order",
    { naps: FastCheck.array(FastCheck.integer({ min: 0, max: 50 }), { minLength: 1, maxLength: 20 }) },
    ({ naps }) =>
      Effect.gen(function* () {
        const woken: Array<readonly [number, number]> = []
        yield* Effect.forEach(
          naps,
          (nap, index) =>
            Effect.sleep(nap).pipe(
              Effect.zipRight(Clock.currentTimeMillis),
              Effect.tap((at) => Effect.sync(() => woken.push([at, index]))),
            ),
          { concurrency: "unbounded" },
        )
        // Among those that wake at the same time, the one that went to sleep first.
        const expected = naps.map((nap, index) => [nap, index] as const).toSorted(([a, i], [b, j]) => a - b || i - j)
        expect(woken).toEqual(expected)
      }).pipe(VirtualTime.run),
    { fastCheck: { numRuns: 25 } },
  )

  it.effect("VirtualTime starts at the given time and has nanoseconds", () =>
    Effect.gen(function* () {
      yield* Effect.sleep("1 day")
      expect(DateTime.formatIso(yield* DateTime.now)).toBe("2026-01-02T00:00:00.000Z")
      expect(yield* Clock.currentTimeNanos).toBe(BigInt(Date.UTC(2026, 0, 2)) * 1_000_000n)
    }).pipe((program) => VirtualTime.run(program, { startsAt: Date.UTC(2026, 0, 1) })),
  )

  it.effect("VirtualTime does not advance while a fiber is running", () =>
    Effect.gen(function* () {
      const busy = Effect.gen(function* () {
        yield* Effect.promise(() => Promise.resolve())
        for (let i = 0; i < 5_000; i++) yield* Effect.yieldNow()
        return yield* Clock.currentTimeMillis
      })
      const [worked] = yield* Effect.all([busy, Effect.sleep("1 second")], { concurrency: "unbounded" })
      expect(worked).toBe(0)
    }).pipe(VirtualTime.run),
  )

  it.effect("VirtualTime waits for promises that settle in memory", () =>
    Effect.gen(function* () {
      const answered = Effect.promise(() => new Response("hello").arrayBuffer())
      const answer = yield* Effect.timeout(Effect.repeat(answered, Schedule.recurs(20)), "1 millis")
      expect(answer).toBe(20)
      expect(yield* Clock.currentTimeMillis).toBe(0)
    }).pipe(VirtualTime.run),
  )

  it.effect("VirtualTime ignores interrupted sleepers", () =>
    Effect.gen(function* () {
      const sleeper = yield* Effect.fork(Effect.sleep("1 hour"))
      const forever = yield* Effect.fork(Effect.sleep(Duration.infinity))
      yield* Effect.sleep("1 second")
      yield* Fiber.interrupt(sleeper)
      // No sleeper is left to advance to.
      yield* Effect.promise(() => new Promise((resolve) => setImmediate(() => setImmediate(resolve))))
      expect(yield* Clock.currentTimeMillis).toBe(1_000)
      yield* Effect.timeout(Effect.never, "1 minute").pipe(Effect.ignore)
      expect(yield* Clock.currentTimeMillis).toBe(61_000)
      yield* Fiber.interrupt(forever)
    }).pipe(VirtualTime.run),
  )

  it.effect("timeouts, schedules and failures work in VirtualTime", () =>
    Effect.gen(function* () {
      const exit = yield* Effect.exit(
        Effect.timeoutFail(Effect.never, { duration: "3 hours", onTimeout: () => "late" }),
      )
      expect(Exit.causeOption(exit).pipe(Option.flatMap(Cause.failureOption))).toEqual(Option.some("late"))
      let attempts = 0
      const flaky = Effect.suspend(() => (++attempts < 4 ? Effect.fail("not yet") : Clock.currentTimeMillis))
      const done = yield* Effect.retry(flaky, Schedule.exponential("1 hour"))
      expect(done).toBe((3 + 1 + 2 + 4) * 3_600_000)
    }).pipe(VirtualTime.run),
  )

  it.effect("each program has its own VirtualTime", () =>
    Effect.gen(function* () {
      const met = yield* Deferred.make<number>()
      const first = Effect.zipRight(Effect.sleep("1 hour"), Clock.currentTimeMillis).pipe(
        Effect.tap((at) => Deferred.succeed(met, at)),
        VirtualTime.run,
      )
      const second = Effect.zipRight(Deferred.await(met), Clock.currentTimeMillis).pipe(VirtualTime.run)
      expect(yield* Effect.all([first, second], { concurrency: "unbounded" })).toEqual([3_600_000, 0])
    }),
  )
})
