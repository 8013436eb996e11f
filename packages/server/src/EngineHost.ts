/**
 * The embedded engine on a thread of its own.
 *
 * @since 0.1.0
 */
import type * as Layer from "effect/Layer"
import { type ModelSource, shipped } from "./EngineBackend.ts"
import type { HostError, ModelHost } from "./ModelHost.ts"
import * as WorkerHost from "./WorkerHost.ts"

const module = new URL(import.meta.url.endsWith(".ts") ? "./EngineBackend.ts" : "./EngineBackend.js", import.meta.url)

/**
 * These models, or the one that comes with the engine.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (models: ReadonlyArray<ModelSource> = [shipped]): Layer.Layer<ModelHost, HostError> =>
  WorkerHost.layer({ module, data: { models: models.map(({ directory, name }) => ({ name, directory })) } })
