import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"

/** Milliseconds that never go back, as the wall clock may: for pauses and ages, not for dates. */
export const uptime: Effect.Effect<number> = Effect.map(Clock.currentTimeNanos, (nanos) => Number(nanos / 1_000_000n))
