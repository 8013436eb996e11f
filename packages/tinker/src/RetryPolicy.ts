/**
 * Decides when to retry a request. The decision is a pure function of the error and the previous attempts; the policy
 * is a `Schedule` built from it and can be replaced with any other `Schedule`. Each logical request has one retry
 * budget, which no other layer multiplies.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as Schedule from "effect/Schedule"
import * as ScheduleDecision from "effect/ScheduleDecision"
import * as ScheduleInterval from "effect/ScheduleInterval"
import * as Delays from "./internal/core/Delays.ts"
import { isMisfit, maxMisfitRetries, meaningOf } from "./internal/core/Response.ts"
import { isBillingStop, isRetryable, type TinkerError } from "./TinkerError.ts"

/**
 * A schedule that receives the errors of a request.
 *
 * @since 0.1.0
 * @category models
 */
export interface RetryPolicy extends Schedule.Schedule<unknown, TinkerError> {}

/**
 * Options of the default policy.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /**
   * The number of retries after the first attempt.
   *
   * @default unlimited
   */
  readonly maxRetries?: number | undefined
  /**
   * The maximum time between the start of the first attempt and the start of a retry.
   *
   * @default "300 seconds"
   */
  readonly maxElapsed?: Duration.DurationInput | undefined
  /**
   * The first exponential delay; it doubles with each retry.
   *
   * @default "500 millis"
   */
  readonly base?: Duration.DurationInput | undefined
  /**
   * The longest delay.
   *
   * @default "10 seconds"
   */
  readonly cap?: Duration.DurationInput | undefined
  /**
   * How long to wait while billing blocks the account (402), independent of `maxElapsed`.
   *
   * @default "1 hour"
   */
  readonly billingPause?: Duration.DurationInput | undefined
}

/**
 * The state of a request before a decision, with times in milliseconds.
 *
 * @since 0.1.0
 * @category models
 */
export interface Progress {
  readonly retries: number
  /** How many of the responses did not fit, including this one. */
  readonly misfits: number
  /** The time since the first attempt started, excluding time spent waiting for billing. */
  readonly elapsed: number
  readonly billingElapsed: number
  /** A random number in [0, 1). */
  readonly random: number
}

/**
 * The number of milliseconds between two attempts while billing blocks the account.
 *
 * @since 0.1.0
 * @category constants
 */
export const billingInterval: number = Delays.billingInterval

/** The longest server delay that is respected. As in the reference, longer delays are ignored, not capped. */
const longestRetryAfter = 60_000

/**
 * Returns the number of milliseconds to wait before the next attempt, or none to give up.
 *
 * @since 0.1.0
 * @category decisions
 */
export const decide =
  (options: Options = {}) =>
  (error: TinkerError, progress: Progress): Option.Option<number> => {
    if (isBillingStop(error)) {
      const pause = Duration.toMillis(options.billingPause ?? defaultBillingPause)
      return progress.billingElapsed >= pause ? Option.none() : Option.some(billingInterval)
    }
    const isOver = progress.retries >= (options.maxRetries ?? Number.POSITIVE_INFINITY)
    if (isOver || !isRetryable(error) || progress.misfits > maxMisfitRetries) return Option.none()
    const delay = Option.getOrElse(serverDelay(error), () => backOff(options, error, progress))
    const budget = Duration.toMillis(options.maxElapsed ?? "300 seconds")
    return progress.elapsed + delay > budget ? Option.none() : Option.some(delay)
  }

/**
 * How long to wait for billing unless the server or the configuration specifies otherwise.
 *
 * @since 0.1.0
 * @category constants
 */
export const defaultBillingPause: Duration.Duration = Duration.hours(1)

/**
 * Returns the delay requested by the server in milliseconds, if it is in the accepted range (0, 60] s.
 *
 * @since 0.1.0
 * @category decisions
 */
export const serverDelay = (error: TinkerError): Option.Option<number> =>
  "retryAfter" in error
    ? Option.filter(Option.map(error.retryAfter, Duration.toMillis), (ms) => ms > 0 && ms <= longestRetryAfter)
    : Option.none()

/**
 * The delay before the first retry in milliseconds. It is short because most failures are isolated, such as a
 * connection that was just closed or a process being replaced; longer ones are covered by the later delays.
 *
 * @since 0.1.0
 * @category constants
 */
export const firstDelay: number = Delays.firstDelay

/** Returns an exponential delay multiplied by a random factor in (0.75, 1]. */
const backOff = (options: Options, error: TinkerError, { random, retries }: Progress): number => {
  const base = Duration.toMillis(options.base ?? "500 millis")
  const cap = Duration.toMillis(options.cap ?? "10 seconds")
  return Math.min(Delays.doubling(base, retries, meaningOf(error) === "Throttled"), cap) * (1 - 0.25 * random)
}

interface State {
  readonly startedAt: number | undefined
  readonly retries: number
  readonly misfits: number
  readonly billingSince: number | undefined
  readonly billingTotal: number
}

const initial: State = { startedAt: undefined, retries: 0, misfits: 0, billingSince: undefined, billingTotal: 0 }

/**
 * Creates the default policy: retries for 300 s, after the server's delay or after 20 ms, 250 ms, 1 s and doubling up to
 * 10 s, with jitter.
 *
 * @example
 * ```ts
 * import { Console, Effect, Layer, Redacted } from "effect"
 * import { RateLimiter, RetryPolicy, ServiceClient, Tinker, TinkerConfig } from "effect-tinker"
 * import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
 *
 * const config = TinkerConfig.layer({
 *   apiKey: Redacted.make("tml-test"),
 *   retryPolicy: RetryPolicy.make({ maxRetries: 3, maxElapsed: "10 seconds" }),
 * })
 * // Rejects the first two requests.
 * const server = ScriptedServer.layer({ faults: [{ on: "get_server_capabilities", times: 2, status: 503 }] })
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   yield* service.getServerCapabilities
 *   const { requestsTo } = yield* ScriptedServer.ScriptedServer
 *   yield* Console.log((yield* requestsTo("get_server_capabilities")).length) // → 3
 * })
 *
 * const layer = Tinker.layer().pipe(Layer.provide([config, RateLimiter.layer]), Layer.provideMerge(server))
 *
 * await Effect.runPromise(Effect.provide(program, layer))
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (options: Options = {}): RetryPolicy => {
  const decision = decide(options)
  return Schedule.makeWithState(initial, (now, error: TinkerError, state: State) =>
    Effect.map(Random.next, (random) => {
      // The first error contains the duration of its attempt.
      const startedAt = state.startedAt ?? now - ("elapsed" in error ? Duration.toMillis(error.elapsed) : 0)
      // The time between a 402 and the next result was spent waiting for billing.
      const billingTotal = state.billingTotal + (state.billingSince === undefined ? 0 : now - state.billingSince)
      const paused = isBillingStop(error)
      const misfits = state.misfits + (isMisfit(error) ? 1 : 0)
      const delay = decision(error, {
        retries: state.retries,
        misfits,
        elapsed: now - startedAt - billingTotal,
        billingElapsed: billingTotal,
        random,
      })
      const next: State = {
        startedAt,
        retries: state.retries + (paused ? 0 : 1),
        misfits,
        billingSince: paused ? now : undefined,
        billingTotal,
      }
      return [
        next,
        next.retries,
        Option.match(delay, {
          onNone: () => ScheduleDecision.done,
          onSome: (ms) => ScheduleDecision.continueWith(ScheduleInterval.after(now + Math.ceil(ms))),
        }),
      ] as const
    }),
  )
}

/**
 * Never retries.
 *
 * @since 0.1.0
 * @category constructors
 */
export const none: RetryPolicy = Schedule.stop

/**
 * Parses the delay requested by a server: `retry-after-ms`, else `Retry-After` in seconds (fractions allowed) or as an
 * HTTP date in any of the three formats of RFC 9110. A past date results in zero.
 *
 * @since 0.1.0
 * @category parsing
 */
export const parseRetryAfter = (
  headers: Readonly<Record<string, string | undefined>>,
  now: number,
): Option.Option<Duration.Duration> =>
  Option.orElse(
    Option.map(parseNumber(headers["retry-after-ms"]), (ms) => Duration.millis(ms)),
    () => {
      const value = headers["retry-after"]
      return Option.orElse(
        Option.map(parseNumber(value), (seconds) => Duration.millis(seconds * 1000)),
        () => Option.map(parseHttpDate(value ?? "", now), (date) => Duration.millis(Math.max(0, date - now))),
      )
    },
  )

const parseNumber = (text: string | undefined): Option.Option<number> => {
  const trimmed = (text ?? "").trim()
  return /^(\d+\.?\d*|\.\d+)$/.test(trimmed) ? Option.some(Number(trimmed)) : Option.none()
}

const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

const clock = String.raw`(?<hour>\d{2}):(?<minute>\d{2}):(?<second>\d{2})`
const httpDates = [
  // Sun, 06 Nov 1994 08:49:37 GMT
  new RegExp(String.raw`^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (?<day>\d{2}) (?<month>\w{3}) (?<year>\d{4}) ${clock} GMT$`),
  // Sunday, 06-Nov-94 08:49:37 GMT
  new RegExp(
    String.raw`^(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, (?<day>\d{2})-(?<month>\w{3})-(?<year>\d{2}) ${clock} GMT$`,
  ),
  // Sun Nov  6 08:49:37 1994
  new RegExp(String.raw`^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?<month>\w{3}) (?<day>[ \d]\d) ${clock} (?<year>\d{4})$`),
]

const parseHttpDate = (text: string, now: number): Option.Option<number> => {
  for (const form of httpDates) {
    const parts = form.exec(text.trim())?.groups
    if (parts === undefined) continue
    const month = months.indexOf(parts["month"] ?? "")
    const [year, day, hour, minute, second] = ["year", "day", "hour", "minute", "second"].map((n) => Number(parts[n]))
    if (month < 0 || year === undefined || day === undefined) return Option.none()
    const at = (year: number) => Date.UTC(year, month, day, hour, minute, second)
    const date = new Date(at(year < 100 ? century(year, now) : year))
    // Date.UTC rolls February 31 over into March. A leap second is the only valid overflow.
    const valid = date.getUTCDate() === day || second === 60
    return valid && (hour ?? 0) < 24 && (minute ?? 0) < 60 && (second ?? 0) <= 60
      ? Option.some(date.getTime())
      : Option.none()
  }
  return Option.none()
}

/**
 * Resolves a two-digit year. RFC 9110: more than 50 years ahead means the most recent past year with the same digits.
 */
const century = (twoDigits: number, now: number): number => {
  const thisYear = new Date(now).getUTCFullYear()
  const year = thisYear - (thisYear % 100) + twoDigits
  return year > thisYear + 50 ? year - 100 : year
}
