/**
 * One program, many tenants: each has a configuration, connections, a session and clients of its own, made when it is
 * first asked for and closed when nobody has asked for a while. What befalls one of them, a rate limit, a bad key, a
 * crash, stays with it. Limits are shared by tenants with the same server and credential, and by nobody else.
 *
 * @since 0.1.0
 */
import type * as HttpClient from "@effect/platform/HttpClient"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import * as LeaseMap from "./internal/util/LeaseMap.ts"
import * as RateLimiter from "./RateLimiter.ts"
import type * as Session from "./Session.ts"
import * as Tinker from "./Tinker.ts"
import * as TinkerConfig from "./TinkerConfig.ts"
import { ClientClosed, type InvalidConfig, type Unauthorized } from "./TinkerError.ts"

/**
 * Why there is nothing for a tenant, besides what its lookup fails with.
 *
 * @since 0.1.0
 * @category models
 */
export type TenantError = InvalidConfig | Unauthorized | ClientClosed

/**
 * `E` is why there may be nothing for a tenant: `TenantError`, and what looking it up fails with.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service<out E = TenantError> {
  /**
   * Runs an effect with all that belongs to the tenant, which is held until the effect ends. Its logs and spans are
   * annotated with `tinker.tenant`.
   */
  readonly provide: (
    tenant: string,
  ) => <A, E2, R>(effect: Effect.Effect<A, E2, R>) => Effect.Effect<A, E | E2, Exclude<R, Tinker.Tinker>>
  /** The same as a value, held until the scope closes. */
  readonly get: (tenant: string) => Effect.Effect<Context.Context<Tinker.Tinker>, E, Scope.Scope>
  /**
   * Forgets the tenant, e.g. because its key was replaced: who asks from now on finds it looked up and made anew. Those
   * who hold it keep what they have.
   */
  readonly invalidate: (tenant: string) => Effect.Effect<void>
}

/**
 * For programs whose lookup fails with nothing but {@link TenantError}. Others make a tag of their own for `Service`
 * with their errors.
 *
 * @since 0.1.0
 * @category tags
 */
export class TinkerTenants extends Context.Tag("effect-tinker/TinkerTenants")<TinkerTenants, Service>() {}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options<E, R, HttpE = never, HttpR = never> {
  /** Asked when a tenant is made. A failure is told to those who wait and not kept. */
  readonly lookup: (tenant: string) => Effect.Effect<TinkerConfig.Values, E, R>
  /**
   * Made for each tenant, so that none takes another's connections; it can read the tenant's `TinkerConfig`.
   * `Layer.service(HttpClient)` is one client for all.
   */
  readonly http: Layer.Layer<HttpClient.HttpClient, HttpE, HttpR>
  /** How long a tenant that nobody holds is kept, its session included. Default: 5 minutes. */
  readonly idleTimeToLive?: Duration.DurationInput | undefined
  readonly session?: ((tenant: string) => Session.Options) | undefined
}

/** A name that can't be a label is none. */
const labelled = (tenant: string): TinkerConfig.Values =>
  Option.match(TinkerConfig.problemWithTenant(tenant), { onNone: () => ({ tenant }), onSome: () => ({}) })

const annotated = (tenant: string) => {
  const annotation = { "tinker.tenant": tenant }
  return <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    effect.pipe(Effect.annotateLogs(annotation), Effect.annotateSpans(annotation))
}

/**
 * What tenants need around them. Provide the `RateLimiter` once, around everything that may share limits.
 *
 * @since 0.1.0
 * @category models
 */
export type Environment<R, HttpR> =
  | RateLimiter.RateLimiter
  | Exclude<R, Scope.Scope>
  | Exclude<Exclude<HttpR, TinkerConfig.TinkerConfig>, Scope.Scope>

/**
 * In the current scope, which closes all tenants at once.
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
    const makeTenant = (tenant: string) =>
      Effect.gen(function* () {
        const config = yield* TinkerConfig.make({ ...labelled(tenant), ...(yield* lookup(tenant)) })
        const own = Context.make(TinkerConfig.TinkerConfig, config)
        // Built alone: layers that are built together are memoised by reference, and one tenant would get the other's.
        const client = yield* Effect.provide(Layer.build(http), own)
        // Held here, so that a back-off outlasts the clients of a single request.
        const { limiter } = yield* RateLimiter.RateLimiter
        yield* limiter(RateLimiter.keyOf(config))
        return yield* Effect.provide(Tinker.make(session?.(tenant)), Context.merge(own, client))
      }).pipe(annotated(tenant))

    const { get, invalidate } = yield* LeaseMap.make({
      make: makeTenant,
      idleTimeToLive: Duration.decode(idleTimeToLive),
      closed: () => new ClientClosed({ operation: "tenant" }),
    })
    return {
      get,
      invalidate,
      provide: (tenant) => (effect) =>
        Effect.scopedWith((scope) =>
          Effect.flatMap(Scope.extend(get(tenant), scope), (context) =>
            Effect.provide(annotated(tenant)(effect), context),
          ),
        ),
    }
  })

/**
 * @since 0.1.0
 * @category layers
 */
export const layer = <R, HttpR>(
  options: Options<TenantError, R, never, HttpR>,
): Layer.Layer<TinkerTenants, never, Environment<R, HttpR>> => Layer.scoped(TinkerTenants, make(options))

/**
 * Runs an effect with all that belongs to the tenant; see {@link Service}.
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
 * @since 0.1.0
 * @category accessors
 */
export const invalidate = (tenant: string): Effect.Effect<void, never, TinkerTenants> =>
  Effect.flatMap(TinkerTenants, (tenants) => tenants.invalidate(tenant))
