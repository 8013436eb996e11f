/**
 * Keeps the context, FiberRefs, services, tracer and scheduler of a fiber for work that continues without one. A view
 * costs much less than a fiber, and does not change when the fiber continues.
 */
import * as Context from "effect/Context"
import type * as Fiber from "effect/Fiber"
import * as FiberRef from "effect/FiberRef"
import * as FiberRefs from "effect/FiberRefs"
import * as Tracer from "effect/Tracer"

export type AnyFiber = Fiber.RuntimeFiber<unknown, unknown>

/** The members of a fiber that can be read without running it. */
type Readable = Pick<
  AnyFiber,
  | "id"
  | "getFiberRef"
  | "getFiberRefs"
  | "currentContext"
  | "currentDefaultServices"
  | "currentScheduler"
  | "currentSpan"
  | "currentSupervisor"
  | "currentTracer"
>

class FiberView implements Readable {
  readonly currentDefaultServices: AnyFiber["currentDefaultServices"]
  readonly currentScheduler: AnyFiber["currentScheduler"]
  readonly currentSpan: AnyFiber["currentSpan"]
  readonly currentSupervisor: AnyFiber["currentSupervisor"]
  readonly currentTracer: AnyFiber["currentTracer"]
  private readonly fiberId: ReturnType<AnyFiber["id"]>
  private readonly fiberRefs: FiberRefs.FiberRefs
  private readonly outerContext: AnyFiber["currentContext"]
  private readonly outerSpan: AnyFiber["currentSpan"]
  private innerContext: AnyFiber["currentContext"] | undefined = undefined

  constructor(fiber: Readable, span: AnyFiber["currentSpan"]) {
    // A view of a view replaces its span, so it needs no context that has been built.
    const isView = fiber instanceof FiberView
    this.outerContext = isView ? fiber.outerContext : fiber.currentContext
    this.outerSpan = isView ? fiber.outerSpan : fiber.currentSpan
    this.currentDefaultServices = fiber.currentDefaultServices
    this.currentScheduler = fiber.currentScheduler
    this.currentSpan = span
    this.currentSupervisor = fiber.currentSupervisor
    this.currentTracer = fiber.currentTracer
    this.fiberId = fiber.id()
    this.fiberRefs = fiber.getFiberRefs()
  }

  /** Built when it is read: most requests read only the span, and adding it copies the whole context. */
  get currentContext(): AnyFiber["currentContext"] {
    if (this.currentSpan === undefined || this.currentSpan === this.outerSpan) return this.outerContext
    this.innerContext ??= Context.add(this.outerContext, Tracer.ParentSpan, this.currentSpan)
    return this.innerContext
  }

  id(): ReturnType<AnyFiber["id"]> {
    return this.fiberId
  }

  getFiberRef<A>(fiberRef: FiberRef.FiberRef<A>): A {
    // The type of the one FiberRef that this view replaces.
    if (Object.is(fiberRef, FiberRef.currentContext)) return this.currentContext as A
    return FiberRefs.getOrDefault(this.fiberRefs, fiberRef)
  }

  getFiberRefs(): FiberRefs.FiberRefs {
    return this.fiberRefs
  }
}

/** Requests and logs read the fiber that they are given; they never run, observe or interrupt it. */
const asFiber = (view: Readable): AnyFiber => view as unknown as AnyFiber

/** Returns what the fiber has now, whatever becomes of it. */
export const snapshot = (fiber: AnyFiber): AnyFiber => asFiber(new FiberView(fiber, fiber.currentSpan))

/** Returns what the fiber has now, inside this span. */
export const withSpan = (fiber: AnyFiber, span: Tracer.Span): AnyFiber => asFiber(new FiberView(fiber, span))
