/** Provides the clients of the SDK to a command, with the credentials and the server of the environment. */
import * as NodeTinker from "@effect-tinker/node/NodeTinker"
import type { InvalidConfig, Unauthorized } from "effect-tinker/TinkerError"
import * as RetryPolicy from "effect-tinker/RetryPolicy"
import * as Effect from "effect/Effect"

/** A person waits, so a request is repeated for less time than in a program, and an unpaid bill is not waited for. */
const patient = RetryPolicy.make({ maxElapsed: "30 seconds", billingPause: 0 })

const using =
  (retryPolicy: RetryPolicy.RetryPolicy) =>
  <A, E, R>(
    effect: Effect.Effect<A, E, R>,
  ): Effect.Effect<A, E | InvalidConfig | Unauthorized, Exclude<R, NodeTinker.NodeTinker>> =>
    Effect.provide(effect, NodeTinker.layerConfig({ retryPolicy }))

/** Provides the clients. */
export const provide = using(patient)

/** Provides clients that send each request once. */
export const provideOnce = using(RetryPolicy.none)
