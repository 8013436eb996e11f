/**
 * Sends vendor telemetry: the start and end of a session and the errors that occur in it. It is disabled unless the
 * configuration enables it, it never delays other work, and events that cannot be delivered are dropped and counted.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import type * as Clock from "effect/Clock"
import * as DateTime from "effect/DateTime"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import * as Api from "./protocol/Api.ts"
import type { Severity, TelemetryEvent } from "./protocol/schemas/Telemetry.ts"
import { Host } from "./http/Host.ts"
import { shorten } from "./internal/util/Text.ts"
import * as Durations from "./internal/codec/Durations.ts"
import { idempotencyKey } from "./internal/request/IdempotencyKey.ts"
import { redactJson, redactor, secretsIn } from "./internal/util/Redact.ts"
import { timeBy } from "./internal/util/MonotonicClock.ts"
import type { JsonObject } from "./internal/codec/Wire.ts"
import * as TinkerConfig from "./TinkerConfig.ts"
import { isUserError, type TrainingError } from "./TinkerError.ts"
import { type Service as TransportService, Transport } from "./Transport.ts"

/**
 * The telemetry of one session. Reporting only adds an event to a queue: it does not wait and cannot fail.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** Whether events are sent. */
  readonly isOn: boolean
  /** Reports an error of an SDK call. Errors that only end a client or that never left it are ignored. */
  readonly report: (error: TrainingError) => void
  /** Reports a custom event. */
  readonly event: (name: string, data?: JsonObject, severity?: Severity) => void
  /** Sends the queued events, for at most 5 seconds. */
  readonly flush: Effect.Effect<void>
  /** Reports the end of the session and sends all queued events, for at most 5 seconds. */
  readonly end: Effect.Effect<void>
  /** Returns the number of events lost to a full queue or to a server that did not accept them. */
  readonly dropped: Effect.Effect<number>
}

/**
 * Disabled telemetry.
 *
 * @since 0.1.0
 * @category constructors
 */
export const off: Service = {
  isOn: false,
  report: () => undefined,
  event: () => undefined,
  flush: Effect.void,
  end: Effect.void,
  dropped: Effect.succeed(0),
}

/** The maximum number of events per request. */
const batchSize = 100
const queueSize = 10_000
const interval = Duration.seconds(10)
/** The number of attempts to send a batch, one second apart, before it is dropped. */
const tries = 5
const pause = Duration.seconds(1)
const patience = Duration.seconds(5)
/** The maximum size of the data of one event in characters. */
const largestData = 16_384

/** The content of an event, before the fields that all events share are added. */
type Content = TelemetryEvent extends infer E
  ? E extends TelemetryEvent
    ? Omit<E, "eventId" | "eventSessionIndex" | "timestamp">
    : never
  : never

/** Checks whether to report an error. Closing a client is not an error, and invalid input concerns only the user. */
const isTold = (error: TrainingError): boolean => {
  switch (error._tag) {
    case "ClientClosed":
    case "InvalidInput":
    case "InvalidConfig":
    case "JournalFailed":
      return false
    default:
      return true
  }
}

/** Checks whether the user caused an error. A broken request sequence is never the user's fault. */
const isUsers = (error: TrainingError): boolean =>
  error._tag !== "SequenceBroken" && error._tag !== "JournalFailed" && isUserError(error)

const contentOf = (error: TrainingError): Content => {
  const { _tag, message } = error
  if (!isUsers(error)) {
    return { event: "UNHANDLED_EXCEPTION", severity: "ERROR", errorType: _tag, errorMessage: message }
  }
  const status = "status" in error ? Option.getOrNull(error.status) : null
  return {
    event: "GENERIC_EVENT",
    severity: "WARNING",
    eventName: "user_error",
    eventData: { error_type: _tag, message, status_code: status },
  }
}

/** Converts data to plain JSON; undefined if it is too large or cannot be represented. */
const plain = (data: JsonObject): JsonObject | undefined => {
  try {
    const text = JSON.stringify(data)
    return text.length > largestData ? undefined : (JSON.parse(text) as JsonObject)
  } catch {
    return undefined
  }
}

class Queue {
  /** In chronological order. */
  private readonly events: Array<TelemetryEvent> = []
  private index = 0
  dropped = 0

  private readonly clock: Clock.Clock
  private readonly redact: (text: string) => string

  constructor(clock: Clock.Clock, redact: (text: string) => string) {
    this.clock = clock
    this.redact = (text) => shorten(redact(text))
  }

  add(content: Content): void {
    const clean = this.clean(content)
    if (clean === undefined || this.events.length >= queueSize) {
      this.dropped++
      return
    }
    this.events.push({
      ...clean,
      eventId: globalThis.crypto.randomUUID(),
      eventSessionIndex: this.index++,
      timestamp: DateTime.unsafeMake(this.clock.unsafeCurrentTimeMillis()),
    })
  }

  take(): ReadonlyArray<TelemetryEvent> {
    return this.events.splice(0, batchSize)
  }

  putBack(events: ReadonlyArray<TelemetryEvent>): void {
    this.events.unshift(...events)
  }

  get length(): number {
    return this.events.length
  }

  /** Removes secrets. Errors contain none, but user events may contain anything. */
  private clean(content: Content): Content | undefined {
    switch (content.event) {
      case "UNHANDLED_EXCEPTION":
        return { ...content, errorMessage: this.redact(content.errorMessage) }
      case "GENERIC_EVENT": {
        const data = plain(content.eventData ?? {})
        // The value is a JSON object and redaction keeps its structure.
        const eventData = redactJson(data, this.redact) as JsonObject
        return data === undefined ? undefined : { ...content, eventName: this.redact(content.eventName), eventData }
      }
      default:
        return content
    }
  }
}

/**
 * Creates the telemetry of a session in the current scope and reports its start. Call `end` before the scope closes.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  sessionId: string,
): Effect.Effect<Service, never, Transport | TinkerConfig.TinkerConfig | Scope.Scope> =>
  Effect.gen(function* () {
    const config = yield* TinkerConfig.TinkerConfig
    const { call } = yield* Transport
    const { platform } = yield* Host
    const { clock, uptime } = timeBy(yield* Effect.clock)
    const startedAt = uptime()
    const processUuid = globalThis.crypto.randomUUID()
    const queue = new Queue(clock, redactor([...secretsIn(config.headers), ...Option.toArray(config.apiKey)]))
    let isOver = false
    let ended = false

    /** Retries use the same idempotency key, so that the server can detect duplicates. */
    const deliver = (events: ReadonlyArray<TelemetryEvent>): Effect.Effect<void> =>
      call(
        Api.telemetry,
        { events, platform: platform.os, sdkVersion: config.sdkVersion, sessionId, processUuid },
        { idempotencyKey: idempotencyKey() },
      ).pipe(
        Effect.retry({
          schedule: Schedule.intersect(Schedule.spaced(pause), Schedule.recurs(tries - 1)),
          while: (error) => error._tag !== "NotFound" && error._tag !== "ClientClosed",
        }),
        Effect.onInterrupt(() => Effect.sync(() => queue.putBack(events))),
        Effect.catchAllCause((cause) =>
          Effect.sync(() => {
            queue.dropped += events.length
            // A server without this endpoint receives no further requests.
            isOver = Option.exists(Cause.failureOption(cause), ({ _tag }) => _tag === "NotFound")
          }),
        ),
        Effect.asVoid,
      )

    const turn = yield* Effect.makeSemaphore(1)
    const drain: Effect.Effect<void> = Effect.suspend(() =>
      queue.length === 0 || isOver ? Effect.void : Effect.zipRight(deliver(queue.take()), drain),
    )
    const flush = turn.withPermits(1)(drain).pipe(Effect.interruptible, Effect.timeout(patience), Effect.ignore)
    const add = (content: Content) => {
      if (isOver || ended) queue.dropped++
      else queue.add(content)
    }

    queue.add({ event: "SESSION_START", severity: "INFO" })
    yield* turn
      .withPermits(1)(drain)
      .pipe(Effect.delay(interval), Effect.repeat(Schedule.forever), Effect.forkScoped, Effect.interruptible)

    return {
      isOn: true,
      report: (error) => {
        if (isTold(error)) add(contentOf(error))
      },
      event: (eventName, eventData = {}, severity = "INFO") =>
        add({ event: "GENERIC_EVENT", severity, eventName, eventData }),
      flush,
      end: Effect.suspend(() => {
        if (ended) return Effect.void
        add({ event: "SESSION_END", severity: "INFO", duration: Durations.asTimedelta(uptime() - startedAt) })
        ended = true
        return flush
      }),
      dropped: Effect.sync(() => queue.dropped + (isOver || ended ? queue.length : 0)),
    }
  })

/**
 * Wraps a transport to report failed calls, except those whose caller has its own retry loop.
 *
 * @internal
 */
export const observing = (telemetry: Service, transport: TransportService): TransportService =>
  telemetry.isOn
    ? {
        ...transport,
        call: (endpoint, input, options) => {
          const answer = transport.call(endpoint, input, options)
          return endpoint.retry === "none" && options?.retryPolicy === undefined
            ? answer
            : Effect.tapError(answer, (error) => Effect.sync(() => telemetry.report(error)))
        },
      }
    : transport

/**
 * Sends the last events while the session finishes. After a success, waits for them for at most 5 seconds; a failure
 * never waits.
 *
 * @internal
 */
export const ending = <A, E>(
  telemetry: Service,
  exit: Exit.Exit<unknown, unknown>,
  farewell: Effect.Effect<A, E>,
): Effect.Effect<A, E> =>
  telemetry.isOn
    ? Effect.gen(function* () {
        // Started first, so that both requests are sent at the same time.
        const last = yield* Effect.fork(Effect.interruptible(telemetry.end))
        yield* Effect.yieldNow()
        const result = yield* farewell
        yield* Exit.isSuccess(exit) ? Fiber.await(last) : Fiber.interruptFork(last)
        return result
      })
    : farewell
