/** Decides which weights the rollouts of an iteration come from. The decision depends on nothing but the settings, so
 * that a run that is killed and run again samples everything from the same weights. */

export interface Schedule {
  readonly iterations: number
  readonly updatesPerIteration: number
  /** How many updates the weights may be older than those that the first update of an iteration is made on. */
  readonly maxStaleness: number
}

/** Returns the first update that is made with the rollouts of an iteration. */
export const firstUpdate = ({ updatesPerIteration }: Schedule, iteration: number): number =>
  iteration * updatesPerIteration

/** Returns how many updates the weights have that an iteration samples from. */
export const versionOf = (schedule: Schedule, iteration: number): number =>
  Math.max(0, firstUpdate(schedule, iteration) - schedule.maxStaleness)

/** Returns the number of iterations that may sample when the weights have this many updates. */
export const allowed = ({ iterations, maxStaleness, updatesPerIteration }: Schedule, updates: number): number =>
  Math.min(iterations, Math.floor((updates + maxStaleness) / updatesPerIteration) + 1)

/** Returns whether no later iteration samples from the same weights. */
export const isLast = (schedule: Schedule, iteration: number): boolean =>
  iteration + 1 >= schedule.iterations || versionOf(schedule, iteration + 1) > versionOf(schedule, iteration)
