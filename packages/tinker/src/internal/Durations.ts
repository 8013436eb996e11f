/** Durations that callers give, checked before anything is sent. */
import * as Duration from "effect/Duration"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import { invalid, type Result } from "./Invalid.ts"

/** A wait; it may be for ever. */
export const wait = (input: Duration.DurationInput, path: string): Result<Duration.Duration> =>
  Option.match(Duration.decodeUnknown(input), {
    onNone: () => invalid(path, "expected a duration"),
    onSome: Either.right,
  })

/** A time to live, as the wire counts it: begun seconds count. What is not above zero, NaN included, would end it now. */
export const seconds = (input: Duration.DurationInput, path: string): Result<number> =>
  Option.match(
    Option.filter(Duration.decodeUnknown(input), (ttl) => Duration.isFinite(ttl) && !Duration.isZero(ttl)),
    {
      onNone: () => invalid(path, "expected a finite duration above zero"),
      onSome: (ttl) => Either.right(Math.ceil(Duration.toSeconds(ttl))),
    },
  )
