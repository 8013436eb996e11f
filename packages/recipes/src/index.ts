/**
 * The public modules of `@effect-tinker/recipes`.
 *
 * @since 0.1.0
 */
export * as Progress from "./Progress.ts"
export * as Report from "./Report.ts"
export * as RunError from "./RunError.ts"
export * as RunEvent from "./RunEvent.ts"
export * as RunLogger from "./RunLogger.ts"
export * as RunMetrics from "./RunMetrics.ts"
export * as RunStore from "./RunStore.ts"
export * as TensorBoard from "./TensorBoard.ts"
