/**
 * A whole Tinker server in the process, as an `HttpClient`: programs that train on the hosted service run on it
 * unchanged, without a socket. Only the layer below is another one.
 *
 * @since 0.1.0
 */
import * as HttpClient from "@effect/platform/HttpClient"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Exchange from "effect-tinker/protocol/Exchange"
import type { FileError } from "./CheckpointFiles.ts"
import type { ModelSource } from "./EngineBackend.ts"
import * as EngineHost from "./EngineHost.ts"
import type { HostError, ModelHost } from "./ModelHost.ts"
import type { ServerOptions } from "./ServerOptions.ts"
import type { StoreError } from "./Store.ts"
import * as TinkerServer from "./TinkerServer.ts"

/**
 * @since 0.1.0
 * @category models
 */
export interface Options extends ServerOptions {
  /** What is served; the model that comes with the engine if none is named. */
  readonly models?: ReadonlyArray<ModelSource> | undefined
}

/**
 * The server with the embedded engine on a thread of its own.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  options: Options = {},
): Layer.Layer<HttpClient.HttpClient | TinkerServer.TinkerServer, StoreError | FileError | HostError> =>
  Layer.provide(layerOn(options), Layer.fresh(EngineHost.layer(options.models)))

/**
 * The server over a model host of your own.
 *
 * A server of its own, wherever this is built; with `dataDirectory` it goes on where the last one ended. Which base URL
 * a program has configured does not matter.
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
