/** The training step that a request belongs to, which the journal keeps as the request's tag. */
import * as Option from "effect/Option"

export const tagOf = (step: number): string => `step ${step}`

const stepOf = (tag: Option.Option<string>): number | undefined => {
  const digits = /^step (\d+)$/.exec(Option.getOrElse(tag, () => ""))?.[1]
  return digits === undefined ? undefined : Number(digits)
}

/** One half of a step. A half that has not failed counts as done. */
interface Half {
  /** The wire's name of its result. */
  readonly kind: string
  readonly tag: Option.Option<string>
  readonly succeeded: boolean | undefined
}

/**
 * Returns how far the steps of a journal have come. Steps of `trainStep` and `trainSteps` carry their number in the
 * journal; where none does, every update counts as a step after `firstStep`.
 */
export const progress = (
  calls: ReadonlyArray<Half>,
  firstStep: number,
): { readonly nextStep: number; readonly unfinished: Option.Option<number> } => {
  let last = -1
  let isPassed = false
  let isUpdated = false
  let updates = 0
  for (const { kind, succeeded, tag } of calls) {
    if (kind === "OptimStep" && succeeded !== false) updates++
    const step = stepOf(tag)
    if (step === undefined || step < last) continue
    if (step > last) {
      last = step
      isPassed = false
      isUpdated = false
    }
    if (kind === "OptimStep") isUpdated ||= succeeded !== false
    // The forward pass of a custom loss leaves no gradients behind.
    else if (kind === "ForwardBackward") isPassed ||= succeeded !== false
  }
  if (last < 0) return { nextStep: firstStep + updates, unfinished: Option.none() }
  // A step of which neither half was done is still to be done.
  if (!isPassed && !isUpdated) return { nextStep: last, unfinished: Option.none() }
  return { nextStep: last + 1, unfinished: isPassed && !isUpdated ? Option.some(last) : Option.none() }
}
