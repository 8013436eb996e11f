/**
 * A training run that can be killed at any time and continues when it is opened again. The run keeps its journal,
 * configuration, events, metrics and checkpoints in a {@link RunStore}.
 *
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import type { Json } from "./internal/Configuration.ts"
import * as Configuration from "./internal/Configuration.ts"
import { isRollout, trainingStepOf } from "./internal/Notes.ts"
import * as Results from "./internal/Results.ts"
import * as Saves from "./internal/Saves.ts"
import * as Spending from "./internal/Spending.ts"
import * as Stored from "./internal/Stored.ts"
import type { CostOptions } from "./internal/Spending.ts"
import { ServiceClient } from "effect-tinker/ServiceClient"
import type * as Checkpoint from "effect-tinker/Checkpoint"
import type { JournalFailed, TrainingError } from "effect-tinker/TinkerError"
import type * as TrainingClient from "effect-tinker/TrainingClient"
import { ConfigurationChanged, type RunStoreFailed } from "./RunError.ts"
import { type Checkpoint as CheckpointEvent, RunEvent } from "./RunEvent.ts"
import * as RunLogger from "./RunLogger.ts"
import { RunStore, type Service as Store } from "./RunStore.ts"

/**
 * The model that a new run starts with: adapters on a base model, or the weights of a checkpoint.
 *
 * @since 0.1.0
 * @category models
 */
export type Model =
  | Omit<TrainingClient.LoraOptions, "journal">
  | (Omit<TrainingClient.CheckpointOptions, "journal"> & { readonly checkpoint: Checkpoint.Input })

/**
 * Options of {@link open}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  readonly model: Model
  /** Everything that decides the outcome of the run, as JSON. A run that exists is not continued with another one. */
  readonly configuration: { readonly [key: string]: unknown }
  /**
   * Continues the run even if its configuration has changed.
   *
   * @default false
   */
  readonly allowChanges?: boolean | undefined
  /** Counts what the run spends, and stops it before it exceeds a budget. */
  readonly cost?: CostOptions | undefined
}

export type {
  /**
   * The prices of a run's model, and how much the run may spend.
   *
   * @since 0.1.0
   * @category models
   */
  CostOptions,
} from "./internal/Spending.ts"

/**
 * A run that is open.
 *
 * @since 0.1.0
 * @category models
 */
export interface Run {
  /**
   * `Started`: a new model. `Resumed`: the same model in its session, with nothing lost. `Restored`: a new model with
   * the weights and the optimizer of a checkpoint.
   */
  readonly _tag: "Started" | "Resumed" | "Restored"
  readonly store: Store
  readonly client: TrainingClient.Service
  /** The number of the first step that is to be made. */
  readonly nextStep: number
  /** How many steps were made before and have to be made again. */
  readonly lostSteps: number
  /** Sends the update of a step whose pass was the last request before a crash. */
  readonly finishStep: TrainingClient.OpenRun["finishStep"]
  /** The events of the run so far. */
  readonly history: ReadonlyArray<RunEvent>
  /** Marks the run as complete: opening it again reports that instead of continuing it. */
  readonly complete: Effect.Effect<void>
  /** Keeps an event. It is durable when the effect completes. */
  readonly record: (event: RunEvent) => Effect.Effect<void, RunStoreFailed>
  /** The results of steps that were made before and whose events were not kept. */
  readonly results: Results.Results
  /** Events up to this step belong to the run that this one was forked from; -1 if there is none. */
  readonly ownFrom: number
  /** The saves that were placed before. */
  readonly saves: ReadonlyArray<Saves.Placed>
  /** The spending of the run, if it was opened with prices. */
  readonly spending: Option.Option<Spending.Spending>
}

/**
 * A run that is complete.
 *
 * @since 0.1.0
 * @category models
 */
export interface Completed {
  readonly _tag: "Completed"
  readonly store: Store
  readonly steps: number
  readonly history: ReadonlyArray<RunEvent>
}

/**
 * Opens the run in the current {@link RunStore}: starts it; continues it in its session; continues it from its last
 * checkpoint if the server has ended the session; or reports that it is complete. The run lives in the current scope.
 * However that closes, the run can be continued, unless its `complete` was called.
 *
 * @since 0.1.0
 * @category constructors
 */
export const open = (
  options: Options,
): Effect.Effect<
  Run | Completed,
  TrainingError | RunStoreFailed | ConfigurationChanged,
  RunStore | ServiceClient | Scope.Scope
> =>
  Effect.gen(function* () {
    const store = yield* RunStore
    const service = yield* ServiceClient
    const { baseModel = "*" } = options.model
    const cost = Option.fromNullable(options.cost)
    if (Option.isSome(cost)) yield* Spending.check(cost.value, baseModel)
    const writeConfiguration = yield* compareConfiguration(store, options)
    const history = yield* readEvents(store)
    const origin = yield* readOrigin(store)
    const model = Option.match(origin, {
      onNone: () => options.model,
      onSome: ({ path, step }) => ({ ...options.model, checkpoint: path, withOptimizer: true, firstStep: step }),
    })
    const scope = yield* Scope.make()
    let isComplete = false
    // The client takes the success of its scope for the end of the run, which a consumer that reads no more is not.
    yield* Effect.addFinalizer((exit) =>
      Scope.close(scope, isComplete ? Exit.void : Exit.isFailure(exit) ? exit : Exit.interrupt(FiberId.none)),
    )
    const opened = yield* Scope.extend(service.openTrainingClient({ ...model, journal: store.journal }), scope)
    if (opened._tag === "Completed") return { _tag: "Completed", store, steps: opened.steps, history }
    const { _tag, completed, finishStep, lostSteps, nextStep, pending } = opened
    // Only now: nothing was started with a configuration that the server has refused.
    yield* writeConfiguration
    const kept = yield* forget(store, history, nextStep)
    const calls = [...completed, ...pending]
    const spending = yield* Effect.transposeMapOption(cost, (cost) => Spending.make(cost, baseModel, store))
    return {
      _tag,
      store,
      client: Option.match(spending, {
        onNone: () => opened.client,
        onSome: (spending) => Spending.client(opened.client, spending),
      }),
      nextStep,
      lostSteps,
      finishStep,
      history: kept,
      complete: Effect.sync(() => {
        isComplete = true
      }),
      record: yield* recorder(store),
      results: Results.fromCalls(calls),
      ownFrom: Option.match(origin, { onNone: () => -1, onSome: ({ step }) => step }),
      saves: Saves.journaled(calls),
      spending,
    }
  })

const configFile = "config.json"
const eventsFile = "events.jsonl"
const metricsFile = "metrics.jsonl"
const checkpointsFile = "checkpoints.jsonl"
const originFile = "origin.json"

const encodeEvent = Schema.encodeSync(Schema.parseJson(RunEvent))

const Json = Schema.parseJson() as Schema.Schema<Json, string>

/** The run and the checkpoint that a run was forked from. */
const Origin = Schema.parseJson(Schema.Struct({ run: Schema.String, path: Schema.String, step: Schema.Number }))

/** Compares the configuration and returns the effect that keeps it. */
const compareConfiguration = (store: Store, { allowChanges = false, configuration }: Options) =>
  Effect.gen(function* () {
    const text = `${JSON.stringify(configuration, undefined, 2)}\n`
    const known = yield* store.read(configFile)
    if (Option.isNone(known)) return store.write(configFile, text)
    const before = yield* Stored.decode(store, configFile, Json, known.value)
    const differences = Configuration.differences(before, JSON.parse(text) as Json)
    if (differences.length === 0) return Effect.void
    if (!allowChanges) return yield* new ConfigurationChanged({ run: store.name, differences })
    return store.write(configFile, text)
  })

/**
 * Returns the events of a run, in order. It needs no server and works while the run is going on.
 *
 * @since 0.1.0
 * @category reading
 */
export const readEvents = (store: Store): Effect.Effect<ReadonlyArray<RunEvent>, RunStoreFailed> =>
  Stored.lines(store, eventsFile, Schema.parseJson(RunEvent))

const readOrigin = (store: Store) =>
  Effect.flatMap(store.read(originFile), (text) =>
    Option.match(text, {
      onNone: () => Effect.succeedNone,
      onSome: (text) => Effect.asSome(Stored.decode(store, originFile, Origin, text)),
    }),
  )

/** The line of a checkpoint in `checkpoints.jsonl`, as the official cookbook reads it. */
const checkpointLine = (event: RunEvent): ReadonlyArray<string> =>
  event._tag === "Checkpoint"
    ? [
        JSON.stringify({
          name: event.name,
          batch: event.step,
          ...(event.kind === "final" ? { final: true } : {}),
          state_path: event.statePath,
          sampler_path: event.samplerPath,
          kind: event.kind,
        }),
      ]
    : []

/** Creates the function that keeps events. What a crash has left in one log and not in the others is not repeated. */
const recorder = (store: Store) =>
  Effect.gen(function* () {
    const metrics = yield* RunLogger.jsonLines(store)
    const checkpoints = new Set(yield* store.lines(checkpointsFile))
    return (event: RunEvent) =>
      Effect.gen(function* () {
        yield* metrics.log(event)
        yield* store.append(
          checkpointsFile,
          checkpointLine(event).filter((line) => !checkpoints.has(line)),
        )
        // Last: once the event is kept, everything else about it is.
        yield* store.append(eventsFile, [encodeEvent(event)])
      })
  })

/** Drops what happened after the checkpoint that a run goes back to: it happens again. */
const forget = (store: Store, history: ReadonlyArray<RunEvent>, nextStep: number) =>
  Effect.gen(function* () {
    const kept = before(history, nextStep)
    if (kept.length < history.length) yield* rewrite(store, kept)
    return kept
  })

const before = (history: ReadonlyArray<RunEvent>, nextStep: number): ReadonlyArray<RunEvent> =>
  history.filter((event) =>
    event._tag === "Step" || isRollout(event)
      ? trainingStepOf(event) < nextStep
      : event._tag !== "Done" && event.step <= nextStep,
  )

const rewrite = (store: Store, kept: ReadonlyArray<RunEvent>) =>
  Effect.gen(function* () {
    yield* store.write(metricsFile, joined(kept.flatMap((event) => Option.toArray(RunLogger.metricsLine(event)))))
    yield* store.write(checkpointsFile, joined(kept.flatMap(checkpointLine)))
    yield* store.write(eventsFile, joined(kept.map((event) => encodeEvent(event))))
  })

const joined = (lines: ReadonlyArray<string>): string => lines.map((line) => `${line}\n`).join("")

/**
 * Reports that a run has no checkpoint to fork from.
 *
 * @since 0.1.0
 * @category errors
 */
export class NoCheckpoint extends Schema.TaggedError<NoCheckpoint>("@effect-tinker/recipes/NoCheckpoint")(
  "NoCheckpoint",
  { run: Schema.String, step: Schema.Number, available: Schema.Array(Schema.Number) },
) {
  /** @since 0.1.0 */
  override get message(): string {
    const known = this.available.length === 0 ? "it has none" : `it has some after steps ${this.available.join(", ")}`
    return `run ${this.run} has no checkpoint to continue from at or before step ${this.step}: ${known}`
  }
}

/**
 * Reports that a fork would replace a run.
 *
 * @since 0.1.0
 * @category errors
 */
export class RunExists extends Schema.TaggedError<RunExists>("@effect-tinker/recipes/RunExists")("RunExists", {
  run: Schema.String,
}) {
  /** @since 0.1.0 */
  override get message(): string {
    return `${this.run} has a run already; fork into an empty directory`
  }
}

/**
 * Prepares a new run that continues another one after `step` updates, or after fewer where no checkpoint was saved at
 * that step. The new run is opened like any other and may have another configuration. Returns the step it starts at.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fork = (
  from: Store,
  into: Store,
  step: number,
): Effect.Effect<number, RunStoreFailed | JournalFailed | NoCheckpoint | RunExists> =>
  Effect.gen(function* () {
    const isUsed = Option.isSome(yield* into.read(configFile)) || (yield* into.journal.read).length > 0
    if (isUsed) return yield* new RunExists({ run: into.name })
    const history = yield* readEvents(from)
    const states = history.filter(isState)
    // A rolling checkpoint is deleted when there is a newer one.
    const saved = states.filter(({ kind }, index) => kind !== "rolling" || index === states.length - 1).toReversed()
    const found = saved.find((checkpoint) => checkpoint.step <= step)
    if (found === undefined)
      return yield* new NoCheckpoint({ run: from.name, step, available: saved.map(({ step }) => step) })
    yield* into.write(
      originFile,
      Schema.encodeSync(Origin)({ run: from.name, path: found.statePath, step: found.step }),
    )
    // Computed values of the other run are valid here: finished rollouts, log probabilities of the reference, answers of
    // the teacher.
    for (const file of ["rollouts.jsonl", "reference.jsonl", "answers.jsonl"]) {
      const lines = yield* from.lines(file)
      if (lines.length > 0) yield* into.write(file, joined(lines))
    }
    yield* rewrite(into, before(history, found.step))
    return found.step
  })

type State = typeof CheckpointEvent.Type & { readonly statePath: string }

const isState = (event: RunEvent): event is State => event._tag === "Checkpoint" && event.statePath !== undefined

/** The time of an event. */
export const now: Effect.Effect<number> = Clock.currentTimeMillis
