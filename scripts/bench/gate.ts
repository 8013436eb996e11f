/**
 * Measures CPU time for many waiters at the rate limiter. With linear work, the time per waiter is constant. Run: tsx
 * scripts/bench/gate.ts
 */
import { Effect, Redacted } from "effect"
import * as BaseUrl from "effect-tinker/http/BaseUrl"
import * as RateLimiter from "effect-tinker/RateLimiter"

const cpu = (since?: NodeJS.CpuUsage) => {
  const { system, user } = process.cpuUsage(since)
  return (user + system) / 1000
}

const crowd = (n: number, through: boolean) =>
  Effect.gen(function* () {
    const registry = yield* RateLimiter.make()
    const limiter = yield* registry.limiter({
      baseUrl: BaseUrl.BaseUrl.make("http://localhost"),
      credential: Redacted.make("bench"),
    })
    // Lets only one in at a time, so that all others wait.
    yield* limiter.configure({ sampleBytes: 0 })
    const work = Effect.yieldNow()
    const before = process.cpuUsage()
    yield* Effect.forEach(Array.from({ length: n }), () => (through ? limiter.sampling(1)(work) : work), {
      concurrency: "unbounded",
      discard: true,
    })
    return { millis: cpu(before), stats: yield* limiter.stats }
  }).pipe(Effect.scoped)

const program = Effect.gen(function* () {
  yield* crowd(1000, true)
  console.log("waiters     CPU ms   us each   checks each   (CPU ms without the gate)")
  for (const n of [1000, 10_000, 100_000]) {
    const { millis, stats } = yield* crowd(n, true)
    const bare = yield* crowd(n, false)
    console.log(
      `${String(n).padStart(7)}${millis.toFixed(0).padStart(11)}${((millis * 1000) / n).toFixed(1).padStart(10)}` +
        `${(stats.sampling.checks / n).toFixed(2).padStart(14)}${bare.millis.toFixed(0).padStart(15)}`,
    )
  }
})

await Effect.runPromise(program)
