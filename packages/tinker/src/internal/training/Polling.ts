/** The polling fiber of an acknowledged request. */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type * as ApiFuture from "../../ApiFuture.ts"
import type { ClientClosed, FutureError, SessionLost } from "../../TinkerError.ts"
import { PendingFuture } from "../futures/FutureImpl.ts"
import { Completion } from "../runtime/Completion.ts"
import { died } from "../runtime/Tasks.ts"
import { timeOf } from "../util/MonotonicClock.ts"
import { ObservableValue } from "../util/ObservableValue.ts"

export interface AcknowledgedRequest {
  readonly seq: number
  readonly requestId: string
  /** It was sent more than once, or by a previous process. */
  readonly inDoubt: boolean
  /** How long submitting took, in milliseconds. */
  readonly submittedIn?: number | undefined
}

export interface Options<B> {
  /** Polls for a result. */
  readonly follow: ApiFuture.Service["follow"]
  /** Where the fiber lives. */
  readonly scope: Scope.Scope
  readonly kind: ApiFuture.Kind<B>
  readonly wait: ApiFuture.Options
  readonly request: AcknowledgedRequest
  /** Why the client ended, if it did. */
  readonly endedBy: () => ClientClosed | SessionLost | undefined
  /** Called before waiting callers are resumed. */
  readonly onExit: (exit: Exit.Exit<B, FutureError>) => void
}

/** Forks the fiber. Waiters of the future are resumed however the fiber ends. */
export const start = <B>(options: Options<B>): Effect.Effect<ApiFuture.ApiFuture<B>> =>
  Effect.withFiberRuntime((fiber) => {
    const { follow, kind, onExit, request, scope, wait } = options
    const since = timeOf(fiber).clock.unsafeCurrentTimeMillis()
    const queue = new ObservableValue<ApiFuture.QueueState>({ state: "submitted", reason: Option.none(), since })
    const result = new Completion<B, FutureError>()
    const polling = follow(kind, request.requestId, {
      ...wait,
      submittedIn: request.submittedIn,
      onTurn: (state) => {
        if (state !== queue.current) queue.set(state)
      },
    })
    return Effect.map(Effect.forkIn(Effect.interruptible(polling), scope), (poller) => {
      // From outside: a fiber that was interrupted before its first step never runs anything of its own.
      poller.addObserver((exit) => {
        const outcome = outcomeOf(options, exit)
        try {
          onExit(outcome)
        } finally {
          result.done(outcome)
        }
      })
      return new PendingFuture({ requestIds: [request.requestId] }, result, queue)
    })
  })

/** Returns what a caller gets: the result, its error, or why the client ended. Never the fiber's interruption. */
const outcomeOf = <B>(
  { endedBy, kind, request }: Options<B>,
  exit: Exit.Exit<B, FutureError>,
): Exit.Exit<B, FutureError> => {
  if (Exit.isSuccess(exit)) return exit
  return Exit.fail(
    Option.getOrElse(
      Cause.failureOption(exit.cause),
      () => endedBy() ?? died({ operation: kind.type, requestId: request.requestId }, exit.cause),
    ),
  )
}
