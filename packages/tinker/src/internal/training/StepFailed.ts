import * as Cause from "effect/Cause"
import * as Data from "effect/Data"
import * as Exit from "effect/Exit"
import type { OptimStepResult } from "../../protocol/schemas/Training.ts"
import type { TrainingError } from "../../TinkerError.ts"
import type { TrainingResult } from "../../TrainingResult.ts"

/**
 * A training step whose two halves ended differently, or failed for different reasons. If a single error describes the
 * failure (the pass was not accepted, or the client can't continue), the step fails with that error instead.
 *
 * @since 0.1.0
 * @category errors
 */
export class StepFailed extends Data.TaggedError("StepFailed")<{
  readonly pass: Exit.Exit<TrainingResult, TrainingError>
  readonly update: Exit.Exit<OptimStepResult, TrainingError>
}> {
  /** @since 0.1.0 */
  override get message(): string {
    return `${half("pass", this.pass)}; ${half("update", this.update)}`
  }
}

const half = (name: string, exit: Exit.Exit<unknown, TrainingError>): string =>
  Exit.match(exit, {
    onSuccess: () => `the ${name} succeeded`,
    onFailure: (cause) => `the ${name} failed: ${describe(cause)}`,
  })

const describe = (cause: Cause.Cause<TrainingError>): string => {
  const error = Cause.squash(cause)
  return error instanceof Error ? error.message : String(error)
}
