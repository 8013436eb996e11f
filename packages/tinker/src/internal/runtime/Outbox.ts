/**
 * Puts off new requests until results that have arrived are with their callers: to begin a request takes longer than to
 * deliver a result.
 */
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import type { AnyFiber } from "./FiberContext.ts"

interface Platform {
  readonly setImmediate?: (task: () => void) => unknown
}

const { setImmediate }: Platform = globalThis as Platform

/**
 * Sockets deliver each response in a callback of its own, so requests wait for the end of that turn of the event loop.
 * Responses that come from a fiber have no such turn; requests wait for the fibers that can run now.
 */
export class Outbox {
  private isOnSockets = false

  /** Notes where a response comes from. Call it in the callback that brings one. */
  onResponse(): void {
    this.isOnSockets = Option.isNone(Fiber.getCurrentFiber())
  }

  /** Runs the task later, in the order of the calls. It must not throw. */
  add(fiber: AnyFiber, task: () => void): void {
    const later = this.isOnSockets && setImmediate !== undefined ? () => setImmediate(task) : task
    fiber.currentScheduler.scheduleTask(later, 1, fiber)
  }
}
