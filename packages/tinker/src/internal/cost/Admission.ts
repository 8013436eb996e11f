/** Reserves room in a budget for an operation, and settles it however the operation ends. */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import type { Reservation } from "./Meter.ts"
import type { Tokens } from "./Tokens.ts"

/** Refused before or on arrival: nothing was computed. */
const didNothing = (error: unknown): boolean => {
  const tag = typeof error === "object" && error !== null && "_tag" in error ? error._tag : undefined
  return ["InvalidInput", "RequestRejected", "NotFound", "Unauthorized", "Forbidden"].some((name) => tag === name)
}

/** Waiting for room can be interrupted; a reservation that was made is never lost. */
export const interruptibleAdmission = <E>(
  restore: <A, E2, R>(effect: Effect.Effect<A, E2, R>) => Effect.Effect<A, E2, R>,
  reserve: Effect.Effect<Reservation, E>,
): Effect.Effect<Reservation, E> =>
  Effect.suspend(() => {
    let made: Reservation | undefined
    return Effect.onInterrupt(
      restore(
        Effect.tap(reserve, (reservation) =>
          Effect.sync(() => {
            made = reservation
          }),
        ),
      ),
      () => Effect.suspend(() => made?.release ?? Effect.void),
    )
  })

export const settleExit = <A, E>(
  reservation: Reservation,
  exit: Exit.Exit<A, E>,
  tokensOf: (result: A) => Partial<Tokens>,
): Effect.Effect<void> =>
  Exit.match(exit, {
    onSuccess: (result) => reservation.settle(tokensOf(result)),
    onFailure: (cause) =>
      Option.exists(Cause.failureOption(cause), didNothing) ? reservation.release : reservation.abandon,
  })
