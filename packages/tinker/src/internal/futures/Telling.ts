/**
 * Futures that tell their end to whoever listens, so that no fiber is needed to wait for one or for several of them.
 * There is one for each of thousands of results: what most of them are not asked for is made when it is.
 */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Inspectable from "effect/Inspectable"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { ApiFuture, QueueState } from "../../ApiFuture.ts"
import type { FutureError } from "../../TinkerError.ts"
import { attempt } from "../util/Begun.ts"
import type { Owned } from "../runtime/Owner.ts"
import type { Watched } from "../util/ObservableValue.ts"

/** What it calls must not throw. */
type Tell<A> = (exit: Exit.Exit<A, FutureError>) => void

export abstract class Telling<A> extends Inspectable.Class implements ApiFuture<A> {
  abstract readonly requestIds: ReadonlyArray<string>
  abstract readonly poll: Effect.Effect<Option.Option<A>, FutureError>
  abstract readonly queueState: Stream.Stream<QueueState>
  /** Tells the end once, when it has come, or now. */
  abstract listen(tell: Tell<A>): void

  get requestId(): string {
    return this.requestIds[0] ?? ""
  }

  get await(): Effect.Effect<A, FutureError> {
    return Effect.async<A, FutureError>((resume) => {
      let tell: typeof resume | undefined = resume
      this.listen((exit) => tell?.(exit))
      // Who is interrupted is not held until the end.
      return Effect.sync(() => {
        tell = undefined
      })
    })
  }

  /** In a log or as JSON it is not all that it will be. */
  toJSON(): unknown {
    return { _id: "ApiFuture", requestIds: this.requestIds }
  }
}

/** Of a request that a client waits for. */
export class Attached<A> extends Telling<A> {
  readonly requestIds: ReadonlyArray<string>
  private readonly owned: Pick<Owned<A>, "await" | "listen" | "poll">
  private readonly queue: Watched<QueueState>

  constructor(requestId: string, owned: Pick<Owned<A>, "await" | "listen" | "poll">, queue: Watched<QueueState>) {
    super()
    this.requestIds = [requestId]
    this.owned = owned
    this.queue = queue
  }

  override get await(): Effect.Effect<A, FutureError> {
    return this.owned.await
  }
  get poll(): Effect.Effect<Option.Option<A>, FutureError> {
    return this.owned.poll
  }
  get queueState(): Stream.Stream<QueueState> {
    return Stream.interruptWhen(this.queue.changes, Effect.exit(this.owned.await))
  }
  listen(tell: Tell<A>): void {
    this.owned.listen(tell)
  }
}

/** Of which the end is known. */
export class Ended<A> extends Telling<A> {
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
  listen(tell: Tell<A>): void {
    tell(this.exit)
  }
}

export class Mapped<A, B> extends Telling<B> {
  private readonly self: Telling<A>
  private readonly f: (value: A) => B

  constructor(self: Telling<A>, f: (value: A) => B) {
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
  listen(tell: Tell<B>): void {
    this.self.listen((exit) => tell(Exit.flatten(attempt(() => Exit.map(exit, this.f)))))
  }
}

/** All results, or the first failure. */
export class Gathered<A> extends Telling<ReadonlyArray<A>> {
  private readonly parts: ReadonlyArray<Telling<A>>

  constructor(parts: ReadonlyArray<Telling<A>>) {
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
  listen(tell: Tell<ReadonlyArray<A>>): void {
    const results: Array<A> = []
    let open = this.parts.length
    if (open === 0) return tell(Exit.succeed(results))
    this.parts.forEach((part, i) =>
      part.listen((exit) => {
        if (open === 0) return
        if (Exit.isFailure(exit)) {
          open = 0
          return tell(Exit.failCause(exit.cause))
        }
        results[i] = exit.value
        if (--open === 0) tell(Exit.succeed(results))
      }),
    )
  }
}
