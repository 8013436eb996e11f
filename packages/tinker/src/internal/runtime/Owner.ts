/**
 * Work that a client owns and others wait for. Whoever waits resumes however it ends: with its result, with the error
 * it was ended with, or with the reason for which the client is over. The death of its fiber is never theirs.
 */
import * as Array from "effect/Array"
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import * as Runtime from "effect/Runtime"
import * as Scope from "effect/Scope"
import { ClientClosed, type FutureError, RequestFailed, type SessionLost } from "../../TinkerError.ts"
import { shorten } from "../util/Text.ts"
import { exitOf, nothingLeft, type Stop } from "../util/Begun.ts"
import { OneShot } from "./OneShot.ts"
import { redactor } from "../util/Redact.ts"
import { surroundings } from "../util/RunBeside.ts"

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
  /** Tells how it ended, when it has. */
  readonly listen: (tell: (exit: Exit.Exit<A, FutureError>) => void) => void
  /** The result if it is there. */
  readonly poll: Effect.Effect<Option.Option<A>, FutureError>
  /** Ends it now; those who wait get this error. */
  readonly fail: (error: FutureError) => void
  /** Ends it, and waits until it has let go of everything. */
  readonly stop: Effect.Effect<void>
}

export interface Owner {
  /** In a fiber, with all that the parent has around it, or had when that was looked at. */
  readonly launch: <A>(
    parent: Fiber.RuntimeFiber<unknown, unknown>,
    about: About,
    work: Effect.Effect<A, FutureError>,
    around?: Runtime.Runtime<never>,
  ) => Owned<A>
  /**
   * The same for work that mostly needs no fiber: `start` begins it, gives the way to stop it, and tells once, maybe
   * before it returns, what is left to do: nothing if that is an `Exit`, else an effect, for which a fiber is made. The
   * parent waits for it, so what it has around it stays.
   */
  readonly begin: <A>(
    parent: Fiber.RuntimeFiber<unknown, unknown>,
    about: About,
    start: (end: (rest: Effect.Effect<A, FutureError>) => void) => Stop,
  ) => Owned<A>
  /** Where its fibers live: closed with the client, or as soon as the session is lost. */
  readonly scope: Scope.Scope
  /** Waits, and fails with the reason when that happens. */
  readonly over: Effect.Effect<never, ClientClosed | SessionLost>
}

const interrupted = Exit.interrupt(FiberId.none)

/** Of a cause that may be anything, even something that can't be printed. */
const firstLine = (cause: Cause.Cause<unknown>): string => {
  try {
    return shorten(redactor([])(Cause.pretty(cause).split("\n")[0] ?? ""))
  } catch {
    return "its cause can't be printed"
  }
}

const outcome = <A>(
  { operation, requestId }: About,
  exit: Exit.Exit<A, FutureError>,
  given: FutureError | undefined,
): Exit.Exit<A, FutureError> => {
  if (Exit.isSuccess(exit)) return exit
  const failure = Cause.failureOption(exit.cause)
  if (Option.isSome(failure)) return Exit.fail(failure.value)
  if (given !== undefined) return Exit.fail(given)
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

/** What all of an owner's work shares. */
interface Home {
  // By hand and not in the scope: there are thousands, and most of them end by themselves.
  readonly held: Set<Pick<Held<unknown>, "fiber" | "stop">>
  /** Why the client is over. */
  end: ClientClosed | SessionLost | undefined
}

class Held<A> extends OneShot<A, FutureError> implements Owned<A> {
  fiber: Fiber.RuntimeFiber<A, FutureError> | undefined = undefined
  /** Stops what goes on without a fiber. */
  halt: Stop = nothingLeft
  private given: FutureError | undefined = undefined
  private readonly home: Home
  private readonly parent: Fiber.RuntimeFiber<unknown, unknown>
  private readonly about: About

  constructor(home: Home, parent: Fiber.RuntimeFiber<unknown, unknown>, about: About) {
    super()
    this.home = home
    this.parent = parent
    this.about = about
    home.held.add(this)
  }

  /** Under way, and without a fiber. */
  get isLoose(): boolean {
    return this.known === undefined && this.fiber === undefined
  }

  go(rest: Effect.Effect<A, FutureError>, around?: Runtime.Runtime<never>): void {
    if (!this.isLoose) return
    // Nothing of it is begun when the client is over.
    if (this.home.end !== undefined) return this.settle(interrupted)
    const exit = exitOf(rest)
    if (exit !== undefined) return this.settle(exit)
    this.halt = nothingLeft
    this.fiber = Runtime.runFork(around ?? surroundings(this.parent), rest)
    // From outside: a fiber that was killed before its first step never runs anything of its own.
    this.fiber.addObserver((exit) => this.settle(exit))
  }

  fail(error: FutureError): void {
    this.given ??= error
    if (this.fiber !== undefined) return this.fiber.unsafeInterruptAsFork(FiberId.none)
    const { halt } = this
    this.settle(interrupted)
    Effect.runFork(halt())
  }

  get stop(): Effect.Effect<void> {
    return Effect.suspend(() => {
      if (this.fiber !== undefined) return Fiber.interrupt(this.fiber)
      const { halt } = this
      this.settle(interrupted)
      return halt()
    }).pipe(Effect.asVoid)
  }

  private settle(exit: Exit.Exit<A, FutureError>): void {
    if (this.known !== undefined) return
    this.home.held.delete(this)
    const result = outcome(this.about, exit, this.given ?? this.home.end)
    this.known = result
    this.halt = nothingLeft
    try {
      this.about.onExit?.(result)
    } finally {
      this.tell(result)
    }
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
    const home: Home = { held: new Set(), end: undefined }
    const close = (reason: ClientClosed | SessionLost, exit: Exit.Exit<unknown, unknown>) =>
      Effect.suspend(() => {
        home.end ??= reason
        return Deferred.fail(over, home.end).pipe(
          Effect.zipRight(
            Effect.suspend(() => {
              const [loose, fibers] = Array.partitionMap([...home.held], (one) =>
                one.fiber === undefined ? Either.left(one.stop) : Either.right(one.fiber),
              )
              return Effect.zipRight(
                Effect.forEach(loose, (stop) => stop, { concurrency: "unbounded", discard: true }),
                Fiber.interruptAll(fibers),
                // None waits for the other's to let go.
                { concurrent: true },
              )
            }),
          ),
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

    const begin = <A>(
      parent: Fiber.RuntimeFiber<unknown, unknown>,
      about: About,
      start: (end: (rest: Effect.Effect<A, FutureError>) => void) => Stop,
    ): Owned<A> => {
      const one = new Held<A>(home, parent, about)
      if (home.end === undefined) {
        try {
          const halt = start((rest) => one.go(rest))
          if (one.isLoose) one.halt = halt
        } catch (cause) {
          one.go(Exit.die(cause))
        }
      } else one.go(Effect.interrupt)
      return one
    }

    const launch = <A>(
      parent: Fiber.RuntimeFiber<unknown, unknown>,
      about: About,
      work: Effect.Effect<A, FutureError>,
      around?: Runtime.Runtime<never>,
    ): Owned<A> => {
      const one = new Held<A>(home, parent, about)
      one.go(work, around)
      return one
    }

    return { launch, begin, scope, over: Deferred.await(over) }
  })
