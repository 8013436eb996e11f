/**
 * @since 0.1.0
 */
export * as Endpoint from "./Endpoint.ts"
export * as TinkerError from "./TinkerError.ts"
