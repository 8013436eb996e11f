/** Runs the seeds of a class, several at once, and judges each. */
import { Effect } from "effect"
import type { Bundles } from "../lab/Bundles.ts"
import * as Draw from "../proxy/Draw.ts"
import type { Plan } from "../proxy/Fault.ts"
import * as Experiment from "./Experiment.ts"
import * as Invariants from "./Invariants.ts"
import type { Observation } from "./Observation.ts"
import * as Verdict from "./Verdict.ts"

export interface Options {
  readonly kind: Draw.Class
  readonly seeds: ReadonlyArray<number>
  /** How many experiments run at once; most of their time is spent waiting. */
  readonly concurrency: number
  /** The time after which no further seed is started, in milliseconds. */
  readonly limit: number
  readonly onVerdict: (verdict: Verdict.Verdict, observation: Observation) => Effect.Effect<void>
}

const peace = (parallel: boolean): Plan => ({ seed: 0, parallel, jwt: true, faults: [] })

/** Runs the program without faults, and fails if that breaks a promise. */
const reference = (bundles: Bundles, parallel: boolean) =>
  Effect.gen(function* () {
    const key = Experiment.newKey()
    const observation = yield* Experiment.run(bundles, peace(parallel), key)
    const violations = Invariants.check("recoverable", observation, observation, key)
    return violations.length === 0
      ? observation
      : yield* Effect.dieMessage(`the program fails without faults: ${JSON.stringify(violations, null, 2)}`)
  })

/** Judges every seed until the time is over. */
export const run = (bundles: Bundles, { concurrency, kind, limit, onVerdict, seeds }: Options) =>
  Effect.gen(function* () {
    const serial = yield* reference(bundles, false)
    const parallel = yield* reference(bundles, true)
    const startedAt = performance.now()
    const verdicts = yield* Effect.forEach(
      seeds,
      (seed) =>
        Effect.gen(function* () {
          if (performance.now() - startedAt > limit) return []
          const plan = yield* Draw.plan(kind, seed)
          const key = Experiment.newKey()
          const observation = yield* Experiment.run(bundles, plan, key)
          const expected = plan.parallel ? parallel : serial
          const verdict = Verdict.make(kind, observation, Invariants.check(kind, observation, expected, key))
          yield* onVerdict(verdict, observation)
          return [verdict]
        }),
      { concurrency },
    )
    return verdicts.flat()
  })
