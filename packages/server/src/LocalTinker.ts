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
import * as Exchange from "effect-tinker/serving/Exchange"
import type { FileError } from "./CheckpointFiles.ts"
import type { ModelHost } from "./ModelHost.ts"
import type { ServerOptions } from "./ServerOptions.ts"
import type { StoreError } from "./Store.ts"
import * as TinkerServer from "./TinkerServer.ts"

/**
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
