/**
 * When to send a request again. The decision is a pure function of the error and of what was tried so far; the policy
 * is a `Schedule` made of it, and any other `Schedule` can take its place. There is one budget for one logical
 * request: no second layer multiplies it.
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
import { isBillingStop, isRetryable, type TinkerError } from "./TinkerError.ts"

/**
 * @since 0.1.0
 * @category models
 */
export interface RetryPolicy extends Schedule.Schedule<unknown, TinkerError> {}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Retries after the first attempt. */
  readonly maxRetries?: number | undefined
  /** No retry starts later than this after the first attempt began. */
  readonly maxElapsed?: Duration.DurationInput | undefined
  /** The first delay; it doubles. */
  readonly base?: Duration.DurationInput | undefined
  /** The longest delay. */
  readonly cap?: Duration.DurationInput | undefined
  /** How long a billing stop (402) is waited out, apart from the budget above. */
  readonly billingPause?: Duration.DurationInput | undefined
}

/**
 * What was tried before this decision, all times in milliseconds.
 *
 * @since 0.1.0
 * @category models
 */
export interface Progress {
  readonly retries: number
  /** Since the first attempt began, without the time spent waiting for billing. */
  readonly elapsed: number
  readonly billingElapsed: number
  /** In [0, 1). */
  readonly random: number
}

/**
 * How many milliseconds lie between two attempts while billing blocks the account.
 *
 * @since 0.1.0
 * @category constants
 */
export const billingInterval: number = Delays.billingInterval

/** The server's wish is obeyed exactly in this range; beyond it, as in the reference, it is ignored, not capped. */
const longestRetryAfter = 60_000

/**
 * How many milliseconds to wait before the next attempt, or none to give up.
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
    if (!isRetryable(error) || progress.retries >= (options.maxRetries ?? 10)) return Option.none()
    const delay = Option.getOrElse(serverDelay(error), () => backOff(options, error, progress))
    const budget = Duration.toMillis(options.maxElapsed ?? "300 seconds")
    return progress.elapsed + delay > budget ? Option.none() : Option.some(delay)
  }

/**
 * How long a billing stop is waited out unless the server or the configuration says otherwise.
 *
 * @since 0.1.0
 * @category constants
 */
export const defaultBillingPause: Duration.Duration = Duration.hours(1)

/**
 * The delay that the server asked for, in milliseconds, if it is one that is obeyed: in (0, 60] s.
 *
 * @since 0.1.0
 * @category decisions
 */
export const serverDelay = (error: TinkerError): Option.Option<number> =>
  "retryAfter" in error
    ? Option.filter(Option.map(error.retryAfter, Duration.toMillis), (ms) => ms > 0 && ms <= longestRetryAfter)
    : Option.none()

/**
 * Before the first retry, in milliseconds: most failures are a single one, a connection that was just closed or a
 * process that is being replaced, and are over at once. Those that are not are waited out by what follows.
 *
 * @since 0.1.0
 * @category constants
 */
export const firstDelay: number = Delays.firstDelay

/** Exponential, times a factor in (0.75, 1]. */
const backOff = (options: Options, error: TinkerError, { random, retries }: Progress): number => {
  const base = Duration.toMillis(options.base ?? "500 millis")
  const cap = Duration.toMillis(options.cap ?? "10 seconds")
  return Math.min(Delays.doubling(base, retries, error._tag === "RateLimited"), cap) * (1 - 0.25 * random)
}

interface State {
  readonly startedAt: number | undefined
  readonly retries: number
  readonly billingSince: number | undefined
  readonly billingTotal: number
}

const initial: State = { startedAt: undefined, retries: 0, billingSince: undefined, billingTotal: 0 }

/**
 * The default policy: 10 retries or 300 s, the server's delay, or 20 ms, 250 ms, 1 s and on doubling to 10 s, with jitter.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (options: Options = {}): RetryPolicy => {
  const decision = decide(options)
  return Schedule.makeWithState(initial, (now, error: TinkerError, state: State) =>
    Effect.map(Random.next, (random) => {
      // The first error tells how long its attempt took.
      const startedAt = state.startedAt ?? now - ("elapsed" in error ? Duration.toMillis(error.elapsed) : 0)
      // Time from one 402 to whatever follows it was spent waiting for billing.
      const billingTotal = state.billingTotal + (state.billingSince === undefined ? 0 : now - state.billingSince)
      const paused = isBillingStop(error)
      const delay = decision(error, {
        retries: state.retries,
        elapsed: now - startedAt - billingTotal,
        billingElapsed: billingTotal,
        random,
      })
      const next: State = {
        startedAt,
        retries: state.retries + (paused ? 0 : 1),
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
 * Never.
 *
 * @since 0.1.0
 * @category constructors
 */
export const none: RetryPolicy = Schedule.stop

/**
 * The delay that a server asks for: `retry-after-ms`, else `Retry-After` in seconds (fractions allowed) or as an HTTP
 * date in any of the three forms of RFC 9110. A date in the past gives zero.
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
    // Date.UTC rolls 31 Feb over into March; a leap second is the one overflow that is meant.
    const valid = date.getUTCDate() === day || second === 60
    return valid && (hour ?? 0) < 24 && (minute ?? 0) < 60 && (second ?? 0) <= 60
      ? Option.some(date.getTime())
      : Option.none()
  }
  return Option.none()
}

/** RFC 9110: a two-digit year more than 50 years ahead is the most recent past year with those digits. */
const century = (twoDigits: number, now: number): number => {
  const thisYear = new Date(now).getUTCFullYear()
  const year = thisYear - (thisYear % 100) + twoDigits
  return year > thisYear + 50 ? year - 100 : year
}
