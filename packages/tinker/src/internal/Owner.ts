/**
 * Fibers that a client owns and others wait for. Whoever waits resumes however such a fiber ends: with its result, with
 * the error it was ended with, or with the reason for which the client is over. Its death is never theirs.
 */
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import { ClientClosed, type FutureError, RequestFailed, type SessionLost } from "../TinkerError.ts"
import { shorten } from "./Answer.ts"
import { redactor } from "./Redact.ts"
import { runBeside } from "./RunBeside.ts"

export interface About {
  /** What the error names, should the fiber die. */
  readonly operation: string
  readonly requestId?: string | undefined
  /** Told at once how it ended, before those who wait are. It must not throw. */
  readonly onExit?: ((exit: Exit.Exit<unknown, FutureError>) => void) | undefined
}

export interface Owned<out A> {
  /** Interrupting it leaves the result to whoever else waits. */
  readonly await: Effect.Effect<A, FutureError>
  /** The result if it is there. */
  readonly poll: Effect.Effect<Option.Option<A>, FutureError>
  /** Ends it now; those who wait get this error. */
  readonly fail: (error: FutureError) => void
  /** Ends it, and waits until it has let go of everything. */
  readonly stop: Effect.Effect<void>
}

export interface Owner {
  readonly start: <A>(about: About, work: Effect.Effect<A, FutureError>) => Effect.Effect<Owned<A>>
  /** The same at once, with all that the parent has around it. */
  readonly launch: <A>(
    parent: Fiber.RuntimeFiber<unknown, unknown>,
    about: About,
    work: Effect.Effect<A, FutureError>,
  ) => Owned<A>
  /** Where its fibers live: closed with the client, or as soon as the session is lost. */
  readonly scope: Scope.Scope
  /** Waits, and fails with the reason when that happens. */
  readonly over: Effect.Effect<never, ClientClosed | SessionLost>
}

/** Of a cause that may be anything, even something that can't be printed. */
const firstLine = (cause: Cause.Cause<unknown>): string => {
  try {
    return shorten(redactor([])(Cause.pretty(cause).split("\n")[0] ?? ""))
  } catch {
    return "its cause can't be printed"
  }
}

/** In the current scope; `lost` fails when the session is over, and `operation` names what a closed client gave up. */
export const make = (
  lost: Effect.Effect<never, SessionLost | ClientClosed>,
  operation: string,
): Effect.Effect<Owner, never, Scope.Scope> =>
  Effect.gen(function* () {
    // Of its own, so that it is known why it is closed before the fibers in it die.
    const scope = yield* Scope.make()
    const over = yield* Deferred.make<never, ClientClosed | SessionLost>()
    let end: ClientClosed | SessionLost | undefined
    // By hand and not in the scope: there are thousands, and most of them end by themselves.
    const fibers = new Set<Fiber.RuntimeFiber<unknown, unknown>>()
    const close = (reason: ClientClosed | SessionLost, exit: Exit.Exit<unknown, unknown>) =>
      Effect.suspend(() => {
        end ??= reason
        return Deferred.fail(over, end).pipe(
          Effect.zipRight(Effect.suspend(() => Fiber.interruptAll(fibers))),
          Effect.zipRight(Scope.close(scope, exit)),
        )
      })
    yield* Effect.addFinalizer((exit) => close(new ClientClosed({ operation }), exit))
    yield* lost.pipe(
      // To its end: a second close of a scope that is half closed does nothing.
      Effect.catchAll((lost) => Effect.uninterruptible(close(lost, Exit.void))),
      Effect.forkScoped,
      Effect.interruptible,
    )

    const outcome = <A>(
      { operation, requestId }: About,
      exit: Exit.Exit<A, FutureError>,
      given: FutureError | undefined,
    ): Exit.Exit<A, FutureError> => {
      if (Exit.isSuccess(exit)) return exit
      const failure = Cause.failureOption(exit.cause)
      if (Option.isSome(failure)) return Exit.fail(failure.value)
      const known = given ?? end
      if (known !== undefined) return Exit.fail(known)
      return Exit.fail(
        new RequestFailed({
          operation,
          requestId: Option.fromNullable(requestId),
          reason: "PollerDied",
          detail: firstLine(exit.cause),
          cause: exit.cause,
        }),
      )
    }

    const launch = <A>(
      parent: Fiber.RuntimeFiber<unknown, unknown>,
      about: About,
      work: Effect.Effect<A, FutureError>,
    ): Owned<A> => {
      // Nothing of it is begun when the client is over.
      const fiber = runBeside(parent, end === undefined ? work : Effect.interrupt)
      let given: FutureError | undefined
      let known: Exit.Exit<A, FutureError> | undefined
      let waiting: Set<(exit: Exit.Exit<A, FutureError>) => void> | undefined
      fibers.add(fiber)
      // From outside: a fiber that was killed before its first step never runs anything of its own.
      fiber.addObserver((exit) => {
        fibers.delete(fiber)
        const result = outcome(about, exit, given)
        known = result
        try {
          about.onExit?.(result)
        } finally {
          waiting?.forEach((resume) => resume(result))
          waiting = undefined
        }
      })
      return {
        await: Effect.async<A, FutureError>((resume) => {
          if (known !== undefined) return resume(known)
          const waiters = (waiting ??= new Set())
          waiters.add(resume)
          return Effect.sync(() => waiters.delete(resume))
        }),
        poll: Effect.suspend(() => (known === undefined ? Effect.succeedNone : Effect.asSome(known))),
        fail: (error: FutureError) => {
          given ??= error
          fiber.unsafeInterruptAsFork(FiberId.none)
        },
        stop: Fiber.interrupt(fiber),
      }
    }

    const start: Owner["start"] = (about, work) =>
      Effect.withFiberRuntime((parent) => Effect.succeed(launch(parent, about, work)))

    return { start, launch, scope, over: Deferred.await(over) }
  })
