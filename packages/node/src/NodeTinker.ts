/**
 * Everything that a program on Node needs to talk to a Tinker server, as one layer.
 *
 * @since 0.1.0
 */
import type { HttpClient } from "@effect/platform/HttpClient"
import type { Credentials } from "effect-tinker/Credentials"
import * as RateLimiter from "effect-tinker/RateLimiter"
import type { ServerConfig } from "effect-tinker/ServerConfig"
import * as TinkerConfig from "effect-tinker/TinkerConfig"
import type { InvalidConfig, Unauthorized } from "effect-tinker/TinkerError"
import * as Transport from "effect-tinker/Transport"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as NodeHost from "./NodeHost.ts"
import * as UndiciHttpClient from "./UndiciHttpClient.ts"

/**
 * @since 0.1.0
 * @category models
 */
export type NodeTinker =
  | Transport.Transport
  | Credentials
  | ServerConfig
  | TinkerConfig.TinkerConfig
  | RateLimiter.RateLimiter
  | HttpClient

const fromConfig = (
  config: Layer.Layer<TinkerConfig.TinkerConfig, InvalidConfig>,
  http: UndiciHttpClient.Options | undefined,
): Layer.Layer<NodeTinker, InvalidConfig | Unauthorized> =>
  Transport.layer.pipe(
    Layer.provideMerge(
      Layer.unwrapEffect(
        Effect.map(TinkerConfig.TinkerConfig, ({ maxResponseBytes }) =>
          UndiciHttpClient.layer({ maxInflatedBytes: maxResponseBytes, ...http }),
        ),
      ),
    ),
    Layer.provideMerge(config),
    Layer.provide(NodeHost.layer),
    // One registry for all that is built together: limits are shared by equal server and credential, not by layer.
    Layer.provideMerge(RateLimiter.layer),
  )

/**
 * For a program that knows its configuration.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  values: TinkerConfig.Values,
  http?: UndiciHttpClient.Options,
): Layer.Layer<NodeTinker, InvalidConfig | Unauthorized> => fromConfig(TinkerConfig.layer(values), http)

/**
 * From the environment (`TINKER_API_KEY`, `TINKER_BASE_URL`, …); `overrides` win.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerConfig = (
  overrides?: TinkerConfig.Values,
  http?: UndiciHttpClient.Options,
): Layer.Layer<NodeTinker, InvalidConfig | Unauthorized> => fromConfig(TinkerConfig.layerConfig(overrides), http)
