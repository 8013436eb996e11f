/** docs/performance.md, made from the results and from nothing else. */
import type { Results } from "./Results.ts"
import { lines } from "./Svg.ts"
import { grid, table } from "./Table.ts"

/** What is kept of a run in the repository. */
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

This SDK (ours), the official Python SDK (peer) and undici with hand-written JSON and protobuf but no SDK (limit) do the same work on a mock server, in turns. \`npx -y pnpm@10.34.9 bench\` does it on your machine; [scripts/bench](../scripts/bench/README.md) tells how. Why it is as it is, and what was tried: [decisions/performance.md](decisions/performance.md).

${environment.date}, ${environment.repetitions} ${environment.repetitions === 1 ? "repetition" : "repetitions"}, medians. ${environment.cpus} cores (${environment.cpu}), ${environment.memory_gb} GB, Linux ${environment.kernel}, load average ${environment.loadavg_median.toFixed(1)} (median). ${environment.tls ? "TLS." : "Plain HTTP/1.1."}

${Object.entries(versions)
  .map(([name, version]) => `${name} ${version}`)
  .join(", ")}.

\`ours vs peer\` is how many times better ours is, \`ours to limit\` how many times better the limit is. On a machine that does other things, CPU times and ratios can be trusted, wall-clock times less so.

${table(rows, gates)}

## Gates

${gates.length - missed.length} of ${gates.length} are met.

${grid(
  ["workload", "metric", "", "there is, and must be"],
  gates.map(({ metric, ok, text, workload }) => [workload, metric, ok ? "met" : "MISSED", text]),
)}
${problems.length === 0 ? "" : `\n${problems.map((problem) => `- ${problem}`).join("\n")}\n`}
## Workloads

${workloads.map(({ about, id }) => `- **${id}**: ${about}`).join("\n")}
${[...new Map(series.map(({ about, id }) => [id, about]))].map(([id, about]) => `- **${id}**: ${about}`).join("\n")}

## Where the time goes

Frames are as wide as the CPU time in them; the colour tells whose they are. Point at one to see its name. Loading the modules is left out.

![Flame graph of W1: sampling](images/flame-w1.svg)

![Flame graph of W2: a large forward_backward](images/flame-w2.svg)

## More of everything

Memory and the cost of one, from a tenth of the number to all of it. Lines that stay level are what is wanted.

![Cost and memory over the number of items](images/scale.svg)
`
}
