/**
 * Provides all clients of the SDK and their shared services for one configuration, on top of any `HttpClient`.
 *
 * @since 0.1.0
 */
import type * as HttpClient from "@effect/platform/HttpClient"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import * as AdminClient from "./AdminClient.ts"
import * as ChatClient from "./ChatClient.ts"
import { Credentials } from "./Credentials.ts"
import { Host } from "./http/Host.ts"
import { RateLimiter } from "./RateLimiter.ts"
import * as RestClient from "./RestClient.ts"
import { ServerConfig } from "./protocol/ServerConfig.ts"
import * as ServiceClient from "./ServiceClient.ts"
import type * as Session from "./Session.ts"
import { TinkerConfig } from "./TinkerConfig.ts"
import type { InvalidConfig, Unauthorized } from "./TinkerError.ts"
import * as Transport from "./Transport.ts"

/**
 * The services that {@link layer} provides.
 *
 * @since 0.1.0
 * @category models
 */
export type Tinker =
  | ServiceClient.ServiceClient
  | RestClient.RestClient
  | AdminClient.AdminClient
  | ChatClient.ChatClient
  | Transport.Transport
  | Credentials
  | ServerConfig
  | TinkerConfig
  | RateLimiter
  | Host

/**
 * The services that {@link layer} requires.
 *
 * @since 0.1.0
 * @category models
 */
export type Environment = TinkerConfig | RateLimiter | HttpClient.HttpClient

/**
 * Creates all services in the current scope. Sends nothing: the session is opened by the first operation that needs it.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  session?: Session.Options,
): Effect.Effect<Context.Context<Tinker>, InvalidConfig | Unauthorized, Environment | Scope.Scope> =>
  Effect.gen(function* () {
    const { credentials, serverConfig, transport } = yield* Transport.make
    const context = Context.make(Transport.Transport, transport).pipe(
      Context.add(Credentials, credentials),
      Context.add(ServerConfig, serverConfig),
      Context.add(TinkerConfig, yield* TinkerConfig),
      Context.add(RateLimiter, yield* RateLimiter),
      Context.add(Host, yield* Host),
    )
    const clients = yield* Effect.provide(
      Effect.all({
        service: ServiceClient.make(session),
        rest: RestClient.make,
        admin: AdminClient.make,
        chat: ChatClient.make,
      }),
      context,
    )
    return context.pipe(
      Context.add(ServiceClient.ServiceClient, clients.service),
      Context.add(RestClient.RestClient, clients.rest),
      Context.add(AdminClient.AdminClient, clients.admin),
      Context.add(ChatClient.ChatClient, clients.chat),
    )
  })

/**
 * Provides all services. The layer is fresh: a layer memoized by reference would hand one tenant's credential to
 * another.
 *
 * @example
 * ```ts
 * import { FetchHttpClient } from "@effect/platform"
 * import { Console, Effect, Layer } from "effect"
 * import { RateLimiter, ServiceClient, Tinker, TinkerConfig } from "effect-tinker"
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const { supportedModels } = yield* service.getServerCapabilities
 *   yield* Console.log(supportedModels.length > 0) // → true
 * })
 *
 * // `fetch` works on every platform; on Node.js, NodeTinker.layerConfig() is faster and needs no other layer.
 * const layer = Tinker.layer().pipe(
 *   Layer.provide([TinkerConfig.layerConfig(), RateLimiter.layer, FetchHttpClient.layer]),
 * )
 *
 * await Effect.runPromise(Effect.provide(program, layer))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (session?: Session.Options): Layer.Layer<Tinker, InvalidConfig | Unauthorized, Environment> =>
  Layer.fresh(Layer.scopedContext(make(session)))
