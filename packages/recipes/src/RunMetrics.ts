/**
 * The metrics of a run as Effect metrics, which exporters such as `@effect/opentelemetry` read. Each has the label `run`;
 * {@link value} has the label `metric` as well, because the names of a run's metrics are not known in advance.
 * {@link names} lists the names.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import { evaluationMetric, type Service } from "./RunLogger.ts"

/**
 * The names of the metrics.
 *
 * @since 0.1.0
 * @category constants
 */
export const names = {
  steps: "tinker.run.steps",
  step: "tinker.run.step",
  value: "tinker.run.value",
  samples: "tinker.run.samples",
  checkpoints: "tinker.run.checkpoints",
  warnings: "tinker.run.warnings",
} as const

const counter = (name: string, description: string): Metric.Metric.Counter<number> =>
  Metric.counter(name, { description, incremental: true })

/**
 * The number of steps that this process has finished (`tinker.run.steps`).
 *
 * @since 0.1.0
 * @category metrics
 */
export const steps: Metric.Metric.Counter<number> = counter(names.steps, "Steps finished by this process")

/**
 * The number of updates that the weights have (`tinker.run.step`).
 *
 * @since 0.1.0
 * @category metrics
 */
export const step: Metric.Metric.Gauge<number> = Metric.gauge(names.step, { description: "Updates in the weights" })

/**
 * The newest value of the run's metric that the label `metric` names, e.g. `train_mean_nll` (`tinker.run.value`).
 *
 * @since 0.1.0
 * @category metrics
 */
export const value: Metric.Metric.Gauge<number> = Metric.gauge(names.value, {
  description: "The newest value of a metric of the run",
})

/**
 * The number of recorded samples (`tinker.run.samples`).
 *
 * @since 0.1.0
 * @category metrics
 */
export const samples: Metric.Metric.Counter<number> = counter(names.samples, "Recorded samples")

/**
 * The number of saved checkpoints (`tinker.run.checkpoints`).
 *
 * @since 0.1.0
 * @category metrics
 */
export const checkpoints: Metric.Metric.Counter<number> = counter(names.checkpoints, "Saved checkpoints")

/**
 * The number of warnings, by the label `reason` (`tinker.run.warnings`).
 *
 * @since 0.1.0
 * @category metrics
 */
export const warnings: Metric.Metric.Counter<number> = counter(names.warnings, "Warnings of the run")

/**
 * Creates a logger that records the events of a run as metrics. Values that are not finite are not recorded.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (run: string): Service => {
  const own = {
    steps: Metric.tagged(steps, "run", run),
    step: Metric.tagged(step, "run", run),
    value: Metric.tagged(value, "run", run),
    samples: Metric.tagged(samples, "run", run),
    checkpoints: Metric.tagged(checkpoints, "run", run),
    warnings: Metric.tagged(warnings, "run", run),
  }
  const values = (metrics: Readonly<Record<string, number>>, nameOf: (name: string) => string) =>
    Effect.forEach(
      Object.entries(metrics).filter(([, value]) => Number.isFinite(value)),
      ([name, value]) => Metric.set(Metric.tagged(own.value, "metric", nameOf(name)), value),
      { discard: true },
    )
  return {
    log: (event) => {
      switch (event._tag) {
        case "Step":
          return Effect.all(
            [Metric.increment(own.steps), Metric.set(own.step, event.step + 1), values(event.metrics, (name) => name)],
            { discard: true },
          )
        case "Evaluation":
          return values(event.metrics, (name) => evaluationMetric(event.name, name))
        case "Sample":
          return Metric.increment(own.samples)
        case "Checkpoint":
          return Metric.increment(own.checkpoints)
        case "Warning":
          return Metric.increment(Metric.tagged(own.warnings, "reason", event.reason))
        case "Done":
          return Effect.void
      }
    },
  }
}
