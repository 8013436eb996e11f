/**
 * Limits submissions. A limiter belongs to one base URL and one configured credential, and is shared by all clients that
 * ask the same registry for it: the server counts per account, not per client. There is no module-level state: two
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
 * Identifies a limiter. `credential` is the configured one, never a token that changes; see {@link keyOf}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Key {
  readonly baseUrl: BaseUrl
  readonly credential: Redacted.Redacted<string>
}

/**
 * Returns the key of a configuration. Credentials count in the order in which they are used. The name of a source never
 * looks like an API key, which starts with `tml-` or `eyJ`.
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
 * Limits on the bytes that are submitted at once. A server reports its own after the limiter was created.
 *
 * @since 0.1.0
 * @category models
 */
export interface Budgets {
  readonly sampleBytes: number
  readonly trainingBytes: number
}

/**
 * @since 0.1.0
 * @category models
 */
export interface GateStats {
  readonly inFlight: number
  readonly waiting: number
  /** The rest of the byte budget; below zero while a request is bigger than the rest was. */
  readonly balance: number
  /** How often the head of the queue was examined: the work done so far. */
  readonly checks: number
  /** Whether the head of the queue waits for a timer. */
  readonly timer: boolean
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Stats {
  readonly sampling: GateStats
  readonly training: GateStats
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Limiter {
  /**
   * Runs the submission of a sample of this estimated size in its turn: first come, first served, at most 400 at once,
   * within the byte budget, never during a back-off window. While a window is open and for 10 seconds after it, at most
   * 10 at once, and bytes count 20 times. A submission above the whole budget passes alone.
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
  /** Runs the submission of training data: only the byte budget counts. */
  readonly training: (
    bytes: number,
  ) => <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E | ClientClosed, R>
  /**
   * Opens a back-off window after a refusal, in which no sample starts, and returns `true`. A window shorter than the
   * open one changes nothing. A single refusal (one for 20 samples that passed, or the second for 40) opens no window:
   * other samples go on, 10 at once, only the refused one has to wait, and the result is `false`.
   */
  readonly backOff: (duration: Duration.DurationInput) => Effect.Effect<boolean>
  /** The rest of the back-off window; none if samples may start. */
  readonly window: Effect.Effect<Option.Option<Duration.Duration>>
  /** Changes the budgets, also for waiting requests and for every client that shares the limiter. */
  readonly configure: (budgets: Partial<Budgets>) => Effect.Effect<void>
  readonly stats: Effect.Effect<Stats>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** Returns the limiter of this key, held until the scope closes. */
  readonly limiter: (key: Key) => Effect.Effect<Limiter, never, Scope.Scope>
}

/**
 * @since 0.1.0
 * @category tags
 */
export class RateLimiter extends Context.Tag("effect-tinker/RateLimiter")<RateLimiter, Service>() {}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /**
   * How long an unused limiter is kept. Without it, a client that is opened right after another one closed knows
   * nothing of its back-off.
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
      // On the registry's clock, whichever client asks first.
      lookup: () => Effect.withClock(makeLimiter, clock),
      idleTimeToLive: options?.idleTimeToLive,
    })
    // A closed RcMap interrupts its callers; this registry must not.
    let open = true
    yield* Effect.addFinalizer(() => Effect.sync(() => (open = false)))
    return RateLimiter.of({
      limiter: (key) =>
        Effect.suspend(() =>
          open
            ? Effect.catchAllCause(
                RcMap.get(limiters, Data.struct({ baseUrl: key.baseUrl, credential: key.credential })),
                // It also interrupts callers whose scope is closed already.
                () => makeClosed,
              )
            : makeClosed,
        ),
    })
  })

/**
 * Provides one registry. Provide it once, outside of everything that shares limiters.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<RateLimiter> = Layer.scoped(RateLimiter, make())

/**
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
