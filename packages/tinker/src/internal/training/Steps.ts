/** Training steps: a pass and its update, alone or as a stream in which the next steps are sent ahead. */
import * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import * as CustomLoss from "../../CustomLoss.ts"
import type { Datum } from "../../Datum.ts"
import * as Loss from "../../Loss.ts"
import type { Optimizer, Schedule } from "../../Optimizer.ts"
import type { OptimStepResult } from "../../protocol/schemas/Training.ts"
import { InvalidInput, type TrainingError } from "../../TinkerError.ts"
import type { TrainingResult } from "../../TrainingResult.ts"
import * as Response from "../core/Response.ts"
import * as Traces from "../runtime/Trace.ts"
import { uptime } from "../util/MonotonicClock.ts"
import * as Operations from "./Operations.ts"
import { StepFailed } from "./StepFailed.ts"
import type { Operation } from "./Submission.ts"
import type { TrainingDriver } from "./TrainingDriver.ts"

/** The results of a training step. */
export interface Step {
  /** Counted from `startAt`. */
  readonly step: number
  readonly pass: TrainingResult
  readonly update: OptimStepResult
  /** The metrics of both halves. */
  readonly metrics: Readonly<Record<string, number>>
  /** The number of tokens in the batch. A datum of unknown length, e.g. with an image, counts as 0. */
  readonly tokens: number
  /** From the call until the server has both halves. */
  readonly queueTime: Duration.Duration
  /** From the call until both results are there. */
  readonly duration: Duration.Duration
}

/** A step that has its place in the order. */
export interface Begun<A, E> {
  readonly finish: Effect.Effect<A, E>
  /** Gives up what was not sent, because the result is not wanted any more. */
  readonly leave: Effect.Effect<unknown>
}

interface Deps {
  readonly driver: TrainingDriver
  readonly model: Operations.Model
  readonly attributes: Readonly<Record<string, unknown>>
}

/** A loss that the server computes, or one that this process computes. */
export type AnyLoss<E, R> = Loss.Loss<never> | CustomLoss.CustomLoss<never, E, R>

/** Enqueues both halves of a step; the result waits for them. */
export const begin = <E, R>(
  deps: Deps,
  data: unknown,
  loss: AnyLoss<E, R>,
  optimizer: Optimizer,
  step: number,
  options: Operations.StepOptions,
): Effect.Effect<Begun<Step, TrainingError | StepFailed>, TrainingError | E, R> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.flatMap(
      Traces.start(() => ({ name: "tinker.train_step", attributes: { ...deps.attributes, "tinker.step": step } })),
      (trace) =>
        Effect.onExit(restore(place(deps, trace, data, loss, optimizer, step, options)), (exit) =>
          Effect.sync(() => {
            if (Exit.isFailure(exit)) trace?.end(exit)
          }),
        ),
    ),
  )

/** The pass of a step, ready to be enqueued. */
interface Pass {
  readonly operation: Operation<TrainingResult, TrainingResult>
  readonly tokens: number
  /** Adds what this process computed to the server's result. */
  readonly finish: (result: TrainingResult) => TrainingResult
}

const isCustom = <E, R>(loss: AnyLoss<E, R>): loss is CustomLoss.CustomLoss<never, E, R> => "evaluate" in loss

const preparePass = <E, R>(
  deps: Deps,
  trace: Traces.Trace | undefined,
  data: unknown,
  loss: AnyLoss<E, R>,
  options: Operations.StepOptions,
): Effect.Effect<Pass, TrainingError | E, R> =>
  isCustom(loss)
    ? prepareCustom(deps, trace, data, loss, options)
    : Effect.gen(function* () {
        const batch = yield* Loss.prepareUnknown(loss, data)
        const operation = yield* Operations.preparedPass(deps.model, batch, false, options)
        return { operation, tokens: Operations.tokensOf(batch), finish: (result) => result }
      })

/** Runs the forward pass and the loss function first: their weights must be those after the step before. */
const prepareCustom = <E, R>(
  { driver, model }: Deps,
  trace: Traces.Trace | undefined,
  data: unknown,
  loss: CustomLoss.CustomLoss<never, E, R>,
  options: Operations.StepOptions,
): Effect.Effect<Pass, TrainingError | E, R> =>
  Effect.gen(function* () {
    // Checked by `prepare`: callers without types may pass anything.
    const prepared = yield* CustomLoss.prepare(data as ReadonlyArray<Datum<never>>)
    const forward = yield* Operations.preparedPass(model, prepared.forward, true, options)
    const scored = yield* Traces.within(trace, driver.run(forward))
    const found = yield* CustomLoss.linearize(loss, prepared, scored)
    const operation = yield* Operations.preparedPass(model, found.backward, false, options)
    return {
      operation,
      tokens: Operations.tokensOf(prepared.forward),
      finish: (result) => CustomLoss.finish(found, result),
    }
  })

const place = <E, R>(
  deps: Deps,
  trace: Traces.Trace | undefined,
  data: unknown,
  loss: AnyLoss<E, R>,
  optimizer: Optimizer,
  step: number,
  options: Operations.StepOptions,
) =>
  Effect.gen(function* () {
    const startedAt = yield* uptime
    const update = yield* Operations.operations.optimStep(deps.model, optimizer, options)
    const pass = yield* preparePass(deps, trace, data, loss, options)
    const { tokens } = pass
    trace?.attribute("tinker.tokens", tokens)
    const [passed, updated] = yield* Traces.within(trace, deps.driver.enqueuePair(pass.operation, update))
    const finish = Effect.gen(function* () {
      yield* Effect.exit(Effect.zip(passed.acknowledged, updated.acknowledged))
      const acknowledgedAt = yield* uptime
      const exits = {
        pass: yield* Effect.exit(Effect.map(passed.await, pass.finish)),
        update: yield* Effect.exit(updated.await),
      }
      if (Exit.isFailure(exits.pass) || Exit.isFailure(exits.update)) return yield* stepFailure(exits)
      return {
        step,
        pass: exits.pass.value,
        update: exits.update.value,
        metrics: { ...exits.pass.value.metrics, ...exits.update.value.metrics },
        tokens,
        queueTime: Duration.millis(acknowledgedAt - startedAt),
        duration: Duration.millis((yield* uptime) - startedAt),
      }
    })
    // The update is cancelled with its pass: gradients without their update would be part of the next one.
    const { cancel } = passed
    const ended = (exit: Exit.Exit<unknown, unknown>) => Effect.sync(() => trace?.end(exit))
    return {
      // Requests that were sent continue.
      leave: Effect.zipRight(cancel, ended(Exit.interrupt(FiberId.none))),
      finish: Effect.onExit(
        Effect.onInterrupt(finish, () => cancel),
        ended,
      ),
    }
  })

const errorOf = (exit: Exit.Exit<unknown, TrainingError>): TrainingError | undefined =>
  Exit.isFailure(exit) ? Option.getOrUndefined(Cause.failureOption(exit.cause)) : undefined

/** Fails with the error that the caller acts on; with both halves only where both matter. */
const stepFailure = (exits: Pick<StepFailed, "pass" | "update">): Effect.Effect<never, TrainingError | StepFailed> => {
  const [pass, update] = [errorOf(exits.pass), errorOf(exits.update)]
  const end = [update, pass].find((error) => error !== undefined && Response.endsClient(error))
  if (end !== undefined) return Effect.fail(end)
  // The pass was not accepted, so the update was not sent.
  return Effect.fail(pass !== undefined && pass === update ? pass : new StepFailed(exits))
}

/** Turns batches into steps, in order, with the next steps on their way while one is awaited. */
export const pipeline = <B, A, E1, R1, E2, E3, R3>(
  batches: Stream.Stream<B, E1, R1>,
  options: {
    readonly startAt: number
    readonly ahead: number
    readonly begin: (batch: B, step: number) => Effect.Effect<Begun<A, E2>, E3, R3>
  },
): Stream.Stream<A, E1 | E2 | E3, R1 | R3> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const outstanding = Math.max(1, 1 + options.ahead)
      const places = yield* Effect.makeSemaphore(outstanding)
      const begun = new Set<Begun<A, E2>>()
      // If the stream ends early, operations that were not sent are withdrawn.
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
        // Pulls from a slow source of batches while a step is awaited.
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

/** Runs an effect after a step has its place and before the next one gets one, and adds its value to the result. */
export const placing = <A, E, P, E2, R2>(
  begun: Begun<A, E>,
  effect: Effect.Effect<P, E2, R2>,
): Effect.Effect<Begun<A & { readonly placed: P }, E>, E2, R2> =>
  Effect.map(
    Effect.onError(effect, () => begun.leave),
    (placed) => ({ ...begun, finish: Effect.map(begun.finish, (result) => ({ ...result, placed })) }),
  )

/** Returns the optimizer of a step; a schedule is the user's own code. */
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
