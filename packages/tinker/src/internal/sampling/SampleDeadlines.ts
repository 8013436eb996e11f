/**
 * Ends what takes too long. There is one timer for all of it: a fiber for each of thousands of samples would cost more
 * than the samples themselves.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Runtime from "effect/Runtime"
import type * as Scope from "effect/Scope"
import { uptime } from "../util/MonotonicClock.ts"

export interface Entry {
  /** When its time is over, in milliseconds of the uptime. It may become later, not earlier. */
  readonly due: () => number
  /** Called once, when its time is over. */
  readonly expire: (now: number) => void
}

export interface SampleDeadlines {
  readonly add: (entry: Entry) => void
  readonly remove: (entry: Entry) => void
}

// Longer timers than a 32 bit count of milliseconds never fire; waking early is harmless.
const maxSleep = 2 ** 31 - 1

/** In the current scope. */
export const make: Effect.Effect<SampleDeadlines, never, Scope.Scope> = Effect.gen(function* () {
  const runtime = yield* Effect.runtime<never>()
  const scope = yield* Effect.scope
  const open = new Set<Entry>()
  let timer: { readonly at: number; readonly fiber: Fiber.RuntimeFiber<void> } | undefined

  /** A timer that fires too early finds nothing to do; so only one that would be too late is replaced. */
  const wakeAt = (at: number): void => {
    if (at === Number.POSITIVE_INFINITY || (timer !== undefined && timer.at <= at)) return
    timer?.fiber.unsafeInterruptAsFork(FiberId.none)
    const sleep = Effect.flatMap(uptime, (now) =>
      Effect.sleep(Duration.millis(Math.min(Math.max(0, at - now), maxSleep))),
    )
    timer = { at, fiber: Runtime.runFork(runtime, Effect.zipRight(sleep, sweep), { scope }) }
  }

  const sweep = Effect.map(uptime, (now) => {
    timer = undefined
    let next = Number.POSITIVE_INFINITY
    for (const entry of open) {
      const due = entry.due()
      if (due > now) {
        next = Math.min(next, due)
        continue
      }
      open.delete(entry)
      entry.expire(now)
    }
    wakeAt(next)
  })

  return {
    add: (entry) => {
      open.add(entry)
      wakeAt(entry.due())
    },
    remove: (entry) => void open.delete(entry),
  }
})
