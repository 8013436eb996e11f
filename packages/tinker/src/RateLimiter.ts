/**
 * Decides when requests may be sent. A limiter belongs to one base URL and one configured credential and is shared by
 * all clients of a registry, because the server counts requests per account. There is no module-level state: two
 * registries share nothing.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as RcMap from "effect/RcMap"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import type { BaseUrl } from "./http/BaseUrl.ts"
import * as Gate from "./internal/runtime/Gate.ts"
import type * as TinkerConfig from "./TinkerConfig.ts"
import { ClientClosed } from "./TinkerError.ts"

/**
 * Identifies a limiter. `credential` is the configured credential, never a token that changes; see {@link keyOf}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Key {
  readonly baseUrl: BaseUrl
  readonly credential: Redacted.Redacted<string>
}

/**
 * Returns the key of a configuration, using the credentials in their order of precedence. The name of a source cannot
 * be confused with an API key, which starts with `tml-` or `eyJ`.
 *
 * @since 0.1.0
 * @category constructors
 */
export const keyOf = ({ apiKey, baseUrl, credentialCommand, credentialsFile }: TinkerConfig.Service): Key => ({
  baseUrl,
  credential: Option.getOrElse(apiKey, () =>
    Redacted.make(
      Option.match(credentialCommand, {
        onSome: (command) => `command ${Redacted.value(command)}`,
        onNone: () => `file ${Option.getOrElse(credentialsFile, () => "")}`,
      }),
    ),
  ),
})

/**
 * Limits for the number of bytes being submitted at the same time. A server may change them after the limiter is
 * created.
 *
 * @since 0.1.0
 * @category models
 */
export interface Budgets {
  readonly sampleBytes: number
  readonly trainingBytes: number
}

/**
 * The state of one gate.
 *
 * @since 0.1.0
 * @category models
 */
export interface GateStats {
  readonly inFlight: number
  readonly waiting: number
  /** The remaining byte budget; negative while a request larger than the remaining budget is in flight. */
  readonly balance: number
  /** The number of times the head of the queue was examined, as a measure of work. */
  readonly checks: number
  /** Whether the head of the queue is waiting for time to pass. */
  readonly timer: boolean
}

/**
 * The state of a limiter.
 *
 * @since 0.1.0
 * @category models
 */
export interface Stats {
  readonly sampling: GateStats
  readonly training: GateStats
}

/**
 * Controls the submission of requests for one key.
 *
 * @since 0.1.0
 * @category models
 */
export interface Limiter {
  /**
   * Runs the submission of a sample with an estimated size in first-in, first-out order: at most 400 at once, within
   * the byte budget, and never during a back-off window. While a window is open and for 10 seconds after it, at most 10
   * run at once and bytes count 20 times. A request larger than the whole budget runs alone.
   */
  readonly sampling: (
    bytes: number,
  ) => <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E | ClientClosed, R>
  /**
   * The callback form of `sampling` and `backOff`.
   *
   * @internal
   */
  readonly samplingGate: Pick<Gate.Gate<ClientClosed>, "enter" | "backOff">
  /** Runs the submission of training data like `sampling`, limited only by the byte budget. */
  readonly training: (
    bytes: number,
  ) => <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E | ClientClosed, R>
  /**
   * Opens a back-off window after a refusal, in which no sample starts, and returns `true`. A window shorter than the
   * remaining one changes nothing. An isolated refusal (one per 20 accepted samples, or two per 40) opens no window: it
   * returns `false`, only the refused request waits, and the others continue, 10 at once.
   */
  readonly backOff: (duration: Duration.DurationInput) => Effect.Effect<boolean>
  /** Returns the remaining time of the back-off window, or none if samples may start. */
  readonly window: Effect.Effect<Option.Option<Duration.Duration>>
  /**
   * Changes the budgets, including for requests that are already waiting. The last call applies to all users of the
   * limiter.
   */
  readonly configure: (budgets: Partial<Budgets>) => Effect.Effect<void>
  readonly stats: Effect.Effect<Stats>
}

/**
 * The registry of limiters.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** Returns the limiter for a key and holds it until the scope closes. */
  readonly limiter: (key: Key) => Effect.Effect<Limiter, never, Scope.Scope>
}

/**
 * The service tag of the registry.
 *
 * @since 0.1.0
 * @category tags
 */
export class RateLimiter extends Context.Tag("effect-tinker/RateLimiter")<RateLimiter, Service>() {}

/**
 * Options of the registry.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /**
   * How long an unused limiter is kept. Without it, a client opened right after another one closed does not know about
   * its back-off.
   *
   * @default 0
   */
  readonly idleTimeToLive?: Duration.DurationInput
}

/**
 * Creates a registry in the current scope.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (options?: Options): Effect.Effect<Service, never, Scope.Scope> =>
  Effect.gen(function* () {
    const clock = yield* Effect.clock
    const limiters = yield* RcMap.make<Key, Limiter, never, Scope.Scope>({
      // The limiter uses the registry's clock, not that of its first user.
      lookup: () => Effect.withClock(makeLimiter, clock),
      idleTimeToLive: options?.idleTimeToLive,
    })
    // A closed RcMap interrupts its callers; the registry must not.
    let open = true
    yield* Effect.addFinalizer(() => Effect.sync(() => (open = false)))
    return RateLimiter.of({
      limiter: (key) =>
        Effect.suspend(() =>
          open
            ? Effect.catchAllCause(
                RcMap.get(limiters, Data.struct({ baseUrl: key.baseUrl, credential: key.credential })),
                // RcMap also interrupts a caller whose scope is already closed.
                () => makeClosed,
              )
            : makeClosed,
        ),
    })
  })

/**
 * Provides one registry. Provide it once, around everything that may share limiters.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<RateLimiter> = Layer.scoped(RateLimiter, make())

/**
 * Provides one registry with options.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerWith = (options: Options): Layer.Layer<RateLimiter> => Layer.scoped(RateLimiter, make(options))

const defaults: Budgets = { sampleBytes: 10_485_760, trainingBytes: 50_000_000 }

const makeLimiter: Effect.Effect<Limiter, never, Scope.Scope> = Effect.gen(function* () {
  const closed = () => new ClientClosed({ operation: "rate limiter" })
  const sampling = yield* Gate.make({
    limit: 400,
    budget: defaults.sampleBytes,
    throttle: { limit: 10, factor: 20, linger: Duration.seconds(10), aloneAfter: 20 },
    closed,
  })
  const training = yield* Gate.make({ limit: Number.POSITIVE_INFINITY, budget: defaults.trainingBytes, closed })
  const limiter: Limiter = {
    sampling: (bytes) => sampling.withPlace(bytes),
    samplingGate: sampling,
    training: (bytes) => training.withPlace(bytes),
    backOff: (duration) => Effect.sync(() => sampling.backOff(duration)),
    window: sampling.window,
    configure: ({ sampleBytes, trainingBytes }) =>
      Effect.zipRight(
        sampleBytes === undefined ? Effect.void : sampling.setBudget(sampleBytes),
        trainingBytes === undefined ? Effect.void : training.setBudget(trainingBytes),
      ),
    stats: Effect.all({ sampling: sampling.stats, training: training.stats }),
  }
  return limiter
})

const makeClosed: Effect.Effect<Limiter> = Effect.scoped(makeLimiter)
