// Kept, because Node looks it up at every access. Read late, because Node creates it at the first one.
let crypto: typeof globalThis.crypto | undefined

/** Returns a new key. A server carries out only one of several requests with the same key. */
export const idempotencyKey = (): string => `effect-tinker-${(crypto ??= globalThis.crypto).randomUUID()}`
