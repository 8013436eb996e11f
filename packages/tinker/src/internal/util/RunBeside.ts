import type * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import * as Runtime from "effect/Runtime"

/** Everything that this fiber has around it now. */
export const surroundings = (fiber: Fiber.RuntimeFiber<unknown, unknown>): Runtime.Runtime<never> =>
  Runtime.make({
    context: fiber.currentContext,
    fiberRefs: fiber.getFiberRefs(),
    runtimeFlags: Runtime.defaultRuntimeFlags,
  })

/** Starts the work in a fiber of its own, with everything that this fiber has around it. */
export const runBeside = <A, E>(
  fiber: Fiber.RuntimeFiber<unknown, unknown>,
  work: Effect.Effect<A, E>,
  options?: Runtime.RunForkOptions,
): Fiber.RuntimeFiber<A, E> => Runtime.runFork(surroundings(fiber), work, options)
