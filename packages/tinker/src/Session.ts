/**
 * Manages a session on the server: created when the scope opens, kept alive by heartbeats, and finished with the reason
 * for which the scope closes. Models and samplers belong to the session and end with it.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Random from "effect/Random"
import * as Ref from "effect/Ref"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Api from "./protocol/Api.ts"
import {
  type ClientConfig,
  type CreateSessionResponse,
  DynamicConfig,
  type FinishReason,
} from "./protocol/schemas/Session.ts"
import { shorten } from "./internal/util/Text.ts"
import { redactor } from "./internal/util/Redact.ts"
import { annotated, traced } from "./internal/runtime/Trace.ts"
import * as Timeouts from "./internal/runtime/Timeouts.ts"
import { timeBy } from "./internal/util/MonotonicClock.ts"
import { ObservableValue } from "./internal/util/ObservableValue.ts"
import type { JsonObject } from "./internal/codec/Wire.ts"
import * as RetryPolicy from "./RetryPolicy.ts"
import { ServerConfig } from "./protocol/ServerConfig.ts"
import * as Config from "./TinkerConfig.ts"
import { ClientClosed, NotFound, SessionLost, type TinkerError, Unavailable } from "./TinkerError.ts"
import * as Telemetry from "./Telemetry.ts"
import { Transport } from "./Transport.ts"

/**
 * The result of the last heartbeat.
 *
 * @since 0.1.0
 * @category models
 */
export interface Heartbeat {
  /** How long the server has not answered; zero if it answered. */
  readonly silence: Duration.Duration
  /** The error of the last heartbeat; none if it was answered. */
  readonly failure: Option.Option<TinkerError>
}

/**
 * A session on the server.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  readonly id: string
  /** The server's flags at the start of the session. */
  readonly flags: ClientConfig
  /** Returns the latest values of the flags that may change during the session. */
  readonly dynamic: Effect.Effect<DynamicConfig>
  /** Emits the latest heartbeat and each later one until the session ends. */
  readonly heartbeats: Stream.Stream<Heartbeat>
  /** Waits until the session is lost or its scope closes, and then fails. */
  readonly lost: Effect.Effect<never, SessionLost | ClientClosed>
  /**
   * Sends a heartbeat now and fails if the server has ended the session. Called where a response suggests it, so that
   * the first caller to notice gets `SessionLost`.
   *
   * @internal
   */
  readonly check: Effect.Effect<void, SessionLost | ClientClosed>
  /** Returns the next unused number, starting from 0. */
  readonly nextModel: Effect.Effect<number>
  readonly nextSampler: Effect.Effect<number>
  readonly nextCustomLoss: Effect.Effect<number>
  /**
   * Keeps the session open on the server if the scope fails or is interrupted from now on, so that it can be resumed
   * until the server drops it.
   */
  readonly keepForResume: Effect.Effect<void>
  /** The server properties discovered so far. */
  readonly learnt: Ref.Ref<Learnt>
  /** The vendor telemetry; inactive unless enabled in the configuration. */
  readonly telemetry: Telemetry.Service
}

/**
 * Server properties that no flag reports and that are discovered by sending requests.
 *
 * @since 0.1.0
 * @category models
 */
export interface Learnt {
  /** The format in which the server reads training passes; none until it accepts one. */
  readonly wire: Option.Option<"protobuf" | "json">
  /** Whether a rejected request uses up its sequence number. */
  readonly refusedUsesNumber: boolean
  /** Whether the server detects a reused sequence number, which makes resending safe; none until it is needed. */
  readonly guardsNumbers: Option.Option<boolean>
}

/**
 * The initial value of {@link Learnt}.
 *
 * @since 0.1.0
 * @category models
 */
export const nothingLearnt: Learnt = { wire: Option.none(), refusedUsesNumber: false, guardsNumbers: Option.none() }

/**
 * The service tag of a session.
 *
 * @since 0.1.0
 * @category tags
 */
export class Session extends Context.Tag("effect-tinker/Session")<Session, Service>() {}

/**
 * Options of a session.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  readonly displayName?: string | undefined
  readonly userMetadata?: JsonObject | undefined
  /**
   * How long heartbeats may remain unanswered before the session counts as lost.
   *
   * @default unlimited
   */
  readonly sessionTimeout?: Duration.DurationInput | undefined
}

/**
 * A session opened by another process or by an earlier run of this one.
 *
 * @since 0.1.0
 * @category models
 */
export interface Earlier {
  readonly sessionId: string
  readonly learnt: Learnt
}

const heartbeatInterval = Duration.seconds(10)
/** The time without an answer after which a warning is logged. */
const worryAfter = Duration.seconds(120)
/** Prevents shutdown from hanging on a server that is gone. */
const finishTimeout = Duration.seconds(5)
/** The lower bound for the refresh interval requested by the server. */
const shortestRefresh = Duration.seconds(10)

const defaultDynamic: DynamicConfig = Schema.decodeSync(DynamicConfig)({})

/**
 * Creates a session in the current scope.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  options: Options = {},
): Effect.Effect<Service, TinkerError, Transport | ServerConfig | Config.TinkerConfig | Scope.Scope> =>
  open(options, { learnt: nothingLearnt, firstNumber: 0 }, (call, config) =>
    Effect.catchTag(
      call(Api.createSession, {
        tags: config.tags,
        userMetadata: options.userMetadata,
        sdkVersion: config.sdkVersion,
        projectId: Option.getOrUndefined(config.projectId),
        displayName: options.displayName,
      }),
      "NotFound",
      // Every server can create sessions, so the base URL is wrong.
      (error) => new NotFound({ ...error, baseUrl: Option.some(config.baseUrl) }),
    ),
  )

/**
 * Resumes an earlier session, if the server still has it, and keeps it alive from now on.
 *
 * @since 0.1.0
 * @category constructors
 */
export const resume = (
  earlier: Earlier,
  options: Pick<Options, "sessionTimeout"> = {},
): Effect.Effect<Service, TinkerError | SessionLost, Transport | ServerConfig | Config.TinkerConfig | Scope.Scope> =>
  Effect.flatMap(Random.nextIntBetween(1, lives), (life) =>
    open(options, { learnt: earlier.learnt, firstNumber: life * numbersOfALife }, (call) =>
      call(Api.heartbeat, { sessionId: earlier.sessionId }, { retryPolicy: RetryPolicy.make() }).pipe(
        Effect.as({
          sessionId: earlier.sessionId,
          infoMessage: Option.none(),
          warningMessage: Option.none(),
          errorMessage: Option.none(),
        }),
        Effect.catchAll((error): Effect.Effect<never, TinkerError | SessionLost> =>
          error._tag === "NotFound" || (error._tag === "RequestRejected" && error.reason === "Gone")
            ? new SessionLost({ sessionId: earlier.sessionId, reason: "Gone", detail: error.detail })
            : Effect.fail(error),
        ),
      ),
    ),
  )

/** More than the number of models or samplers that one run of a session creates. */
const numbersOfALife = 1_000_000
/** Each run uses a random range, because another client of the same session may be resumed at the same time. */
const lives = 2_000

type Opened = Pick<typeof CreateSessionResponse.Type, "sessionId" | "infoMessage" | "warningMessage" | "errorMessage">

const open = <E>(
  options: Options,
  state: { readonly learnt: Learnt; readonly firstNumber: number },
  identify: (call: typeof Transport.Service.call, config: Config.Service) => Effect.Effect<Opened, E>,
): Effect.Effect<Service, E | TinkerError, Transport | ServerConfig | Config.TinkerConfig | Scope.Scope> =>
  Effect.gen(function* () {
    const config = yield* Config.TinkerConfig
    const { call, start } = yield* Transport
    const time = timeBy(yield* Effect.clock)
    const flags = yield* (yield* ServerConfig).flags

    const fetchDynamic = (retryPolicy: RetryPolicy.RetryPolicy) =>
      Effect.catchTag(
        call(Api.dynamicConfig, { sdkVersion: config.sdkVersion }, { retryPolicy }),
        // A server without this endpoint has no dynamic flags.
        "NotFound",
        () => Effect.succeed(defaultDynamic),
      )
    const dynamic = yield* Ref.make(yield* fetchDynamic(RetryPolicy.make()))

    const logged = Config.logged(config)
    const kept = yield* Ref.make(false)
    const lost = yield* Deferred.make<never, SessionLost | ClientClosed>()
    let telemetry = Telemetry.off
    /**
     * Finishes the session on the server, unless the server has already dropped it, and releases all waiting fibers.
     */
    const end = (sessionId: string, exit: Exit.Exit<unknown, unknown>) =>
      Effect.gen(function* () {
        const known = yield* Deferred.poll(lost)
        const error = Option.isSome(known) ? yield* Effect.option(Effect.flip(known.value)) : Option.none()
        const gone = Option.exists(error, (error) => error._tag === "SessionLost" && error.reason === "Gone")
        const told = Exit.isSuccess(exit) || !(yield* Ref.get(kept))
        const finishing = !gone && told ? logged(finish(call, sessionId, exit)) : Effect.void
        yield* Telemetry.ending(telemetry, exit, finishing)
        yield* Deferred.fail(lost, new ClientClosed({ operation: "session" }))
      })

    // Prevents an interruption between the creation of the session and the registration of its finalizer.
    const { id, startedAt } = yield* Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        const identified = Effect.flatMap(identify(call, config), (created) =>
          annotated("tinker.session_id", created.sessionId, Effect.succeed(created)),
        )
        const created = yield* restore(traced(() => identified, "tinker.session", undefined, "internal"))
        yield* Effect.addFinalizer((exit) => end(created.sessionId, exit))
        for (const [log, message] of [
          [Effect.logInfo, created.infoMessage],
          [Effect.logWarning, created.warningMessage],
          [Effect.logError, created.errorMessage],
        ] as const) {
          if (Option.isSome(message)) yield* logged(log(shorten(redactor([])(message.value))))
        }
        return { id: created.sessionId, startedAt: time.uptime() }
      }),
    )

    if (config.telemetry) telemetry = yield* Telemetry.make(id)

    const heartbeats = new ObservableValue<Heartbeat>({ silence: Duration.zero, failure: Option.none() })
    const sessionTimeout = Duration.toMillis(options.sessionTimeout ?? Duration.infinity)
    const lose = (reason: SessionLost["reason"], detail: string) =>
      Deferred.fail(lost, new SessionLost({ sessionId: id, reason, detail }))

    // The timeout covers everything, because waiting for a token must not displace heartbeats. A defect counts as a
    // missing answer: if the loop died, the session would expire unnoticed.
    const timeouts = yield* Timeouts.make
    const interval = Duration.toMillis(heartbeatInterval)
    const timedOut = Effect.suspend(() => new Unavailable({ operation: "session_heartbeat", reason: "Timeout" }))
    const ask = traced(
      (fiber) =>
        Effect.async<unknown, TinkerError>((resume) => {
          let clear: (() => void) | undefined
          let isOver = false
          const stop = start(fiber, Api.heartbeat, { sessionId: id }, undefined, (exit) => {
            isOver = true
            clear?.()
            resume(exit)
          })
          if (isOver) return
          clear = timeouts.after(interval, () => resume(Effect.zipRight(stop(), timedOut)))
          return Effect.suspend(() => {
            clear?.()
            return stop()
          })
        }),
      Api.heartbeat.span,
    ).pipe(
      Effect.catchAllDefect((cause) =>
        Effect.fail(new Unavailable({ operation: "session_heartbeat", reason: "Disconnected", cause })),
      ),
    )

    let lastAnswer = startedAt
    let missed = 0

    /** Sends one heartbeat and returns whether to continue. */
    const beat: Effect.Effect<boolean> = Effect.matchEffect(ask, {
      onSuccess: () => {
        heartbeats.set({ silence: Duration.zero, failure: Option.none() })
        lastAnswer = time.uptime()
        missed = 0
        return Effect.succeed(true)
      },
      onFailure: (failure) =>
        Effect.gen(function* () {
          const now = time.uptime()
          const silence = Duration.millis(now - lastAnswer)
          heartbeats.set({ silence, failure: Option.some(failure) })
          if (failure._tag === "RequestRejected" && failure.reason === "Gone") {
            yield* lose("Gone", failure.detail)
            return false
          }
          // A single miss proves nothing: the machine may have been asleep.
          if (missed > 0 && now - lastAnswer >= sessionTimeout) {
            yield* lose("Silent", failure.message)
            return false
          }
          if (Duration.greaterThan(silence, worryAfter)) {
            const since = Duration.format(silence)
            yield* logged(
              Effect.logWarning(`Tinker: no heartbeat response for session ${id} in ${since}: ${failure.message}`),
            )
          }
          missed++
          return true
        }),
    })

    // Built once instead of once per iteration: long test runs have thousands of iterations.
    const beating: Effect.Effect<void> = Effect.flatMap(
      Effect.zipRight(time.clock.sleep(heartbeatInterval), beat),
      (goesOn) => (goesOn ? beating : Effect.void),
    )
    yield* beating.pipe(Effect.forkScoped, Effect.interruptible)

    // A failure keeps the known values until the next refresh.
    const refresh = Effect.gen(function* () {
      const { refreshIntervalSec } = yield* Ref.get(dynamic)
      yield* Effect.sleep(Duration.max(Duration.seconds(refreshIntervalSec), shortestRefresh))
      yield* Effect.flatMap(fetchDynamic(RetryPolicy.none), (newest) => Ref.set(dynamic, newest)).pipe(
        Effect.catchAllDefect(Effect.logDebug),
        Effect.ignore,
      )
    })
    yield* refresh.pipe(Effect.repeat(Schedule.forever), Effect.forkScoped, Effect.interruptible)

    const counter = Effect.map(Ref.make(state.firstNumber), (ref) => Ref.getAndUpdate(ref, (n) => n + 1))
    return Session.of({
      id,
      flags,
      dynamic: Ref.get(dynamic),
      heartbeats: Stream.interruptWhen(heartbeats.changes, Effect.exit(Deferred.await(lost))),
      lost: Deferred.await(lost),
      check: Effect.flatMap(beat, () =>
        Effect.flatMap(Deferred.poll(lost), Option.match({ onNone: () => Effect.void, onSome: (end) => end })),
      ),
      nextModel: yield* counter,
      nextSampler: yield* counter,
      nextCustomLoss: yield* counter,
      keepForResume: Ref.set(kept, true),
      learnt: yield* Ref.make(state.learnt),
      telemetry,
    })
  })

const finish = (call: typeof Transport.Service.call, sessionId: string, exit: Exit.Exit<unknown, unknown>) => {
  const [type, detail] = reasonOf(exit)
  return call(Api.finishSession, { sessionId, reason: { type }, detail }).pipe(
    // Finalizers are uninterruptible by default, which would disable the timeout.
    Effect.interruptible,
    Effect.timeout(finishTimeout),
    Effect.catchAllCause((cause) => Effect.logDebug(`Tinker: could not finish session ${sessionId}`, cause)),
  )
}

/** Returns why the scope closed. Only the name of an error is sent, because its message may contain private data. */
const reasonOf = (exit: Exit.Exit<unknown, unknown>): readonly [FinishReason, string | null] => {
  if (Exit.isSuccess(exit)) return ["success", null]
  if (Cause.isInterruptedOnly(exit.cause)) return ["interrupted", null]
  const error = Cause.squash(exit.cause)
  if (Predicate.hasProperty(error, "_tag")) return ["errored", String(error._tag)]
  return ["errored", error instanceof Error ? error.name : null]
}

/**
 * Provides a session. The layer is fresh: a layer memoized by reference would hand one tenant's credential to another.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  options?: Options,
): Layer.Layer<Session, TinkerError, Transport | ServerConfig | Config.TinkerConfig> =>
  Layer.fresh(Layer.scoped(Session, make(options)))
