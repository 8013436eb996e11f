/** Shows the verdicts while seeds run. */
import type { Effect } from "effect"
import { Console } from "effect"
import type { Observation } from "./Observation.ts"
import { command, type Verdict } from "./Verdict.ts"

const indented = (lines: ReadonlyArray<string>) => lines.map((line) => `    ${line}`)

const details = (verdict: Verdict): ReadonlyArray<string> => [
  ...verdict.violations.map(({ detail, promise }) => `${promise}: ${detail}`),
  ...verdict.faults.map((fault) => `fault: ${fault}`),
]

const everything = (verdict: Verdict, { log, report }: Observation): ReadonlyArray<string> => [
  ...log,
  ...verdict.errors.map((error) => `error: ${error}`),
  ...(report?.entries ?? []).map(({ millis, name }) => `${name}: ${millis} ms`),
]

/** Prints a line for each verdict, and what led to it if it is not as expected. */
export const show = (total: number, isVerbose: boolean) => {
  let done = 0
  return (verdict: Verdict, observation: Observation): Effect.Effect<void> => {
    done++
    const { kind, millis, outcome, seed } = verdict
    const isBad = outcome === "failed"
    const lines = [
      `[${done}/${total}] ${kind} ${seed}: ${outcome} in ${(millis / 1000).toFixed(1)} s`,
      ...(isBad || isVerbose ? indented(details(verdict)) : []),
      ...(isVerbose ? indented(everything(verdict, observation)) : []),
      ...(isBad ? [`    repeat: ${command(verdict)}`] : []),
    ]
    return Console.log(lines.join("\n"))
  }
}
