/**
 * The table of checks, printed row by row. A check is `ok`, or it `failed`, or the server `lacks` what it asks for:
 * refuses it in the way that is known of this server, which is no failure of ours.
 */
import { Cause, Console, Data, Duration, Effect, Exit, Option, Predicate } from "effect"

export type Outcome = "ok" | "lacks" | "failed"

/** It did what it should not. */
export class CheckFailed extends Data.TaggedError("CheckFailed")<{ readonly message: string }> {}

/** Fails unless it is so. */
export const expect = (isSo: boolean, otherwise: string): Effect.Effect<void, CheckFailed> =>
  isSo ? Effect.void : new CheckFailed({ message: otherwise })

/** The error of an effect that is to fail with one of these. */
export const refused = <A, E extends { readonly _tag: string; readonly message: string }, R>(
  effect: Effect.Effect<A, E, R>,
  ...tags: ReadonlyArray<E["_tag"]>
): Effect.Effect<E, CheckFailed, R> =>
  effect.pipe(
    Effect.flip,
    Effect.mapError(() => new CheckFailed({ message: "it was accepted" })),
    Effect.tap((error) => expect(tags.includes(error._tag), `it failed otherwise: ${error._tag}: ${error.message}`)),
  )

/** The check is in the table already; what builds on it is left out. */
export class Reported extends Data.TaggedError("Reported") {}

/** What this server is known to lack: the name of a check, and how it fails: the HTTP status, or words of the error. */
export type Lacking = Readonly<Record<string, number | string>>

export interface Report {
  /** Adds a row. `tell` is what the row says of a success. */
  readonly check: <A, E, R>(
    name: string,
    effect: Effect.Effect<A, E, R>,
    tell?: (value: A) => string,
  ) => Effect.Effect<A, Reported, R>
  /** The same where nothing builds on it. */
  readonly probe: <A, E, R>(
    name: string,
    effect: Effect.Effect<A, E, R>,
    tell?: (value: A) => string,
  ) => Effect.Effect<void, never, R>
  /** A row for what would do this server harm. */
  readonly lacks: (name: string, why: string) => Effect.Effect<void>
  readonly count: (outcome: Outcome) => number
  /** What it was said to lack, and was not asked for. */
  readonly unasked: () => ReadonlyArray<string>
}

/** The first call of a kind compiles on the server, on a machine that may be busy. */
const patience = Duration.minutes(5)

const words = (error: unknown): string => {
  const text = Predicate.hasProperty(error, "message") ? String(error.message) : String(error)
  const line = text.replace(/\s+/g, " ")
  const tagged = Predicate.hasProperty(error, "_tag") ? `${String(error._tag)}: ${line}` : line
  return tagged.length > 300 ? `${tagged.slice(0, 300)}...` : tagged
}

const statusOf = (error: unknown): number | undefined =>
  Predicate.hasProperty(error, "status") && Option.isOption(error.status) && Option.isSome(error.status)
    ? Number(error.status.value)
    : undefined

/** What the end of a check means. */
const judge = <A, E>(
  exit: Exit.Exit<A, E>,
  lack: number | string | undefined,
  tell: (value: A) => string,
): { readonly outcome: Outcome; readonly note: string } => {
  if (Exit.isSuccess(exit)) {
    return lack === undefined
      ? { outcome: "ok", note: tell(exit.value) }
      : { outcome: "failed", note: `this server was known to lack it (${lack}), and does not` }
  }
  const error = Option.getOrElse(Cause.failureOption(exit.cause), () => Cause.squash(exit.cause))
  const note = words(error)
  const isKnown = typeof lack === "string" ? note.includes(lack) : lack !== undefined && statusOf(error) === lack
  return { outcome: isKnown ? "lacks" : "failed", note }
}

export const make = (lacking: Lacking): Report => {
  const counts = { ok: 0, lacks: 0, failed: 0 }
  const unasked = new Set(Object.keys(lacking))
  const row = (name: string, outcome: Outcome, note: string, took: Duration.Duration) => {
    counts[outcome]++
    const seconds = (Duration.toMillis(took) / 1000).toFixed(1).padStart(6)
    const line = `  ${outcome.padEnd(6)} ${seconds} s  ${name}`
    return Console.log(note === "" ? line : `${line}\n                    ${note}`)
  }
  const check: Report["check"] = (name, effect, tell = () => "") =>
    Effect.gen(function* () {
      unasked.delete(name)
      const [took, exit] = yield* effect.pipe(
        Effect.timeoutFail({
          duration: patience,
          onTimeout: () => new CheckFailed({ message: `did not end within ${Duration.format(patience)}` }),
        }),
        Effect.exit,
        Effect.timed,
      )
      const { note, outcome } = judge(exit, lacking[name], tell)
      yield* row(name, outcome, note, took)
      return Exit.isSuccess(exit) && outcome === "ok" ? exit.value : yield* new Reported()
    })
  return {
    check,
    probe: (name, effect, tell) => Effect.ignore(check(name, effect, tell)),
    lacks: (name, why) => row(name, "lacks", why, Duration.zero),
    count: (outcome) => counts[outcome],
    unasked: () => [...unasked],
  }
}
