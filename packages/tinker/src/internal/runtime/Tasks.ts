/**
 * Work that a client owns and that others wait for. Every waiter resumes however the work ends: with its result, with
 * its error, or with the reason why the client is over. A defect or a killed fiber reaches waiters as a typed error.
 */
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import * as Runtime from "effect/Runtime"
import * as Scope from "effect/Scope"
import { ClientClosed, type FutureError, RequestFailed, type SessionLost } from "../../TinkerError.ts"
import { redactor } from "../util/Redact.ts"
import { shorten } from "../util/Text.ts"
import { Completion } from "./Completion.ts"

export interface About {
  /** Named by the error of work that died. */
  readonly operation: string
  readonly requestId?: string | undefined
  /** Called with the result before the waiters are. It must not throw. */
  readonly onExit?: ((exit: Exit.Exit<unknown, FutureError>) => void) | undefined
}

/** Why work is stopped from outside: its caller gave up, or the client is over. */
export type StopReason = "Stopped" | "Closed"

/** Stops work at once; the effect waits until it has released everything. */
export type StopWork = (reason: StopReason) => Effect.Effect<unknown>

/** Begins work by callback. `end` may be called before it returns; only its first call counts. */
export type Begin<A> = (end: (exit: Exit.Exit<A, FutureError>) => void) => StopWork

export interface Tasks {
  readonly start: <A>(about: About, begin: Begin<A>) => Task<A>
  /** The scope of background fibers: closed with the client, or as soon as the session is lost. */
  readonly scope: Scope.Scope
  /** Fails with the reason once the client is over. */
  readonly over: Effect.Effect<never, ClientClosed | SessionLost>
}

/** Runs an effect as a task, in a fiber of its own. */
export const inFiber =
  <A>(runtime: Runtime.Runtime<never>, work: Effect.Effect<A, FutureError>): Begin<A> =>
  (end) => {
    const fiber = Runtime.runFork(runtime, work)
    // An observer is also called for a fiber that is interrupted before its first step.
    fiber.addObserver(end)
    return () => Fiber.interrupt(fiber)
  }

const interrupted = Exit.interrupt(FiberId.none)

/** The first line of a cause that may be anything, even something that can't be printed. */
const firstLine = (cause: Cause.Cause<unknown>): string => {
  try {
    return shorten(redactor([])(Cause.pretty(cause).split("\n")[0] ?? ""))
  } catch {
    return "its cause can't be printed"
  }
}

/** Returns the error for work that died without a typed error. */
export const died = ({ operation, requestId }: About, cause: Cause.Cause<unknown>): FutureError =>
  new RequestFailed({
    operation,
    requestId: Option.fromNullable(requestId),
    reason: "PollerDied",
    detail: firstLine(cause),
    cause,
  })

/** The parts that all tasks of a client share. */
interface Client {
  // Not in the scope: there are thousands, and most end by themselves.
  readonly running: Set<Pick<Task<unknown>, "halt">>
  /** Why the client is over. */
  end: ClientClosed | SessionLost | undefined
}

export class Task<A> extends Completion<A, FutureError> {
  private stopWork: StopWork | undefined = undefined
  private readonly client: Client
  private readonly about: About

  constructor(client: Client, about: About) {
    super()
    this.client = client
    this.about = about
  }

  begin(begin: Begin<A>): void {
    // Nothing begins once the client is over.
    if (this.client.end !== undefined) return this.settle(interrupted)
    this.client.running.add(this)
    try {
      const stop = begin((exit) => this.settle(exit))
      if (!this.isDone) this.stopWork = stop
    } catch (cause) {
      this.settle(Exit.die(cause))
    }
  }

  /** Stops the task and waits until it has released everything. */
  get stop(): Effect.Effect<void> {
    return Effect.suspend(() => Effect.asVoid(this.halt("Stopped")))
  }

  /** Resumes the waiters at once; the effect waits until everything is released. */
  halt(reason: StopReason): Effect.Effect<unknown> {
    const { stopWork } = this
    if (stopWork === undefined || this.isDone) return Effect.void
    const released = stopWork(reason)
    this.settle(interrupted)
    return released
  }

  private settle(exit: Exit.Exit<A, FutureError>): void {
    if (this.isDone) return
    this.client.running.delete(this)
    this.stopWork = undefined
    const result = this.resultOf(exit)
    this.exit = result
    try {
      this.about.onExit?.(result)
    } finally {
      this.notify(result)
    }
  }

  private resultOf(exit: Exit.Exit<A, FutureError>): Exit.Exit<A, FutureError> {
    if (Exit.isSuccess(exit)) return exit
    const failure = Cause.failureOption(exit.cause)
    if (Option.isSome(failure)) return Exit.fail(failure.value)
    return Exit.fail(this.client.end ?? died(this.about, exit.cause))
  }
}

/**
 * Creates the tasks of a client in the current scope. `lost` fails when the session is over; `operation` is named by
 * the error of a closed client.
 */
export const make = (
  lost: Effect.Effect<never, SessionLost | ClientClosed>,
  operation: string,
): Effect.Effect<Tasks, never, Scope.Scope> =>
  Effect.gen(function* () {
    // A scope of its own, so that the reason is known before its fibers are interrupted.
    const scope = yield* Scope.make()
    const over = yield* Deferred.make<never, ClientClosed | SessionLost>()
    const client: Client = { running: new Set(), end: undefined }
    const haltAll = Effect.suspend(() =>
      // All at once: a slow release keeps no waiter from its result.
      Effect.forEach(
        [...client.running].map((task) => task.halt("Closed")),
        (released) => released,
        { concurrency: "unbounded", discard: true },
      ),
    )
    const close = (reason: ClientClosed | SessionLost, exit: Exit.Exit<unknown, unknown>) =>
      Effect.suspend(() => {
        client.end ??= reason
        return Deferred.fail(over, client.end).pipe(Effect.zipRight(haltAll), Effect.zipRight(Scope.close(scope, exit)))
      })
    yield* Effect.addFinalizer((exit) => close(new ClientClosed({ operation }), exit))
    yield* lost.pipe(
      // Uninterruptible: closing a half-closed scope again does nothing.
      Effect.catchAll((lost) => Effect.uninterruptible(close(lost, Exit.void))),
      Effect.forkScoped,
      Effect.interruptible,
    )
    const start = <A>(about: About, begin: Begin<A>): Task<A> => {
      const task = new Task<A>(client, about)
      task.begin(begin)
      return task
    }
    return { start, scope, over: Deferred.await(over) }
  })
