/** Work that is begun without a fiber: it ends by telling an effect, which is an `Exit` if nothing is left to do. */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"

/** Ends what is under way, and waits until it has let go of everything. */
export type Stop = () => Effect.Effect<unknown>

export const nothingLeft: Stop = () => Effect.void

/** How an effect ended, if it is over before it was begun: an `Exit` is an effect, too. */
export const exitOf = <A, E>(effect: Effect.Effect<A, E>): Exit.Exit<A, E> | undefined =>
  Exit.isExit(effect) ? (effect as Exit.Exit<A, E>) : undefined

/** Waits for such work in a fiber; interrupted, it is stopped, unless its end was told at once. */
export const awaited = <A, E>(begin: (end: (result: Effect.Effect<A, E>) => void) => Stop): Effect.Effect<A, E> =>
  Effect.async<A, E>((resume) => {
    let isTold = false
    const stop = begin((result) => {
      isTold = true
      resume(result)
    })
    return isTold ? undefined : Effect.suspend(stop)
  })

/** The result of a function as an `Exit`; what it throws is a defect. */
export const attempt = <A>(f: () => A): Exit.Exit<A> => {
  try {
    return Exit.succeed(f())
  } catch (cause) {
    return Exit.die(cause)
  }
}
