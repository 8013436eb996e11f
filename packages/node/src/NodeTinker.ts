/**
 * Provides everything that a Node.js program needs to use a Tinker server, as one layer.
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
 * The services that the layers of this module provide.
 *
 * @since 0.1.0
 * @category models
 */
export type NodeTinker = Tinker.Tinker | HttpClient

/**
 * Options of the layers: HTTP connections and session.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  readonly http?: UndiciHttpClient.Options | undefined
  readonly session?: Session.Options | undefined
}

/** The connection pools of one configuration. */
const pools = (http: UndiciHttpClient.Options | undefined): Layer.Layer<HttpClient, never, TinkerConfig.TinkerConfig> =>
  Layer.unwrapEffect(
    Effect.map(TinkerConfig.TinkerConfig, ({ maxResponseBytes, proxies }) =>
      UndiciHttpClient.layer({ maxInflatedBytes: maxResponseBytes, proxies, ...http }),
    ),
  )

/**
 * One rate limiter for everything that is built together: limits are shared per server and credential, not per layer.
 */
const shared: Layer.Layer<Host | RateLimiter.RateLimiter> = Layer.merge(NodeHost.layer, RateLimiter.layer)

const fromConfig = (
  config: Effect.Effect<TinkerConfig.Service, InvalidConfig>,
  { http, session }: Options = {},
): Layer.Layer<NodeTinker, InvalidConfig | Unauthorized> =>
  // Built in one effect, so that each service exists once: merged fresh layers would be built twice.
  Layer.scopedContext(
    Effect.gen(function* () {
      const own = Context.make(TinkerConfig.TinkerConfig, yield* config)
      const client = Context.merge(own, yield* Effect.provide(Layer.build(pools(http)), own))
      return Context.merge(client, yield* Effect.provide(Tinker.make(session), client))
    }),
  ).pipe(Layer.provide(shared))

/**
 * Provides the Tinker services for the given configuration.
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
 * Provides the Tinker services for the configuration in the environment (`TINKER_API_KEY`, `TINKER_BASE_URL`, …).
 * `settings` take precedence; each is a value or a `Config`.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { ServiceClient } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const { supportedModels } = yield* service.getServerCapabilities
 *   yield* Console.log(supportedModels.length > 0) // → true
 * })
 *
 * // Reads TINKER_BASE_URL and TINKER_API_KEY; the values given here take precedence.
 * await Effect.runPromise(Effect.provide(program, NodeTinker.layerConfig({ attemptTimeout: "30 seconds" })))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerConfig = (
  settings?: TinkerConfig.Overrides,
  options?: Options,
): Layer.Layer<NodeTinker, InvalidConfig | Unauthorized> => fromConfig(TinkerConfig.fromEnvironment(settings), options)

/**
 * Options of tenants.
 *
 * @since 0.1.0
 * @category models
 */
export interface TenantsOptions<E, R> extends Omit<TinkerTenants.Options<E, R>, "http"> {
  /** HTTP options of each tenant; connection pools are never shared. */
  readonly http?: UndiciHttpClient.Options | undefined
}

/**
 * Creates tenants with separate connection pools in the current scope, for use with a custom tag. See `TinkerTenants`.
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
 * Provides tenants with separate connection pools. See `TinkerTenants`.
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
> => TinkerTenants.layer({ ...options, http: pools(http) }).pipe(Layer.provide(shared))
