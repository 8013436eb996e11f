/** Sums up the verdicts of a class of faults. */
import type { Row } from "../results/Results.ts"
import type { Class } from "../proxy/Draw.ts"
import { command, type Verdict } from "./Verdict.ts"

const outcomes = ["equal", "error", "failed"] as const

const counted = (values: ReadonlyArray<string>): ReadonlyArray<readonly [string, number]> => {
  const counts = new Map<string, number>()
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1)
  return [...counts].toSorted(([, a], [, b]) => b - a)
}

const shown = (counts: ReadonlyArray<readonly [string, number]>) =>
  counts.map(([name, count]) => `${name} ${count}`).join(", ")

const percentile = (values: ReadonlyArray<number>, part: number): number =>
  values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(part * values.length))] ?? 0

/** Describes all verdicts, with a command for each seed that failed. */
export const text = (verdicts: ReadonlyArray<Verdict>): string => {
  const failed = verdicts.filter(({ outcome }) => outcome === "failed")
  const millis = verdicts.map(({ millis }) => millis)
  const seconds = (part: number) => `${(percentile(millis, part) / 1000).toFixed(1)} s`
  return [
    "",
    `${verdicts.length} seeds: ${shown(outcomes.map((name) => [name, verdicts.filter(({ outcome }) => outcome === name).length]))}`,
    `faults injected: ${shown(counted(verdicts.flatMap(({ kinds }) => kinds)))}`,
    `errors: ${shown(counted(verdicts.flatMap(({ errors }) => errors.map((error) => error.split(": ")[1] ?? "")))) || "none"}`,
    `time of a seed: median ${seconds(0.5)}, 99% ${seconds(0.99)}`,
    ...failed.map(
      (verdict) =>
        `failed: ${command(verdict)}   ${verdict.violations[0]?.promise}: ${verdict.violations[0]?.detail.slice(0, 160)}`,
    ),
  ].join("\n")
}

/** The row of the reliability page for a class of faults. */
export const row = (kind: Class, verdicts: ReadonlyArray<Verdict>): Row => {
  const count = (name: Verdict["outcome"]) => verdicts.filter(({ outcome }) => outcome === name).length
  const kinds = counted(verdicts.flatMap(({ kinds }) => kinds))
  return {
    id: `seeds ${kind}`,
    promise:
      kind === "recoverable"
        ? "A program survives these faults, with results and weights as without them."
        : "Nothing is wrong, whatever happens: results are right, or a typed error truthfully states what is unknown.",
    tried: `${verdicts.length} seeds, ${kinds.reduce((sum, [, count]) => sum + count, 0)} faults (${shown(kinds)})`,
    outcome: [
      `${count("equal")} equal`,
      ...(count("error") > 0 ? [`${count("error")} typed errors`] : []),
      `${count("failed")} failed`,
    ].join(", "),
    command: `pnpm faults --seeds ${verdicts.length}${kind === "hostile" ? " --hostile" : ""}`,
  }
}
