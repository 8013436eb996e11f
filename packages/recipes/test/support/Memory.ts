/** How much memory this thread holds. Only a file that is alone in its thread gets a meaningful number. */
import { setImmediate } from "node:timers/promises"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { Effect } from "effect"

setFlagsFromString("--expose-gc")
const collectGarbage = runInNewContext("gc") as () => void

/** The engine frees buffers in the background after a collection, and the next collection waits for it. */
export const held = Effect.gen(function* () {
  collectGarbage()
  yield* Effect.promise(() => setImmediate())
  collectGarbage()
  const { arrayBuffers, heapUsed } = process.memoryUsage()
  return heapUsed + arrayBuffers
})
