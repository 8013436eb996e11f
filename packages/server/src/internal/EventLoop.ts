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

/** The longest time for which a large body keeps others waiting, in milliseconds. */
const slice = 8

/** Returns an effect that yields between two parts of a body of the given size whenever its time is used up. */
export const slices = (bytes: number): Effect.Effect<void> => {
  if (bytes < large) return Effect.void
  let since = performance.now()
  return Effect.suspend(() =>
    performance.now() - since < slice
      ? Effect.void
      : Effect.map(yieldNow, () => {
          since = performance.now()
        }),
  )
}
