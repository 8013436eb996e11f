/**
 * Results that the server is still working on. A client fetches each result once, however many callers wait for it, and
 * every caller resumes however that ends.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import { dual } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import type { Pipeable } from "effect/Pipeable"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type * as Stream from "effect/Stream"
import type * as Types from "effect/Types"
import * as Training from "./protocol/schemas/Training.ts"
import * as Poller from "./internal/futures/Poller.ts"
import * as QueueStateLog from "./internal/runtime/QueueStateLog.ts"
import * as Gate from "./internal/runtime/Gate.ts"
import * as Timeouts from "./internal/runtime/Timeouts.ts"
import * as Tasks from "./internal/runtime/Tasks.ts"
import { surroundings } from "./internal/util/RunBeside.ts"
import { readerOf } from "./internal/request/FastJson.ts"
import {
  CombinedFuture,
  type FutureImpl,
  MappedFuture,
  PendingFuture,
  SettledFuture,
  TypeId,
} from "./internal/futures/FutureImpl.ts"
import { clockOf } from "./internal/util/MonotonicClock.ts"
import { ObservableValue } from "./internal/util/ObservableValue.ts"
import * as SampleResult from "./SampleResult.ts"
import { Session } from "./Session.ts"
import * as Config from "./TinkerConfig.ts"
import { ClientClosed, type FutureError } from "./TinkerError.ts"
import * as TrainingResult from "./TrainingResult.ts"
import { Transport } from "./Transport.ts"

/**
 * Identifies futures; see {@link isApiFuture}.
 *
 * @since 0.1.0
 * @category symbols
 */
export { TypeId }

/**
 * The queue state of a request. `state` is the server's word (`active`, `paused_rate_limit`, `paused_capacity`, …), or
 * one of the client: `submitted` until the server reports a state, `unreachable` while polls fail, `paused_rate_limit`
 * while they are throttled, `paused_billing` while billing blocks the account, `waiting_for_room` while a large result
 * waits for others to be read.
 *
 * @since 0.1.0
 * @category models
 */
export interface QueueState {
  readonly state: string
  readonly reason: Option.Option<string>
  /** When the state began, in milliseconds since 1970. */
  readonly since: number
}

/**
 * The future result of a request. Clients create futures; other implementations are not supported. Properties are
 * prototype getters: spreading a future yields an empty object.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { ApiFuture, Optimizer, ServiceClient } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const training = yield* service.createLoraTrainingClient({ baseModel: "effect-tinker/valley-1.5m", rank: 8 })
 *   // Submits both operations before it waits for either of them.
 *   const step = yield* training.submit.optimStep(Optimizer.adam())
 *   const saved = yield* training.submit.saveState("after-step")
 *   const [, { path }] = yield* ApiFuture.zip(step, saved).await
 *   yield* Console.log(path.endsWith("/weights/after-step")) // → true
 * })
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(NodeTinker.layerConfig())))
 * ```
 *
 * @since 0.1.0
 * @category models
 */
export interface ApiFuture<out A> extends Pipeable {
  readonly [TypeId]: { readonly _A: Types.Covariant<A> }
  /** The id of the request, or of the first of several. */
  readonly requestId: string
  readonly requestIds: ReadonlyArray<string>
  /** Waits for the result. Interrupting it leaves other waiters alone. */
  readonly await: Effect.Effect<A, FutureError>
  /** The result if it is there. Sends nothing. */
  readonly poll: Effect.Effect<Option.Option<A>, FutureError>
  /** The current queue state and each change, until the result is there. */
  readonly queueState: Stream.Stream<QueueState>
}

/**
 * Checks whether a value is an `ApiFuture`.
 *
 * @since 0.1.0
 * @category guards
 */
export const isApiFuture = (value: unknown): value is ApiFuture<unknown> => Predicate.hasProperty(value, TypeId)

/**
 * A kind of result and how it is read.
 *
 * @since 0.1.0
 * @category models
 */
export interface Kind<out A> {
  /** The name on the wire. */
  readonly type: string
  readonly fromJson: (json: unknown) => Either.Either<A, ParseResult.ParseError>
  readonly fromProtobuf: Option.Option<(bytes: Uint8Array) => Either.Either<A, ParseResult.ParseError>>
}

/**
 * Creates the kind of a result that is always JSON.
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

/** Rejects an object with none of these keys, unless it is empty: all fields are optional, so that any would do. */
const withOneOf = <A>(kind: Kind<A>, ...keys: ReadonlyArray<string>): Kind<A> => ({
  ...kind,
  fromJson: (json) => {
    const isForeign =
      Predicate.isRecord(json) && Object.keys(json).length > 0 && !keys.some((key) => Object.hasOwn(json, key))
    return isForeign
      ? Either.left(
          ParseResult.parseError(new ParseResult.Type(Schema.Unknown.ast, json, `expected ${keys.join(" or ")}`)),
        )
      : kind.fromJson(json)
  },
})

/**
 * Every kind of result that the server has.
 *
 * @since 0.1.0
 * @category kinds
 */
export const kinds = {
  createModel: jsonKind("CreateModel", Training.CreateModelResult),
  unloadModel: jsonKind("UnloadModel", Training.UnloadModelResult),
  loadWeights: jsonKind("LoadWeights", Training.LoadWeightsResult),
  optimStep: withOneOf(jsonKind("OptimStep", Training.OptimStepResult), "metrics", "type"),
  saveWeights: jsonKind("SaveWeights", Training.SaveWeightsResult),
  /** A save with a name. */
  saveWeightsForSampler: jsonKind("SaveWeightsForSampler", Training.SavedForSampler),
  /** A save that only feeds a sampling session. */
  saveSamplingSession: jsonKind("SaveWeightsForSampler", Training.SavedAsSamplingSession),
  saveWeightsExternal: jsonKind("SaveWeightsExternal", Training.SaveWeightsExternalResult),
  createCustomLoss: jsonKind("CreateCustomLoss", Training.CreateCustomLossResult),
  forward: both("Forward", TrainingResult),
  forwardBackward: both("ForwardBackward", TrainingResult),
  sample: both("Sample", SampleResult),
}

/**
 * How long to wait for a result. `Duration.infinity` turns a limit off.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /**
   * Limits the wait as a whole.
   *
   * @default Duration.infinity
   */
  readonly deadline?: Duration.DurationInput | undefined
  /**
   * Limits the time without news from the server: another state, another reason, the size of the result.
   *
   * @default "2 hours"
   */
  readonly stalledAfter?: Duration.DurationInput | undefined
  /** How long the submission took, which the server wants to know. */
  readonly submittedIn?: Duration.DurationInput | undefined
  /** Called with the result before the waiters are resumed. It must not throw. */
  readonly onExit?: ((exit: Exit.Exit<unknown, FutureError>) => void) | undefined
  /** Called before each poll and at each change of the queue state, with the number of polls. It must not throw. */
  readonly onTurn?: ((state: QueueState, polls: number) => void) | undefined
}

/**
 * Fetches results by the ids of their requests.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** Returns the future of a request: one that was just submitted, or one from before a restart. */
  readonly attach: <A>(kind: Kind<A>, requestId: string, options?: Options) => Effect.Effect<ApiFuture<A>>
  /** Polls for a result in the current fiber; interrupting it stops the poll. `onExit` is not called. */
  readonly follow: <A>(kind: Kind<A>, requestId: string, options?: Options) => Effect.Effect<A, FutureError>
  /**
   * Polls for a result without a fiber of its own, in the context of the given fiber. Calls `onExit` exactly once,
   * possibly before it returns. The returned function stops the poll; `onExit` is not called after that.
   *
   * @internal
   */
  readonly start: <A>(
    fiber: Fiber.RuntimeFiber<unknown, unknown>,
    kind: Kind<A>,
    requestId: string,
    options: Options,
    onExit: (exit: Exit.Exit<A, FutureError>) => void,
  ) => () => Effect.Effect<unknown>
  /** Creates a service whose waits end with the current scope. */
  readonly inScope: Effect.Effect<Service, never, Scope.Scope>
}

/**
 * The service that fetches results.
 *
 * @since 0.1.0
 * @category tags
 */
export class Futures extends Context.Tag("effect-tinker/ApiFuture/Futures")<Futures, Service>() {}

const operation = "retrieve_future"

/**
 * Creates the service in the current scope, which ends every wait that is still open.
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

    const start: Service["start"] = (fiber, kind, requestId, options, onExit) =>
      Poller.start(parts, fiber, { kind, requestId, options }, onExit)

    const { isOn, report } = session.telemetry
    const reported = (onExit: Options["onExit"]): Options["onExit"] =>
      isOn
        ? (exit) => {
            onExit?.(exit)
            if (exit._tag === "Failure") Option.map(Cause.failureOption(exit.cause), report)
          }
        : onExit

    const inScope: Effect.Effect<Service, never, Scope.Scope> = Effect.gen(function* () {
      const tasks = yield* Tasks.make(session.lost, operation)

      const attach: Service["attach"] = (kind, requestId, options = {}) =>
        Effect.withFiberRuntime((fiber) => {
          const queue = new ObservableValue<QueueState>({
            state: "submitted",
            reason: Option.none(),
            since: clockOf(fiber).unsafeCurrentTimeMillis(),
          })
          const work = Poller.run(parts, { kind, requestId, options, onState: (state) => queue.set(state) })
          const task = tasks.start(
            { operation: kind.type, requestId, onExit: reported(options.onExit) },
            Tasks.inFiber(surroundings(fiber), work),
          )
          return Effect.succeed(new PendingFuture({ requestIds: [requestId] }, task, queue))
        })

      return { attach, start, follow, inScope }
    })
    return yield* inScope
  },
)

/**
 * Provides the service. The layer is fresh: each use creates a separate service.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<Futures, never, Transport | Session | Config.TinkerConfig> = Layer.fresh(
  Layer.scoped(Futures, make),
)

/** The one implementation of the interface. */
const implOf = <A>(future: ApiFuture<A>): FutureImpl<A> => {
  if (isApiFuture(future)) return future as FutureImpl<A>
  throw new TypeError("expected an ApiFuture of a client")
}

/**
 * Transforms the result of a future. An exception of `f` is a defect of the new future.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { ApiFuture, ServiceClient } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const sampler = yield* service.createSamplingClient({ baseModel: "effect-tinker/valley-1.5m" })
 *   const sample = yield* sampler.submit.sample({ prompt: [10, 20, 30], params: { maxTokens: 4, stop: [] } })
 *   const tokens = sample.pipe(ApiFuture.map(({ sequences }) => sequences[0]?.tokens.length))
 *   yield* Console.log(yield* tokens.await) // → 4
 * })
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(NodeTinker.layerConfig())))
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const map: {
  <A, B>(f: (value: A) => B): (self: ApiFuture<A>) => ApiFuture<B>
  <A, B>(self: ApiFuture<A>, f: (value: A) => B): ApiFuture<B>
} = dual(2, <A, B>(self: ApiFuture<A>, f: (value: A) => B): ApiFuture<B> => new MappedFuture(implOf(self), f))

/**
 * Creates a future that has failed.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fail = (error: FutureError): ApiFuture<never> => new SettledFuture<never>(Exit.fail(error))

/**
 * Combines two futures. Succeeds when both have, and fails with the first failure.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { ApiFuture, Loss, Optimizer, ServiceClient } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const data = [{ modelInput: [10, 20], inputs: { targetTokens: [20, 30], weights: [1, 1] } }]
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const training = yield* service.createLoraTrainingClient({ baseModel: "effect-tinker/valley-1.5m", rank: 8 })
 *   const pass = yield* training.submit.forwardBackward(data, Loss.crossEntropy)
 *   const update = yield* training.submit.optimStep(Optimizer.adam())
 *   const [{ outputs }] = yield* ApiFuture.zip(pass, update).await
 *   yield* Console.log(outputs.length) // → 1
 * })
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(NodeTinker.layerConfig())))
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const zip: {
  <B>(that: ApiFuture<B>): <A>(self: ApiFuture<A>) => ApiFuture<readonly [A, B]>
  <A, B>(self: ApiFuture<A>, that: ApiFuture<B>): ApiFuture<readonly [A, B]>
} = dual(2, <A, B>(self: ApiFuture<A>, that: ApiFuture<B>): ApiFuture<readonly [A, B]> => all([self, that]))

/**
 * Combines an array or a record of futures into one future of the same shape. Fails with the first failure.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { ApiFuture, ServiceClient } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const training = yield* service.createLoraTrainingClient({ baseModel: "effect-tinker/valley-1.5m", rank: 8 })
 *   const saved = ApiFuture.all({
 *     state: yield* training.submit.saveState("final"),
 *     weights: yield* training.submit.saveWeightsForSampler("final"),
 *   })
 *   const { state, weights } = yield* saved.await
 *   yield* Console.log(state.path.endsWith("/weights/final")) // → true
 *   yield* Console.log(weights.path.endsWith("/sampler_weights/final")) // → true
 * })
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(NodeTinker.layerConfig())))
 * ```
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
  // Each key of `futures` has the result of its own future.
  const shape = (values: ReadonlyArray<unknown>): Results =>
    (Array.isArray(futures) ? values : Object.fromEntries(keys.map((key, i) => [key, values[i]]))) as Results
  return map(new CombinedFuture(parts.map(implOf)), shape)
}
