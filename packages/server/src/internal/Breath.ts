/** A turn for everybody else: polls and heartbeats are not to wait until a large body is read to its end. */
import * as Effect from "effect/Effect"

const breath = Effect.async<void>((resume) => {
  const turn = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(turn))
})

/** What is smaller is read in less than a millisecond. */
const large = 64 * 1024

/** Between two parts of the work on so many bytes. */
export const after = (bytes: number): Effect.Effect<void> => (bytes < large ? Effect.void : breath)
