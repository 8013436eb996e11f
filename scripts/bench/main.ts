/**
 * This SDK, the official Python one and no SDK at all, side by side on a mock server: `pnpm bench`. See README.md here.
 */
import { mkdirSync, writeFileSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { parseArgs } from "node:util"
import * as MockServer from "./harness/MockServer.ts"
import { Missing, output, prepare } from "./harness/Prepare.ts"
import * as Results from "./harness/Results.ts"
import { type Run, run } from "./harness/Runner.ts"
import { table } from "./harness/Table.ts"
import { workloads } from "./harness/Workloads.ts"

const help = `pnpm bench [options]

  --quick        one repetition: a few minutes less, and noisier
  --only REGEX   workloads whose name matches, e.g. '^W1' or '^S' (scale)
  --reps N       repetitions of each workload (5)
  --tls          TLS with HTTP/2 where a client speaks it, instead of plain HTTP/1.1
  --out FILE     where the results go (bench/results.json)
  --help         this text

Needs Go 1.24 or newer and Python 3.11; installs everything else by itself. Exit code 1: a gate was missed.`

const options = (() => {
  try {
    const { values } = parseArgs({
      options: {
        quick: { type: "boolean", default: false },
        only: { type: "string", default: "" },
        reps: { type: "string" },
        tls: { type: "boolean", default: false },
        out: { type: "string", default: join(output, "results.json") },
        help: { type: "boolean", default: false },
      },
    })
    return {
      ...values,
      only: new RegExp(values.only),
      repetitions: Math.max(1, Number(values.reps ?? (values.quick ? 1 : 5)) || 1),
    }
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${help}`)
    return process.exit(2)
  }
})()
if (options.help) {
  console.log(help)
  process.exit(0)
}

const began = performance.now()
const tell = (text: string) =>
  console.error(`[${((performance.now() - began) / 1000).toFixed(0).padStart(4)} s] ${text}`)

const progress = ({ driver, error, metrics, workload }: Run, done: number, all: number) => {
  const shown = Object.keys(workloads.find(({ id }) => id === workload)?.metrics ?? {})[0] ?? ""
  const value = metrics[shown]
  tell(
    `${done}/${all} ${workload.padEnd(10)} ${driver.padEnd(5)} ${
      error ?? `${shown} ${value === undefined ? "-" : Results.round(value)}`
    }`,
  )
}

const measure = async (): Promise<Results.Results> => {
  const chosen = workloads.filter(({ id }) => options.only.test(id))
  const { drivers, server: binary, versions } = prepare(tell)
  const server = await MockServer.start(binary, options.tls)
  const runs = await run({ server, drivers, workloads: chosen, repetitions: options.repetitions, progress }).finally(
    server.close,
  )
  const rows = Results.rowsOf(chosen, runs)
  return {
    environment: {
      date: new Date().toISOString().slice(0, 10),
      quick: options.quick,
      repetitions: options.repetitions,
      tls: options.tls,
      ...Results.machine(),
      loadavg_median: Results.median(runs.map(({ loadavg }) => loadavg)),
      versions,
    },
    workloads: chosen.map(({ about, id, parameters, server }) => ({ id, about, parameters, server })),
    rows,
    series: [],
    gates: Results.judge(rows),
    problems: Results.problemsOf(runs),
    runs,
  }
}

try {
  const results = await measure()
  const out = resolve(options.out)
  mkdirSync(dirname(out), { recursive: true })
  writeFileSync(out, `${JSON.stringify(results, null, 1)}\n`)
  console.log(table(results.rows, results.gates))
  const missed = results.gates.filter(({ ok }) => !ok)
  for (const { metric, text, workload } of missed) console.error(`MISSED ${workload} ${metric}: ${text}`)
  for (const problem of results.problems) console.error(`PROBLEM ${problem}`)
  tell(`${results.gates.length - missed.length} of ${results.gates.length} gates met; results in ${options.out}`)
  process.exitCode = missed.length + results.problems.length > 0 ? 1 : 0
} catch (error) {
  if (!(error instanceof Missing)) throw error
  console.error(`pnpm bench: ${error.message}`)
  process.exitCode = 2
}
