/**
 * Cancels abandoned samples on the server, in the background and as best effort: the caller does not wait for it, and
 * a failure is only logged.
 */
import * as Effect from "effect/Effect"
import * as Runtime from "effect/Runtime"
import type * as Scope from "effect/Scope"
import * as Api from "../../protocol/Api.ts"
import type { DynamicConfig } from "../../protocol/schemas/Session.ts"
import type { Service as Transport } from "../../Transport.ts"

export interface Options {
  readonly call: Transport["call"]
  /** The current flags of the server: whether it accepts cancellations, and how many at once. */
  readonly dynamic: Effect.Effect<DynamicConfig>
  readonly runtime: Runtime.Runtime<never>
  readonly scope: Scope.Scope
  readonly logged: <A>(effect: Effect.Effect<A>) => Effect.Effect<A>
}

export const make = ({ call, dynamic, logged, runtime, scope }: Options): ((requestId: string) => void) => {
  const waiting: Array<string> = []
  let isRunning = false

  const cancel = (requestId: string) =>
    Effect.catchAllCause(call(Api.cancelFuture, { requestId }), (cause) =>
      logged(Effect.logDebug(`Tinker: sample ${requestId} was abandoned and could not be cancelled`, cause)),
    )

  const cancelAll: Effect.Effect<void> = Effect.gen(function* () {
    // Samples that are interrupted together are cancelled together.
    yield* Effect.yieldNow()
    while (waiting.length > 0) {
      const { sampleCancelMaxBatchSize } = yield* dynamic
      const batch = waiting.splice(0, Math.max(1, Math.floor(sampleCancelMaxBatchSize)))
      yield* Effect.forEach(batch, cancel, { concurrency: "unbounded", discard: true })
    }
    isRunning = false
  })

  const add = (requestId: string) =>
    Effect.flatMap(dynamic, ({ sampleCancelEnabled }) => {
      if (!sampleCancelEnabled) return Effect.void
      waiting.push(requestId)
      if (isRunning) return Effect.void
      isRunning = true
      return Effect.asVoid(Effect.forkIn(cancelAll, scope))
    })

  return (requestId) => void Runtime.runFork(runtime, add(requestId))
}
