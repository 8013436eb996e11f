/** Puts SDK and server under load: `pnpm faults:load --help`. */
import { mkdir, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as Arguments from "./lab/Arguments.ts"
import { Console, Effect, Option } from "effect"
import * as Command from "./lab/Command.ts"
import * as Bundles from "./lab/Bundles.ts"
import * as Child from "./lab/Child.ts"
import { directory } from "./lab/Directory.ts"
import * as LabServer from "./lab/LabServer.ts"
import * as Judge from "./load/Judge.ts"
import { keysVariable, type LoadReport, type LoadSettings } from "./load/Load.ts"
import { svg } from "./load/Plot.ts"
import * as Results from "./results/Results.ts"
import { newKey } from "./seeds/Experiment.ts"

const help = `Usage: pnpm faults:load [options]

Puts a client under load against a server in another process, and watches memory, handles and fairness.

Options:
  --samples N      samples in flight on one client (default: 10000)
  --tenants N      tenants at once, each with its own key and connections (default: 1000)
  --soak SECONDS   duration of a soak that opens, uses and closes clients (default: 60)
  --only NAME      only "samples", "tenants" or "soak"
  --record         add the results to docs/reliability.json, and plots to docs/images
  -h, --help       show this help

The exit code is 1 if something fails, memory grows, or handles are left.`

const images = fileURLToPath(new URL("../../docs/images/", import.meta.url))

/** Runs one kind of load against a new server. */
const run = (bundles: Bundles.Bundles, load: Omit<LoadSettings, "baseUrl">) =>
  Effect.gen(function* () {
    const dataDirectory = join(yield* directory, "server")
    const keys = Array.from({ length: load.kind === "tenants" ? load.count : 1 }, newKey).join(",")
    const server = yield* LabServer.make(
      bundles,
      { dataDirectory, model: Bundles.model, parallel: true, jwt: false, snapshotEvery: 20 },
      keys,
    )
    const settings: LoadSettings = { ...load, baseUrl: `http://127.0.0.1:${server.port()}` }
    const child = yield* Child.run({
      program: bundles.load,
      args: [JSON.stringify(settings)],
      env: { [keysVariable]: keys },
      conditions: { node: ["--expose-gc"] },
    })
    const line = yield* child.firstLine
    const end = yield* Effect.timeoutOption(child.ended, "15 seconds")
    if (line === undefined) return yield* Effect.dieMessage(`no report: ${child.stderr().slice(-2000)}`)
    const report: LoadReport = JSON.parse(line)
    const problems = Judge.problems(settings, report)
    return { report, problems: Option.isSome(end) ? problems : [...problems, "the process did not exit by itself"] }
  }).pipe(Effect.scoped)

const promises = {
  samples: "Thousands of samples in flight on one client all complete.",
  tenants: "Many tenants in one process are all served, and none is starved.",
  soak: "Clients that are opened, used and closed again and again leave nothing behind.",
}

const summary = (load: Omit<LoadSettings, "baseUrl">, report: LoadReport): string => {
  const peak = Math.max(...report.points.map(({ resident }) => resident)) / 2 ** 20
  const handles = Math.max(...report.points.map(({ handles }) => handles))
  const details = {
    samples: `${report.done} samples`,
    tenants: `${report.done} samples, fairness ${Judge.fairness(report.shares).toFixed(3)} when half were done`,
    soak: `${report.done} operations, heap ×${Judge.growth(report.points).toFixed(2)} from second to last quarter`,
  }[load.kind]
  return `${details} in ${report.seconds.toFixed(0)} s; at most ${peak.toFixed(0)} MiB and ${handles} handles`
}

const main = Effect.gen(function* () {
  const flags = yield* Arguments.parse(process.argv.slice(2), {
    samples: { type: "string" },
    tenants: { type: "string" },
    soak: { type: "string" },
    only: { type: "string" },
    record: { type: "boolean" },
    help: { type: "boolean", short: "h" },
  })
  if (flags["help"] !== undefined) return yield* Console.log(help)
  const integer = (name: string, fallback: number) =>
    Effect.map(Arguments.integer(flags, name, { from: 1, to: 1e6 }), (value) => value ?? fallback)
  const loads = [
    { kind: "samples" as const, count: yield* integer("samples", 10_000), seconds: 0 },
    { kind: "tenants" as const, count: yield* integer("tenants", 1000), seconds: 0 },
    { kind: "soak" as const, count: 1, seconds: yield* integer("soak", 60) },
  ]
  const only = Arguments.text(flags, "only")
  const bundles = yield* Bundles.make
  for (const load of loads.filter(({ kind }) => only === undefined || only === kind)) {
    yield* Console.log(`${load.kind} …`)
    const { problems, report } = yield* run(bundles, load)
    const outcome = summary(load, report)
    yield* Console.log(`  ${outcome}${problems.map((problem) => `\n  failed: ${problem}`).join("")}`)
    if (problems.length > 0) yield* Effect.sync(() => (process.exitCode = 1))
    if (flags["record"] === undefined) continue
    yield* Effect.promise(async () => {
      await mkdir(images, { recursive: true })
      await writeFile(join(images, `load-${load.kind}.svg`), svg(report.points))
    })
    yield* Results.add({
      id: `load ${load.kind}`,
      promise: promises[load.kind],
      tried: load.kind === "soak" ? `a soak of ${load.seconds} s` : `${load.count} ${load.kind} at once`,
      outcome: problems.length === 0 ? outcome : `failed: ${problems.join("; ")}; ${outcome}`,
      command: `pnpm faults:load --only ${load.kind} --${load.kind} ${load.kind === "soak" ? load.seconds : load.count}`,
    })
  }
})

Command.run(help, main)
