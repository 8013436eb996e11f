/**
 * Defects that are known and not fixed yet. A violation that one of them explains is counted as known. A defect whose
 * faults were injected without a violation is reported, because it may be fixed and can be removed here.
 */
import type { Planned } from "../proxy/Fault.ts"
import type { Violation } from "./Invariants.ts"

export interface Defect {
  readonly name: string
  /** Whether the fault leads to the defect. */
  readonly provokes: (planned: Planned) => boolean
  /** Whether the defect explains the violation. */
  readonly explains: (violation: Violation) => boolean
}

export const defects: ReadonlyArray<Defect> = []

/** Returns the known defect that explains all violations of an experiment, if there is one. */
export const explanation = (
  injected: ReadonlyArray<Planned>,
  violations: ReadonlyArray<Violation>,
): string | undefined =>
  violations.length === 0
    ? undefined
    : defects.find(({ explains, provokes }) => injected.some(provokes) && violations.every(explains))?.name
