/**
 * Provides an in-process Tinker server as an `HttpClient`: programs that train on the hosted service run on it
 * unchanged and without a socket. Only the provided layer differs.
 *
 * @since 0.1.0
 */
import * as HttpClient from "@effect/platform/HttpClient"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Exchange from "effect-tinker/protocol/Exchange"
import * as RateLimiter from "effect-tinker/RateLimiter"
import * as Tinker from "effect-tinker/Tinker"
import * as TinkerConfig from "effect-tinker/TinkerConfig"
import type { InvalidConfig, Unauthorized } from "effect-tinker/TinkerError"
import * as ModelFiles from "@effect-tinker/engine/ModelFiles"
import * as TokenizerBackend from "@effect-tinker/tokenizer/TokenizerBackend"
import * as TokenizerFiles from "@effect-tinker/tokenizer/TokenizerFiles"
import * as Generic from "@effect-tinker/tokenizer/renderers/Generic"
import type { FileError } from "./CheckpointFiles.ts"
import type { ModelSource } from "./EngineBackend.ts"
import * as EngineHost from "./EngineHost.ts"
import type { HostError, ModelHost } from "./ModelHost.ts"
import type { ServerOptions } from "./ServerOptions.ts"
import type { StoreError } from "./Store.ts"
import * as TinkerServer from "./TinkerServer.ts"

/**
 * Options of a local server.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options extends ServerOptions {
  /** The models to serve. Default: the models that ship with the engine. */
  readonly models?: ReadonlyArray<ModelSource> | undefined
}

/**
 * Provides a server with the embedded engine on a separate thread.
 *
 * @example
 * ```ts
 * import { Console, Effect, Layer, Redacted } from "effect"
 * import { Loss, Optimizer, RateLimiter, ServiceClient, Tinker, TinkerConfig } from "effect-tinker"
 * import { LocalTinker } from "@effect-tinker/server"
 *
 * const data = [{ modelInput: [10, 20, 30], inputs: { targetTokens: [20, 30, 40], weights: [1, 1, 1] } }]
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const training = yield* service.createLoraTrainingClient({ baseModel: "effect-tinker/valley-1.5m", rank: 8 })
 *   const optimizer = Optimizer.adam({ learningRate: 1e-2 })
 *   const first = yield* training.trainStep(data, Loss.crossEntropy, optimizer)
 *   const second = yield* training.trainStep(data, Loss.crossEntropy, optimizer)
 *   yield* Console.log(Number(second.metrics["loss:sum"]) < Number(first.metrics["loss:sum"])) // → true
 * })
 *
 * // Needs neither a key nor a network: the server runs in this process.
 * const layer = Tinker.layer().pipe(
 *   Layer.provide([TinkerConfig.layer({ apiKey: Redacted.make("tml-local") }), RateLimiter.layer, LocalTinker.layer()]),
 * )
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(layer)))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  options: Options = {},
): Layer.Layer<HttpClient.HttpClient | TinkerServer.TinkerServer, StoreError | FileError | HostError> =>
  Layer.provide(layerOn(options), Layer.fresh(EngineHost.layer(options.models)))

/**
 * Provides a server on top of a custom model host.
 *
 * Each build creates a separate server; with `dataDirectory`, it continues from the data of the previous one. The base
 * URL that a program has configured is ignored.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerOn = (
  options: ServerOptions = {},
): Layer.Layer<HttpClient.HttpClient | TinkerServer.TinkerServer, StoreError | FileError, ModelHost> =>
  Layer.fresh(
    Layer.scopedContext(
      Effect.map(TinkerServer.make(options), (server) =>
        Context.make(HttpClient.HttpClient, Exchange.client(server.handle)).pipe(
          Context.add(TinkerServer.TinkerServer, server),
        ),
      ),
    ),
  )

/**
 * Provides the clients of a server in this process. Programs need neither a key nor a network.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { ServiceClient } from "effect-tinker"
 * import { LocalTinker } from "@effect-tinker/server"
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const { supportedModels } = yield* service.getServerCapabilities
 *   yield* Console.log(supportedModels.length) // → 2
 * })
 *
 * await Effect.runPromise(Effect.provide(program, LocalTinker.layerTinker()))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerTinker = (
  options: Options = {},
): Layer.Layer<Tinker.Tinker, InvalidConfig | Unauthorized | StoreError | FileError | HostError> =>
  Tinker.layer().pipe(
    Layer.provide([
      TinkerConfig.layer({ baseUrl: "http://local", apiKey: Redacted.make("tml-local") }),
      RateLimiter.layer,
      layer(options),
    ]),
  )

/**
 * The renderer of the model that ships with the engine.
 *
 * @since 0.1.0
 * @category constructors
 */
export const renderer = Effect.gen(function* () {
  const backend = yield* TokenizerBackend.TokenizerBackend
  const files = yield* TokenizerFiles.fromDirectory(yield* ModelFiles.shipped)
  return yield* Generic.make(yield* backend.make(files))
}).pipe(Effect.provide(TokenizerBackend.layer))
