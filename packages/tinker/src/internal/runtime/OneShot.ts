import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import type * as Option from "effect/Option"

/** An end that comes once, for all who wait. Leaner than a `Deferred`, because there is one for each of thousands. */
export class OneShot<A, E> {
  protected known: Exit.Exit<A, E> | undefined = undefined
  private waiting: Set<(exit: Exit.Exit<A, E>) => void> | undefined = undefined

  /** Only the first time counts. */
  done(exit: Exit.Exit<A, E>): void {
    if (this.known !== undefined) return
    this.known = exit
    this.tell(exit)
  }

  /** Interrupting it leaves the others alone. */
  get await(): Effect.Effect<A, E> {
    return Effect.async<A, E>((resume) => {
      this.listen(resume)
      return this.known === undefined ? Effect.sync(() => this.waiting?.delete(resume)) : undefined
    })
  }

  /** Tells it when it comes, or now. What is told must not throw. */
  listen(tell: (exit: Exit.Exit<A, E>) => void): void {
    if (this.known === undefined) (this.waiting ??= new Set()).add(tell)
    else tell(this.known)
  }

  /** What is there now. */
  get poll(): Effect.Effect<Option.Option<A>, E> {
    return Effect.suspend(() => (this.known === undefined ? Effect.succeedNone : Effect.asSome(this.known)))
  }

  protected tell(exit: Exit.Exit<A, E>): void {
    this.waiting?.forEach((resume) => resume(exit))
    this.waiting = undefined
  }
}
