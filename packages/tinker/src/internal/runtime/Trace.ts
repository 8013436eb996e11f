/** Spans that cost nothing without a tracer. */
import * as Chunk from "effect/Chunk"
import type * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as DefaultServices from "effect/DefaultServices"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as FiberRef from "effect/FiberRef"
import * as HashMap from "effect/HashMap"
import * as Option from "effect/Option"
import * as Tracer from "effect/Tracer"
import { clockOf } from "../util/MonotonicClock.ts"
import * as FiberContext from "./FiberContext.ts"

type Attributes = Readonly<Record<string, unknown>>
export type AnyFiber = Fiber.RuntimeFiber<unknown, unknown>

/** Effect's default tracer, which exports nothing. */
const native = Context.get(DefaultServices.liveServices, Tracer.Tracer)

/** A span of an installed tracer, which can be annotated from any callback or fiber. */
export class Trace {
  private readonly tracer: Tracer.Tracer
  private readonly span: Tracer.Span
  private readonly clock: Clock.Clock
  private parts: Array<Trace> | undefined = undefined

  constructor(tracer: Tracer.Tracer, span: Tracer.Span, clock: Clock.Clock) {
    this.tracer = tracer
    this.span = span
    this.clock = clock
  }

  attribute(key: string, value: unknown): void {
    this.span.attribute(key, value)
  }

  event(name: string, attributes?: Record<string, unknown>): void {
    this.span.event(name, this.clock.unsafeCurrentTimeNanos(), attributes)
  }

  /** Opens a span inside this one. It ends with this one at the latest. */
  child(name: string): Trace {
    const now = this.clock.unsafeCurrentTimeNanos()
    const span = this.tracer.span(name, Option.some(this.span), Context.empty(), [], now, "internal")
    const part = new Trace(this.tracer, span, this.clock)
    if (this.parts === undefined) this.parts = [part]
    else this.parts.push(part)
    return part
  }

  /** Ends the span. Only the first call counts. A tracer that throws costs its span and nothing else. */
  end(exit: Exit.Exit<unknown, unknown> = Exit.void): void {
    if (this.parts !== undefined) for (const part of this.parts) part.end(exit)
    try {
      if (this.span.status._tag !== "Ended") this.span.end(this.clock.unsafeCurrentTimeNanos(), exit)
    } catch {
      // The tracer's fault.
    }
  }

  /** Runs the effect inside this span, in whatever fiber. */
  around<A, E>(effect: Effect.Effect<A, E>): Effect.Effect<A, E> {
    return Effect.withTracer(Effect.withParentSpan(effect, this.span), this.tracer)
  }
}

/** Returns the installed tracer, unless tracing is turned off for this fiber. */
const tracerOf = (fiber: AnyFiber): Tracer.Tracer | undefined => {
  const { currentTracer } = fiber
  return currentTracer === native || !fiber.getFiberRef(FiberRef.currentTracerEnabled) ? undefined : currentTracer
}

/** Returns the current span of the fiber if a tracer is installed. */
export const current = (fiber: AnyFiber): Trace | undefined => {
  const { currentSpan } = fiber
  if (currentSpan?._tag !== "Span") return undefined
  const tracer = tracerOf(fiber)
  return tracer === undefined ? undefined : new Trace(tracer, currentSpan, clockOf(fiber))
}

/** Checks whether a tracer is installed. */
export const isTraced = (fiber: AnyFiber): boolean => fiber.currentTracer !== native

/** Runs the work inside a span if a tracer is installed. Without a name it stays in the current span. */
export const traced = <A, E>(
  work: (fiber: AnyFiber) => Effect.Effect<A, E>,
  name: string | undefined,
  attributes?: Attributes,
  kind: Tracer.SpanKind = "client",
): Effect.Effect<A, E> =>
  Effect.withFiberRuntime((fiber) =>
    name === undefined || !isTraced(fiber)
      ? work(fiber)
      : Effect.withSpan(Effect.withFiberRuntime(work), name, { kind, captureStackTrace: false, attributes }),
  )

/** A span that was opened without an effect, and a carrier of the context inside it. */
export interface Opened {
  readonly trace: Trace
  readonly fiber: AnyFiber
}

/**
 * Opens a span below the current span of the fiber. Returns `undefined` without a tracer, or if the tracer throws. The
 * caller ends the span.
 */
export const open = (
  fiber: AnyFiber,
  name: string,
  kind: Tracer.SpanKind,
  attributes?: Attributes,
): Opened | undefined => {
  const tracer = tracerOf(fiber)
  if (tracer === undefined) return undefined
  try {
    const span = makeSpan(fiber, tracer, name, kind, attributes)
    return { trace: new Trace(tracer, span, clockOf(fiber)), fiber: FiberContext.withSpan(fiber, span) }
  } catch {
    return undefined
  }
}

const noLinks: ReadonlyArray<Tracer.SpanLink> = []

/** Skips spans that hide themselves from their children. */
const visible = (span: Tracer.AnySpan | undefined): Tracer.AnySpan | undefined => {
  if (span === undefined || !Context.get(span.context, Tracer.DisablePropagation)) return span
  return span._tag === "Span" ? visible(Option.getOrUndefined(span.parent)) : undefined
}

/** Does what `Effect.makeSpan` does, without a fiber to run it. */
const makeSpan = (
  fiber: AnyFiber,
  tracer: Tracer.Tracer,
  name: string,
  kind: Tracer.SpanKind,
  attributes: Attributes | undefined,
): Tracer.Span => {
  const links = fiber.getFiberRef(FiberRef.currentTracerSpanLinks)
  const now = fiber.getFiberRef(FiberRef.currentTracerTimingEnabled) ? clockOf(fiber).unsafeCurrentTimeNanos() : 0n
  const span = tracer.span(
    name,
    Option.fromNullable(visible(fiber.currentSpan)),
    Context.empty(),
    Chunk.isEmpty(links) ? noLinks : Chunk.toReadonlyArray(links),
    now,
    kind,
  )
  const annotations = fiber.getFiberRef(FiberRef.currentTracerSpanAnnotations)
  if (!HashMap.isEmpty(annotations)) HashMap.forEach(annotations, (value, key) => span.attribute(key, value))
  for (const key in attributes) span.attribute(key, attributes[key])
  return span
}

type Describe = () => { readonly name: string; readonly attributes: Record<string, unknown> }

/** Starts a span that another part of the program ends, if the fiber has a tracer. */
export const startIn = (fiber: AnyFiber, describe: Describe): Trace | undefined => {
  if (tracerOf(fiber) === undefined) return undefined
  const { attributes, name } = describe()
  return open(fiber, name, "internal", attributes)?.trace
}

/** Does the same in the current fiber. */
export const start = (describe: Describe): Effect.Effect<Trace | undefined> =>
  Effect.withFiberRuntime((fiber) => Effect.succeed(startIn(fiber, describe)))

/** Runs the effect inside the span of its caller. Without one, the tracer of the running fiber is turned off. */
export const within = <A, E>(trace: Trace | undefined, effect: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  trace === undefined
    ? Effect.withFiberRuntime((fiber) =>
        tracerOf(fiber) === undefined ? effect : Effect.withTracerEnabled(effect, false),
      )
    : trace.around(effect)

/** Annotates the current span, if there is one, before the effect. */
export const annotated = <A, E>(key: string, value: unknown, effect: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.withFiberRuntime((fiber) => {
    current(fiber)?.attribute(key, value)
    return effect
  })

const isHex = /^[0-9a-f]+$/

/** Returns the W3C `traceparent` of the current span; `undefined` if its ids have another format. */
export const traceparentOf = ({ currentSpan }: AnyFiber): string | undefined => {
  if (currentSpan === undefined) return undefined
  const { sampled, spanId, traceId } = currentSpan
  return traceId.length === 32 && spanId.length === 16 && isHex.test(traceId) && isHex.test(spanId)
    ? `00-${traceId}-${spanId}-${sampled ? "01" : "00"}`
    : undefined
}
