/**
 * @since 0.1.0
 */
export * as CheckpointFiles from "./CheckpointFiles.ts"
export * as EngineBackend from "./EngineBackend.ts"
export * as EngineHost from "./EngineHost.ts"
export * as LocalTinker from "./LocalTinker.ts"
export * as ModelHost from "./ModelHost.ts"
export * as NodeTinkerServer from "./NodeTinkerServer.ts"
export * as ServerOptions from "./ServerOptions.ts"
export * as Store from "./Store.ts"
export * as TinkerServer from "./TinkerServer.ts"
export * as WorkerHost from "./WorkerHost.ts"
