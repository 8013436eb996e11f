/** Aggregates runs into rows and checks the gates. */
import { cpus, release, totalmem } from "node:os"
import type { Run } from "./Runner.ts"
import { type Better, type Driver, type Gate, gates, type Workload } from "./Workloads.ts"

/** One metric of one workload: medians and ratios. */
export interface Row {
  readonly workload: string
  readonly metric: string
  readonly better: Better
  readonly peer: number | null
  readonly ours: number | null
  readonly limit: number | null
  /** The factor by which ours is better than the peer. */
  readonly ours_vs_peer: number | null
  /** The factor by which the limit is better than ours. */
  readonly ours_to_limit: number | null
  /** Lowest and highest value of ours. */
  readonly range: readonly [number, number] | null
}

export interface Verdict extends Gate {
  readonly ok: boolean
  /** The required and the measured value, as text. */
  readonly text: string
}

/** A metric over growing numbers of items. */
export interface Series {
  readonly id: string
  readonly about: string
  readonly metric: string
  readonly points: ReadonlyArray<{ readonly n: number; readonly value: number }>
}

export interface Results {
  readonly environment: {
    readonly date: string
    readonly quick: boolean
    readonly repetitions: number
    readonly tls: boolean
    readonly cpus: number
    readonly cpu: string
    readonly memory_gb: number
    readonly kernel: string
    readonly loadavg_median: number
    readonly versions: Readonly<Record<string, string>>
  }
  readonly workloads: ReadonlyArray<Pick<Workload, "id" | "about" | "parameters" | "server">>
  readonly rows: ReadonlyArray<Row>
  readonly series: ReadonlyArray<Series>
  readonly gates: ReadonlyArray<Verdict>
  /** Wrong or missing results, and failed runs. */
  readonly problems: ReadonlyArray<string>
  readonly runs: ReadonlyArray<Run>
}

export const median = (values: ReadonlyArray<number>): number => {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2
}

/** Returns the factor by which the second value is better. */
const factor = (better: Better, first: number | null, second: number | null): number | null => {
  if (first === null || second === null) return null
  const [above, below] = better === "higher" ? [second, first] : [first, second]
  return below === 0 ? null : above / below
}

const rowOf = (workload: string, metric: string, better: Better, runs: ReadonlyArray<Run>): Row => {
  const values = (driver: Driver) =>
    runs.flatMap((run) => {
      const value = run.workload === workload && run.driver === driver ? run.metrics[metric] : undefined
      return value === undefined ? [] : [value]
    })
  const medianOf = (driver: Driver) => (values(driver).length === 0 ? null : median(values(driver)))
  const [peer, ours, limit] = [medianOf("peer"), medianOf("ours"), medianOf("limit")]
  return {
    workload,
    metric,
    better,
    peer,
    ours,
    limit,
    ours_vs_peer: factor(better, peer, ours),
    ours_to_limit: factor(better, ours, limit),
    range: ours === null ? null : [Math.min(...values("ours")), Math.max(...values("ours"))],
  }
}

export const rowsOf = (workloads: ReadonlyArray<Workload>, runs: ReadonlyArray<Run>): ReadonlyArray<Row> =>
  workloads.flatMap(({ id, metrics }) =>
    Object.entries(metrics).map(([metric, better]) => rowOf(id, metric, better, runs)),
  )

/** A row for the last point of a scaling series, compared with an earlier one. */
export const scaleRow = (workload: string, metric: string, ours: number): Row => ({
  workload,
  metric,
  better: "lower",
  peer: null,
  ours,
  limit: null,
  ours_vs_peer: null,
  ours_to_limit: null,
  range: null,
})

export const round = (value: number): string => {
  if (value === 0) return "0"
  return Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en-GB") : String(Number(value.toPrecision(3)))
}

const verdictOf = (gate: Gate, rows: ReadonlyArray<Row>): ReadonlyArray<Verdict> => {
  const row = rows.find(({ metric, workload }) => workload === gate.workload && metric === gate.metric)
  if (row === undefined) return []
  const checks: Array<readonly [boolean, string]> = []
  const check = (value: number | null, holds: (value: number) => boolean, text: (value: string) => string) =>
    checks.push([value !== null && holds(value), text(value === null ? "not measured" : round(value))])
  const { ours, toLimit, vsPeer } = gate
  if (vsPeer !== undefined) {
    const { atLeast } = vsPeer
    // Zero is better by any factor.
    if (row.better === "lower" && row.ours === 0 && row.peer !== null && row.peer > 0)
      checks.push([true, `0, compared with ${round(row.peer)} of the peer`])
    else
      check(
        row.ours_vs_peer,
        (x) => x >= atLeast,
        (x) => `${x}x the peer, at least ${round(atLeast)}x`,
      )
  }
  if (toLimit !== undefined) {
    const { atMost } = toLimit
    check(
      row.ours_to_limit,
      (x) => x <= atMost,
      (x) => `${x}x from the limit, at most ${round(atMost)}x`,
    )
  }
  if (ours !== undefined) {
    const { atMost } = ours
    check(
      row.ours,
      (x) => x <= atMost,
      (x) => `${x}, at most ${round(atMost)}`,
    )
  }
  return [{ ...gate, ok: checks.every(([ok]) => ok), text: checks.map(([, text]) => text).join("; ") }]
}

export const judge = (rows: ReadonlyArray<Row>, extra: ReadonlyArray<Gate> = []): ReadonlyArray<Verdict> =>
  [...gates, ...extra].flatMap((gate) => verdictOf(gate, rows))

/** Checks stored rows with the current gates; scaling gates are kept with their results. */
export const judgeAgain = ({ gates: judged, rows }: Pick<Results, "gates" | "rows">): ReadonlyArray<Verdict> =>
  judge(
    rows,
    judged.filter(
      (gate) => !gates.some(({ metric, workload }) => workload === gate.workload && metric === gate.metric),
    ),
  )

/** Lists wrong results of our driver and failures of any driver. */
export const problemsOf = (runs: ReadonlyArray<Run>): ReadonlyArray<string> =>
  runs.flatMap(({ driver, error, metrics, repetition, workload }) => {
    const where = `${workload}, ${driver}, repetition ${repetition + 1}`
    if (error !== undefined) return [`${where}: ${error}`]
    return (metrics["bad"] ?? 0) > 0 && driver === "ours" ? [`${where}: ${metrics["bad"]} wrong or missing`] : []
  })

export const machine = () => ({
  cpus: cpus().length,
  cpu: cpus()[0]?.model.trim() ?? "unknown",
  memory_gb: Math.round(totalmem() / 2 ** 30),
  kernel: release(),
})
