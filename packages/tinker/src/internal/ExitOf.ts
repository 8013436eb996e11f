import type * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"

/** How an effect ended, if it is over before it was begun: an `Exit` is an effect, too. */
export const exitOf = <A, E>(effect: Effect.Effect<A, E>): Exit.Exit<A, E> | undefined =>
  Exit.isExit(effect) ? (effect as Exit.Exit<A, E>) : undefined
