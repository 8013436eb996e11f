/**
 * The public modules of `@effect-tinker/recipes`.
 *
 * @since 0.1.0
 */
export * as Batches from "./Batches.ts"
export * as CheckpointPolicy from "./CheckpointPolicy.ts"
export * as DataError from "./DataError.ts"
export * as Progress from "./Progress.ts"
export * as Report from "./Report.ts"
export * as Rows from "./Rows.ts"
export * as Run from "./Run.ts"
export * as RunDirectory from "./RunDirectory.ts"
export * as RunError from "./RunError.ts"
export * as RunEvent from "./RunEvent.ts"
export * as RunLogger from "./RunLogger.ts"
export * as RunMetrics from "./RunMetrics.ts"
export * as RunStore from "./RunStore.ts"
export * as Supervised from "./Supervised.ts"
export * as Table from "./Table.ts"
export * as TensorBoard from "./TensorBoard.ts"
export * as TrainingLoop from "./TrainingLoop.ts"
