/**
 * Keeps the journal of a training client in a file, from which another process can resume after this one has died.
 *
 * When `append` completes, intents are on disk; a record that was only partly written when the process or machine died
 * is ignored. Only one process at a time can open a journal. A lock file next to it names the holder; the lock of a
 * killed process is taken over by the next one.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { JournalFailed } from "effect-tinker/TinkerError"
import type * as TrainingJournal from "effect-tinker/TrainingJournal"
import * as JournalFile from "./internal/JournalFile.ts"

/**
 * Options of a file journal.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /**
   * Acknowledged requests are dead weight in the file. Once they occupy more than this many bytes, and more than
   * everything else, the file is rewritten without them. Default: 16 MiB.
   */
  readonly wasteBytes?: number | undefined
}

/**
 * Opens the journal in a file until the scope closes, and creates the file if needed. Fails with `Locked` if another
 * process has it open, and with `Corrupt` if the file is damaged or not a journal.
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
      // Uninterruptible: a partly written record would be damage.
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
