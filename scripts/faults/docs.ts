/** Writes `docs/reliability.md` from the recorded results: `pnpm faults:docs [--check]`. */
import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { spawnSync } from "node:child_process"
import { fileURLToPath } from "node:url"
import { NodeRuntime } from "@effect/platform-node"
import { Console, Effect } from "effect"
import { page } from "./results/Page.ts"
import * as Results from "./results/Results.ts"

const docs = fileURLToPath(new URL("../../docs/", import.meta.url))
const path = `${docs}reliability.md`

const main = Effect.gen(function* () {
  const images = ["load-samples.svg", "load-tenants.svg", "load-soak.svg"].filter((name) =>
    existsSync(`${docs}images/${name}`),
  )
  const text = page(yield* Results.read, images)
  const before = existsSync(path) ? readFileSync(path, "utf8") : ""
  yield* Effect.sync(() => {
    writeFileSync(path, text)
    spawnSync("pnpm", ["exec", "oxfmt", path])
  })
  if (!process.argv.includes("--check") || readFileSync(path, "utf8") === before) return
  yield* Console.error("docs/reliability.md does not match docs/reliability.json")
  yield* Effect.sync(() => (process.exitCode = 1))
})

NodeRuntime.runMain(main)
