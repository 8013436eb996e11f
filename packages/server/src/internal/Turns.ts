/**
 * Decides who may compute next: a limited number of samples run at once, and the tenants that wait take turns. A tenant
 * with thousands of samples delays another one by a single turn.
 */
import * as Effect from "effect/Effect"

interface Waiter {
  readonly owner: string
  state: "waiting" | "running" | "gone"
  begin: () => void
}

export interface Turns {
  /** Runs an effect when it is the owner's turn. Interruption while it waits gives up its place. */
  readonly run: (owner: string) => <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
}

export const make = (limit: number): Turns => {
  let running = 0
  /** The waiting effects of each owner. The owner whose turn is next comes first. */
  const waiting = new Map<string, Set<Waiter>>()

  const startNext = (): void => {
    for (const [owner, own] of waiting) {
      if (running >= limit) return
      const [waiter] = own
      // Behind all others, if the owner still waits.
      waiting.delete(owner)
      if (waiter === undefined) continue
      own.delete(waiter)
      if (own.size > 0) waiting.set(owner, own)
      running++
      waiter.state = "running"
      waiter.begin()
    }
  }

  const enter = (waiter: Waiter): Effect.Effect<void> =>
    Effect.async((resume) => {
      waiter.begin = () => resume(Effect.void)
      const own = waiting.get(waiter.owner)
      if (own === undefined) waiting.set(waiter.owner, new Set([waiter]))
      else own.add(waiter)
      startNext()
    })

  const leave = (waiter: Waiter): void => {
    if (waiter.state === "running") running--
    else waiting.get(waiter.owner)?.delete(waiter)
    waiter.state = "gone"
    startNext()
  }

  return {
    run: (owner) => (effect) =>
      Effect.suspend(() => {
        const waiter: Waiter = { owner, state: "waiting", begin: () => {} }
        return enter(waiter).pipe(
          Effect.zipRight(effect),
          // However it ends: an interruption may come between the turn and the effect.
          Effect.ensuring(Effect.sync(() => leave(waiter))),
        )
      }),
  }
}
