/**
 * @since 0.1.0
 */
export * as Environment from "./Environment.ts"
export * as Main from "./Main.ts"
