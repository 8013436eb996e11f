/**
 * What is counted, in Effect's own metrics, if the configuration says `metrics: true`. Each has the labels `tenant`
 * (the configured name, else `default`) and `operation` (the name on the wire, e.g. `optim_step`).
 *
 * @since 0.1.0
 */
import * as Metric from "effect/Metric"
import * as MetricBoundaries from "effect/MetricBoundaries"

/**
 * Requests that were sent; each attempt counts.
 *
 * @since 0.1.0
 * @category metrics
 */
export const requests: Metric.Metric.Counter<number> = Metric.counter("tinker.requests", {
  description: "Requests that were sent; each attempt counts",
  incremental: true,
})

/**
 * Of those, the ones that were sent again.
 *
 * @since 0.1.0
 * @category metrics
 */
export const retries: Metric.Metric.Counter<number> = Metric.counter("tinker.retries", {
  description: "Requests that were sent again",
  incremental: true,
})

/**
 * Of those, the ones without a usable answer.
 *
 * @since 0.1.0
 * @category metrics
 */
export const failures: Metric.Metric.Counter<number> = Metric.counter("tinker.failures", {
  description: "Requests without a usable answer",
  incremental: true,
})

/**
 * How often the server asked to come back later (429).
 *
 * @since 0.1.0
 * @category metrics
 */
export const rateLimitWaits: Metric.Metric.Counter<number> = Metric.counter("tinker.rate_limit_waits", {
  description: "How often the server asked to come back later",
  incremental: true,
})

/**
 * Of bodies. Text counts by its characters.
 *
 * @since 0.1.0
 * @category metrics
 */
export const bytesSent: Metric.Metric.Counter<number> = Metric.counter("tinker.bytes_sent", {
  description: "Bytes of request bodies",
  incremental: true,
})

/**
 * Of bodies, after decompression.
 *
 * @since 0.1.0
 * @category metrics
 */
export const bytesReceived: Metric.Metric.Counter<number> = Metric.counter("tinker.bytes_received", {
  description: "Bytes of answers, after decompression",
  incremental: true,
})

/**
 * Requests that wait for their answer now.
 *
 * @since 0.1.0
 * @category metrics
 */
export const inFlight: Metric.Metric.Gauge<number> = Metric.gauge("tinker.in_flight", {
  description: "Requests that wait for their answer",
})

/**
 * From the call of a training operation or a sample until the server has it, in seconds.
 *
 * @since 0.1.0
 * @category metrics
 */
export const queueTime: Metric.Metric.Histogram<number> = Metric.histogram(
  "tinker.queue_time",
  MetricBoundaries.fromIterable([0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3_600]),
  "Seconds from the call until the server has the request",
)

/**
 * Tokens of batches whose gradients were computed, as far as they are known: an image may not tell.
 *
 * @since 0.1.0
 * @category metrics
 */
export const tokensTrained: Metric.Metric.Counter<number> = Metric.counter("tinker.tokens_trained", {
  description: "Tokens of batches whose gradients were computed",
  incremental: true,
})

/**
 * Tokens that were sampled, without those of the prompts.
 *
 * @since 0.1.0
 * @category metrics
 */
export const tokensSampled: Metric.Metric.Counter<number> = Metric.counter("tinker.tokens_sampled", {
  description: "Tokens that were sampled",
  incremental: true,
})

/**
 * The metric of one tenant and operation.
 *
 * @since 0.1.0
 * @category combinators
 */
export const labelled = <Type, In, Out>(
  metric: Metric.Metric<Type, In, Out>,
  labels: { readonly tenant?: string | undefined; readonly operation: string },
): Metric.Metric<Type, In, Out> =>
  metric.pipe(Metric.tagged("tenant", labels.tenant ?? "default"), Metric.tagged("operation", labels.operation))
