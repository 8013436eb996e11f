/**
 * The vendor's telemetry: when a session begins and ends, and which errors it met. It is off unless the configuration
 * turns it on, nobody ever waits for it, and what can't be delivered is dropped and counted.
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
 * Of one session. To report is to put an event into a queue: it takes no time and can't fail.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** Does it send anything? */
  readonly isOn: boolean
  /** An error that a call of the SDK ended with. What is only the end of a client, or never left it, is not told. */
  readonly report: (error: TrainingError) => void
  /** An event of your own. */
  readonly event: (name: string, data?: JsonObject, severity?: Severity) => void
  /** Sends what is queued now. Given up after 5 seconds. */
  readonly flush: Effect.Effect<void>
  /** The last event, and all that is still queued. Given up after 5 seconds. */
  readonly end: Effect.Effect<void>
  /** How many events were lost: to a full queue, or to a server that did not take them. */
  readonly dropped: Effect.Effect<number>
}

/**
 * Tells nothing to anybody.
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

/** In one request. */
const batchSize = 100
const queueSize = 10_000
const interval = Duration.seconds(10)
/** A batch is sent so often, a second apart, and then dropped. */
const tries = 5
const pause = Duration.seconds(1)
const patience = Duration.seconds(5)
/** Of one event, in characters. */
const largestData = 16_384

/** What every event has is added when it is queued. */
type Content = TelemetryEvent extends infer E
  ? E extends TelemetryEvent
    ? Omit<E, "eventId" | "eventSessionIndex" | "timestamp">
    : never
  : never

/** Is it worth telling? The end of a client is no error, and what is wrong with an input is the user's own business. */
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

/** A break of the order of requests is never the user's doing. */
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

/** What JSON makes of it; nothing of what it has no word for, or too many. */
const plain = (data: JsonObject): JsonObject | undefined => {
  try {
    const text = JSON.stringify(data)
    return text.length > largestData ? undefined : (JSON.parse(text) as JsonObject)
  } catch {
    return undefined
  }
}

class Queue {
  /** In the order in which they happened. */
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

  /** Errors are without secrets already; an event of the user's may hold anything. */
  private clean(content: Content): Content | undefined {
    switch (content.event) {
      case "UNHANDLED_EXCEPTION":
        return { ...content, errorMessage: this.redact(content.errorMessage) }
      case "GENERIC_EVENT": {
        const data = plain(content.eventData ?? {})
        // It was an object of JSON, and keeps its shape.
        const eventData = redactJson(data, this.redact) as JsonObject
        return data === undefined ? undefined : { ...content, eventName: this.redact(content.eventName), eventData }
      }
      default:
        return content
    }
  }
}

/**
 * Of this session, in the current scope. It begins with its first event; `end` has to be called before the scope
 * closes.
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

    /** Resent as it is, under one key: what arrived twice can be told. */
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
            // A server that has no such endpoint is not asked again.
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
 * A transport that tells of every call that failed, but for those whose caller has a loop of its own.
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
 * The end of a session: the last events go out beside its other farewells. Who succeeded waits for them, for 5 seconds at
 * most; a failure never does.
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
        // First, so that its request is on its way when the other one's is.
        const last = yield* Effect.fork(Effect.interruptible(telemetry.end))
        yield* Effect.yieldNow()
        const result = yield* farewell
        yield* Exit.isSuccess(exit) ? Fiber.await(last) : Fiber.interruptFork(last)
        return result
      })
    : farewell
