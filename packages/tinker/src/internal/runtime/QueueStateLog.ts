import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Config from "../../TinkerConfig.ts"

/** Logs why something waits. */
export type Announcer = (
  what: string,
  why: { readonly state: string; readonly reason: Option.Option<string> },
  now: number,
) => Effect.Effect<void>

/** A state that is not `active` is logged, but not more than once a minute. */
export const make = (config: Config.Service): Announcer => {
  const logged = Config.logged(config)
  let announced = Number.NEGATIVE_INFINITY
  return (what, { reason, state }, now) =>
    Effect.suspend(() => {
      if (state === "active" || now - announced < 60_000) return Effect.void
      announced = now
      const why = Option.match(reason, { onNone: () => "", onSome: (reason) => `: ${reason}` })
      return logged(Effect.logWarning(`Tinker: ${what} waits, ${state}${why}`))
    })
}
