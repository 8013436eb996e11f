/**
 * Tells people what was saved, and what was not, when they stop a run.
 *
 * @since 0.1.0
 */
import type { RunEvent } from "./RunEvent.ts"
import { oneLine } from "./internal/Lines.ts"

/**
 * The steps that a process has made and saved, according to its events.
 *
 * @since 0.1.0
 * @category models
 */
export interface Seen {
  /** How many updates the weights have; undefined before the first step of this process. */
  readonly step: number | undefined
  /** The newest state to continue from, and how many updates it contains. */
  readonly saved: { readonly step: number; readonly path: string } | undefined
}

/**
 * Nothing is known yet.
 *
 * @since 0.1.0
 * @category constructors
 */
export const nothing: Seen = { step: undefined, saved: undefined }

/**
 * Returns what is known after an event.
 *
 * @since 0.1.0
 * @category combinators
 */
export const see = (self: Seen, event: RunEvent): Seen => {
  if (event._tag === "Step") return { ...self, step: event.step + 1 }
  return event._tag === "Checkpoint" && event.statePath !== undefined
    ? { ...self, saved: { step: event.step, path: event.statePath } }
    : self
}

const counted = (count: number, one: string): string => `${count} ${one}${count === 1 ? "" : "s"}`

/**
 * The phases after the first request to stop.
 *
 * @since 0.1.0
 * @category formatting
 */
export const stopping =
  "Stopping: steps on their way are completed and a checkpoint is saved. Press Ctrl-C again to stop at once."

/**
 * Describes a stop that has ended everything under way.
 *
 * @since 0.1.0
 * @category formatting
 */
export const stopped = (step: number, path: string, evaluations: number): string => {
  const lost =
    evaluations === 0 ? "nothing" : `${counted(evaluations, "evaluation")} under way, made again when the run continues`
  return [
    `Stopped after ${counted(step, "step")}.`,
    `  Saved: all of them, ${oneLine(path)}`,
    `  Not saved: ${lost}.`,
    "The same command continues the run.",
  ].join("\n")
}

/**
 * Describes a stop that has left everything as it is.
 *
 * @since 0.1.0
 * @category formatting
 */
export const stoppedAtOnce = ({ saved, step }: Seen): string => {
  const since = step === undefined ? 0 : step - (saved?.step ?? 0)
  const kept = "which the server has until it ends the session"
  return [
    step === undefined
      ? "Stopped at once, before this process has made a step."
      : `Stopped at once after ${counted(step, "step")}.`,
    `  Saved by this process: ${saved === undefined ? "no checkpoint" : `the first ${saved.step}, ${oneLine(saved.path)}`}.`,
    `  Not saved: ${saved === undefined ? "steps since the last checkpoint" : since > 0 ? `${counted(since, "step")} after that and those on their way` : "steps on their way"}, ${kept}.`,
    "The same command continues the run.",
  ].join("\n")
}
