import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"

/** A value whose changes can be observed. It is lightweight, because each of thousands of samples has one. */
export class ObservableValue<A> {
  current: A
  private watchers: Set<(value: A) => void> | undefined = undefined

  constructor(current: A) {
    this.current = current
  }

  set(value: A): void {
    this.current = value
    this.watchers?.forEach((watcher) => watcher(value))
  }

  /** Emits the current value and each change. */
  get changes(): Stream.Stream<A> {
    return Stream.asyncPush<A>((emit) =>
      Effect.acquireRelease(
        Effect.sync(() => {
          const watcher = (value: A) => void emit.single(value)
          watcher(this.current)
          const watchers = (this.watchers ??= new Set())
          watchers.add(watcher)
          return watcher
        }),
        (watcher) => Effect.sync(() => this.watchers?.delete(watcher)),
      ),
    )
  }
}
