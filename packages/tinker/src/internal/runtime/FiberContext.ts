/**
 * Keeps what a fiber has in its context, its FiberRefs and its tracer for work that goes on without a fiber. The
 * carrier is a fiber that has ended: it runs nothing, nobody waits for it, and it can be read like any other fiber.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import * as Runtime from "effect/Runtime"
import * as Tracer from "effect/Tracer"
import { runBeside } from "../util/RunBeside.ts"

export type AnyFiber = Fiber.RuntimeFiber<unknown, unknown>

/** Returns a carrier of what the fiber has now, whatever becomes of that fiber. */
export const snapshot = (fiber: AnyFiber): AnyFiber => runBeside(fiber, Effect.void)

/** Returns a carrier of what the fiber has now, inside this span. */
export const withSpan = (fiber: AnyFiber, span: Tracer.Span): AnyFiber =>
  Runtime.runFork(
    Runtime.make({
      context: Context.add(fiber.currentContext, Tracer.ParentSpan, span),
      fiberRefs: fiber.getFiberRefs(),
      runtimeFlags: Runtime.defaultRuntimeFlags,
    }),
    Effect.void,
  )
