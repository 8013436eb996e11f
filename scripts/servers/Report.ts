/**
 * Prints the table of checks, row by row. A check is `ok`, it `failed`, or the server `lacks` the feature: it refuses
 * in the known way of this server, which is not our failure.
 */
import { Cause, Console, Data, Duration, Effect, Exit, Option, Predicate } from "effect"

export type Outcome = "ok" | "lacks" | "failed"

/** A check with an unexpected result. */
export class CheckFailed extends Data.TaggedError("CheckFailed")<{ readonly message: string }> {}

/** Fails unless the condition holds. */
export const expect = (isSo: boolean, otherwise: string): Effect.Effect<void, CheckFailed> =>
  isSo ? Effect.void : new CheckFailed({ message: otherwise })

/** Returns the error of an effect that must fail with one of these tags. */
export const refused = <A, E extends { readonly _tag: string; readonly message: string }, R>(
  effect: Effect.Effect<A, E, R>,
  ...tags: ReadonlyArray<E["_tag"]>
): Effect.Effect<E, CheckFailed, R> =>
  effect.pipe(
    Effect.flip,
    Effect.mapError(() => new CheckFailed({ message: "it was accepted" })),
    Effect.tap((error) =>
      expect(tags.includes(error._tag), `it failed with another error: ${error._tag}: ${error.message}`),
    ),
  )

/** The failed check is already in the table; dependent checks are skipped. */
export class Reported extends Data.TaggedError("Reported") {}

/** Known missing features: the name of a check, and how it fails (HTTP status or part of the error message). */
export type Lacking = Readonly<Record<string, number | string>>

export interface Report {
  /** Runs a check and adds a row. `tell` returns the note of a successful check. */
  readonly check: <A, E, R>(
    name: string,
    effect: Effect.Effect<A, E, R>,
    tell?: (value: A) => string,
  ) => Effect.Effect<A, Reported, R>
  /** Like `check`, for checks that no other check depends on. */
  readonly probe: <A, E, R>(
    name: string,
    effect: Effect.Effect<A, E, R>,
    tell?: (value: A) => string,
  ) => Effect.Effect<void, never, R>
  /** Adds a row for a check that would harm this server. */
  readonly lacks: (name: string, why: string) => Effect.Effect<void>
  readonly count: (outcome: Outcome) => number
  /** Returns the known missing features that were not checked. */
  readonly unreached: () => ReadonlyArray<string>
}

/** The first call of each kind triggers compilation on the server, and the machine may be busy. */
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

/** Determines the outcome of a check. */
const judge = <A, E>(
  exit: Exit.Exit<A, E>,
  lack: number | string | undefined,
  tell: (value: A) => string,
): { readonly outcome: Outcome; readonly note: string } => {
  if (Exit.isSuccess(exit)) {
    return lack === undefined
      ? { outcome: "ok", note: tell(exit.value) }
      : { outcome: "failed", note: `this server was known to lack this (${lack}), but supports it; update Checks.ts` }
  }
  const error = Option.getOrElse(Cause.failureOption(exit.cause), () => Cause.squash(exit.cause))
  const note = words(error)
  const isKnown = typeof lack === "string" ? note.includes(lack) : lack !== undefined && statusOf(error) === lack
  return { outcome: isKnown ? "lacks" : "failed", note }
}

export const make = (lacking: Lacking): Report => {
  const counts = { ok: 0, lacks: 0, failed: 0 }
  const unreached = new Set(Object.keys(lacking))
  const row = (name: string, outcome: Outcome, note: string, took: Duration.Duration) => {
    counts[outcome]++
    const seconds = (Duration.toMillis(took) / 1000).toFixed(1).padStart(6)
    const line = `  ${outcome.padEnd(6)} ${seconds} s  ${name}`
    return Console.log(note === "" ? line : `${line}\n                    ${note}`)
  }
  const check: Report["check"] = (name, effect, tell = () => "") =>
    Effect.gen(function* () {
      unreached.delete(name)
      const [took, exit] = yield* effect.pipe(
        Effect.timeoutFail({
          duration: patience,
          onTimeout: () => new CheckFailed({ message: `did not finish within ${Duration.format(patience)}` }),
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
    unreached: () => [...unreached],
  }
}
