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

const losesResponse = ({ fault }: Planned): boolean => {
  switch (fault._tag) {
    case "Reset":
    case "Truncate":
    case "Stall":
    case "Restart":
      return true
    case "Status":
      return fault.status >= 500 || fault.status === 408
    default:
      return false
  }
}

export const defects: ReadonlyArray<Defect> = [
  {
    name: "a foreign JSON object is accepted as the result of a pass without outputs",
    provokes: ({ endpoint, fault }) =>
      endpoint === "retrieve_future" &&
      ((fault._tag === "Unreadable" && fault.how === "json") || (fault._tag === "Status" && fault.status < 300)),
    explains: ({ promise }) => promise === "equal",
  },
  {
    name: "an unreadable 200 response is not retried",
    provokes: ({ fault }) => fault._tag === "Unreadable" || (fault._tag === "Truncate" && fault.clean),
    explains: ({ detail, promise }) =>
      promise === "survived" &&
      (detail.includes("UnexpectedResponse") || detail.includes("unexpected response") || detail.includes("Corrupted")),
  },
  {
    name: "the local server answers 400 instead of 409 to number 0, so that a lost first response ends the run",
    provokes: (planned) => planned.endpoint === "forward_backward" && planned.nth < 4 && losesResponse(planned),
    explains: ({ detail, promise }) => promise === "survived" && /SequenceBroken.*\(seq [123]\)/.test(detail),
  },
]

/** Returns the known defect that explains all violations of an experiment, if there is one. */
export const explanation = (
  injected: ReadonlyArray<Planned>,
  violations: ReadonlyArray<Violation>,
): string | undefined =>
  violations.length === 0
    ? undefined
    : defects.find(({ explains, provokes }) => injected.some(provokes) && violations.every(explains))?.name
