import * as Effect from "effect/Effect"
import * as Config from "../../TinkerConfig.ts"
import { runBeside } from "../util/RunBeside.ts"
import type { AnyFiber } from "./FiberContext.ts"

/** Logs why something waits, in the context of a fiber. */
export type QueueStateLog = (
  fiber: AnyFiber,
  what: string,
  state: string,
  reason: string | undefined,
  now: number,
) => void

/** Creates a log that writes a state other than `active`, at most once a minute. */
export const make = (config: Config.Service): QueueStateLog => {
  const logged = Config.logged(config)
  let loggedAt = Number.NEGATIVE_INFINITY
  return (fiber, what, state, reason, now) => {
    if (state === "active" || now - loggedAt < 60_000) return
    loggedAt = now
    const why = reason === undefined ? "" : `: ${reason}`
    runBeside(fiber, logged(Effect.logWarning(`Tinker: ${what} waits, ${state}${why}`)))
  }
}
