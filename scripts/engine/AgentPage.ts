/** Generates the section of docs/engine.md about the agent from the runs of rl.ts. */
import { Bootstrap } from "@effect-tinker/recipes"
import { Either } from "effect"
import { grid } from "../bench/harness/Table.ts"

/** A run: for each held-out task whether it was solved before and after, in order. */
export interface AgentRun {
  readonly seed: number
  readonly shuffled: boolean
  readonly settings: Readonly<Record<string, number>>
  /** The mean reward of each step. */
  readonly rewards: ReadonlyArray<number>
  readonly before: ReadonlyArray<number>
  readonly after: ReadonlyArray<number>
  readonly kinds: {
    readonly before: Readonly<Record<string, number>>
    readonly after: Readonly<Record<string, number>>
  }
  readonly cpuSeconds: number
}

const mean = (values: ReadonlyArray<number>) => values.reduce((sum, one) => sum + one, 0) / values.length
const percent = (share: number) => `${(100 * share).toFixed(1)} %`
const points = (share: number) => `${share < 0 ? "−" : "+"}${Math.abs(100 * share).toFixed(1)}`

/** The mean gain over the seeds, with the interval that resampling the tasks gives. */
export const gainOf = (runs: ReadonlyArray<AgentRun>): Bootstrap.Interval => {
  const gains = (runs[0]?.before ?? []).map((_, task) =>
    mean(runs.map(({ after, before }) => (after[task] ?? 0) - (before[task] ?? 0))),
  )
  return Either.getOrThrowWith(Bootstrap.mean(gains), (error) => error)
}

const block = (runs: ReadonlyArray<AgentRun>): string => {
  const [first] = runs
  if (first === undefined) throw new Error("no runs")
  const of = (shuffled: boolean) => runs.filter((run) => run.shuffled === shuffled)
  const row = (name: string, some: ReadonlyArray<AgentRun>) => {
    const { estimate, high, low } = gainOf(some)
    return [
      name,
      percent(mean(some.map(({ before }) => mean(before)))),
      percent(mean(some.map(({ after }) => mean(after)))),
      `${points(estimate)} (${points(low)} to ${points(high)})`,
    ]
  }
  const { settings } = first
  const table = grid(
    ["run", "solved before", "after", "gain in points"],
    [
      ...of(false).map((run) => row(`seed ${run.seed}`, [run])),
      row(`**${of(false).length} seeds**`, of(false)),
      ...of(true).map((run) => row(`seed ${run.seed}, shuffled rewards`, [run])),
      row(`**${of(true).length} seeds, shuffled rewards**`, of(true)),
    ],
  )
  const kinds = Object.keys(first.kinds.before)
  const byKind = grid(
    ["kind of task", "before", "after", "after, shuffled rewards"],
    kinds.map((kind) => [
      `\`${kind}\``,
      percent(first.kinds.before[kind] ?? Number.NaN),
      percent(mean(of(false).map(({ kinds }) => kinds.after[kind] ?? Number.NaN))),
      percent(mean(of(true).map(({ kinds }) => kinds.after[kind] ?? Number.NaN))),
    ]),
  )
  return `${first.before.length} held-out tasks, answered greedily with two or three tools each. ${settings["iterations"]} steps of ${settings["groupsPerIteration"]} groups with ${settings["groupSize"]} rollouts, LoRA of rank ${settings["rank"]}, learning rate ${settings["learningRate"]}; training took ${Math.round(mean(runs.map(({ cpuSeconds }) => cpuSeconds)))} s of CPU time. The intervals (95 %) are from resampling the tasks.

${table}

${byKind}`
}

const from = "<!-- Agent: written by `scripts/engine/rl.ts --docs` from engine-agent.json. -->"
const to = "<!-- End of agent. -->"

/** Inserts the section into the page. */
export const withAgent = (page: string, runs: ReadonlyArray<AgentRun>): string => {
  const [start, end] = [page.indexOf(from), page.indexOf(to)]
  if (start < 0 || end < start) throw new Error(`the page has no markers for the agent: ${from} … ${to}`)
  return `${page.slice(0, start)}${from}\n\n${block(runs)}\n\n${page.slice(end)}`
}
