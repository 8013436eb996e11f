/** Metrics of one client, made once for each operation: to count is then to add to a number. */
import type * as Metric from "effect/Metric"
import * as MetricLabel from "effect/MetricLabel"
import * as Option from "effect/Option"
import type * as TinkerConfig from "../../TinkerConfig.ts"
import * as TinkerMetrics from "../../TinkerMetrics.ts"

type Labels = ReadonlyArray<MetricLabel.MetricLabel>

/** Records the metrics of one operation. Effect caches metrics by the identity of `labels`, so the array is reused. */
export class Meter {
  private readonly labels: Labels

  constructor(labels: Labels) {
    this.labels = labels
  }

  began(bytes: number, isRetry: boolean): void {
    this.add(TinkerMetrics.requests, 1)
    if (isRetry) this.add(TinkerMetrics.retries, 1)
    if (bytes > 0) this.add(TinkerMetrics.bytesSent, bytes)
    TinkerMetrics.inFlight.unsafeModify(1, this.labels)
  }

  ended(): void {
    TinkerMetrics.inFlight.unsafeModify(-1, this.labels)
  }

  received(bytes: number): void {
    this.add(TinkerMetrics.bytesReceived, bytes)
  }

  failed(isRateLimit: boolean): void {
    this.add(TinkerMetrics.failures, 1)
    if (isRateLimit) this.add(TinkerMetrics.rateLimitWaits, 1)
  }

  queued(millis: number): void {
    TinkerMetrics.queueTime.unsafeUpdate(millis / 1_000, this.labels)
  }

  trained(tokens: number): void {
    this.add(TinkerMetrics.tokensTrained, tokens)
  }

  sampled(tokens: number): void {
    this.add(TinkerMetrics.tokensSampled, tokens)
  }

  private add(counter: Metric.Metric.Counter<number>, amount: number): void {
    counter.unsafeUpdate(amount, this.labels)
  }
}

/** Returns the meter of an operation, or undefined if metrics are disabled. */
export type Meters = (operation: string) => Meter | undefined

const nothing: Meters = () => undefined

export const make = (config: Pick<TinkerConfig.Service, "metrics" | "tenant">): Meters => {
  if (!config.metrics) return nothing
  const tenant = MetricLabel.make(
    "tenant",
    Option.getOrElse(config.tenant, () => "default"),
  )
  const meters = new Map<string, Meter>()
  return (operation) => {
    let meter = meters.get(operation)
    if (meter === undefined) {
      meter = new Meter([tenant, MetricLabel.make("operation", operation)])
      meters.set(operation, meter)
    }
    return meter
  }
}
