/** Formats rows as a Markdown table, for the terminal and for the page. */
import { type Row, round, type Verdict } from "./Results.ts"

const cell = (value: number | null): string => (value === null ? "-" : round(value))
const times = (value: number | null): string => (value === null ? "-" : `${value.toFixed(2)}x`)

export const grid = (head: ReadonlyArray<string>, rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const widths = head.map((title, i) => Math.max(title.length, ...rows.map((row) => row[i]!.length), 3))
  const line = (cells: ReadonlyArray<string>) => `| ${cells.map((text, i) => text.padEnd(widths[i]!)).join(" | ")} |`
  return [line(head), `| ${widths.map((width) => "-".repeat(width)).join(" | ")} |`, ...rows.map(line)].join("\n")
}

export const table = (rows: ReadonlyArray<Row>, verdicts: ReadonlyArray<Verdict>): string =>
  grid(
    ["workload", "metric", "peer", "ours", "limit", "ours vs peer", "ours to limit", "gate"],
    rows.map((row) => {
      const verdict = verdicts.find(({ metric, workload }) => metric === row.metric && workload === row.workload)
      return [
        row.workload,
        `${row.metric} ${row.better === "higher" ? "↑" : "↓"}`,
        cell(row.peer),
        cell(row.ours),
        cell(row.limit),
        times(row.ours_vs_peer),
        times(row.ours_to_limit),
        verdict === undefined ? "" : verdict.ok ? "met" : "MISSED",
      ]
    }),
  )
