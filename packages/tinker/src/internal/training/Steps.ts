/** Training steps as a stream: the next ones are on their way while one is awaited, and results come in order. */
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type { Optimizer, Schedule } from "../../Optimizer.ts"
import { InvalidInput } from "../../TinkerError.ts"

/** A step that has its place in the order. */
export interface Begun<A, E> {
  readonly finish: Effect.Effect<A, E>
  /** Nobody will finish it: takes back what was not sent. */
  readonly leave: Effect.Effect<unknown>
}

export const pipeline = <B, A, E1, R1, E2, E3>(
  batches: Stream.Stream<B, E1, R1>,
  options: {
    readonly startAt: number
    readonly ahead: number
    readonly begin: (batch: B, step: number) => Effect.Effect<Begun<A, E2>, E3>
  },
): Stream.Stream<A, E1 | E2 | E3, R1> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const outstanding = Math.max(1, 1 + options.ahead)
      const places = yield* Effect.makeSemaphore(outstanding)
      const begun = new Set<Begun<A, E2>>()
      // Whatever was not sent when the stream ends early is taken back.
      yield* Effect.addFinalizer(() => Effect.forEach(begun, ({ leave }) => leave, { discard: true }))
      return batches.pipe(
        Stream.rechunk(1),
        Stream.zipWithIndex,
        Stream.mapEffect(([batch, index]) =>
          Effect.zipRight(
            places.take(1),
            Effect.tap(options.begin(batch, options.startAt + index), (step) => Effect.sync(() => begun.add(step))),
          ),
        ),
        // So that a slow source of batches is asked while a step is awaited.
        Stream.buffer({ capacity: outstanding }),
        Stream.mapEffect((step) =>
          Effect.ensuring(
            step.finish,
            Effect.zipRight(
              Effect.sync(() => begun.delete(step)),
              places.release(1),
            ),
          ),
        ),
      )
    }),
  )

/** The optimizer of a step; a schedule is the user's own code. */
export const optimizerAt = (
  optimizer: Optimizer | Schedule<Optimizer>,
  step: number,
): Effect.Effect<Optimizer, InvalidInput> =>
  typeof optimizer === "function"
    ? Effect.try({
        try: () => optimizer(step),
        catch: (cause) => new InvalidInput({ path: "optimizer", problem: `threw at step ${step}`, cause }),
      })
    : Effect.succeed(optimizer)
