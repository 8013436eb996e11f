/** What can wait until something more urgent is done. */
import type * as Fiber from "effect/Fiber"
import { isLive } from "../util/MonotonicClock.ts"

interface Platform {
  readonly setImmediate?: (task: () => void) => unknown
}

const { setImmediate }: Platform = globalThis as Platform

/**
 * Runs the task when this fiber has done what it can do at once, and the platform has written what it got from it: a
 * client may write to a connection that was idle only in the next turn of the event loop. Tasks keep their order, and
 * must not throw.
 */
export const behind = (fiber: Fiber.RuntimeFiber<unknown, unknown>, task: () => void): void => {
  const later = setImmediate !== undefined && isLive(fiber) ? () => setImmediate(task) : task
  fiber.currentScheduler.scheduleTask(later, 1, fiber)
}
