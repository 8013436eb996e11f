/**
 * The futures behind `ApiFuture`. Each reports its result to listeners, so that no fiber is needed to wait for one or
 * several. There may be thousands: what few callers ask for is created when they do.
 */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Inspectable from "effect/Inspectable"
import * as Option from "effect/Option"
import * as Pipeable from "effect/Pipeable"
import * as Stream from "effect/Stream"
import type { ApiFuture, QueueState } from "../../ApiFuture.ts"
import type { FutureError } from "../../TinkerError.ts"
import type { Completion } from "../runtime/Completion.ts"
import { tryExit } from "../util/Callback.ts"
import type { ObservableValue } from "../util/ObservableValue.ts"

export const TypeId: unique symbol = Symbol.for("effect-tinker/ApiFuture")

export type TypeId = typeof TypeId

const variance = { _A: (_: never) => _ }

/** Must not throw. */
type Listener<A> = (exit: Exit.Exit<A, FutureError>) => void

export abstract class FutureImpl<A> extends Inspectable.Class implements ApiFuture<A> {
  abstract readonly requestIds: ReadonlyArray<string>
  abstract readonly poll: Effect.Effect<Option.Option<A>, FutureError>
  abstract readonly queueState: Stream.Stream<QueueState>
  /** Calls the listener once: when the result arrives, or now. */
  abstract listen(listener: Listener<A>): void

  get [TypeId]() {
    return variance
  }

  get requestId(): string {
    return this.requestIds[0] ?? ""
  }

  get await(): Effect.Effect<A, FutureError> {
    return Effect.async<A, FutureError>((resume) => {
      let listener: typeof resume | undefined = resume
      this.listen((exit) => listener?.(exit))
      // Drop the listener so that an interrupted fiber can be collected.
      return Effect.sync(() => {
        listener = undefined
      })
    })
  }

  pipe() {
    return Pipeable.pipeArguments(this, arguments)
  }

  toJSON(): unknown {
    return { _id: "ApiFuture", requestIds: this.requestIds }
  }
}

/** The result of a request that a client waits for. */
export class PendingFuture<A> extends FutureImpl<A> {
  private readonly source: { readonly requestIds: ReadonlyArray<string> }
  private readonly task: Pick<Completion<A, FutureError>, "await" | "poll" | "listen">
  private readonly queue: ObservableValue<QueueState>

  constructor(
    source: { readonly requestIds: ReadonlyArray<string> },
    task: Pick<Completion<A, FutureError>, "await" | "poll" | "listen">,
    queue: ObservableValue<QueueState>,
  ) {
    super()
    this.source = source
    this.task = task
    this.queue = queue
  }

  get requestIds(): ReadonlyArray<string> {
    return this.source.requestIds
  }
  override get await(): Effect.Effect<A, FutureError> {
    return this.task.await
  }
  get poll(): Effect.Effect<Option.Option<A>, FutureError> {
    return this.task.poll
  }
  get queueState(): Stream.Stream<QueueState> {
    return Stream.interruptWhen(this.queue.changes, Effect.exit(this.task.await))
  }
  listen(listener: Listener<A>): void {
    this.task.listen(listener)
  }
}

/** A result that is known already. */
export class SettledFuture<A> extends FutureImpl<A> {
  readonly requestIds: ReadonlyArray<string> = []
  readonly queueState = Stream.empty
  private readonly exit: Exit.Exit<A, FutureError>

  constructor(exit: Exit.Exit<A, FutureError>) {
    super()
    this.exit = exit
  }

  get poll(): Effect.Effect<Option.Option<A>, FutureError> {
    return Effect.asSome(this.exit)
  }
  listen(listener: Listener<A>): void {
    listener(this.exit)
  }
}

export class MappedFuture<A, B> extends FutureImpl<B> {
  private readonly self: FutureImpl<A>
  private readonly f: (value: A) => B

  constructor(self: FutureImpl<A>, f: (value: A) => B) {
    super()
    this.self = self
    this.f = f
  }

  get requestIds(): ReadonlyArray<string> {
    return this.self.requestIds
  }
  get poll(): Effect.Effect<Option.Option<B>, FutureError> {
    return Effect.map(this.self.poll, Option.map(this.f))
  }
  get queueState(): Stream.Stream<QueueState> {
    return this.self.queueState
  }
  listen(listener: Listener<B>): void {
    this.self.listen((exit) => listener(Exit.flatten(tryExit(() => Exit.map(exit, this.f)))))
  }
}

/** All results, or the first failure. */
export class CombinedFuture<A> extends FutureImpl<ReadonlyArray<A>> {
  private readonly parts: ReadonlyArray<FutureImpl<A>>

  constructor(parts: ReadonlyArray<FutureImpl<A>>) {
    super()
    this.parts = parts
  }

  get requestIds(): ReadonlyArray<string> {
    return this.parts.flatMap(({ requestIds }) => requestIds)
  }
  get poll(): Effect.Effect<Option.Option<ReadonlyArray<A>>, FutureError> {
    return Effect.map(Effect.all(this.parts.map(({ poll }) => poll)), Option.all)
  }
  get queueState(): Stream.Stream<QueueState> {
    return Stream.mergeAll(
      this.parts.map(({ queueState }) => queueState),
      { concurrency: "unbounded" },
    )
  }
  listen(listener: Listener<ReadonlyArray<A>>): void {
    const results: Array<A> = []
    let open = this.parts.length
    if (open === 0) return listener(Exit.succeed(results))
    this.parts.forEach((part, i) =>
      part.listen((exit) => {
        if (open === 0) return
        if (Exit.isFailure(exit)) {
          open = 0
          return listener(Exit.failCause(exit.cause))
        }
        results[i] = exit.value
        if (--open === 0) listener(Exit.succeed(results))
      }),
    )
  }
}
