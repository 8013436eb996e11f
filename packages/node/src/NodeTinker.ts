/**
 * Everything that a program on Node needs to talk to a Tinker server, as one layer.
 *
 * @since 0.1.0
 */
import type { HttpClient } from "@effect/platform/HttpClient"
import { Host } from "effect-tinker/http/Host"
import * as RateLimiter from "effect-tinker/RateLimiter"
import type * as Session from "effect-tinker/Session"
import * as Tinker from "effect-tinker/Tinker"
import * as TinkerConfig from "effect-tinker/TinkerConfig"
import type { InvalidConfig, Unauthorized } from "effect-tinker/TinkerError"
import * as TinkerTenants from "effect-tinker/TinkerTenants"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import * as NodeHost from "./NodeHost.ts"
import * as UndiciHttpClient from "./UndiciHttpClient.ts"

/**
 * @since 0.1.0
 * @category models
 */
export type NodeTinker = Tinker.Tinker | HttpClient

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  readonly http?: UndiciHttpClient.Options | undefined
  readonly session?: Session.Options | undefined
}

/** The connections of one configuration. */
const pools = (http: UndiciHttpClient.Options | undefined): Layer.Layer<HttpClient, never, TinkerConfig.TinkerConfig> =>
  Layer.unwrapEffect(
    Effect.map(TinkerConfig.TinkerConfig, ({ maxResponseBytes }) =>
      UndiciHttpClient.layer({ maxInflatedBytes: maxResponseBytes, ...http }),
    ),
  )

/** One registry for all that is built together: limits are shared by equal server and credential, not by layer. */
const machine: Layer.Layer<Host | RateLimiter.RateLimiter> = Layer.merge(NodeHost.layer, RateLimiter.layer)

const fromConfig = (
  config: Effect.Effect<TinkerConfig.Service, InvalidConfig>,
  { http, session }: Options = {},
): Layer.Layer<NodeTinker, InvalidConfig | Unauthorized> =>
  // In one effect, so that there is one of each: layers that are merged and fresh would be built twice.
  Layer.scopedContext(
    Effect.gen(function* () {
      const own = Context.make(TinkerConfig.TinkerConfig, yield* config)
      const client = Context.merge(own, yield* Effect.provide(Layer.build(pools(http)), own))
      return Context.merge(client, yield* Effect.provide(Tinker.make(session), client))
    }),
  ).pipe(Layer.provide(machine))

/**
 * For a program that knows its configuration.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  values: TinkerConfig.Values,
  options?: Options,
): Layer.Layer<NodeTinker, InvalidConfig | Unauthorized> =>
  fromConfig(
    Effect.suspend(() => TinkerConfig.make(values)),
    options,
  )

/**
 * From the environment (`TINKER_API_KEY`, `TINKER_BASE_URL`, …); `overrides` win.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerConfig = (
  overrides?: TinkerConfig.Values,
  options?: Options,
): Layer.Layer<NodeTinker, InvalidConfig | Unauthorized> => fromConfig(TinkerConfig.fromEnvironment(overrides), options)

/**
 * @since 0.1.0
 * @category models
 */
export interface TenantsOptions<E, R> extends Omit<TinkerTenants.Options<E, R>, "http"> {
  /** Of each tenant: pools are never shared. */
  readonly http?: UndiciHttpClient.Options | undefined
}

/**
 * Tenants with connection pools of their own, in the current scope; for a tag of your own. See `TinkerTenants`.
 *
 * @since 0.1.0
 * @category constructors
 */
export const makeTenants = <E, R>({
  http,
  ...options
}: TenantsOptions<E, R>): Effect.Effect<
  TinkerTenants.Service<E | TinkerTenants.TenantError>,
  never,
  RateLimiter.RateLimiter | Exclude<R, Scope.Scope> | Scope.Scope
> => Effect.provideServiceEffect(TinkerTenants.make({ ...options, http: pools(http) }), Host, NodeHost.make)

/**
 * Many tenants, each with connection pools of its own. See `TinkerTenants`.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerTenants = <R>({
  http,
  ...options
}: TenantsOptions<TinkerTenants.TenantError, R>): Layer.Layer<
  TinkerTenants.TinkerTenants,
  never,
  Exclude<TinkerTenants.Environment<R, TinkerConfig.TinkerConfig>, Host | RateLimiter.RateLimiter>
> => TinkerTenants.layer({ ...options, http: pools(http) }).pipe(Layer.provide(machine))
