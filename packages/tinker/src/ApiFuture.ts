/**
 * A result that the server is still working on. The loop that asks for it is here and nowhere else: it runs in a fiber
 * of the client, so a result is fetched once however many wait for it, and whoever waits resumes however that fiber
 * ends.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as ParseResult from "effect/ParseResult"
import type * as Schema from "effect/Schema"
import type * as Runtime from "effect/Runtime"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Training from "./protocol/schemas/Training.ts"
import * as Poller from "./internal/futures/Poller.ts"
import * as QueueStateLog from "./internal/runtime/QueueStateLog.ts"
import * as Gate from "./internal/runtime/Gate.ts"
import * as Timeouts from "./internal/runtime/Timeouts.ts"
import * as Owner from "./internal/runtime/Owner.ts"
import { readerOf } from "./internal/request/FastJson.ts"
import { Attached, Ended, Gathered, Mapped, Telling } from "./internal/futures/Telling.ts"
import { clockOf } from "./internal/util/MonotonicClock.ts"
import { Watched } from "./internal/util/ObservableValue.ts"
import * as SampleResult from "./SampleResult.ts"
import { Session } from "./Session.ts"
import * as Config from "./TinkerConfig.ts"
import { ClientClosed, type FutureError } from "./TinkerError.ts"
import * as TrainingResult from "./TrainingResult.ts"
import { Transport } from "./Transport.ts"

/**
 * Where a request stands. `state` is the server's word (`active`, `paused_rate_limit`, `paused_capacity`, …), or ours:
 * `submitted` until the server says one, `unreachable` while polls fail, `paused_billing` while billing blocks them,
 * `waiting_for_room` while a large result waits for others to be read.
 *
 * @since 0.1.0
 * @category models
 */
export interface QueueState {
  readonly state: string
  readonly reason: Option.Option<string>
  /** When it began, in milliseconds since 1970. */
  readonly since: number
}

/**
 * What it has is made when it is asked for, so a copy (`{ ...future }`) has nothing of it.
 *
 * @since 0.1.0
 * @category models
 */
export interface ApiFuture<out A> {
  /** Of the request, or of the first of several. */
  readonly requestId: string
  readonly requestIds: ReadonlyArray<string>
  /** Interrupting it leaves the result to whoever else waits. */
  readonly await: Effect.Effect<A, FutureError>
  /** The result if it is there; asks nobody. */
  readonly poll: Effect.Effect<Option.Option<A>, FutureError>
  /** Where it stands and each change, until the result is there. */
  readonly queueState: Stream.Stream<QueueState>
}

/**
 * What kind of result a request has, and how it is read.
 *
 * @since 0.1.0
 * @category models
 */
export interface Kind<out A> {
  /** By the wire's name. */
  readonly type: string
  readonly fromJson: (json: unknown) => Either.Either<A, ParseResult.ParseError>
  readonly fromProtobuf: Option.Option<(bytes: Uint8Array) => Either.Either<A, ParseResult.ParseError>>
}

/**
 * A result that is JSON, by the wire's name of it.
 *
 * @since 0.1.0
 * @category kinds
 */
export const jsonKind = <A, I>(type: string, schema: Schema.Schema<A, I>): Kind<A> => ({
  type,
  fromJson: (json) => readerOf(schema)(json),
  fromProtobuf: Option.none(),
})

const both = <A>(
  type: string,
  result: {
    readonly fromJson: Kind<A>["fromJson"]
    readonly fromProtobuf: (bytes: Uint8Array) => Either.Either<A, ParseResult.ParseError>
  },
): Kind<A> => ({ type, fromJson: result.fromJson, fromProtobuf: Option.some(result.fromProtobuf) })

/**
 * @since 0.1.0
 * @category kinds
 */
export const kinds = {
  createModel: jsonKind("CreateModel", Training.CreateModelResult),
  unloadModel: jsonKind("UnloadModel", Training.UnloadModelResult),
  loadWeights: jsonKind("LoadWeights", Training.LoadWeightsResult),
  optimStep: jsonKind("OptimStep", Training.OptimStepResult),
  saveWeights: jsonKind("SaveWeights", Training.SaveWeightsResult),
  /** Of a save with a name. */
  saveWeightsForSampler: jsonKind("SaveWeightsForSampler", Training.SavedForSampler),
  /** Of a save that only feeds a sampling session. */
  saveSamplingSession: jsonKind("SaveWeightsForSampler", Training.SavedAsSamplingSession),
  saveWeightsExternal: jsonKind("SaveWeightsExternal", Training.SaveWeightsExternalResult),
  createCustomLoss: jsonKind("CreateCustomLoss", Training.CreateCustomLossResult),
  forward: both("Forward", TrainingResult),
  forwardBackward: both("ForwardBackward", TrainingResult),
  sample: both("Sample", SampleResult),
}

/**
 * How long to wait. `Duration.infinity` is possible for both.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** For the result as a whole. Default: for ever. */
  readonly deadline?: Duration.DurationInput | undefined
  /** Without any news from the server: another state, another reason, the size of the result. Default: 2 hours. */
  readonly stalledAfter?: Duration.DurationInput | undefined
  /** How long submitting took, which the server likes to know. */
  readonly submittedIn?: Duration.DurationInput | undefined
  /** Told at once how it ended, before those who wait are. It must not throw. */
  readonly onExit?: ((exit: Exit.Exit<unknown, FutureError>) => void) | undefined
  /** Told before each poll, and at each change, where it stands and how often it was asked for. It must not throw. */
  readonly onTurn?: ((state: QueueState, polls: number) => void) | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** The future of a request by its id: one that was just submitted, or one from before a restart. */
  readonly attach: <A>(kind: Kind<A>, requestId: string, options?: Options) => Effect.Effect<ApiFuture<A>>
  /** The same at once, with all that this fiber has around it, or had when that was looked at. */
  readonly attachNow: <A>(
    fiber: Fiber.RuntimeFiber<unknown, unknown>,
    kind: Kind<A>,
    requestId: string,
    options: Options,
    around?: Runtime.Runtime<never>,
  ) => ApiFuture<A>
  /** The result, asked for by the fiber that wants it and not beyond its end. `onExit` is not told. */
  readonly follow: <A>(kind: Kind<A>, requestId: string, options?: Options) => Effect.Effect<A, FutureError>
  /**
   * `follow` for who has no fiber to spare: asks at once and tells the end once. Told is an `Exit` if the first answer
   * is the result; else an effect that goes on with what it brought. Gives the way to stop it. It has no span.
   */
  readonly begin: <A>(
    fiber: Fiber.RuntimeFiber<unknown, unknown>,
    kind: Kind<A>,
    requestId: string,
    options: Options,
    end: (rest: Effect.Effect<A, FutureError>) => void,
  ) => () => Effect.Effect<unknown>
  /** The same, for a client with a scope of its own: what it waits for ends with that scope. */
  readonly inScope: Effect.Effect<Service, never, Scope.Scope>
}

/**
 * @since 0.1.0
 * @category tags
 */
export class Futures extends Context.Tag("effect-tinker/ApiFuture/Futures")<Futures, Service>() {}

const operation = "retrieve_future"

/**
 * In the current scope, which ends every wait that is still open.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make: Effect.Effect<Service, never, Transport | Session | Config.TinkerConfig | Scope.Scope> = Effect.gen(
  function* () {
    const transport = yield* Transport
    const session = yield* Session
    const responses = yield* Gate.make({
      limit: Number.POSITIVE_INFINITY,
      budget: session.flags.inflightResponseBytesSemaphoreSize,
      closed: () => new ClientClosed({ operation }),
    })
    const parts: Poller.Parts = {
      transport,
      responses,
      billingPause: session.flags.billingExceptionMaxPauseDurationSec * 1_000,
      log: QueueStateLog.make(yield* Config.TinkerConfig),
      timers: yield* Timeouts.makeTimers,
      sessionId: session.id,
    }

    const follow: Service["follow"] = (kind, requestId, options = {}) => Poller.run(parts, { kind, requestId, options })

    const begin: Service["begin"] = (fiber, kind, requestId, options, end) =>
      Poller.start(parts, fiber, { kind, requestId, options }, end)

    const { isOn, report } = session.telemetry
    const told = (onExit: Options["onExit"]): Options["onExit"] =>
      isOn
        ? (exit) => {
            onExit?.(exit)
            if (exit._tag === "Failure") Option.map(Cause.failureOption(exit.cause), report)
          }
        : onExit

    const inScope: Effect.Effect<Service, never, Scope.Scope> = Effect.gen(function* () {
      const owner = yield* Owner.make(session.lost, operation)

      const attachNow: Service["attachNow"] = (fiber, kind, requestId, options, around) => {
        const queue = new Watched<QueueState>({
          state: "submitted",
          reason: Option.none(),
          since: clockOf(fiber).unsafeCurrentTimeMillis(),
        })
        const owned = owner.launch(
          fiber,
          { operation: kind.type, requestId, onExit: told(options.onExit) },
          Poller.run(parts, { kind, requestId, options, onState: (state) => queue.set(state) }),
          around,
        )
        return new Attached(requestId, owned, queue)
      }
      const attach: Service["attach"] = (kind, requestId, options = {}) =>
        Effect.withFiberRuntime((fiber) => Effect.succeed(attachNow(fiber, kind, requestId, options)))

      return { attach, attachNow, begin, follow, inScope }
    })
    return yield* inScope
  },
)

/**
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<Futures, never, Transport | Session | Config.TinkerConfig> = Layer.fresh(
  Layer.scoped(Futures, make),
)

/**
 * @since 0.1.0
 * @category combinators
 */
export const map = <A, B>(self: ApiFuture<A>, f: (value: A) => B): ApiFuture<B> =>
  self instanceof Telling
    ? new Mapped<A, B>(self, f)
    : {
        requestId: self.requestId,
        requestIds: self.requestIds,
        await: Effect.map(self.await, f),
        poll: Effect.map(self.poll, Option.map(f)),
        queueState: self.queueState,
      }

/**
 * Of which it is known that there will be no result.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fail = (error: FutureError): ApiFuture<never> => new Ended<never>(Exit.fail(error))

/**
 * Both results, when both are there; the first failure at once.
 *
 * @since 0.1.0
 * @category combinators
 */
export const zip = <A, B>(self: ApiFuture<A>, that: ApiFuture<B>): ApiFuture<readonly [A, B]> => all([self, that])

/**
 * All results, in the shape of what was given: an array or a record.
 *
 * @since 0.1.0
 * @category combinators
 */
export const all = <const T extends ReadonlyArray<ApiFuture<unknown>> | Readonly<Record<string, ApiFuture<unknown>>>>(
  futures: T,
): ApiFuture<{ -readonly [K in keyof T]: T[K] extends ApiFuture<infer A> ? A : never }> => {
  type Results = { -readonly [K in keyof T]: T[K] extends ApiFuture<infer A> ? A : never }
  const keys = Object.keys(futures)
  const parts: ReadonlyArray<ApiFuture<unknown>> = Object.values(futures)
  // The keys are those of `futures`, each with the result of its own.
  const shape = (values: ReadonlyArray<unknown>): Results =>
    (Array.isArray(futures) ? values : Object.fromEntries(keys.map((key, i) => [key, values[i]]))) as Results
  return map(gather(parts), shape)
}

const gather = (parts: ReadonlyArray<ApiFuture<unknown>>): ApiFuture<ReadonlyArray<unknown>> => {
  if (parts.every((part) => part instanceof Telling)) return new Gathered(parts)
  const requestIds = parts.flatMap(({ requestIds }) => requestIds)
  return {
    requestId: requestIds[0] ?? "",
    requestIds,
    await: Effect.all(
      parts.map((part) => part.await),
      { concurrency: "unbounded" },
    ),
    poll: Effect.map(Effect.all(parts.map(({ poll }) => poll)), Option.all),
    queueState: Stream.mergeAll(
      parts.map(({ queueState }) => queueState),
      { concurrency: "unbounded" },
    ),
  }
}
