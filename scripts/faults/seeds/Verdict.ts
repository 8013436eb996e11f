/** The verdict on one seed. */
import type { Class } from "../proxy/Draw.ts"
import { describe } from "../proxy/Fault.ts"
import type { Violation } from "./Invariants.ts"
import type { Observation } from "./Observation.ts"

export interface Verdict {
  readonly kind: Class
  readonly seed: number
  /** `equal`: everything as without faults. `error`: a typed, truthful error. */
  readonly outcome: "equal" | "error" | "failed"
  readonly faults: ReadonlyArray<string>
  /** The kinds of the injected faults. */
  readonly kinds: ReadonlyArray<string>
  readonly violations: ReadonlyArray<Violation>
  readonly errors: ReadonlyArray<string>
  readonly millis: number
}

const errorsIn = ({ report }: Observation) =>
  (report?.entries ?? []).flatMap(({ errors = {}, name }) =>
    Object.values(errors).map(({ message, tag }) => `${name}: ${tag}: ${message}`),
  )

/** Judges an observation by its violations. */
export const make = (kind: Class, observation: Observation, violations: ReadonlyArray<Violation>): Verdict => {
  const { injected, millis, plan } = observation
  const errors = errorsIn(observation)
  return {
    kind,
    seed: plan.seed,
    outcome: violations.length > 0 ? "failed" : errors.length > 0 ? "error" : "equal",
    faults: injected.map(describe),
    kinds: injected.map(({ fault }) => fault._tag),
    violations,
    errors,
    millis,
  }
}

/** The command that repeats a seed. */
export const command = ({ kind, seed }: Verdict): string =>
  `pnpm faults --seed ${seed}${kind === "hostile" ? " --hostile" : ""} --verbose`
