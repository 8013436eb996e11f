/**
 * @since 0.1.0
 */
export * as placeholder from "effect-tinker/TinkerError"
