import type { AnyFiber } from "./FiberContext.ts"

/**
 * Runs the task after every fiber that can run now: results that have arrived reach their callers before a new request
 * costs time. Tasks keep their order and must not throw.
 */
export const defer = (fiber: AnyFiber, task: () => void): void => fiber.currentScheduler.scheduleTask(task, 1, fiber)
