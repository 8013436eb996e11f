/** Validates durations given by callers and formats durations for the wire. */
import * as Duration from "effect/Duration"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import { invalid, type Result } from "./Invalid.ts"

/** Validates a waiting time, which may be infinite. */
export const wait = (input: Duration.DurationInput, path: string): Result<Duration.Duration> =>
  Option.match(Duration.decodeUnknown(input), {
    onNone: () => invalid(path, "expected a duration"),
    onSome: Either.right,
  })

/**
 * Converts a lifetime to seconds, rounded up. Zero, negative and NaN durations are rejected, because they would expire
 * immediately.
 */
export const seconds = (input: Duration.DurationInput, path: string): Result<number> =>
  Option.match(
    Option.filter(Duration.decodeUnknown(input), (ttl) => Duration.isFinite(ttl) && !Duration.isZero(ttl)),
    {
      onNone: () => invalid(path, "expected a finite duration greater than zero"),
      onSome: (ttl) => Either.right(Math.ceil(Duration.toSeconds(ttl))),
    },
  )

/** Formats a duration like Python's `timedelta`: `0:00:10`, `1 day, 2:03:04.500000`. */
export const asTimedelta = (millis: number): string => {
  const days = Math.floor(millis / 86_400_000)
  const whole = Math.floor(millis / 1_000)
  const two = (value: number) => String(value % 60).padStart(2, "0")
  const micros = Math.round((millis - whole * 1_000) * 1_000)
  const day = days === 0 ? "" : `${days} day${days === 1 ? "" : "s"}, `
  const rest = micros === 0 ? "" : `.${String(micros).padStart(6, "0")}`
  return `${day}${Math.floor(whole / 3_600) % 24}:${two(Math.floor(whole / 60))}:${two(whole)}${rest}`
}
