/**
 * The spans of one sample: `tinker.sample` around everything, `tinker.queue` while it waits for its turn, and one for
 * each submission. They observe the driver. A tracer that throws costs its spans and nothing else.
 */
import type * as Exit from "effect/Exit"
import * as Api from "../../protocol/Api.ts"
import type { AnyFiber } from "../runtime/FiberContext.ts"
import { open, type Opened, type Trace } from "../runtime/Trace.ts"
import { tryExit } from "../util/Callback.ts"

export class SampleSpans {
  private queue: Trace | undefined = undefined
  private request: Opened | undefined = undefined
  private readonly sample: Opened

  private constructor(sample: Opened) {
    this.sample = sample
  }

  /** Opens the spans below the current span of the fiber; returns `undefined` without a tracer. */
  static open(fiber: AnyFiber, attributes: Readonly<Record<string, unknown>>): SampleSpans | undefined {
    const sample = open(fiber, "tinker.sample", "client", attributes)
    if (sample === undefined) return undefined
    const spans = new SampleSpans(sample)
    spans.queued()
    return spans
  }

  /** A carrier of the caller's context inside the sample's span. */
  get fiber(): AnyFiber {
    return this.sample.fiber
  }

  /** The sample is submitted. Returns a carrier of the context inside the span of the submission. */
  sending(): AnyFiber {
    this.queue?.end()
    this.queue = undefined
    this.request = open(this.fiber, Api.sample.span ?? "", "client")
    return this.request?.fiber ?? this.fiber
  }

  replied(exit: Exit.Exit<unknown, unknown>): void {
    this.request?.trace.end(exit)
    this.request = undefined
  }

  accepted(requestId: string): void {
    tryExit(() => this.sample.trace.attribute("tinker.request_id", requestId))
  }

  waiting(state: string, reason: string): void {
    tryExit(() => this.sample.trace.event("tinker.queue_state", { state, reason }))
    if (this.queue === undefined) this.queued()
  }

  end(exit: Exit.Exit<unknown, unknown>): void {
    this.replied(exit)
    this.queue?.end()
    this.sample.trace.end(exit)
  }

  private queued(): void {
    tryExit(() => {
      this.queue = this.sample.trace.child("tinker.queue")
    })
  }
}
