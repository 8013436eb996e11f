/**
 * Serves many tenants in one program. Each tenant has its own configuration, connections, session and clients, created
 * on first use and closed after an idle period. Rate limits, invalid keys and crashes of one tenant do not affect
 * others. Only tenants with the same server and credential share rate limits.
 *
 * @since 0.1.0
 */
import type * as HttpClient from "@effect/platform/HttpClient"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import * as LeaseMap from "./internal/util/LeaseMap.ts"
import * as RateLimiter from "./RateLimiter.ts"
import type * as Session from "./Session.ts"
import * as Tinker from "./Tinker.ts"
import * as TinkerConfig from "./TinkerConfig.ts"
import { ClientClosed, type InvalidConfig, type Unauthorized } from "./TinkerError.ts"

/**
 * The errors of creating a tenant, apart from those of its lookup.
 *
 * @since 0.1.0
 * @category models
 */
export type TenantError = InvalidConfig | Unauthorized | ClientClosed

/**
 * Credentials that arrive with a request.
 *
 * @since 0.1.0
 * @category models
 */
export interface RequestCredentials {
  readonly apiKey: Redacted.Redacted<string>
  /**
   * The server that the key belongs to.
   *
   * @default the default base URL of `TinkerConfig`
   */
  readonly baseUrl?: string | undefined
}

/**
 * The operations of `TinkerTenants`. `E` is the error of creating a tenant: `TenantError` and the errors of its lookup.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service<out E = TenantError> {
  /**
   * Runs an effect with the services of a tenant, which are held until the effect ends. Its logs and spans are
   * annotated with `tinker.tenant`.
   */
  readonly provide: (
    tenant: string,
  ) => <A, E2, R>(effect: Effect.Effect<A, E2, R>) => Effect.Effect<A, E | E2, Exclude<R, Tinker.Tinker>>
  /**
   * Runs an effect with services for credentials that arrive with a request: no name, no lookup. Equal credentials share
   * one session while they are in use. Nothing of them reaches a log, span or metric.
   */
  readonly provideCredentials: (
    credentials: RequestCredentials,
  ) => <A, E2, R>(effect: Effect.Effect<A, E2, R>) => Effect.Effect<A, E | E2, Exclude<R, Tinker.Tinker>>
  /** Returns the services of a tenant, held until the scope closes. */
  readonly get: (tenant: string) => Effect.Effect<Context.Context<Tinker.Tinker>, E, Scope.Scope>
  /**
   * Removes a tenant, e.g. because its key was replaced: later uses look it up and create it again. Current users keep
   * the existing services.
   */
  readonly invalidate: (tenant: string) => Effect.Effect<void>
}

/**
 * The service tag for programs whose lookup fails only with {@link TenantError}. Define a separate tag for a `Service`
 * with other errors.
 *
 * @since 0.1.0
 * @category tags
 */
export class TinkerTenants extends Context.Tag("effect-tinker/TinkerTenants")<TinkerTenants, Service>() {}

/**
 * Options of the tenants.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options<E, R, HttpE = never, HttpR = never> {
  /**
   * Returns the settings of a tenant when it is created. A failure is reported to the waiting callers and not cached.
   */
  readonly lookup: (tenant: string) => Effect.Effect<TinkerConfig.Values, E, R>
  /**
   * Creates the HTTP client of each tenant, so that tenants do not share connections; it can read the tenant's
   * `TinkerConfig`. `Layer.service(HttpClient)` shares one client among all tenants.
   */
  readonly http: Layer.Layer<HttpClient.HttpClient, HttpE, HttpR>
  /**
   * How long an unused tenant is kept, including its session.
   *
   * @default "5 minutes"
   */
  readonly idleTimeToLive?: Duration.DurationInput | undefined
  readonly session?: ((tenant: string) => Session.Options) | undefined
}

/** Omits the label if the name of the tenant cannot be one. */
const labelled = (tenant: string): TinkerConfig.Values =>
  Option.match(TinkerConfig.problemWithTenant(tenant), { onNone: () => ({ tenant }), onSome: () => ({}) })

/** Annotates logs and spans with the name of a tenant, unless the name reads like a credential. */
const annotated = (tenant: string) => {
  const annotation = { "tinker.tenant": labelled(tenant).tenant ?? "<redacted>" }
  return <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    effect.pipe(Effect.annotateLogs(annotation), Effect.annotateSpans(annotation))
}

/**
 * The services that tenants require. Provide the `RateLimiter` once, around everything that may share limits.
 *
 * @since 0.1.0
 * @category models
 */
export type Environment<R, HttpR> =
  | RateLimiter.RateLimiter
  | Exclude<R, Scope.Scope>
  | Exclude<Exclude<HttpR, TinkerConfig.TinkerConfig>, Scope.Scope>

/**
 * Creates the tenants in the current scope; closing the scope closes all of them.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = <E, R, HttpE, HttpR>({
  http,
  idleTimeToLive = "5 minutes",
  lookup,
  session,
}: Options<E, R, HttpE, HttpR>): Effect.Effect<
  Service<E | HttpE | TenantError>,
  never,
  Environment<R, HttpR> | Scope.Scope
> =>
  Effect.gen(function* () {
    const makeServices = (values: TinkerConfig.Values, options?: Session.Options) =>
      Effect.gen(function* () {
        const config = yield* TinkerConfig.make(values)
        const own = Context.make(TinkerConfig.TinkerConfig, config)
        // Built separately: layers built together are memoized by reference, so one tenant would get another's client.
        const client = yield* Effect.provide(Layer.build(http), own)
        // Holding the limiter keeps its back-off beyond the lifetime of the clients of a single request.
        const { limiter } = yield* RateLimiter.RateLimiter
        yield* limiter(RateLimiter.keyOf(config))
        return yield* Effect.provide(Tinker.make(options), Context.merge(own, client))
      })
    const leases = {
      idleTimeToLive: Duration.decode(idleTimeToLive),
      closed: () => new ClientClosed({ operation: "tenant" }),
    }
    const { get, invalidate } = yield* LeaseMap.make({
      ...leases,
      make: (tenant: string) =>
        Effect.flatMap(lookup(tenant), (values) =>
          makeServices({ ...labelled(tenant), ...values }, session?.(tenant)),
        ).pipe(annotated(tenant)),
    })
    // The keys of this map hold secrets: they stay in memory and are never printed.
    const byCredentials = yield* LeaseMap.make({
      ...leases,
      make: (key: string) => {
        const [apiKey = "", baseUrl] = JSON.parse(key) as ReadonlyArray<string>
        return makeServices({ apiKey: Redacted.make(apiKey), baseUrl: baseUrl === "" ? undefined : baseUrl })
      },
    })
    const using =
      <E3>(services: Effect.Effect<Context.Context<Tinker.Tinker>, E3, Scope.Scope>) =>
      <A, E2, R2>(effect: Effect.Effect<A, E2, R2>) =>
        Effect.scopedWith((scope) =>
          Effect.flatMap(Scope.extend(services, scope), (context) => Effect.provide(effect, context)),
        )
    return {
      get,
      invalidate,
      provide: (tenant) => (effect) => using(get(tenant))(annotated(tenant)(effect)),
      provideCredentials: ({ apiKey, baseUrl = "" }) =>
        using(byCredentials.get(JSON.stringify([Redacted.value(apiKey), baseUrl]))),
    }
  })

/**
 * Provides `TinkerTenants`.
 *
 * @example
 * ```ts
 * import { FetchHttpClient } from "@effect/platform"
 * import { Effect, Redacted } from "effect"
 * import { RateLimiter, ServiceClient, TinkerTenants } from "effect-tinker"
 *
 * const tenants = TinkerTenants.layer({
 *   // A real program reads the key of the tenant from its database.
 *   lookup: (tenant) =>
 *     Effect.succeed({ apiKey: Redacted.make(`tml-key-of-${tenant}`), baseUrl: process.env["TINKER_BASE_URL"] }),
 *   http: FetchHttpClient.layer,
 *   idleTimeToLive: "10 minutes",
 * })
 *
 * const sampleFor = (tenant: string) =>
 *   Effect.gen(function* () {
 *     const service = yield* ServiceClient.ServiceClient
 *     const sampler = yield* service.createSamplingClient({ baseModel: "effect-tinker/valley-1.5m" })
 *     const { sequences } = yield* sampler.sample({ prompt: [10, 20, 30], params: { maxTokens: 4, stop: [] } })
 *     return `${tenant}: ${sequences[0]?.tokens.length} tokens`
 *   }).pipe(Effect.scoped, TinkerTenants.provide(tenant))
 *
 * const program = Effect.forEach(["acme", "globex"], sampleFor, { concurrency: "unbounded" })
 *
 * const answers = await Effect.runPromise(program.pipe(Effect.provide(tenants), Effect.provide(RateLimiter.layer)))
 * console.log(answers) // → [ 'acme: 4 tokens', 'globex: 4 tokens' ]
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = <R, HttpR>(
  options: Options<TenantError, R, never, HttpR>,
): Layer.Layer<TinkerTenants, never, Environment<R, HttpR>> => Layer.scoped(TinkerTenants, make(options))

/**
 * Runs an effect with the services of a tenant; see {@link Service}.
 *
 * @since 0.1.0
 * @category accessors
 */
export const provide =
  (tenant: string) =>
  <A, E, R>(
    effect: Effect.Effect<A, E, R>,
  ): Effect.Effect<A, E | TenantError, Exclude<R, Tinker.Tinker> | TinkerTenants> =>
    Effect.flatMap(TinkerTenants, (tenants) => tenants.provide(tenant)(effect))

/**
 * Runs an effect with services for credentials that arrive with a request; see {@link Service}.
 *
 * @since 0.1.0
 * @category accessors
 */
export const provideCredentials =
  (credentials: RequestCredentials) =>
  <A, E, R>(
    effect: Effect.Effect<A, E, R>,
  ): Effect.Effect<A, E | TenantError, Exclude<R, Tinker.Tinker> | TinkerTenants> =>
    Effect.flatMap(TinkerTenants, (tenants) => tenants.provideCredentials(credentials)(effect))

/**
 * Removes a tenant, so that later uses look it up and create it again; see {@link Service}.
 *
 * @since 0.1.0
 * @category accessors
 */
export const invalidate = (tenant: string): Effect.Effect<void, never, TinkerTenants> =>
  Effect.flatMap(TinkerTenants, (tenants) => tenants.invalidate(tenant))
