/** Generates docs/performance.md from the results. */
import type { Results } from "./Results.ts"
import { lines } from "./Svg.ts"
import { grid, table } from "./Table.ts"

/** The part of the results that is stored in the repository. */
export type Kept = Omit<Results, "runs">

const names: Readonly<Record<string, string>> = {
  "S-inflight": "In flight",
  "S-tenants": "Tenants",
  "S-heartbeats": "Hours of heartbeats",
  "S-pages": "Pages",
}

export const scalePlot = ({ series }: Kept): string =>
  lines(series.map(({ id, metric, points }) => ({ title: names[id] ?? id, unit: metric, points })))

export const page = (results: Kept): string => {
  const { environment, gates, problems, rows, series, workloads } = results
  const missed = gates.filter(({ ok }) => !ok)
  const { versions } = environment
  return `<!-- Written by \`pnpm bench --docs\` from performance.json. -->

# Performance

This SDK (ours), the official Python SDK (peer), and undici with handwritten JSON and protobuf but no SDK (limit) do the same work on a mock server, in turns. Run \`npx -y pnpm@10.34.9 bench\` to repeat it on your machine; see [scripts/bench](../scripts/bench/README.md) for details. [decisions/performance.md](decisions/performance.md) explains the design and what was tried.

${environment.date}, ${environment.repetitions} ${environment.repetitions === 1 ? "repetition" : "repetitions"}, medians. ${environment.cpus} cores (${environment.cpu}), ${environment.memory_gb} GB, Linux ${environment.kernel}, load average ${environment.loadavg_median.toFixed(1)} (median). ${environment.tls ? "TLS." : "Plain HTTP/1.1."}

${Object.entries(versions)
  .map(([name, version]) => `${name} ${version}`)
  .join(", ")}.

\`ours vs peer\` is the factor by which ours is better than the peer, \`ours to limit\` the factor by which the limit is better than ours. On a busy machine, CPU times and ratios are reliable, wall-clock times less so.

${table(rows, gates)}

## Gates

${gates.length - missed.length} of ${gates.length} are met.

${grid(
  ["workload", "metric", "", "measured, and required"],
  gates.map(({ metric, ok, text, workload }) => [workload, metric, ok ? "met" : "MISSED", text]),
)}
${problems.length === 0 ? "" : `\n${problems.map((problem) => `- ${problem}`).join("\n")}\n`}
## Workloads

${workloads.map(({ about, id }) => `- **${id}**: ${about}`).join("\n")}
${[...new Map(series.map(({ about, id }) => [id, about]))].map(([id, about]) => `- **${id}**: ${about}`).join("\n")}

## Where the time goes

The width of a frame is its CPU time, its color shows which package it belongs to. Hover over a frame to see its name. Module loading is not included.

![Flame graph of W1: sampling](images/flame-w1.svg)

![Flame graph of W2: a large forward_backward](images/flame-w2.svg)

## Scaling

CPU time per item and memory, from a tenth of the number of items to the full number. Flat lines are the goal.

![Cost and memory over the number of items](images/scale.svg)
`
}
