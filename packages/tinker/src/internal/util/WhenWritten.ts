interface Platform {
  readonly setImmediate?: (task: () => void) => unknown
}

const { setImmediate }: Platform = globalThis as Platform

/**
 * Runs a task after the current turn of the event loop, when pending output has been written. Only for optimizations:
 * correctness must not depend on when or whether it runs.
 */
export const whenWritten = (task: () => void): void => {
  if (setImmediate === undefined) queueMicrotask(task)
  else setImmediate(task)
}
