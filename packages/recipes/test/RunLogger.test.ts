import { describe, expect, it } from "@effect/vitest"
import { type Console, Effect, type Layer, Metric, Stream } from "effect"
import { RunError, type RunEvent, RunLogger, RunMetrics, RunStore } from "@effect-tinker/recipes"
import * as Events from "./support/Events.ts"

const collected = () => {
  const lines: Array<string> = []
  return { lines, log: (event: RunEvent.RunEvent) => Effect.sync(() => void lines.push(event._tag)) }
}

const logged = (logger: RunLogger.Service, events: ReadonlyArray<RunEvent.RunEvent>) =>
  Stream.fromIterable(events).pipe(RunLogger.tap(logger), Stream.runDrain)

describe("RunLogger", () => {
  it.effect("RunLogger.all gives each event to every logger, and reports the first failure", () =>
    Effect.gen(function* () {
      const [first, second] = [collected(), collected()]
      const failure = new RunError.RunStoreFailed({ reason: "Write", run: "r", file: "f", detail: "disk full" })
      const broken: RunLogger.Service = { log: () => Effect.fail(failure) }
      const error = yield* Effect.flip(RunLogger.all(first, broken, second).log(Events.done))
      expect(error).toBe(failure)
      expect([first.lines, second.lines]).toEqual([["Done"], ["Done"]])
      yield* RunLogger.none.log(Events.done)
    }),
  )

  it.effect("jsonLines writes one object per step and evaluation, in the cookbook's layout", () =>
    Effect.gen(function* () {
      const store = yield* RunStore.memory()
      const logger = yield* RunLogger.jsonLines(store)
      yield* logged(logger, [...Events.one, Events.step(2, { train_mean_nll: Number.NaN, "optim/lr": 1e-4 })])
      expect(yield* store.lines("metrics.jsonl")).toEqual([
        '{"step":0,"train_mean_nll":2}',
        '{"step":1,"train_mean_nll":1}',
        '{"step":2,"test/nll":1.25,"test/accuracy":0.5}',
        '{"step":2,"train_mean_nll":null,"optim/lr":0.0001}',
      ])
    }),
  )

  it.effect("a process that repeats steps does not write their lines again", () =>
    Effect.gen(function* () {
      const store = yield* RunStore.memory()
      yield* store.append("metrics.jsonl", ["not ours", '{"step":0,"epoch":0}'])
      yield* logged(yield* RunLogger.jsonLines(store), [Events.step(0), Events.step(1), Events.evaluation])
      yield* logged(yield* RunLogger.jsonLines(store), [Events.step(1), Events.evaluation, Events.step(2)])
      const steps = (yield* store.lines("metrics.jsonl")).slice(2).map((line) => JSON.parse(line).step)
      expect(steps).toEqual([0, 1, 2, 2])
    }),
  )

  it.effect("console writes a plain line per event, without control characters of foreign text", () =>
    Effect.gen(function* () {
      const lines: Array<string> = []
      const own = {
        ...(yield* Effect.console),
        log: (line: string) => Effect.sync(() => void lines.push(line)),
      } as Console.Console
      yield* Effect.withConsole(logged(RunLogger.console, Events.one), own)
      expect(lines).toEqual([
        "step 1  train_mean_nll 2",
        "step 2  train_mean_nll 1",
        "warning rows_skipped at step 1: 3 rows of data.jsonl are too long [2J",
        "evaluation test after 2 steps  nll 1.25  test/accuracy 0.5",
        "checkpoint 000002 (periodic) after 2 steps  tinker://run/weights/000002",
        "complete after 3 steps",
      ])
    }),
  )

  it.effect("RunLogger.layer provides several loggers as one", () =>
    Effect.gen(function* () {
      const [first, second] = [collected(), collected()]
      const layer: Layer.Layer<RunLogger.RunLogger> = RunLogger.layer(Effect.succeed(first), Effect.succeed(second))
      yield* Effect.provide(
        Effect.flatMap(RunLogger.RunLogger, ({ log }) => log(Events.step(0))),
        layer,
      )
      expect([first.lines, second.lines]).toEqual([["Step"], ["Step"]])
    }),
  )
})

describe("RunMetrics", () => {
  it.effect("RunMetrics records steps, values, samples, checkpoints and warnings by run", () =>
    Effect.gen(function* () {
      const run = "metrics-test"
      yield* logged(RunMetrics.make(run), [...Events.one, Events.step(2, { train_mean_nll: Number.NaN })])
      const count = (metric: Metric.Metric.Counter<number>, reason?: string) => {
        const own = Metric.tagged(metric, "run", run)
        return Effect.map(
          Metric.value(reason === undefined ? own : Metric.tagged(own, "reason", reason)),
          (state) => state.count,
        )
      }
      const value = (name: string) =>
        Effect.map(
          Metric.value(Metric.tagged(Metric.tagged(RunMetrics.value, "run", run), "metric", name)),
          (state) => state.value,
        )
      expect(yield* count(RunMetrics.steps)).toBe(3)
      expect(yield* count(RunMetrics.samples)).toBe(1)
      expect(yield* count(RunMetrics.checkpoints)).toBe(1)
      expect(yield* count(RunMetrics.warnings, "rows_skipped")).toBe(1)
      expect((yield* Metric.value(Metric.tagged(RunMetrics.step, "run", run))).value).toBe(3)
      expect(yield* value("train_mean_nll")).toBe(1)
      expect(yield* value("test/nll")).toBe(1.25)
      const names = new Set((yield* Metric.snapshot).map(({ metricKey }) => metricKey.name))
      expect(Object.values(RunMetrics.names).filter((name) => !names.has(name))).toEqual([])
    }),
  )
})
