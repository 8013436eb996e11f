/**
 * Loggers of a run: consumers of its events. A logger is one function; `all` combines several, and `tap` logs the events
 * of a stream as they pass. Progress on a terminal is in `Progress`, event files for TensorBoard in `TensorBoard`,
 * OpenTelemetry metrics in `RunMetrics`.
 *
 * @since 0.1.0
 */
import * as Console from "effect/Console"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { lineOf } from "./internal/Lines.ts"
import type { RunStoreFailed } from "./RunError.ts"
import type { RunEvent } from "./RunEvent.ts"
import type * as RunStore from "./RunStore.ts"

/**
 * Records the events of a run. Events arrive one after the other, in the order in which they happened.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  readonly log: (event: RunEvent) => Effect.Effect<void, RunStoreFailed>
}

/**
 * The service tag of a run's logger.
 *
 * @since 0.1.0
 * @category tags
 */
export class RunLogger extends Context.Tag("@effect-tinker/recipes/RunLogger")<RunLogger, Service>() {}

/**
 * Records nothing.
 *
 * @since 0.1.0
 * @category constructors
 */
export const none: Service = { log: () => Effect.void }

/**
 * Creates a logger that gives each event to all others, in their order. If one fails, the others still get the event,
 * and the first failure is reported.
 *
 * @since 0.1.0
 * @category combinators
 */
export const all = (...loggers: ReadonlyArray<Service>): Service => ({
  log: (event) =>
    Effect.flatMap(
      Effect.forEach(loggers, ({ log }) => Effect.either(log(event))),
      (results) => results.find(Either.isLeft) ?? Effect.void,
    ),
})

/**
 * Logs the events of a stream as they pass. An event is logged before the consumer of the stream gets it.
 *
 * @example
 * ```ts
 * import { Effect, Stream } from "effect"
 * import { type RunEvent, RunLogger, RunStore } from "@effect-tinker/recipes"
 *
 * const events: ReadonlyArray<RunEvent.RunEvent> = [
 *   { _tag: "Step", step: 0, steps: 2, metrics: { train_mean_nll: 2.25 }, at: 0 },
 *   { _tag: "Step", step: 1, steps: 2, metrics: { train_mean_nll: 1.5 }, at: 1_000 },
 *   { _tag: "Done", step: 2, outcome: "complete", at: 1_000 },
 * ]
 *
 * const program = Effect.gen(function* () {
 *   const store = yield* RunStore.memory()
 *   const logger = RunLogger.all(RunLogger.console, yield* RunLogger.jsonLines(store))
 *   yield* Stream.fromIterable(events).pipe(RunLogger.tap(logger), Stream.runDrain)
 *   for (const line of yield* store.lines("metrics.jsonl")) console.log(line)
 *   // → step 1/2  train_mean_nll 2.25
 *   // → step 2/2  train_mean_nll 1.5
 *   // → complete after 2 steps
 *   // → {"step":0,"train_mean_nll":2.25}
 *   // → {"step":1,"train_mean_nll":1.5}
 * })
 *
 * await Effect.runPromise(program)
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const tap =
  (logger: Service) =>
  <E, R>(events: Stream.Stream<RunEvent, E, R>): Stream.Stream<RunEvent, E | RunStoreFailed, R> =>
    Stream.tap(events, logger.log)

/**
 * Returns the name of an evaluation's metric among those of the run: `test/nll` for `nll` of the evaluation `test`.
 *
 * @since 0.1.0
 * @category getters
 */
export const evaluationMetric = (evaluation: string, metric: string): string =>
  metric.startsWith(`${evaluation}/`) ? metric : `${evaluation}/${metric}`

/** The metrics that an event adds to the run, or undefined if it has none. */
const rowOf = (event: RunEvent): { readonly step: number; readonly metrics: Record<string, number> } | undefined => {
  switch (event._tag) {
    case "Step":
      return { step: event.step, metrics: event.metrics }
    case "Evaluation":
      return {
        step: event.step,
        metrics: Object.fromEntries(
          Object.entries(event.metrics).map(([name, value]) => [evaluationMetric(event.name, name), value]),
        ),
      }
    default:
      return undefined
  }
}

/**
 * Returns the line of an event in `metrics.jsonl`; samples, checkpoints and the like have none.
 *
 * @since 0.1.0
 * @category getters
 */
export const metricsLine = (event: RunEvent): Option.Option<string> => {
  const row = rowOf(event)
  return row === undefined ? Option.none() : Option.some(JSON.stringify({ step: row.step, ...row.metrics }))
}

const decodeRow = Schema.decodeUnknownEither(
  Schema.parseJson(
    Schema.Struct({ step: Schema.Number }, Schema.Record({ key: Schema.String, value: Schema.Unknown })),
  ),
)

/**
 * Writes metrics in the layout of the official cookbook: one JSON object with `step` and the metrics in each line of
 * `metrics.jsonl`. An evaluation has a line of its own, with the step whose weights it used. A number that JSON has not,
 * e.g. NaN, is null. A run that goes back to a checkpoint repeats steps: their lines are not written again. A `Run`
 * does this by itself.
 *
 * @since 0.1.0
 * @category constructors
 */
export const jsonLines = (
  store: RunStore.Service,
  options: { readonly file?: string | undefined } = {},
): Effect.Effect<Service, RunStoreFailed> => {
  const file = options.file ?? "metrics.jsonl"
  return Effect.map(store.lines(file), (lines) => {
    const known = new Map<number, Set<string>>()
    for (const line of lines) {
      const row = decodeRow(line)
      // Lines of other programs are none of ours.
      if (Either.isLeft(row)) continue
      const { step, ...metrics } = row.right
      const names = known.get(step) ?? new Set()
      for (const name of Object.keys(metrics)) names.add(name)
      known.set(step, names)
    }
    return {
      log: (event) => {
        const row = rowOf(event)
        if (row === undefined) return Effect.void
        const names = known.get(row.step)
        if (names !== undefined && Object.keys(row.metrics).some((name) => names.has(name))) return Effect.void
        return store.append(file, Option.toArray(metricsLine(event)))
      },
    }
  })
}

/**
 * Writes one line for each event to the console. Samples are left to the report.
 *
 * @since 0.1.0
 * @category constructors
 */
export const console: Service = {
  log: (event) => {
    const line = lineOf(event)
    return line === undefined ? Effect.void : Console.log(line)
  },
}

/**
 * Provides loggers, combined.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = <E, R>(...loggers: ReadonlyArray<Effect.Effect<Service, E, R>>): Layer.Layer<RunLogger, E, R> =>
  Layer.effect(
    RunLogger,
    Effect.map(Effect.all(loggers), (made) => all(...made)),
  )
