/**
 * The metrics of the SDK, recorded as Effect metrics if the configuration sets `metrics: true`. Each metric has the
 * labels `tenant` (the configured name, else `default`) and `operation` (the wire name, e.g. `optim_step`).
 * {@link names} lists the metric names.
 *
 * @since 0.1.0
 */
import * as Metric from "effect/Metric"
import * as MetricBoundaries from "effect/MetricBoundaries"

/**
 * The names of the metrics.
 *
 * @since 0.1.0
 * @category constants
 */
export const names = {
  requests: "tinker.requests",
  retries: "tinker.retries",
  failures: "tinker.failures",
  rateLimitWaits: "tinker.rate_limit_waits",
  bytesSent: "tinker.bytes_sent",
  bytesReceived: "tinker.bytes_received",
  inFlight: "tinker.in_flight",
  queueTime: "tinker.queue_time",
  tokensTrained: "tinker.tokens_trained",
  tokensSampled: "tinker.tokens_sampled",
} as const

/**
 * The number of requests sent, counting each attempt (`tinker.requests`).
 *
 * @since 0.1.0
 * @category metrics
 */
export const requests: Metric.Metric.Counter<number> = Metric.counter(names.requests, {
  description: "Requests sent, counting each attempt",
  incremental: true,
})

/**
 * The number of retries sent (`tinker.retries`).
 *
 * @since 0.1.0
 * @category metrics
 */
export const retries: Metric.Metric.Counter<number> = Metric.counter(names.retries, {
  description: "Retries sent",
  incremental: true,
})

/**
 * The number of requests without a usable response (`tinker.failures`).
 *
 * @since 0.1.0
 * @category metrics
 */
export const failures: Metric.Metric.Counter<number> = Metric.counter(names.failures, {
  description: "Requests without a usable response",
  incremental: true,
})

/**
 * The number of rate limit responses (429) from the server (`tinker.rate_limit_waits`).
 *
 * @since 0.1.0
 * @category metrics
 */
export const rateLimitWaits: Metric.Metric.Counter<number> = Metric.counter(names.rateLimitWaits, {
  description: "Rate limit responses from the server",
  incremental: true,
})

/**
 * The size of request bodies (`tinker.bytes_sent`). Text is counted in characters.
 *
 * @since 0.1.0
 * @category metrics
 */
export const bytesSent: Metric.Metric.Counter<number> = Metric.counter(names.bytesSent, {
  description: "Bytes of request bodies",
  incremental: true,
})

/**
 * The size of response bodies after decompression (`tinker.bytes_received`).
 *
 * @since 0.1.0
 * @category metrics
 */
export const bytesReceived: Metric.Metric.Counter<number> = Metric.counter(names.bytesReceived, {
  description: "Bytes of responses, after decompression",
  incremental: true,
})

/**
 * The number of requests waiting for a response (`tinker.in_flight`).
 *
 * @since 0.1.0
 * @category metrics
 */
export const inFlight: Metric.Metric.Gauge<number> = Metric.gauge(names.inFlight, {
  description: "Requests waiting for a response",
})

/**
 * The time in seconds from the call of a training operation or a sample until the server accepts it
 * (`tinker.queue_time`).
 *
 * @since 0.1.0
 * @category metrics
 */
export const queueTime: Metric.Metric.Histogram<number> = Metric.histogram(
  names.queueTime,
  MetricBoundaries.fromIterable([0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3_600]),
  "Seconds from the call until the server accepts the request",
)

/**
 * The number of tokens in batches whose gradients were computed (`tinker.tokens_trained`). Chunks of unknown length,
 * such as some images, are not included.
 *
 * @since 0.1.0
 * @category metrics
 */
export const tokensTrained: Metric.Metric.Counter<number> = Metric.counter(names.tokensTrained, {
  description: "Tokens in batches whose gradients were computed",
  incremental: true,
})

/**
 * The number of sampled tokens, excluding prompts (`tinker.tokens_sampled`).
 *
 * @since 0.1.0
 * @category metrics
 */
export const tokensSampled: Metric.Metric.Counter<number> = Metric.counter(names.tokensSampled, {
  description: "Tokens sampled",
  incremental: true,
})

/**
 * Adds the labels of a tenant and an operation to a metric.
 *
 * @since 0.1.0
 * @category combinators
 */
export const labelled = <Type, In, Out>(
  metric: Metric.Metric<Type, In, Out>,
  labels: { readonly tenant?: string | undefined; readonly operation: string },
): Metric.Metric<Type, In, Out> =>
  metric.pipe(Metric.tagged("tenant", labels.tenant ?? "default"), Metric.tagged("operation", labels.operation))
