/** Compares this SDK, the official Python SDK and no SDK at all on a mock server: `pnpm bench`. See README.md. */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { parseArgs } from "node:util"
import { root } from "../published.ts"
import * as MockServer from "./harness/MockServer.ts"
import { type Kept, page, scalePlot } from "./harness/Page.ts"
import { Missing, output, prepare } from "./harness/Prepare.ts"
import * as Results from "./harness/Results.ts"
import { type Run, run } from "./harness/Runner.ts"
import * as Scale from "./harness/Scale.ts"
import { type CpuProfile, flame } from "./harness/Svg.ts"
import { table } from "./harness/Table.ts"
import { workloads } from "./harness/Workloads.ts"

const help = `pnpm bench [options]

  --quick        run the main workloads once at a tenth of the scale: under three minutes, but noisier
  --only REGEX   run only matching workloads, e.g. '^W1' or '^S' (scale)
  --reps N       repetitions of each workload (default: 5)
  --tls          use TLS, with HTTP/2 where a client supports it, instead of plain HTTP/1.1
  --out FILE     results file (default: bench/results.json)
  --docs         write docs/performance.md from existing results, without measuring
  --profile      write the flame graphs of W1 and W2 to docs/images, without measuring
  --help         show this help

Needs Go 1.24 or newer and Python 3.11; installs everything else. Exits with 1 if a gate was missed.`

const options = (() => {
  try {
    const { values } = parseArgs({
      options: {
        quick: { type: "boolean", default: false },
        only: { type: "string", default: "" },
        reps: { type: "string" },
        tls: { type: "boolean", default: false },
        out: { type: "string", default: join(output, "results.json") },
        docs: { type: "boolean", default: false },
        profile: { type: "boolean", default: false },
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
  const { only, quick, repetitions } = options
  const chosen = workloads.filter(({ id, quick: main = false }) => only.test(id) && (main || !quick))
  if (chosen.length === 0 && !Scale.scales.some(({ id }) => only.test(id))) {
    const names = [...workloads, ...Scale.scales].map(({ id }) => id).join(", ")
    throw new Missing(`no workload matches ${only}; available workloads: ${names}`)
  }
  const { app, drivers, server: binary, versions } = prepare(tell)
  const server = await MockServer.start(binary, options.tls)
  const { runs, scaled } = await (async () => {
    const runs = await run({ server, drivers, workloads: chosen, repetitions, progress })
    return { runs, scaled: await Scale.measure({ app, server, only, quick, tell }) }
  })().finally(server.close)
  const rows = [...Results.rowsOf(chosen, runs), ...scaled.rows]
  return {
    environment: {
      date: new Date().toISOString().slice(0, 10),
      quick,
      repetitions,
      tls: options.tls,
      ...Results.machine(),
      loadavg_median: runs.length === 0 ? 0 : Results.median(runs.map(({ loadavg }) => loadavg)),
      versions,
    },
    workloads: chosen.map(({ about, id, parameters, server }) => ({ id, about, parameters, server })),
    rows,
    series: scaled.series,
    gates: Results.judge(rows, scaled.gates),
    problems: [...Results.problemsOf(runs), ...scaled.problems],
    runs,
  }
}

const docs = join(root, "docs")
const out = resolve(options.out)

/** Writes the page and its images from the results. */
const document = () => {
  const { runs: _, ...measured }: Results.Results = JSON.parse(readFileSync(out, "utf8"))
  const kept = { ...measured, gates: Results.judgeAgain(measured) }
  if (kept.environment.quick) throw new Missing("the results are from --quick; run the full benchmark first")
  mkdirSync(join(docs, "images"), { recursive: true })
  writeFileSync(join(docs, "performance.json"), `${JSON.stringify(kept satisfies Kept, null, 2)}\n`)
  writeFileSync(join(docs, "performance.md"), page(kept))
  writeFileSync(join(docs, "images/scale.svg"), scalePlot(kept))
  tell("wrote docs/performance.md")
}

const profile = async () => {
  const { drivers, server: binary } = prepare(tell)
  const server = await MockServer.start(binary, options.tls)
  const folder = join(output, "profiles")
  try {
    for (const [id, name, repeat] of [
      ["W1-c64", "flame-w1", { N: 10_000 }],
      ["W2-list", "flame-w2", { INNER: 40 }],
    ] as const) {
      rmSync(folder, { recursive: true, force: true })
      const [node = "", ...rest] = drivers.ours
      const [workload] = workloads.filter((workload) => workload.id === id)
      if (workload === undefined) continue
      tell(`profiling ${id}`)
      await run({
        server,
        drivers: { ours: [node, "--cpu-prof", "--cpu-prof-interval", "500", "--cpu-prof-dir", folder, ...rest] },
        workloads: [{ ...workload, parameters: { ...workload.parameters, ...repeat } }],
        repetitions: 1,
        progress,
      })
      const [file] = readdirSync(folder)
      if (file === undefined) throw new Error(`${id} wrote no profile`)
      const recorded: CpuProfile = JSON.parse(readFileSync(join(folder, file), "utf8"))
      mkdirSync(join(docs, "images"), { recursive: true })
      writeFileSync(join(docs, "images", `${name}.svg`), flame(recorded, `${id}: ${workload.about}`))
      tell(`wrote docs/images/${name}.svg`)
    }
  } finally {
    await server.close()
  }
}

const compare = async () => {
  const results = await measure()
  mkdirSync(dirname(out), { recursive: true })
  writeFileSync(out, `${JSON.stringify(results, null, 1)}\n`)
  console.log(table(results.rows, results.gates))
  const missed = results.gates.filter(({ ok }) => !ok)
  for (const { metric, text, workload } of missed) console.error(`MISSED ${workload} ${metric}: ${text}`)
  for (const problem of results.problems) console.error(`PROBLEM ${problem}`)
  tell(`${results.gates.length - missed.length} of ${results.gates.length} gates met; results in ${options.out}`)
  process.exitCode = missed.length + results.problems.length > 0 ? 1 : 0
}

try {
  await (options.docs ? document() : options.profile ? profile() : compare())
} catch (error) {
  if (!(error instanceof Missing)) throw error
  console.error(`pnpm bench: ${error.message}`)
  process.exitCode = 2
}
