/** Finds what a process still holds when a program has ended: fibers, permits, descriptors and handles. */
import { readdirSync, readlinkSync } from "node:fs"
import { Effect, Schedule, type Supervisor } from "effect"
import { RateLimiter, TinkerConfig } from "effect-tinker"
import type { Leftovers } from "./Report.ts"

/** Returns the open sockets and files of this process; empty on systems that do not show them. */
export const descriptors = (): ReadonlyArray<string> => {
  try {
    return readdirSync("/proc/self/fd").flatMap((name) => {
      try {
        const target = readlinkSync(`/proc/self/fd/${name}`)
        return /^socket:|^\/(?!dev\/|proc\/)/.test(target) ? [target] : []
      } catch {
        // The descriptor of the listing itself is closed by now.
        return []
      }
    })
  } catch {
    return []
  }
}

/** Standard input and output are pipes. */
const isOwn = (handle: string) => handle !== "PipeWrap" && handle !== "TTYWrap" && handle !== "FSReqPromise"

const handles = () => process.getActiveResourcesInfo().filter(isOwn)

/** Counts permits that were not returned, and callers that wait for one. */
export const permits = Effect.gen(function* () {
  const registry = yield* RateLimiter.RateLimiter
  const limiter = yield* registry.limiter(RateLimiter.keyOf(yield* TinkerConfig.TinkerConfig))
  const { sampling, training } = yield* limiter.stats
  return sampling.inFlight + sampling.waiting + training.inFlight + training.waiting
}).pipe(Effect.scoped)

/** Looks for leftovers; gives what closes asynchronously a moment. */
export const find = (
  supervisor: Supervisor.Supervisor<ReadonlyArray<unknown>>,
  before: ReadonlyArray<string>,
  permits: number,
): Effect.Effect<Leftovers> => {
  const look = Effect.map(supervisor.value, (fibers) => ({
    fibers: fibers.length,
    permits,
    descriptors: descriptors().filter((name) => !before.includes(name)),
    handles: handles(),
  }))
  return look.pipe(
    Effect.repeat({
      until: ({ descriptors, fibers, handles }) => fibers + descriptors.length + handles.length === 0,
      schedule: Schedule.intersect(Schedule.spaced("20 millis"), Schedule.recurs(50)),
    }),
    Effect.zipRight(look),
  )
}
