interface Platform {
  readonly setImmediate?: (task: () => void) => unknown
}

const { setImmediate }: Platform = globalThis as Platform

/**
 * Runs a task when pending output has been written. Only for optimizations: correctness must not depend on when or
 * whether it runs. An HTTP client may write at the end of this turn of the event loop, after what was scheduled for
 * that moment before, so the task waits for the next one.
 */
export const whenWritten = (task: () => void): void => {
  if (setImmediate === undefined) queueMicrotask(task)
  else setImmediate(() => setImmediate(task))
}
