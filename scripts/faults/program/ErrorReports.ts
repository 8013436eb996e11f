/** Describes errors of the SDK as plain data. */
import { Cause, Exit, Option } from "effect"
import { Archive, TinkerError, TrainingClient } from "effect-tinker"
import type { ErrorReport } from "./Report.ts"

const textOf = (error: object, name: string): string | undefined => {
  const value: unknown = Reflect.get(error, name)
  return typeof value === "string" ? value : undefined
}

const numberOf = (error: object, name: string): number | undefined => {
  const value: unknown = Reflect.get(error, name)
  return typeof value === "number" ? value : undefined
}

const describe = (error: unknown): ErrorReport => {
  if (typeof error !== "object" || error === null) return { tag: "Defect", message: String(error), isTyped: false }
  return {
    tag: textOf(error, "_tag") ?? "Defect",
    message: error instanceof Error ? error.message : String(error),
    isTyped: TinkerError.isTinkerError(error) || error instanceof Archive.ArchiveRefused,
    reason: textOf(error, "reason"),
    operation: textOf(error, "operation"),
    applied: textOf(error, "applied"),
    acknowledged: numberOf(error, "acknowledged"),
  }
}

const ofCause = (cause: Cause.Cause<unknown>): ErrorReport =>
  Option.match(Cause.failureOption(cause), {
    onSome: describe,
    onNone: () => ({ tag: "Defect", message: Cause.pretty(cause), isTyped: false }),
  })

const half = (name: string, exit: Exit.Exit<unknown, unknown>): Readonly<Record<string, ErrorReport>> =>
  Exit.isFailure(exit) ? { [name]: ofCause(exit.cause) } : {}

/** Describes why a part of the program failed: one error, or those of the two halves of a step. */
export const errorsOf = (cause: Cause.Cause<unknown>): Readonly<Record<string, ErrorReport>> => {
  const error = Option.getOrUndefined(Cause.failureOption(cause))
  return error instanceof TrainingClient.StepFailed
    ? { ...half("pass", error.pass), ...half("update", error.update) }
    : { error: ofCause(cause) }
}
