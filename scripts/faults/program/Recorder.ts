/** Records the parts of a program: their values, their errors and how long they took. */
import { Data, Effect, Exit } from "effect"
import { errorsOf } from "./ErrorReports.ts"
import type { Entry } from "./Report.ts"

/** Ends the program after a part that the rest depends on. */
export class Stopped extends Data.TaggedError("Stopped")<{}> {}

export class Recorder {
  readonly entries: Array<Entry> = []

  /** Runs a part and records a digest of its value; an error is recorded and ends the program. */
  readonly part = <A, E, R>(
    name: string,
    effect: Effect.Effect<A, E, R>,
    digest: (value: A) => unknown,
  ): Effect.Effect<A, Stopped, R> =>
    Effect.suspend(() => {
      const startedAt = performance.now()
      return Effect.flatMap(Effect.exit(effect), (exit): Effect.Effect<A, Stopped> => {
        const millis = Math.round(performance.now() - startedAt)
        if (Exit.isSuccess(exit)) {
          this.entries.push({ name, millis, value: digest(exit.value) })
          return Effect.succeed(exit.value)
        }
        this.entries.push({ name, millis, errors: errorsOf(exit.cause) })
        return new Stopped()
      })
    })
}
