/**
 * Compares this tree with another revision on the workloads of `pnpm bench`, both builds in turns:
 * `pnpm bench:compare REV [--pairs N] [--only REGEX]`. Each round runs the old build, the new build and the old build
 * again; the ratio of the two old runs shows the noise. `pnpm bench:compare --traced` compares this tree with itself
 * under a tracer that records nothing.
 */
import { execFileSync } from "node:child_process"
import { copyFileSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { link, root } from "../published.ts"
import * as MockServer from "./harness/MockServer.ts"
import { output } from "./harness/Prepare.ts"
import { run } from "./harness/Runner.ts"
import { workloads } from "./harness/Workloads.ts"

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    pairs: { type: "string", default: "10" },
    only: { type: "string", default: "^W(1|2|3|4|6|7)" },
    traced: { type: "boolean", default: false },
  },
})
const [revision] = positionals
if ((revision === undefined) !== values.traced) {
  console.error("usage: pnpm bench:compare (REV | --traced) [--pairs N] [--only REGEX]")
  process.exit(2)
}

const work = join(output, "compare")
mkdirSync(work, { recursive: true })
const shell = (cwd: string, command: string, args: ReadonlyArray<string>) =>
  execFileSync(command, args, { cwd, stdio: ["ignore", "ignore", "inherit"], encoding: "utf8" })

/** Checks the revision out into a directory of its own and installs its dependencies. */
const checkout = (): string => {
  const commit = execFileSync("git", ["rev-parse", `${revision}^{commit}`], { cwd: root, encoding: "utf8" }).trim()
  const tree = join(work, commit)
  if (!existsSync(tree)) {
    shell(root, "git", ["worktree", "add", "--detach", "--force", tree, commit])
    shell(tree, "pnpm", ["install", "--frozen-lockfile", "--prefer-offline"])
  }
  return tree
}

/** Builds a tree and installs its packages, as they would be published, next to its driver. */
const install = (tree: string, name: string): ReadonlyArray<string> => {
  shell(tree, "pnpm", ["build"])
  const app = join(work, name)
  const modules = join(app, "node_modules")
  rmSync(app, { recursive: true, force: true })
  mkdirSync(modules, { recursive: true })
  const script = `import { install } from "./scripts/published.ts"; install(${JSON.stringify(modules)})`
  shell(tree, "pnpm", ["exec", "tsx", "--input-type=module", "--eval", script])
  link(modules, "undici", join(tree, "packages/node"))
  writeFileSync(join(app, "package.json"), JSON.stringify({ private: true, type: "module" }))
  const drivers = join(tree, "scripts/bench/harness/drivers")
  for (const file of readdirSync(drivers)) copyFileSync(join(drivers, file), join(app, file))
  return [process.execPath, "--expose-gc", join(app, "ours.mjs")]
}

const median = (numbers: ReadonlyArray<number>): number => {
  const sorted = numbers.toSorted((a, b) => a - b)
  const middle = Math.floor(sorted.length / 2)
  return sorted.length % 2 === 1 ? (sorted[middle] ?? NaN) : ((sorted[middle - 1] ?? NaN) + (sorted[middle] ?? NaN)) / 2
}

const now = install(root, "new")
const [before, after] = values.traced ? [now, ["env", "BENCH_TRACER=1", ...now]] : [install(checkout(), "old"), now]
const binary = join(work, "mockserver")
shell(fileURLToPath(new URL("./harness/mockserver", import.meta.url)), "go", ["build", "-o", binary, "."])
const server = await MockServer.start(binary, false)
const chosen = workloads.filter(({ bundled, id }) => bundled !== true && new RegExp(values.only).test(id))

// The three names of drivers stand for the old build, the new one and the old one again.
const runs = await run({
  server,
  drivers: { peer: before, ours: after, limit: before },
  workloads: chosen,
  repetitions: Math.max(1, Number(values.pairs) || 1),
  progress: ({ driver, error, workload }, done, all) =>
    console.error(
      `${done}/${all} ${workload} ${{ peer: "old", ours: "new", limit: "old again" }[driver]} ${error ?? ""}`,
    ),
})
await server.close()

console.log("| workload | metric | old | new | new / old | old / old |")
console.log("| --- | --- | --- | --- | --- | --- |")
for (const { id, metrics } of chosen) {
  for (const metric of Object.keys(metrics)) {
    const valuesOf = (driver: "peer" | "ours" | "limit") =>
      runs.filter((one) => one.workload === id && one.driver === driver).map((one) => one.metrics[metric] ?? NaN)
    const [old, now, again] = [valuesOf("peer"), valuesOf("ours"), valuesOf("limit")]
    const ratio = (above: ReadonlyArray<number>, below: ReadonlyArray<number>) =>
      median(above.map((value, at) => value / (below[at] ?? NaN))).toFixed(3)
    const figures = [median(old).toPrecision(4), median(now).toPrecision(4), ratio(now, old), ratio(again, old)]
    console.log(`| ${id} | ${metric} (${metrics[metric]} is better) | ${figures.join(" | ")} |`)
  }
}
