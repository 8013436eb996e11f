/**
 * The public modules of `@effect-tinker/recipes`.
 *
 * @since 0.1.0
 */
export * as RunError from "./RunError.ts"
export * as RunEvent from "./RunEvent.ts"
export * as RunStore from "./RunStore.ts"
