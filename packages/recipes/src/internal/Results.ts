/** The results of steps that a previous process made, by step. */
import type * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { OptimStepResult } from "effect-tinker/protocol/schemas/Training"
import type { FutureError } from "effect-tinker/TinkerError"
import type * as TrainingClient from "effect-tinker/TrainingClient"
import type { TrainingResult } from "effect-tinker/TrainingResult"

/** The requests of a step, in order. A step with a custom loss has two passes. */
export interface Made {
  readonly passes: ReadonlyArray<Effect.Effect<TrainingResult, FutureError>>
  readonly update: Effect.Effect<OptimStepResult, FutureError> | undefined
}

export type Results = ReadonlyMap<number, Made>

const stepOf = (tag: Option.Option<string>): number | undefined => {
  const digits = /^step (\d+)$/.exec(Option.getOrElse(tag, () => ""))?.[1]
  return digits === undefined ? undefined : Number(digits)
}

/** Groups the calls of a journal by step; failed ones are left out. */
export const fromCalls = (calls: ReadonlyArray<TrainingClient.Completed | TrainingClient.Pending>): Results => {
  const results = new Map<number, Made>()
  for (const call of calls) {
    const step = stepOf(call.tag)
    if (step === undefined || ("succeeded" in call && !call.succeeded)) continue
    const known = results.get(step) ?? { passes: [], update: undefined }
    if (call.kind === "pass") {
      const pass = "future" in call ? call.future.await : call.result
      results.set(step, { ...known, passes: [...known.passes, pass] })
    } else if (call.kind === "update") {
      results.set(step, { ...known, update: "future" in call ? call.future.await : call.result })
    }
  }
  return results
}
