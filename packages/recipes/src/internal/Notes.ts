/** Which step an event of a run belongs to. */
import type { RunEvent } from "../RunEvent.ts"

/** Returns whether an event is a rollout that a step trains on. */
export const isRollout = (event: RunEvent): boolean => event._tag === "Sample" && event.source === "rollout"

/** Returns the step that trains on a rollout, or the step of any other event. */
export const trainingStepOf = (event: RunEvent): number =>
  event._tag === "Sample" ? (event.trainingStep ?? event.step) : event.step
