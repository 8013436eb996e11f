import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as DefaultServices from "effect/DefaultServices"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"

/** A clock that can be read without an effect. */
export interface Time {
  readonly clock: Clock.Clock
  /** Returns monotonic milliseconds, for delays and ages. Unlike the wall clock it never goes back. */
  readonly uptime: () => number
}

/** Effect's default clock, which returns the same time as `performance` but uses bigint arithmetic. */
const live = Context.get(DefaultServices.liveServices, Clock.Clock)

// Read once, because Node resolves this global on each access.
const { performance } = globalThis
const { timeOrigin } = performance

/** Returns the uptime of a clock with sub-millisecond precision. */
export const preciseUptime = (clock: Clock.Clock): number =>
  clock === live ? timeOrigin + performance.now() : Number(clock.unsafeCurrentTimeNanos() / 1_000n) / 1_000

const uptimeBy = (clock: Clock.Clock): number => Math.floor(preciseUptime(clock))

/** The effect form of {@link Time.uptime}. */
export const uptime: Effect.Effect<number> = Effect.clockWith((clock) => Effect.sync(() => uptimeBy(clock)))

export const timeBy = (clock: Clock.Clock): Time => ({ clock, uptime: () => uptimeBy(clock) })

type AnyFiber = Fiber.RuntimeFiber<unknown, unknown>

export const clockOf = (fiber: AnyFiber): Clock.Clock => Context.get(fiber.currentDefaultServices, Clock.Clock)

/** Returns the time according to the fiber's clock. */
export const timeOf = (fiber: AnyFiber): Time => timeBy(clockOf(fiber))

/** Checks whether time passes by itself for a fiber. A test clock does not, and must not advance between two steps. */
export const isLive = (fiber: AnyFiber): boolean => clockOf(fiber) === live
