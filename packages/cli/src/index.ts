/**
 * @since 0.1.0
 */
export * as Arguments from "./Arguments.ts"
export * as Main from "./Main.ts"
export * as Serve from "./Serve.ts"
