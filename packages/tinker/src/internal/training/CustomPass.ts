/** A pass with a loss that is computed in this process: a forward pass, the loss function, a pass with its gradient. */
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as ApiFuture from "../../ApiFuture.ts"
import * as CustomLoss from "../../CustomLoss.ts"
import type { Datum } from "../../Datum.ts"
import { ClientClosed, type FutureError, type SubmitError } from "../../TinkerError.ts"
import type { TrainingResult } from "../../TrainingResult.ts"
import * as Operations from "./Operations.ts"
import { statesOf, type Ticket } from "./Submission.ts"
import type { TrainingDriver } from "./TrainingDriver.ts"

export interface Deps {
  readonly driver: TrainingDriver
  readonly model: Operations.Model
  /** The client's scope, in which the second pass is prepared. */
  readonly scope: Scope.Scope
}

/** Enqueues the forward pass; the second pass gets its place when the loss is known. */
export const enqueue = <I extends CustomLoss.Inputs, E, R>(
  { driver, model, scope }: Deps,
  data: ReadonlyArray<Datum<I>>,
  loss: CustomLoss.CustomLoss<I, E, R>,
  options: Operations.WaitOptions = {},
): Effect.Effect<Ticket<TrainingResult, E | FutureError>, SubmitError, R> =>
  Effect.gen(function* () {
    const prepared = yield* CustomLoss.prepare(data)
    const first = yield* driver.enqueue(yield* Operations.preparedPass(model, prepared.forward, true, options))
    let second: Ticket<TrainingResult> | undefined
    const rest = Effect.gen(function* () {
      const found = yield* CustomLoss.linearize(loss, prepared, yield* first.await)
      second = yield* driver.enqueue(yield* Operations.preparedPass(model, found.backward, false, options))
      const future = yield* second.acknowledged
      return ApiFuture.map(future, (result) => CustomLoss.finish(found, result))
    })
    return yield* background(scope, first, rest, () => second)
  })

/** Runs the rest of the operation in a fiber of the client. Its caller is resumed however that fiber ends. */
const background = <A, E, R>(
  scope: Scope.Scope,
  first: Ticket<unknown>,
  rest: Effect.Effect<ApiFuture.ApiFuture<A>, SubmitError | E, R>,
  second: () => Ticket<A> | undefined,
): Effect.Effect<Ticket<A, E>, never, R> =>
  Effect.uninterruptible(
    Effect.gen(function* () {
      const acknowledged = yield* Deferred.make<ApiFuture.ApiFuture<A>, SubmitError | E>()
      let cancelled = false
      const fiber = yield* Effect.forkIn(Effect.interruptible(rest), scope)
      fiber.addObserver((exit) =>
        Deferred.unsafeDone(
          acknowledged,
          Exit.isFailure(exit) && Cause.isInterrupted(exit.cause) && !cancelled
            ? Exit.fail(new ClientClosed({ operation: "training" }))
            : exit,
        ),
      )
      const wait = Deferred.await(acknowledged)
      return {
        acknowledged: wait,
        await: Effect.flatMap(wait, (future) => future.await),
        cancel: Effect.suspend(() => {
          const sent = second()
          if (sent !== undefined) return sent.cancel
          cancelled = true
          return Effect.as(Effect.zipRight(first.cancel, Fiber.interruptFork(fiber)), true)
        }),
        queueState: Stream.concat(first.queueState, statesOf(wait)),
      }
    }),
  )
