/**
 * Measures how long the packed command needs for `--help`, compared with an empty Node program: the median of 20 starts
 * of each, in turns. Fails above four times. The packages must have been built.
 *
 * Usage: pnpm exec tsx scripts/cli/start.ts
 */
import { execFileSync } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import process, { execPath, exit } from "node:process"
import { install } from "../published.ts"

const work = mkdtempSync(join(tmpdir(), "start-"))
process.on("exit", () => rmSync(work, { recursive: true, force: true }))
const modules = join(work, "node_modules")
install(modules)
const command = join(modules, "@effect-tinker/cli/dist/internal/bin.js")

const duration = (args: ReadonlyArray<string>): number => {
  const start = performance.now()
  execFileSync(execPath, args, { stdio: "ignore" })
  return performance.now() - start
}

const median = (values: ReadonlyArray<number>): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0

const programs = { empty: ["-e", "0"], help: [command, "--help"], recipe: [command, "train", "sft", "--help"] }
const times: Record<keyof typeof programs, Array<number>> = { empty: [], help: [], recipe: [] }
for (let i = 0; i < 20; i++)
  for (const name of ["empty", "help", "recipe"] as const) times[name].push(duration(programs[name]))

const base = median(times.empty)
for (const name of ["help", "recipe"] as const) {
  const time = median(times[name])
  console.log(
    `tinkerfx ${programs[name].slice(1).join(" ")}: ${(time / base).toFixed(2)} x node -e 0 (${time.toFixed(0)} ms, ${base.toFixed(0)} ms)`,
  )
}
if (median(times.help) > 4 * base) exit(1)
