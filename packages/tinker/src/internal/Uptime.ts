import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"

/** Milliseconds that never go back, as the wall clock may: for pauses and ages, not for dates. */
export const uptime: Effect.Effect<number> = Effect.map(Clock.currentTimeNanos, (nanos) => Number(nanos / 1_000_000n))

/** A clock that can be asked without an effect. */
export interface Time {
  readonly clock: Clock.Clock
  /** As {@link uptime}. */
  readonly uptime: () => number
}

export const timeBy = (clock: Clock.Clock): Time => ({
  clock,
  uptime: () => Number(clock.unsafeCurrentTimeNanos() / 1_000_000n),
})

/** By the clock that this fiber has around it. */
export const timeOf = (fiber: Fiber.RuntimeFiber<unknown, unknown>): Time =>
  timeBy(Context.get(fiber.currentDefaultServices, Clock.Clock))
