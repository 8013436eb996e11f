// Node makes it when it is first asked for, and looks for it each time.
let crypto: typeof globalThis.crypto | undefined

/** A new one: of two requests with the same key the server may do only one. */
export const idempotencyKey = (): string => `effect-tinker-${(crypto ??= globalThis.crypto).randomUUID()}`
