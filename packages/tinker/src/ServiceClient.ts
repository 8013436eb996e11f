/**
 * The entry point of the SDK: reports server capabilities and creates training and sampling clients. They belong to one
 * session, which is opened with the first client and ends with the scope; a program that only reads opens none.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Ref from "effect/Ref"
import * as Scope from "effect/Scope"
import * as Tracer from "effect/Tracer"
import * as Api from "./protocol/Api.ts"
import type { ServerCapabilities } from "./protocol/schemas/Session.ts"
import * as ApiFuture from "./ApiFuture.ts"
import type { Credentials } from "./Credentials.ts"
import * as SingleFlight from "./internal/util/SingleFlight.ts"
import type { RateLimiter } from "./RateLimiter.ts"
import * as Checkpoint from "./Checkpoint.ts"
import * as RestClient from "./RestClient.ts"
import * as SamplingClient from "./SamplingClient.ts"
import type { ServerConfig } from "./protocol/ServerConfig.ts"
import * as Session from "./Session.ts"
import * as Telemetry from "./Telemetry.ts"
import type { TinkerConfig } from "./TinkerConfig.ts"
import { ClientClosed, type TinkerError, type TrainingError } from "./TinkerError.ts"
import * as TrainingClient from "./TrainingClient.ts"
import type * as TrainingJournal from "./TrainingJournal.ts"
import { Transport } from "./Transport.ts"

/**
 * The operations of `ServiceClient`. Each client lives in the scope in which it is created.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  readonly getServerCapabilities: Effect.Effect<typeof ServerCapabilities.Type, TinkerError>
  /** Manages runs, checkpoints and sessions without opening a session. */
  readonly rest: RestClient.Service
  /** Returns the session of all clients created here and opens it if necessary. */
  readonly session: Effect.Effect<Session.Service, TinkerError>
  /** Creates a model with LoRA adapters on a base model. */
  readonly createLoraTrainingClient: (
    options: TrainingClient.LoraOptions,
  ) => Effect.Effect<TrainingClient.Service, TrainingError, Scope.Scope>
  /** Creates a model with the weights of a checkpoint. */
  readonly createTrainingClientFromCheckpoint: (
    path: Checkpoint.Input,
    options?: TrainingClient.CheckpointOptions,
  ) => Effect.Effect<TrainingClient.Service, TrainingError, Scope.Scope>
  /**
   * Starts the training run of a journal, or continues it: in its session while the server keeps that, else from its
   * last checkpoint. Reports a run that is complete. The run has a session of its own.
   */
  readonly openTrainingClient: (
    options: TrainingClient.OpenOptions,
  ) => Effect.Effect<TrainingClient.OpenRun | TrainingClient.CompletedRun, TrainingError, Scope.Scope>
  /** Resumes the model of a journal in its original session. */
  readonly resumeTrainingClient: (
    options: TrainingClient.Options & { readonly journal: TrainingJournal.Journal },
  ) => Effect.Effect<TrainingClient.Resumed, TrainingError, Scope.Scope>
  /** Creates a sampling client for a base model or saved weights. */
  readonly createSamplingClient: (
    target: SamplingClient.Target,
    options?: SamplingClient.Options,
  ) => Effect.Effect<SamplingClient.Service, TinkerError, Scope.Scope>
}

/**
 * The service tag of the entry point.
 *
 * @example
 * ```ts
 * import { Console, Effect, Stream } from "effect"
 * import { Loss, Optimizer, ServiceClient } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const data = [{ modelInput: [10, 20, 30], inputs: { targetTokens: [20, 30, 40], weights: [1, 1, 1] } }]
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const training = yield* service.createLoraTrainingClient({ baseModel: "effect-tinker/valley-1.5m", rank: 8 })
 *   const steps = yield* Stream.make(data, data, data).pipe(
 *     training.trainSteps(Loss.crossEntropy, Optimizer.adam({ learningRate: 1e-2 })),
 *     Stream.runCount,
 *   )
 *   yield* Console.log(steps) // → 3
 * })
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(NodeTinker.layerConfig())))
 * ```
 *
 * @since 0.1.0
 * @category tags
 */
export class ServiceClient extends Context.Tag("effect-tinker/ServiceClient")<ServiceClient, Service>() {}

/**
 * The services required by the client.
 *
 * @since 0.1.0
 * @category models
 */
export type Environment = Transport | Credentials | ServerConfig | RateLimiter | TinkerConfig

/**
 * Creates the client in the current scope; its session ends with the scope.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (options: Session.Options = {}): Effect.Effect<Service, never, Environment | Scope.Scope> =>
  Effect.gen(function* () {
    const scope = yield* Effect.scope
    // Clients live in the caller's scope, not in this one.
    const context = Context.omit(Scope.Scope)(yield* Effect.context<Environment | Scope.Scope>())
    const transport = yield* Transport
    const rest = yield* RestClient.make
    const opened = yield* Ref.make(Option.none<Context.Context<Session.Session | ApiFuture.Futures | Transport>>())
    const open = SingleFlight.make(
      Effect.gen(function* () {
        const session = yield* Session.make(options)
        const futures = yield* Effect.provideService(ApiFuture.make, Session.Session, session)
        const made = Context.make(Session.Session, session).pipe(
          Context.add(ApiFuture.Futures, futures),
          Context.add(Transport, Telemetry.observing(session.telemetry, transport)),
        )
        yield* Ref.set(opened, Option.some(made))
        // A lost session must not be used for the next client.
        yield* session.lost.pipe(
          Effect.catchTag("SessionLost", () => Ref.set(opened, Option.none())),
          Effect.ignore,
          Effect.forkScoped,
          Effect.interruptible,
        )
        return made
      }).pipe(
        // Heartbeats must not be attributed to the span that happened to open the session.
        Effect.mapInputContext((caller: Context.Context<never>) =>
          Context.merge(Context.omit(Tracer.ParentSpan)(caller), Context.add(context, Scope.Scope, scope)),
        ),
      ),
      scope,
      () => new ClientClosed({ operation: "session" }),
    )
    /** Concurrent callers share one session; after a failure the next caller tries again. */
    const inSession = Effect.flatMap(Ref.get(opened), Option.match({ onNone: () => open.run, onSome: Effect.succeed }))

    /** Runs an effect in the caller's scope with this session. */
    const within = <A, E>(
      effect: Effect.Effect<A, E, Environment | Session.Session | ApiFuture.Futures | Scope.Scope>,
    ): Effect.Effect<A, E | TinkerError, Scope.Scope> =>
      Effect.flatMap(inSession, (made) => Effect.provide(effect, Context.merge(context, made)))

    return ServiceClient.of({
      getServerCapabilities: transport.call(Api.getServerCapabilities, {}),
      rest,
      session: Effect.map(inSession, Context.get(Session.Session)),
      createLoraTrainingClient: (options) => within(TrainingClient.makeLora(options)),
      // Invalid input must not open a session.
      createTrainingClientFromCheckpoint: (path, options) =>
        Effect.zipRight(Checkpoint.textOf(path), within(TrainingClient.makeFromCheckpoint(path, options))),
      openTrainingClient: (opening) =>
        Effect.provide(TrainingClient.open({ ...opening, session: opening.session ?? options }), context),
      resumeTrainingClient: (options) => Effect.provide(TrainingClient.resume(options), context),
      createSamplingClient: (target, options) =>
        Effect.zipRight(SamplingClient.check(target), within(SamplingClient.make(target, options))),
    })
  })

/**
 * Provides `ServiceClient`. The layer is fresh: a layer memoized by reference would hand one tenant's credential to
 * another.
 *
 * @example
 * ```ts
 * import { FetchHttpClient } from "@effect/platform"
 * import { Console, Effect, Layer } from "effect"
 * import { RateLimiter, ServiceClient, TinkerConfig } from "effect-tinker"
 * import * as Transport from "effect-tinker/Transport"
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const session = yield* service.session
 *   yield* Console.log(session.id !== "") // → true
 * })
 *
 * // Provides only this client; `Tinker.layer` and `NodeTinker.layerConfig` provide all of them.
 * const layer = ServiceClient.layer({ userMetadata: { experiment: "first" } }).pipe(
 *   Layer.provide(Transport.layer),
 *   Layer.provide([TinkerConfig.layerConfig(), RateLimiter.layer, FetchHttpClient.layer]),
 * )
 *
 * await Effect.runPromise(Effect.provide(program, layer))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (options?: Session.Options): Layer.Layer<ServiceClient, never, Environment> =>
  Layer.fresh(Layer.scoped(ServiceClient, make(options)))
