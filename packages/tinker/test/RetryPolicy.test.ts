import { describe, expect, it } from "@effect/vitest"
import { Clock, Duration, Effect, Either, FastCheck, Fiber, Option, Random, Schedule, TestClock } from "effect"
import { RetryPolicy, TinkerError } from "effect-tinker"

const now = Date.UTC(2026, 10, 16, 12, 0, 0)
const parse = (headers: Record<string, string>) =>
  Option.map(RetryPolicy.parseRetryAfter(headers, now), Duration.toMillis)

describe("RetryPolicy.parseRetryAfter", () => {
  it("parseRetryAfter prefers retry-after-ms, then reads seconds with fractions", () => {
    expect(parse({ "retry-after-ms": "250", "retry-after": "5" })).toEqual(Option.some(250))
    expect(parse({ "retry-after": "5" })).toEqual(Option.some(5000))
    expect(parse({ "retry-after": "0.25" })).toEqual(Option.some(250))
    expect(parse({ "retry-after-ms": "soon", "retry-after": "1" })).toEqual(Option.some(1000))
  })

  it("parseRetryAfter reads all three forms of an HTTP date", () => {
    expect(parse({ "retry-after": "Mon, 16 Nov 2026 12:00:30 GMT" })).toEqual(Option.some(30_000))
    expect(parse({ "retry-after": "Monday, 16-Nov-26 12:00:30 GMT" })).toEqual(Option.some(30_000))
    expect(parse({ "retry-after": "Mon Nov 16 12:00:30 2026" })).toEqual(Option.some(30_000))
    expect(parse({ "retry-after": "Tue Nov  3 12:00:30 2026" })).toEqual(Option.some(0))
  })

  it("parseRetryAfter reads a two-digit year more than 50 years ahead as a past year", () => {
    // 94 would be 2094, 68 years ahead, so it means 1994.
    expect(parse({ "retry-after": "Sunday, 06-Nov-94 08:49:37 GMT" })).toEqual(Option.some(0))
    expect(Option.getOrThrow(parse({ "retry-after": "Sunday, 06-Nov-70 08:49:37 GMT" }))).toBeGreaterThan(0)
  })

  it("parseRetryAfter ignores any other text", () => {
    const bad = [
      "",
      "soon",
      "-1",
      "1e3",
      "NaN",
      "Infinity",
      "0x10",
      "Mon, 31 Feb 2026 12:00:00 GMT",
      "2026-11-16T12:00:30Z",
    ]
    for (const value of bad) expect(parse({ "retry-after": value }), value).toEqual(Option.none())
    expect(parse({})).toEqual(Option.none())
  })

  it.prop(
    "parseRetryAfter reads every HTTP date that a server can send",
    [FastCheck.integer({ min: 0, max: 4_000_000_000 })],
    ([seconds]) => {
      const date = new Date(seconds * 1000)
      const expected = Math.max(0, seconds * 1000 - now)
      expect(parse({ "retry-after": date.toUTCString() })).toEqual(Option.some(expected))
    },
  )
})

/** The number of errors that the policy retries, or that it gave up. */
const delays = (options: RetryPolicy.Options, errors: ReadonlyArray<TinkerError.TinkerError>) =>
  Effect.gen(function* () {
    const driver = yield* Schedule.driver(RetryPolicy.make(options))
    const starts: Array<number> = []
    for (const error of errors) {
      const fiber = yield* Effect.fork(Effect.either(driver.next(error)))
      yield* Effect.repeatN(Effect.zipRight(TestClock.adjust("1 second"), Effect.yieldNow()), 61)
      if (Either.isLeft(yield* Fiber.join(fiber))) return "gave up"
      starts.push(yield* Clock.currentTimeMillis)
    }
    return starts.length
  })

describe("RetryPolicy.make", () => {
  it.effect("RetryPolicy.make takes its jitter from Effect's Random, so that tests can seed it", () =>
    Effect.gen(function* () {
      const first = (seed: string) =>
        Effect.gen(function* () {
          const driver = yield* Schedule.driver(RetryPolicy.make())
          const before = yield* Clock.currentTimeMillis
          const fiber = yield* Effect.fork(driver.next(unavailable()))
          while (Option.isNone(yield* Fiber.poll(fiber))) yield* TestClock.adjust(1)
          return (yield* Clock.currentTimeMillis) - before
        }).pipe(Effect.withRandom(Random.make(seed)))
      expect(yield* first("a")).toBe(yield* first("a"))
      expect(yield* first("a")).not.toBe(yield* first("b"))
    }),
  )

  it.effect("a billing pause does not count toward the 300 s time limit", () =>
    Effect.gen(function* () {
      const paused = new TinkerError.BillingPaused({ operation: "x" })
      const long = Array.from({ length: 12 }, () => paused)
      expect(yield* delays({}, [...long, unavailable(), unavailable()])).toBe(14)
      expect(yield* delays({ billingPause: "2 minutes" }, long)).toBe("gave up")
    }),
  )

  it.effect("the 300 s time limit starts with the first attempt, not with its failure", () =>
    Effect.gen(function* () {
      const late = (seconds: number) =>
        new TinkerError.Unavailable({ operation: "x", reason: "Timeout", elapsed: Duration.seconds(seconds) })
      expect(yield* delays({}, [late(299)])).toBe(1)
      expect(yield* delays({}, [late(300)])).toBe("gave up")
    }),
  )
})

const unavailable = (retryAfter?: number) =>
  new TinkerError.Unavailable({
    operation: "x",
    reason: "ServerError",
    retryAfter: Option.map(Option.fromNullable(retryAfter), Duration.seconds),
  })
const start = { retries: 0, misfits: 0, elapsed: 0, billingElapsed: 0, random: 0 }

describe("RetryPolicy.decide", () => {
  const decide = RetryPolicy.decide()

  it("delays start almost at zero, then double from 0.5 s to 10 s, minus up to 25% jitter", () => {
    const delays = [0, 1, 2, 3, 4, 5, 6].map((retries) => decide(unavailable(), { ...start, retries }))
    expect(delays).toEqual([20, 250, 1000, 2000, 4000, 8000, 10_000].map(Option.some))
    expect(decide(unavailable(), { ...start, random: 0.5 })).toEqual(Option.some(17.5))
    const limited = new TinkerError.RateLimited({ operation: "x" })
    expect(decide(limited, start)).toEqual(Option.some(500))
  })

  it("RetryPolicy.decide honors retry-after within (0, 60] s and ignores other values", () => {
    expect(decide(unavailable(60), start)).toEqual(Option.some(60_000))
    expect(decide(unavailable(61), start)).toEqual(Option.some(20))
    expect(decide(unavailable(0), start)).toEqual(Option.some(20))
  })

  it("RetryPolicy.decide limits the time and, unless told otherwise, not the number of retries", () => {
    expect(decide(unavailable(), { ...start, retries: 1_000 })).toEqual(Option.some(10_000))
    const few = RetryPolicy.decide({ maxRetries: 2 })
    expect(few(unavailable(), { ...start, retries: 1 })).toEqual(Option.some(250))
    expect(few(unavailable(), { ...start, retries: 2 })).toEqual(Option.none())
  })

  it("RetryPolicy.decide repeats a request after an unreadable response, and three times after one that does not fit", () => {
    const unexpected = (reason: "NotJson" | "Schema" | "TooLarge") =>
      new TinkerError.UnexpectedResponse({ operation: "a", reason })
    expect(decide(unexpected("NotJson"), { ...start, retries: 30 })).toEqual(Option.some(10_000))
    expect(decide(unexpected("Schema"), { ...start, retries: 9, misfits: 3 })).toEqual(Option.some(10_000))
    expect(decide(unexpected("Schema"), { ...start, retries: 9, misfits: 4 })).toEqual(Option.none())
    expect(decide(unexpected("TooLarge"), start)).toEqual(Option.none())
  })

  it("RetryPolicy.decide gives up after 300 s", () => {
    expect(decide(unavailable(), { ...start, elapsed: 299_980 })).toEqual(Option.some(20))
    expect(decide(unavailable(), { ...start, elapsed: 299_981 })).toEqual(Option.none())
  })

  it("a billing pause has its own time limit", () => {
    const paused = new TinkerError.BillingPaused({ operation: "x" })
    expect(decide(paused, { ...start, retries: 10, elapsed: 1e6 })).toEqual(Option.some(5000))
    expect(decide(paused, { ...start, billingElapsed: 3_599_999 })).toEqual(Option.some(5000))
    expect(decide(paused, { ...start, billingElapsed: 3_600_000 })).toEqual(Option.none())
    const final = new TinkerError.BillingPaused({ operation: "x", shouldRetry: Option.some(false) })
    expect(decide(final, start)).toEqual(Option.none())
  })

  it("RetryPolicy.decide never retries a permanent error", () => {
    expect(decide(new TinkerError.NotFound({ operation: "x" }), start)).toEqual(Option.none())
    expect(decide(new TinkerError.InvalidInput({ path: "x", problem: "y" }), start)).toEqual(Option.none())
  })
})
