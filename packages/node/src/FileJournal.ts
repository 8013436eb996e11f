/**
 * The journal of a training client in a file, from which another process can go on when this one is gone.
 *
 * What `append` was told of an intent is on the disk when it completes; a record that was being written when the
 * process or the machine died counts for nothing. One process at a time has a journal open. Its lock is a file beside
 * it that names the process; that of a process that was killed is taken over by the next one.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { JournalFailed } from "effect-tinker/TinkerError"
import type * as TrainingJournal from "effect-tinker/TrainingJournal"
import * as JournalFile from "./internal/JournalFile.ts"

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /**
   * Requests lie in the file, and are of no use any more when they are acknowledged. When more bytes of that sort have
   * come together than this, and more than there are of others, the file is written anew without them. Default: 16 MiB.
   */
  readonly wasteBytes?: number | undefined
}

/**
 * The journal in this file, which is made if there is none, until the scope closes. `Locked` if another process has it
 * open, `Corrupt` if the file is damaged or something else.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  path: string,
  options: Options = {},
): Effect.Effect<TrainingJournal.Journal, JournalFailed, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      attempt("Write", () => JournalFile.open(path, options.wasteBytes ?? 16 * 1024 * 1024)),
      (file) => Effect.promise(() => file.close()),
    ),
    (file) => ({
      // To its end, whoever is interrupted: half a record would be a damaged one.
      append: (entries) => Effect.uninterruptible(attempt("Write", () => file.append(entries))),
      read: attempt("Read", () => file.read()),
    }),
  )

const attempt = <A>(reason: JournalFailed["reason"], run: () => Promise<A>): Effect.Effect<A, JournalFailed> =>
  Effect.tryPromise({
    try: run,
    catch: (cause) =>
      cause instanceof JournalFailed
        ? cause
        : new JournalFailed({ reason, detail: cause instanceof Error ? cause.message : String(cause), cause }),
  })
