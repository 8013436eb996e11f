interface Platform {
  readonly setImmediate?: (task: () => void) => unknown
}

const { setImmediate }: Platform = globalThis as Platform

/**
 * Runs a task after the current turn of the event loop, where pending output has been written. Only for work that
 * changes nothing but speed: when it runs, or whether it runs at all, must not matter.
 */
export const whenWritten = (task: () => void): void => {
  if (setImmediate === undefined) queueMicrotask(task)
  else setImmediate(task)
}
