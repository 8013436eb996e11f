/** Measures growing numbers of items: the cost per item must not grow, nor memory beyond what the items need. */
import { outputOf } from "./Runner.ts"
import type { MockServer } from "./MockServer.ts"
import { type Row, scaleRow, type Series } from "./Results.ts"
import type { Gate } from "./Workloads.ts"

interface Scale {
  readonly id: string
  readonly kernel: string
  readonly about: string
  readonly item: string
  readonly most: number
  /** Whether memory is measured per item or in total. */
  readonly memory: "per item" | "in all"
}

export const scales: ReadonlyArray<Scale> = [
  {
    id: "S-inflight",
    kernel: "inflight",
    about: "concurrently awaited samples, over sockets",
    item: "sample",
    most: 10_000,
    memory: "per item",
  },
  {
    id: "S-tenants",
    kernel: "tenants",
    about: "tenants, each with a session, connections and a sample",
    item: "tenant",
    most: 1_000,
    memory: "per item",
  },
  {
    id: "S-heartbeats",
    kernel: "heartbeats",
    about: "hours of heartbeats, in virtual time",
    item: "heartbeat",
    most: 24,
    memory: "in all",
  },
  {
    id: "S-pages",
    kernel: "pages",
    about: "pages of a list read as a stream",
    item: "page",
    most: 100_000,
    memory: "in all",
  },
]

const numbers = ({ most }: Scale, quick: boolean): ReadonlyArray<number> =>
  [10, 3, 1].map((part) => Math.max(1, Math.round(most / part / (quick ? 10 : 1))))

/**
 * Growth up to this factor counts as flat; a cost that grew with the number would triple from one point to the next.
 */
const flat = 1.3
/** Allowed growth of the heap in KB. */
const slack = 2_000

export interface Scaled {
  readonly series: ReadonlyArray<Series>
  readonly rows: ReadonlyArray<Row>
  readonly gates: ReadonlyArray<Gate>
  readonly problems: ReadonlyArray<string>
}

export const measure = async (options: {
  readonly app: string
  readonly server: MockServer
  readonly only: RegExp
  readonly quick: boolean
  readonly tell: (text: string) => void
}): Promise<Scaled> => {
  const { app, only, quick, server, tell } = options
  const series: Array<Series> = []
  const rows: Array<Row> = []
  const gates: Array<Gate> = []
  const problems: Array<string> = []
  for (const scale of scales.filter(({ id }) => only.test(id))) {
    const { about, id, item, kernel, memory } = scale
    const points: Array<{ readonly n: number; readonly cost: number; readonly memory: number }> = []
    for (const n of numbers(scale, quick)) {
      await server.reset({})
      const env = {
        ...process.env,
        TINKER_BASE_URL: server.control,
        TINKER_API_KEY: "tml-bench",
        BENCH_CTL_URL: server.control,
        BENCH_N: String(n),
      }
      const command = [process.execPath, "--expose-gc", `${app}/scale.mjs`, kernel]
      const { ended, stderr, stdout } = await outputOf(command, env, 600_000)
      const line = stdout.split("\n").findLast((line) => line.startsWith("{"))
      if (line === undefined) {
        problems.push(`${id}, n = ${n}: ${ended}: ${stderr.trim().slice(-800)}`)
        continue
      }
      const { cost_us, memory_kb } = JSON.parse(line).metrics as {
        readonly cost_us: number
        readonly memory_kb: number
      }
      points.push({ n, cost: cost_us, memory: memory_kb })
      tell(
        `${id.padEnd(12)} n = ${n}: ${cost_us.toFixed(0)} us of CPU per ${item}, ${memory_kb.toFixed(1)} KB ${memory}`,
      )
    }
    const [before, last] = points.slice(-2)
    if (before === undefined || last === undefined) continue
    series.push(
      { id, about, metric: `CPU µs per ${item}`, points: points.map(({ cost, n }) => ({ n, value: cost })) },
      {
        id,
        about,
        metric: memory === "per item" ? `KB per ${item}` : "KB of heap",
        points: points.map(({ memory, n }) => ({ n, value: memory })),
      },
    )
    rows.push(scaleRow(id, `cpu_us_per_${item}`, last.cost), scaleRow(id, "cpu_growth", last.cost / before.cost))
    gates.push({ workload: id, metric: "cpu_growth", ours: { atMost: flat } })
    if (memory === "per item") {
      rows.push(scaleRow(id, `kb_per_${item}`, last.memory))
      rows.push(scaleRow(id, "memory_growth", last.memory / before.memory))
      gates.push({ workload: id, metric: "memory_growth", ours: { atMost: flat } })
    } else {
      rows.push(scaleRow(id, "heap_growth_kb", last.memory))
      gates.push({ workload: id, metric: "heap_growth_kb", ours: { atMost: slack } })
    }
  }
  return { series, rows, gates, problems }
}
