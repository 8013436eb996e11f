/** Adapts work that runs without a fiber and reports its end to a callback. */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"

/** Stops the work. The returned effect waits until the work has released everything it holds. */
export type Stop = () => Effect.Effect<unknown>

/** Does nothing, because the work has already ended. */
export const noop: Stop = () => Effect.void

/** Returns the exit of an effect that has already ended; every `Exit` is also an effect. */
export const exitOf = <A, E>(effect: Effect.Effect<A, E>): Exit.Exit<A, E> | undefined =>
  Exit.isExit(effect) ? (effect as Exit.Exit<A, E>) : undefined

/** Waits for callback-based work. An interruption stops the work and waits until it has released everything. */
export const fromCallback = <A, E>(start: (onExit: (exit: Effect.Effect<A, E>) => void) => Stop): Effect.Effect<A, E> =>
  Effect.async<A, E>((resume) => {
    let isOver = false
    const stop = start((exit) => {
      isOver = true
      resume(exit)
    })
    return isOver ? undefined : Effect.suspend(stop)
  })

/** Runs a function and returns its result as an `Exit`. An exception becomes a defect. */
export const tryExit = <A>(f: () => A): Exit.Exit<A> => {
  try {
    return Exit.succeed(f())
  } catch (cause) {
    return Exit.die(cause)
  }
}
