/**
 * Where a program begins: what the server offers, and clients for models and samplers. They belong to one session,
 * which is opened when the first of them is made and ends with the scope; a program that only asks opens none.
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
 * Every client lives in the scope in which it is made.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  readonly getServerCapabilities: Effect.Effect<typeof ServerCapabilities.Type, TinkerError>
  /** Runs, checkpoints and sessions. Needs no session of its own. */
  readonly rest: RestClient.Service
  /** The session of all clients that are made here. Asking for it opens it. */
  readonly session: Effect.Effect<Session.Service, TinkerError>
  /** A new model with adapters over a base model. */
  readonly createLoraTrainingClient: (
    options: TrainingClient.LoraOptions,
  ) => Effect.Effect<TrainingClient.Service, TrainingError, Scope.Scope>
  /** A new model with the weights of a checkpoint. */
  readonly createTrainingClientFromCheckpoint: (
    path: Checkpoint.Input,
    options?: TrainingClient.CheckpointOptions,
  ) => Effect.Effect<TrainingClient.Service, TrainingError, Scope.Scope>
  /** The model of a journal, in the session in which it was made. */
  readonly resumeTrainingClient: (
    options: TrainingClient.Options & { readonly journal: TrainingJournal.Journal },
  ) => Effect.Effect<TrainingClient.Resumed, TrainingError, Scope.Scope>
  /** A sampler of a base model, or of weights that were saved. */
  readonly createSamplingClient: (
    target: SamplingClient.Target,
    options?: SamplingClient.Options,
  ) => Effect.Effect<SamplingClient.Service, TinkerError, Scope.Scope>
}

/**
 * @since 0.1.0
 * @category tags
 */
export class ServiceClient extends Context.Tag("effect-tinker/ServiceClient")<ServiceClient, Service>() {}

/**
 * What a service client needs around it.
 *
 * @since 0.1.0
 * @category models
 */
export type Environment = Transport | Credentials | ServerConfig | RateLimiter | TinkerConfig

/**
 * In the current scope, with which its session ends.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (options: Session.Options = {}): Effect.Effect<Service, never, Environment | Scope.Scope> =>
  Effect.gen(function* () {
    const scope = yield* Effect.scope
    // Without our scope: a client lives in that of whoever makes it.
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
        // A session that is lost is of no use to the next client.
        yield* session.lost.pipe(
          Effect.catchTag("SessionLost", () => Ref.set(opened, Option.none())),
          Effect.ignore,
          Effect.forkScoped,
          Effect.interruptible,
        )
        return made
      }).pipe(
        // Its heartbeats are not part of the work that happened to open it.
        Effect.mapInputContext((caller: Context.Context<never>) =>
          Context.merge(Context.omit(Tracer.ParentSpan)(caller), Context.add(context, Scope.Scope, scope)),
        ),
      ),
      scope,
      () => new ClientClosed({ operation: "session" }),
    )
    /** However many ask at once, one session; after a failure the next one to ask tries again. */
    const inSession = Effect.flatMap(Ref.get(opened), Option.match({ onNone: () => open.run, onSome: Effect.succeed }))

    /** In the caller's scope, and in our session. */
    const within = <A, E>(
      effect: Effect.Effect<A, E, Environment | Session.Session | ApiFuture.Futures | Scope.Scope>,
    ): Effect.Effect<A, E | TinkerError, Scope.Scope> =>
      Effect.flatMap(inSession, (made) => Effect.provide(effect, Context.merge(context, made)))

    return ServiceClient.of({
      getServerCapabilities: transport.call(Api.getServerCapabilities, {}),
      rest,
      session: Effect.map(inSession, Context.get(Session.Session)),
      createLoraTrainingClient: (options) => within(TrainingClient.createLora(options)),
      // Bad input opens no session.
      createTrainingClientFromCheckpoint: (path, options) =>
        Effect.zipRight(Checkpoint.textOf(path), within(TrainingClient.fromCheckpoint(path, options))),
      resumeTrainingClient: (options) => Effect.provide(TrainingClient.resume(options), context),
      createSamplingClient: (target, options) =>
        Effect.zipRight(SamplingClient.check(target), within(SamplingClient.make(target, options))),
    })
  })

/**
 * @since 0.1.0
 * @category layers
 */
export const layer = (options?: Session.Options): Layer.Layer<ServiceClient, never, Environment> =>
  Layer.fresh(Layer.scoped(ServiceClient, make(options)))
