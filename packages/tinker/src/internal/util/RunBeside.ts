/** Runs effects in a fiber next to a given one, with the same context, fiber refs and clock. */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Runtime from "effect/Runtime"
import { exitOf, noop, type Stop } from "./Callback.ts"

/** Returns a runtime with the current context and fiber refs of a fiber. */
export const surroundings = (fiber: Fiber.RuntimeFiber<unknown, unknown>): Runtime.Runtime<never> =>
  Runtime.make({
    context: fiber.currentContext,
    fiberRefs: fiber.getFiberRefs(),
    runtimeFlags: Runtime.defaultRuntimeFlags,
  })

/** Starts an effect in a new fiber with the context of the given one. */
export const runBeside = <A, E>(
  fiber: Fiber.RuntimeFiber<unknown, unknown>,
  work: Effect.Effect<A, E>,
  options?: Runtime.RunForkOptions,
): Fiber.RuntimeFiber<A, E> => Runtime.runFork(surroundings(fiber), work, options)

/**
 * Runs an effect next to the given fiber and passes its exit to `onExit`, possibly before returning. An effect that is
 * an `Exit` needs no fiber. Stopping the effect also reports its interruption to `onExit`.
 */
export const runToExit = <A, E>(
  fiber: Fiber.RuntimeFiber<unknown, unknown>,
  work: Effect.Effect<A, E>,
  onExit: (exit: Exit.Exit<A, E>) => void,
): Stop => {
  const exit = exitOf(work)
  if (exit !== undefined) {
    onExit(exit)
    return noop
  }
  // The exit is returned as a value, because the runtime logs failed fibers as unhandled.
  const running = runBeside(fiber, Effect.exit(work))
  running.addObserver((exit) => onExit(Exit.flatten(exit)))
  return () => {
    running.unsafeInterruptAsFork(FiberId.none)
    return Fiber.await(running)
  }
}
