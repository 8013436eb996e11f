/** Decides what to do with the journal of a training run when its program starts. */
import * as Option from "effect/Option"
import type { State } from "../../TrainingJournal.ts"
import * as Ledger from "./Ledger.ts"
import * as StepTags from "./StepTags.ts"

/** A checkpoint that training can go back to, and the first step after it. */
export interface RestorePoint {
  readonly path: string
  readonly withOptimizer: boolean
  /** The number of the first step that the checkpoint does not contain. */
  readonly step: number
}

export type Plan =
  | { readonly _tag: "Start" }
  | { readonly _tag: "Resume"; readonly state: State }
  | { readonly _tag: "Completed"; readonly steps: number; readonly lastCheckpoint: Option.Option<RestorePoint> }

/** Decides by the journal alone. Whether a resume succeeds depends on the server. */
export const plan = (found: Option.Option<State>): Plan => {
  if (Option.isNone(found)) return { _tag: "Start" }
  const state = found.value
  return state.completed
    ? { _tag: "Completed", steps: stepsOf(state), lastCheckpoint: Option.fromNullable(restorePoints(state)[0]) }
    : { _tag: "Resume", state }
}

/** Returns the number of complete steps; `before` counts only requests with lower numbers. */
export const stepsOf = (state: State, before = Number.POSITIVE_INFINITY): number => {
  const { calls } = Ledger.ledger(state.steps.filter(({ intent }) => intent.seq < before))
  const { nextStep, unfinished } = StepTags.progress(calls.map(Ledger.outcome), state.opened.firstStep)
  // A checkpoint contains no gradients, so that a pass without its update has to be made again.
  return Option.getOrElse(unfinished, () => nextStep)
}

/**
 * Returns the states of the model that can be loaded, the latest one first: its checkpoints, and the one that it started
 * with.
 */
export const restorePoints = (state: State): ReadonlyArray<RestorePoint> => [
  ...state.checkpoints
    .map(({ path, seq, withOptimizer }) => ({ path, withOptimizer, step: stepsOf(state, seq) }))
    .toReversed(),
  ...Option.toArray(Option.map(state.opened.from, (from) => ({ ...from, step: state.opened.firstStep }))),
]
