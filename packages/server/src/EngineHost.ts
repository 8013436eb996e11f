/**
 * Runs the embedded engine on a separate thread.
 *
 * @since 0.1.0
 */
import type * as Layer from "effect/Layer"
import { type ModelSource, shipped, shippedTools } from "./EngineBackend.ts"
import type { HostError, ModelHost } from "./ModelHost.ts"
import * as WorkerHost from "./WorkerHost.ts"

const module = new URL(import.meta.url.endsWith(".ts") ? "./EngineBackend.ts" : "./EngineBackend.js", import.meta.url)

/**
 * Provides a `ModelHost` that serves the given models, or those that ship with the engine.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  models: ReadonlyArray<ModelSource> = [shipped, shippedTools],
): Layer.Layer<ModelHost, HostError> =>
  WorkerHost.layer({
    module,
    data: { models: models.map(({ directory, isLazy, name }) => ({ name, directory, isLazy })) },
  })
