import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import type * as Option from "effect/Option"

/** A one-time result with callback listeners; lighter than `Deferred`. */
export class Completion<A, E> {
  protected exit: Exit.Exit<A, E> | undefined = undefined
  /** The only listener of most. */
  private first: ((exit: Exit.Exit<A, E>) => void) | undefined = undefined
  private others: Set<(exit: Exit.Exit<A, E>) => void> | undefined = undefined

  /** Sets the result. Only the first call counts. */
  done(exit: Exit.Exit<A, E>): void {
    if (this.exit !== undefined) return
    this.exit = exit
    this.notify(exit)
  }

  get isDone(): boolean {
    return this.exit !== undefined
  }

  /** Waits for the result. Interrupting it leaves other waiters alone. */
  get await(): Effect.Effect<A, E> {
    return Effect.async<A, E>((resume) => {
      this.listen(resume)
      return this.exit === undefined ? Effect.sync(() => this.forget(resume)) : undefined
    })
  }

  /** Calls the listener once: when the result arrives, or now. The listener must not throw. */
  listen(listener: (exit: Exit.Exit<A, E>) => void): void {
    if (this.exit !== undefined) listener(this.exit)
    else if (this.first === undefined) this.first = listener
    else (this.others ??= new Set()).add(listener)
  }

  /** The result if it is there. */
  get poll(): Effect.Effect<Option.Option<A>, E> {
    return Effect.suspend(() => (this.exit === undefined ? Effect.succeedNone : Effect.asSome(this.exit)))
  }

  private forget(listener: (exit: Exit.Exit<A, E>) => void): void {
    if (this.first === listener) this.first = undefined
    else this.others?.delete(listener)
  }

  protected notify(exit: Exit.Exit<A, E>): void {
    const { first, others } = this
    this.first = undefined
    this.others = undefined
    first?.(exit)
    others?.forEach((listener) => listener(exit))
  }
}
