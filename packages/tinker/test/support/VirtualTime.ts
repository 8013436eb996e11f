/** Runs a program in virtual time from now on: with `TestClock`, each step would take real time. */
import { Clock, Effect } from "effect"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"

export const run = <A, E, R>(program: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.flatMap(Clock.currentTimeMillis, (startsAt) => VirtualTime.run(program, { startsAt }))
