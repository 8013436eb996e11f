/** The calls that a journal tells of: the pieces of a batch belong together. */
import * as Option from "effect/Option"
import type { Step } from "../../TrainingJournal.ts"

export interface JournalCall {
  readonly steps: readonly [Step, ...ReadonlyArray<Step>]
  /** Has the server all of its pieces, or will it get them? Of the others it never will. */
  readonly isWhole: boolean
  /** `settled`: all results are known to have come. `unsent`: of some pieces it is not known whether they were sent. */
  readonly stands: "settled" | "acknowledged" | "unsent"
}

export interface Ledger {
  /** In the order of their numbers. */
  readonly calls: ReadonlyArray<JournalCall>
  /** Numbers that were written down and are free nevertheless. */
  readonly free: ReadonlyArray<number>
}

/** Does the server certainly have it? */
const isAccepted = ({ requestId, succeeded }: Step): boolean => Option.isSome(requestId) || Option.isSome(succeeded)

/**
 * All pieces of a call are written down before the first of them is sent. If some are missing, the journal ended before
 * that, or they were refused and what comes after them was not sent: in either case what was not acknowledged is not on
 * the server and must not get there alone.
 */
export const ledger = (steps: ReadonlyArray<Step>): Ledger => {
  const calls: Array<JournalCall> = []
  const free: Array<number> = []
  for (const group of groups(steps)) {
    const [{ intent }] = group
    const isWhole = intent.chunk === 0 && group.length === intent.chunks
    const [first, ...rest] = isWhole ? group : group.filter(isAccepted)
    if (!isWhole) free.push(...group.filter((step) => !isAccepted(step)).map(({ intent }) => intent.seq))
    if (first !== undefined) calls.push({ steps: [first, ...rest], isWhole, stands: standing([first, ...rest]) })
  }
  return { calls, free }
}

const groups = (steps: ReadonlyArray<Step>): ReadonlyArray<readonly [Step, ...ReadonlyArray<Step>]> => {
  const groups: Array<[Step, ...Array<Step>]> = []
  for (const step of steps) {
    const last = groups.at(-1)
    const previous = last?.at(-1)?.intent
    const goesOn =
      previous !== undefined &&
      previous.chunk === step.intent.chunk - 1 &&
      previous.seq === step.intent.seq - 1 &&
      previous.chunks === step.intent.chunks &&
      previous.kind === step.intent.kind
    if (goesOn) last?.push(step)
    else groups.push([step])
  }
  return groups
}

const standing = (steps: ReadonlyArray<Step>): JournalCall["stands"] => {
  if (!steps.every(isAccepted)) return "unsent"
  return steps.every(({ succeeded }) => Option.isSome(succeeded)) ? "settled" : "acknowledged"
}
