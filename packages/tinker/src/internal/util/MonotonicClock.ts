import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as DefaultServices from "effect/DefaultServices"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"

/** A clock that can be asked without an effect. */
export interface Time {
  readonly clock: Clock.Clock
  /** Milliseconds that never go back, as the wall clock may: for pauses and ages, not for dates. */
  readonly uptime: () => number
}

/** Effect's own, which tells the same time as `performance`, at the price of a few big integers. */
const live = Context.get(DefaultServices.liveServices, Clock.Clock)

// Taken once: Node looks for it each time.
const { performance } = globalThis
const { timeOrigin } = performance

/** The uptime by a clock, with what is less than a millisecond. */
export const preciseUptime = (clock: Clock.Clock): number =>
  clock === live ? timeOrigin + performance.now() : Number(clock.unsafeCurrentTimeNanos() / 1_000n) / 1_000

const uptimeBy = (clock: Clock.Clock): number => Math.floor(preciseUptime(clock))

/** As {@link Time.uptime}. */
export const uptime: Effect.Effect<number> = Effect.clockWith((clock) => Effect.sync(() => uptimeBy(clock)))

export const timeBy = (clock: Clock.Clock): Time => ({ clock, uptime: () => uptimeBy(clock) })

type AnyFiber = Fiber.RuntimeFiber<unknown, unknown>

export const clockOf = (fiber: AnyFiber): Clock.Clock => Context.get(fiber.currentDefaultServices, Clock.Clock)

/** By the clock that this fiber has around it. */
export const timeOf = (fiber: AnyFiber): Time => timeBy(clockOf(fiber))

/** Does time pass by itself for this fiber? Not if a test moves its clock, which must not move between two steps. */
export const isLive = (fiber: AnyFiber): boolean => clockOf(fiber) === live
