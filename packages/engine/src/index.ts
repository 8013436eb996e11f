/**
 * The public modules of `@effect-tinker/engine`.
 *
 * @since 0.1.0
 */
export * as AdamW from "./AdamW.ts"
export * as Dimuon from "./Dimuon.ts"
export * as Engine from "./Engine.ts"
export * as EngineError from "./EngineError.ts"
export * as Losses from "./Losses.ts"
export * as ModelConfig from "./ModelConfig.ts"
export * as ModelFiles from "./ModelFiles.ts"
export * as Random from "./Random.ts"
export * as Safetensors from "./Safetensors.ts"
export * as Sampler from "./Sampler.ts"
