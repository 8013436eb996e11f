/**
 * The public modules of `@effect-tinker/recipes`.
 *
 * @since 0.1.0
 */
export * as Advantages from "./Advantages.ts"
export * as Batches from "./Batches.ts"
export * as Bootstrap from "./Bootstrap.ts"
export * as DataError from "./DataError.ts"
export * as Kl from "./Kl.ts"
export * as LearningRate from "./LearningRate.ts"
export * as Likelihood from "./Likelihood.ts"
export * as PassAtK from "./PassAtK.ts"
export * as Preferences from "./Preferences.ts"
export * as RolloutMetrics from "./RolloutMetrics.ts"
export * as Rows from "./Rows.ts"
export * as RunError from "./RunError.ts"
export * as RunEvent from "./RunEvent.ts"
export * as RunStore from "./RunStore.ts"
export * as Table from "./Table.ts"
