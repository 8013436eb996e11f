/** Spans that cost nothing where nobody looks at them. */
import * as Context from "effect/Context"
import * as DefaultServices from "effect/DefaultServices"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import * as Tracer from "effect/Tracer"

/** Effect's own, which keeps spans in memory and shows them to nobody. */
const native = Context.get(DefaultServices.liveServices, Tracer.Tracer)

/** A span of a client's operation around the effect, if somebody has installed a tracer. */
export const traced = <A, E>(
  work: (fiber: Fiber.RuntimeFiber<unknown, unknown>) => Effect.Effect<A, E>,
  name: string,
  attributes?: Readonly<Record<string, unknown>>,
): Effect.Effect<A, E> =>
  Effect.withFiberRuntime((fiber) =>
    fiber.currentTracer === native
      ? work(fiber)
      : Effect.withSpan(Effect.withFiberRuntime(work), name, { kind: "client", captureStackTrace: false, attributes }),
  )

/** The effect, after its span, if there is one, was told something. */
export const annotated = <A, E>(key: string, value: unknown, effect: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.withFiberRuntime((fiber) => {
    if (fiber.currentTracer !== native && fiber.currentSpan?._tag === "Span") fiber.currentSpan.attribute(key, value)
    return effect
  })
