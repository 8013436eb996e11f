/** Yields to the event loop, so that polls and heartbeats do not wait while a large body is processed. */
import * as Effect from "effect/Effect"

const yieldNow = Effect.async<void>((resume) => {
  const immediate = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(immediate))
})

/** Smaller bodies are processed in less than a millisecond. */
const large = 64 * 1024

/** Yields between two steps of processing a body of the given size, if it is large. */
export const yieldToEventLoop = (bytes: number): Effect.Effect<void> => (bytes < large ? Effect.void : yieldNow)
