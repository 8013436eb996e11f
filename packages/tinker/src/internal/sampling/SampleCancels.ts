/**
 * Tells the server which samples nobody waits for any more. In the background and without promise: whoever gave up does
 * not wait for it, and what fails is dropped.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as Api from "../../protocol/Api.ts"
import type { DynamicConfig } from "../../protocol/schemas/Session.ts"
import type { Service as Transport } from "../../Transport.ts"

export interface Options {
  readonly call: Transport["call"]
  /** The server's flags of this moment: may it be told, and of how many at once? */
  readonly dynamic: Effect.Effect<DynamicConfig>
  /** Where it runs. */
  readonly scope: Scope.Scope
  readonly logged: <A>(effect: Effect.Effect<A>) => Effect.Effect<A>
}

export const make = ({ call, dynamic, logged, scope }: Options): ((requestId: string) => Effect.Effect<void>) => {
  const waiting: Array<string> = []
  let running = false

  const tell = (requestId: string) =>
    Effect.catchAllCause(call(Api.cancelFuture, { requestId }), (cause) =>
      logged(Effect.logDebug(`Tinker: sample ${requestId} was given up, and could not be cancelled`, cause)),
    )

  const tellAll: Effect.Effect<void> = Effect.gen(function* () {
    // Those who are interrupted together are told together.
    yield* Effect.yieldNow()
    while (waiting.length > 0) {
      const { sampleCancelMaxBatchSize } = yield* dynamic
      const batch = waiting.splice(0, Math.max(1, Math.floor(sampleCancelMaxBatchSize)))
      yield* Effect.forEach(batch, tell, { concurrency: "unbounded", discard: true })
    }
    running = false
  })

  return (requestId) =>
    Effect.flatMap(dynamic, ({ sampleCancelEnabled }) => {
      if (!sampleCancelEnabled) return Effect.void
      waiting.push(requestId)
      if (running) return Effect.void
      running = true
      // Whoever is being interrupted can't be interrupted; what it starts must be.
      return Effect.asVoid(Effect.forkIn(Effect.interruptible(tellAll), scope))
    })
}
