/**
 * Makes the steps of a run, one batch each, and emits what happens as events. Steps are pipelined; checkpoints and
 * evaluations are placed between them, so that they see the weights after exactly the updates before them while later
 * steps are already on their way. Everything that a crash cut off is made up for when the run is opened again.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import * as FiberSet from "effect/FiberSet"
import * as Mailbox from "effect/Mailbox"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as CustomLoss from "effect-tinker/CustomLoss"
import type { Datum } from "effect-tinker/Datum"
import type * as Loss from "effect-tinker/Loss"
import type * as Optimizer from "effect-tinker/Optimizer"
import type { OptimStepResult } from "effect-tinker/protocol/schemas/Training"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import { ServiceClient } from "effect-tinker/ServiceClient"
import { InvalidInput, type TinkerError, type TrainingError } from "effect-tinker/TinkerError"
import type * as TrainingClient from "effect-tinker/TrainingClient"
import type { TrainingResult } from "effect-tinker/TrainingResult"
import * as CheckpointPolicy from "./CheckpointPolicy.ts"
import { isRollout, trainingStepOf } from "./internal/Notes.ts"
import * as Saves from "./internal/Saves.ts"
import type { Reserved } from "./internal/Spending.ts"
import { type CostOptions, now, type Run } from "./Run.ts"
import type { RunStoreFailed } from "./RunError.ts"
import type { Checkpoint, Metrics, RunEvent, Sample, Warning } from "./RunEvent.ts"

/**
 * The data of one step.
 *
 * @since 0.1.0
 * @category models
 */
export interface Batch<out I> {
  readonly data: ReadonlyArray<Datum<I>>
  /** How many tokens it has, by which checkpoints may be saved. */
  readonly tokens: number
  /** Metrics of the batch itself, e.g. `epoch`. */
  readonly metrics: Metrics
  /** Remarks about the batch, e.g. rollouts that failed. Emitted before the step. */
  readonly notes?: ReadonlyArray<Note> | undefined
}

/**
 * A sample or a warning about a batch, without the time.
 *
 * @since 0.1.0
 * @category models
 */
export type Note = Omit<typeof Sample.Type, "at"> | Omit<typeof Warning.Type, "at">

/**
 * A loss that the server computes, or one that this process computes.
 *
 * @since 0.1.0
 * @category models
 */
export type AnyLoss<I, E, R> = Loss.Loss<I> | CustomLoss.CustomLoss<I & CustomLoss.Inputs, E, R>

/**
 * A step whose results have arrived.
 *
 * @since 0.1.0
 * @category models
 */
export interface MadeStep<out I> {
  readonly step: number
  readonly batch: Batch<I>
  readonly pass: TrainingResult
  readonly update: OptimStepResult
}

/**
 * The result of an evaluation.
 *
 * @since 0.1.0
 * @category models
 */
export interface EvaluationResult {
  readonly metrics: Metrics
  /** Answers to keep with the run. */
  readonly samples?:
    | ReadonlyArray<Omit<typeof Sample.Type, "_tag" | "step" | "trainingStep" | "source" | "at">>
    | undefined
}

/**
 * An evaluation of the weights at certain steps. It samples from the weights after exactly `step` updates.
 *
 * @since 0.1.0
 * @category models
 */
export interface Evaluation<out E = never, out R = never> {
  readonly name: string
  /** Evaluates before the first step, after each multiple of this number, and after the last step. */
  readonly everySteps: number
  readonly evaluate: (
    sampler: SamplingClient.Service,
    at: { readonly step: number },
  ) => Effect.Effect<EvaluationResult, E, R>
}

/**
 * Options of every recipe.
 *
 * @since 0.1.0
 * @category models
 */
export interface Control {
  /**
   * Continues the run even if its configuration has changed.
   *
   * @default false
   */
  readonly allowChanges?: boolean | undefined
  /** Ends the run early: steps on their way are completed, a checkpoint is saved, and the run can be continued. */
  readonly stop?: Effect.Effect<unknown> | undefined
  /**
   * Adds what the run has spent to the metrics of its steps, and ends the run early, like `stop`, before it exceeds a
   * budget.
   */
  readonly cost?: CostOptions | undefined
}

/**
 * Options of {@link events}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options<I, E, R, E2, R2, E3, R3> extends Pick<Control, "stop"> {
  /** Returns the batches from a step on. They must be the same whenever the run is opened. */
  readonly batches: (from: number) => Stream.Stream<Batch<I>, E, R>
  /** How many steps the run has. Not given: until the batches end. */
  readonly steps?: number | undefined
  readonly loss: AnyLoss<I, E2, R2>
  readonly optimizer: Optimizer.Optimizer | Optimizer.Schedule<Optimizer.Optimizer>
  /** Computes the metrics of a step. */
  readonly metrics: (made: MadeStep<I>) => Effect.Effect<Metrics, E2, R2>
  readonly checkpoints?: CheckpointPolicy.CheckpointPolicy | undefined
  readonly evaluations?: ReadonlyArray<Evaluation<E3, R3>> | undefined
  /**
   * How many steps are sent ahead of the one whose result is awaited.
   *
   * @default 1
   */
  readonly ahead?: number | undefined
  /**
   * How many passes a batch is split into before its update, which is that of one pass over the whole batch.
   *
   * @default 1
   */
  readonly passes?: number | undefined
}

/**
 * Reports that a run ended early because it was asked to. Opening it again continues it.
 *
 * @since 0.1.0
 * @category errors
 */
export class RunStopped extends Schema.TaggedError<RunStopped>("@effect-tinker/recipes/RunStopped")("RunStopped", {
  run: Schema.String,
  /** How many updates the weights have. */
  step: Schema.Number,
  checkpoint: Schema.String,
  /** Why it was stopped, if it was not by `stop`. */
  reason: Schema.optional(Schema.String),
  /** How many evaluations were under way. They are made when the run continues. */
  evaluations: Schema.optionalWith(Schema.Number, { default: () => 0 }),
}) {
  /** @since 0.1.0 */
  override get message(): string {
    const { checkpoint, reason, run, step } = this
    const why = reason === undefined ? "" : ` because ${reason}`
    return `run ${run} stopped after ${step} steps${why}; it saved ${checkpoint}. Start it again to continue`
  }
}

/**
 * The errors of a loop that are not the user's own.
 *
 * @since 0.1.0
 * @category errors
 */
export type LoopError = TrainingError | TrainingClient.StepFailed | RunStoreFailed | RunStopped

/**
 * Makes the remaining steps of a run and emits its new events. The last one is `Done`; a run whose consumer reads no
 * more before that can be continued.
 *
 * @since 0.1.0
 * @category running
 */
export const events = <I, E = never, R = never, E2 = never, R2 = never, E3 = never, R3 = never>(
  run: Run,
  options: Options<I, E, R, E2, R2, E3, R3>,
): Stream.Stream<RunEvent, E | E2 | E3 | LoopError, R | R2 | R3 | ServiceClient> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const mailbox = yield* Mailbox.make<RunEvent, E | E2 | E3 | LoopError>({ capacity: 64 })
      const emit = (event: RunEvent) =>
        Effect.gen(function* () {
          yield* run.record(event)
          if (event._tag === "Done" && event.outcome === "complete") yield* run.complete
          yield* mailbox.offer(event)
        })
      yield* Effect.scoped(produce(run, options, emit)).pipe(
        Effect.onExit((exit) => mailbox.done(Exit.asVoid(exit))),
        Effect.forkScoped,
      )
      return Mailbox.toStream(mailbox)
    }),
  )

type Emit = (event: RunEvent) => Effect.Effect<unknown, RunStoreFailed>

const produce = <I, E, R, E2, R2, E3, R3>(run: Run, options: Options<I, E, R, E2, R2, E3, R3>, emit: Emit) =>
  Effect.gen(function* () {
    const { client, history, nextStep, spending } = run
    const exceeded = Option.match(spending, { onNone: () => Effect.never, onSome: ({ exceeded }) => exceeded })
    const { ahead = 1, evaluations = [], loss, optimizer, passes, stop = Effect.never } = options
    yield* checkEvaluations(evaluations)
    const policy = options.checkpoints ?? CheckpointPolicy.defaults
    // Before any other request: it completes the step that a crash cut off.
    const finished = yield* run.finishStep(optimizer)

    let lastStep = options.steps
    const settling = yield* settler(run, policy, evaluations, emit, () => lastStep)
    const state = yield* progressOf(run)

    /** Enqueues what is due after a number of updates. */
    const placeDue = (step: number, tokens: number) =>
      Effect.gen(function* () {
        const placed: Array<Saves.Placed> = []
        const progress = { step, tokens, at: yield* now }
        const due =
          step === 0 || step === options.steps ? undefined : CheckpointPolicy.due(policy, state.last, progress)
        if (due === "periodic") state.last = progress
        if (due !== undefined && !settling.isKnown(due, step))
          placed.push(
            yield* Saves.place(client, due, step, due === "periodic" ? policy.ttlSeconds : policy.rollingTtlSeconds),
          )
        if (settling.isScheduled(step) && !settling.isKnown("evaluation", step))
          placed.push(yield* Saves.place(client, "evaluation", step, policy.rollingTtlSeconds))
        return placed
      })

    // A crash may have come between the two requests of a save; nothing else was sent after the first of them.
    const saves = yield* Effect.forEach(run.saves, (placed) =>
      placed.step === nextStep ? Saves.complete(client, placed, policy.ttlSeconds) : Effect.succeed(placed),
    )
    yield* Effect.forEach(saves, settling.settleAgain, { discard: true })

    const firstUnknown =
      1 + history.reduce((last, event) => (event._tag === "Step" ? Math.max(last, event.step) : last), -1)
    yield* options.batches(firstUnknown).pipe(
      Stream.take(Math.max(0, nextStep - firstUnknown)),
      Stream.zipWithIndex,
      Stream.runForEach(([batch, index]) =>
        Effect.gen(function* () {
          const step = firstUnknown + index
          state.tokens += batch.tokens
          if (settling.isKnown("periodic", step + 1))
            state.last = { step: step + 1, tokens: state.tokens, at: state.seenAt }
          if (Option.isSome(spending)) yield* spending.value.countAgain(step, batch.data, requestsOf(loss))
          const results = yield* resultsOf(run, step, finished)
          if (Either.isRight(results)) {
            const { passes, update } = results.right
            const pass = yield* passOf(loss, batch, passes)
            // A crash may have come between the notes of a step and the step.
            const known = history.filter((event) => isNote(event) && trainingStepOf(event) === step).length
            const rest = { ...batch, notes: batch.notes?.slice(known) }
            return yield* emitStep(run, options, { step, batch: rest, pass, update }, emit)
          }
          const message = `the results of step ${step} are lost: ${results.left}`
          yield* emit({ _tag: "Warning", step, reason: "results_lost", message, at: yield* now })
        }),
      ),
    )
    const reported = new Set(
      history.flatMap((event) => (event._tag === "Warning" && event.reason === "evaluation_lost" ? [event.step] : [])),
    )
    for (let step = 0; step < nextStep; step++) {
      if (!settling.isScheduled(step) || settling.isKnown("evaluation", step) || reported.has(step)) continue
      const message = `the weights after ${step} steps can't be evaluated any more: the session was lost before`
      yield* settling.warn(step, "evaluation_lost", message)
    }
    yield* Effect.flatMap(placeDue(nextStep, state.tokens), Effect.forEach(settling.settle, { discard: true }))

    const batches = new Map<
      number,
      Batch<I> & { readonly tokensAfter: number; readonly reserved?: Reserved | undefined }
    >()
    let step = nextStep
    let tokensAfter = state.tokens
    let isStopped = false
    const live = options.batches(nextStep).pipe(
      options.steps === undefined ? (all) => all : Stream.take(Math.max(0, options.steps - nextStep)),
      Stream.rechunk(1),
      Stream.haltWhen(
        Effect.zipRight(
          stop,
          Effect.sync(() => (isStopped = true)),
        ),
      ),
      Stream.mapEffect((batch) =>
        Effect.map(
          Effect.transposeMapOption(spending, ({ reserve }) => reserve(batch.data, requestsOf(loss))),
          (reserved) => {
            tokensAfter += batch.tokens
            batches.set(step++, { ...batch, tokensAfter, reserved: Option.getOrUndefined(reserved) })
            return batch.data
          },
        ),
      ),
      Option.isNone(spending) ? (all) => all : Stream.interruptWhen(exceeded),
      trainSteps(client, loss, optimizer, {
        startAt: nextStep,
        ahead,
        passes,
        afterUpdate: (step) => placeDue(step + 1, batches.get(step)?.tokensAfter ?? 0),
      }),
    )
    let made = nextStep
    const steps = Stream.runForEach(live, ({ pass, placed, step, update }) =>
      Effect.gen(function* () {
        const batch = batches.get(step)
        if (batch === undefined) return
        batches.delete(step)
        made = step + 1
        if (batch.reserved !== undefined) yield* batch.reserved.made(step)
        yield* emitStep(run, options, { step, batch, pass, update }, emit)
        yield* Effect.forEach(placed, settling.settle, { discard: true })
      }),
    )

    // An evaluation that fails ends the run at once.
    yield* Effect.raceFirst(steps, settling.failed)

    yield* Effect.forEach(batches.values(), ({ reserved }) => reserved?.release ?? Effect.void, { discard: true })

    /** Evaluations that are under way are made when the run continues. */
    const stopped = (reason: string | undefined) =>
      Effect.gen(function* () {
        if (!settling.isKnown("rolling", made) && !settling.isKnown("periodic", made))
          yield* Effect.flatMap(Saves.place(client, "rolling", made, policy.ttlSeconds), settling.settle)
        const message = reason === undefined ? {} : { message: reason }
        yield* emit({ _tag: "Done", step: made, outcome: "stopped", ...message, at: yield* now })
        const checkpoint = settling.latestState() ?? "nothing"
        const evaluations = yield* settling.underWay
        return yield* new RunStopped({ run: run.store.name, step: made, checkpoint, reason, evaluations })
      })
    const overBudget = Effect.flatMap(
      Effect.transposeMapOption(spending, ({ stoppedBy }) => stoppedBy),
      Option.match({
        onNone: () => Effect.void,
        onSome: Option.match({ onNone: () => Effect.void, onSome: ({ message }) => stopped(message) }),
      }),
    )

    yield* overBudget
    if (isStopped && made !== options.steps) return yield* stopped(undefined)
    lastStep = made
    if (!settling.isKnown("evaluation", made))
      yield* Effect.flatMap(Saves.place(client, "evaluation", made, policy.rollingTtlSeconds), settling.settle)
    if (!settling.isKnown("final", made))
      yield* Effect.flatMap(Saves.place(client, "final", made, undefined), settling.settle)
    yield* Effect.raceFirst(settling.done, exceeded)
    yield* overBudget
    yield* settling.cleanUp
    yield* emit({ _tag: "Done", step: made, outcome: "complete", at: yield* now })
  })

/** A name that occurs twice would hide an evaluation behind the other one. */
const checkEvaluations = <E, R>(evaluations: ReadonlyArray<Evaluation<E, R>>): Either.Either<void, InvalidInput> => {
  const invalid = (name: string, problem: string) =>
    Either.left(new InvalidInput({ path: `evaluations.${name}`, problem }))
  const names = new Set<string>()
  for (const { everySteps, name } of evaluations) {
    if (names.has(name)) return invalid(name, "occurs twice")
    names.add(name)
    if (!Number.isSafeInteger(everySteps) || everySteps < 0)
      return invalid(`${name}.everySteps`, `expected an integer of at least 0, got ${everySteps}`)
  }
  return Either.void
}

/** How many passes the server makes over a batch: a custom loss needs a forward pass before. */
const requestsOf = <I, E, R>(loss: AnyLoss<I, E, R>): number => ("evaluate" in loss ? 2 : 1)

const isNote = (event: RunEvent): boolean => isRollout(event) || event._tag === "Warning"

/** The overloads of `trainSteps` check data against losses, which this module does by its own types. */
const trainSteps = <I, E, R, P, E2, R2>(
  client: TrainingClient.Service,
  loss: AnyLoss<I, E, R>,
  optimizer: Optimizer.Optimizer | Optimizer.Schedule<Optimizer.Optimizer>,
  options: TrainingClient.StepsOptions<P, E2, R2>,
) =>
  (
    client.trainSteps as unknown as (
      loss: AnyLoss<I, E, R>,
      optimizer: Optimizer.Optimizer | Optimizer.Schedule<Optimizer.Optimizer>,
      options: TrainingClient.StepsOptions<P, E2, R2>,
    ) => <E1, R1>(
      batches: Stream.Stream<ReadonlyArray<Datum<I>>, E1, R1>,
    ) => Stream.Stream<
      TrainingClient.PlacedStep<P>,
      E | E1 | E2 | TrainingError | TrainingClient.StepFailed,
      R | R1 | R2
    >
  )(loss, optimizer, options)

const emitStep = <I, E, R, E2, R2, E3, R3>(
  { spending }: Run,
  { metrics, steps }: Options<I, E, R, E2, R2, E3, R3>,
  made: MadeStep<I>,
  emit: Emit,
) =>
  Effect.gen(function* () {
    const { batch, step, update } = made
    for (const note of batch.notes ?? []) yield* emit({ ...note, at: yield* now })
    yield* emit({
      _tag: "Step",
      step,
      ...(steps === undefined ? {} : { steps }),
      metrics: {
        ...batch.metrics,
        num_tokens: batch.tokens,
        ...update.metrics,
        ...(yield* metrics(made)),
        ...(Option.isSome(spending) ? yield* spending.value.metrics : {}),
      },
      at: yield* now,
    })
  })

/** Asks for the results of a step that a previous process has made. Returns why the server no longer has them. */
const resultsOf = ({ nextStep, results }: Run, step: number, finished: Option.Option<OptimStepResult>) => {
  const made = results.get(step)
  const update = step === nextStep - 1 && Option.isSome(finished) ? Effect.succeed(finished.value) : made?.update
  if (made === undefined || update === undefined)
    return Effect.succeed(Either.left("the session that made it has ended"))
  return Effect.all({ passes: Effect.all(made.passes), update }).pipe(
    Effect.either,
    Effect.flatMap((results) =>
      Either.isLeft(results) && !lostTags.has(results.left._tag)
        ? Effect.fail(results.left)
        : Effect.succeed(Either.mapLeft(results, ({ message }) => message)),
    ),
  )
}

/** The errors of a result that the server no longer has. */
const lostTags: ReadonlySet<string> = new Set(["PromiseExpired", "RequestFailed", "RequestRejected", "NotFound"])

/** Returns the result of the pass. That of a custom loss contains what this process computed. */
const passOf = <I, E, R>(loss: AnyLoss<I, E, R>, { data }: Batch<I>, passes: ReadonlyArray<TrainingResult>) =>
  Effect.gen(function* () {
    const [first, second] = passes
    if (first === undefined) return yield* Effect.dieMessage("a step has no pass")
    if (!("evaluate" in loss) || second === undefined) return first
    const prepared = yield* CustomLoss.prepare(data as ReadonlyArray<Datum<I & CustomLoss.Inputs>>)
    return CustomLoss.finish(yield* CustomLoss.linearize(loss, prepared, first), second)
  })

/**
 * How many tokens were trained on, and when the last periodic checkpoint was saved. One whose event a crash has cut off
 * was saved about when its step was made, or when the previous process was last seen.
 */
const progressOf = ({ history, saves }: Run) =>
  Effect.map(now, (at) => {
    const placed = new Set(saves.flatMap(({ purpose, step }) => (purpose === "periodic" ? [step] : [])))
    let tokens = 0
    let last: CheckpointPolicy.Progress = { step: 0, tokens: 0, at: history[0]?.at ?? at }
    for (const event of history) {
      if (event._tag === "Step") {
        tokens += event.metrics["num_tokens"] ?? 0
        if (placed.has(event.step + 1)) last = { step: event.step + 1, tokens, at: event.at }
      }
      if (event._tag === "Checkpoint" && event.kind === "periodic") last = { step: event.step, tokens, at: event.at }
    }
    return { tokens, last, seenAt: history.at(-1)?.at ?? at }
  })

/**
 * Steps at which something was done, by its name. Of this process only the last step of each name is kept: steps come in
 * order, and memory must not grow with them.
 */
class Marks {
  private readonly earlier = new Set<string>()
  private readonly last = new Map<string, number>()

  /** Adds what a previous process has done. */
  addEarlier(name: string, step: number): void {
    this.earlier.add(`${name} ${step}`)
  }

  add(name: string, step: number): void {
    this.last.set(name, step)
  }

  has(name: string, step: number): boolean {
    return this.last.get(name) === step || this.earlier.has(`${name} ${step}`)
  }
}

/** Completes saves: records checkpoints, runs evaluations, and deletes what is no longer needed. */
const settler = <E3, R3>(
  run: Run,
  policy: CheckpointPolicy.CheckpointPolicy,
  evaluations: ReadonlyArray<Evaluation<E3, R3>>,
  emit: Emit,
  /** The last step of the run, once it is known. */
  lastStep: () => number | undefined,
) =>
  Effect.gen(function* () {
    const { client, history, ownFrom } = run
    const { rest } = yield* ServiceClient
    const evaluating = yield* FiberSet.make<void, E3 | RunStoreFailed | TinkerError | TrainingError>()
    const oneAtATime = yield* Effect.makeSemaphore(1)
    /** Saves that were placed, checkpoints that were recorded, and evaluations that were made. */
    const known = new Marks()
    const recorded = new Marks()
    const evaluated = new Marks()
    let rolling: string | undefined
    /** The checkpoints that the last one has replaced: a crash may have kept it from being deleted. */
    let replaced: string | undefined
    let latestState: string | undefined
    let lastEvaluated = -1
    let best: { readonly value: number; readonly step: number } | undefined
    /** The metrics of all evaluations. */
    const seen = new Set<string>()
    let kept: { readonly step: number; readonly path: string } | undefined

    const compare = (step: number, metrics: Metrics) => {
      const value = policy.best && metrics[policy.best.metric]
      if (
        policy.best !== undefined &&
        value !== undefined &&
        CheckpointPolicy.isBetter(policy.best, best?.value, value)
      )
        best = { value, step }
    }
    for (const event of history) {
      if (event._tag === "Evaluation") {
        evaluated.addEarlier(event.name, event.step)
        lastEvaluated = event.step
        compare(event.step, event.metrics)
      }
      if (event._tag !== "Checkpoint") continue
      known.addEarlier(event.kind, event.step)
      recorded.addEarlier(event.kind, event.step)
      // The checkpoints of another run, which this one continues, are not ours to delete.
      if (event.step <= ownFrom) continue
      if (event.kind === "best" && event.samplerPath !== undefined) kept = { step: event.step, path: event.samplerPath }
      if (event.statePath === undefined) continue
      if (rolling !== event.statePath) replaced = rolling
      rolling = event.kind === "rolling" ? event.statePath : undefined
      latestState = event.statePath
    }
    for (const { purpose, step } of run.saves) known.addEarlier(purpose, step)

    const isScheduled = ({ everySteps }: Evaluation<E3, R3>, step: number) =>
      everySteps > 0 && (step % everySteps === 0 || step === lastStep())
    const isDue = (evaluation: Evaluation<E3, R3>, step: number) =>
      isScheduled(evaluation, step) && !evaluated.has(evaluation.name, step)

    const warn = (step: number, reason: string, message: string) =>
      Effect.flatMap(now, (at) => emit({ _tag: "Warning", step, reason, message, at }))

    /** A checkpoint that can't be deleted expires, or costs money: it must not end the run. */
    const remove = (path: string, step: number) =>
      Effect.catchAll(rest.deleteCheckpointByPath(path), (error) =>
        error._tag === "NotFound" ? Effect.void : warn(step, "checkpoint_not_deleted", `${path}: ${error.message}`),
      )

    if (replaced !== undefined) yield* remove(replaced, run.nextStep)

    /** Keeps the weights of an evaluation if they are the best, and deletes them otherwise. */
    const keepOrRemove = (step: number, path: string) =>
      Effect.gen(function* () {
        if (best?.step !== step) {
          yield* remove(path, step)
          return
        }
        if (kept?.step === step) return
        yield* Effect.catchAll(rest.setCheckpointTtl(path, null), ({ message }) =>
          warn(step, "checkpoint_expires", `${path} is the best so far, but expires: ${message}`),
        )
        yield* emit({ _tag: "Checkpoint", step, name: `best-${step}`, kind: "best", samplerPath: path, at: yield* now })
        const before = kept
        kept = { step, path }
        if (before !== undefined && before.path !== path) yield* remove(before.path, step)
      })

    /** Most likely, the name of the metric is misspelled. */
    let isReported = history.some((event) => event._tag === "Warning" && event.reason === "best_unknown")
    const reportUnknownMetric = (step: number) => {
      if (policy.best === undefined || best !== undefined || isReported || seen.size === 0) return Effect.void
      if (seen.has(policy.best.metric)) return Effect.void
      isReported = true
      const message = `no evaluation has the metric ${policy.best.metric} that decides which weights are the best; there are ${[...seen].join(", ")}`
      return warn(step, "best_unknown", message)
    }

    const evaluate = (step: number, path: string) =>
      Effect.scoped(
        Effect.gen(function* () {
          const sampler = yield* client.createSamplingClient(path)
          for (const evaluation of evaluations) {
            const { name } = evaluation
            if (!isDue(evaluation, step)) continue
            const { metrics, samples = [] } = yield* evaluation.evaluate(sampler, { step })
            for (const sample of samples) yield* emit({ _tag: "Sample", ...sample, step, source: name, at: yield* now })
            yield* emit({ _tag: "Evaluation", step, name, metrics, at: yield* now })
            evaluated.add(name, step)
            for (const metric of Object.keys(metrics)) seen.add(metric)
            compare(step, metrics)
          }
          yield* reportUnknownMetric(step)
          yield* keepOrRemove(step, path)
        }),
      )

    const settleEvaluation = ({ sampler, step }: Saves.Placed) =>
      Effect.gen(function* () {
        known.add("evaluation", step)
        const isDone = !evaluations.some((evaluation) => isDue(evaluation, step))
        if (Option.isNone(sampler) || (isDone && step !== lastEvaluated)) return
        const path = yield* sampler.value
        if (isDone) yield* keepOrRemove(step, path)
        else yield* FiberSet.run(evaluating, oneAtATime.withPermits(1)(evaluate(step, path)))
      })

    const settleCheckpoint = ({ name, purpose, sampler, state, step }: Saves.Placed) =>
      Effect.gen(function* () {
        known.add(purpose, step)
        if (purpose === "evaluation" || purpose === "rollouts" || recorded.has(purpose, step)) return
        const statePath = Option.isSome(state) ? yield* state.value : undefined
        const samplerPath = Option.isSome(sampler) ? yield* sampler.value : undefined
        const checkpoint: typeof Checkpoint.Type = {
          _tag: "Checkpoint",
          step,
          name,
          kind: purpose,
          ...(statePath === undefined ? {} : { statePath }),
          ...(samplerPath === undefined ? {} : { samplerPath }),
          at: yield* now,
        }
        yield* emit(checkpoint)
        recorded.add(purpose, step)
        latestState = statePath ?? latestState
        // Only now: a newer one exists.
        if (rolling !== undefined && rolling !== statePath) yield* remove(rolling, step)
        rolling = purpose === "rolling" ? statePath : undefined
      })

    const settle = (placed: Saves.Placed) =>
      placed.purpose === "evaluation" ? settleEvaluation(placed) : settleCheckpoint(placed)

    return {
      settle,
      /** Settles a save of a previous process. The server may no longer have its result. */
      settleAgain: (placed: Saves.Placed) =>
        Effect.catchAll(settle(placed), (error) =>
          lostTags.has(error._tag)
            ? warn(placed.step, "checkpoint_lost", `${placed.name}: ${error.message}`)
            : Effect.fail(error),
        ),
      warn,
      isScheduled: (step: number) => evaluations.some((evaluation) => isScheduled(evaluation, step)),
      isKnown: (purpose: Saves.Purpose, step: number) =>
        known.has(purpose, step) ||
        (purpose === "evaluation" && !evaluations.some((evaluation) => isDue(evaluation, step))),
      latestState: () => latestState,
      /** How many steps are being evaluated. */
      underWay: FiberSet.size(evaluating),
      /** Fails when an evaluation does. */
      failed: FiberSet.join(evaluating),
      /** Waits for evaluations. */
      done: Effect.raceFirst(FiberSet.join(evaluating), FiberSet.awaitEmpty(evaluating)),
      cleanUp: Effect.suspend(() => (rolling === undefined ? Effect.void : remove(rolling, 0))),
    }
  })
