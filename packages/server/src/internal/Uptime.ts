/** Reads a clock that never jumps, for durations; the time of day may be set at any moment. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"

/** Returns milliseconds since some moment that is the same for the whole process. */
export const uptime: Effect.Effect<number> = Effect.map(Clock.currentTimeNanos, (nanos) => Number(nanos / 1_000_000n))
