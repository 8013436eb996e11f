/**
 * Trains with our recipes and with the official cookbook on one server, with the same configuration, data order and
 * seeds, and compares what they report and save. `scripts/cookbook/run` prepares Python and calls this.
 *
 *   tsx scripts/cookbook/main.ts PYTHON [--keep DIRECTORY]
 */
import { spawn } from "node:child_process"
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import { Effect } from "effect"
import * as Compare from "./Compare.ts"
import * as Ours from "./Ours.ts"
import * as Plan from "./Plan.ts"
import { proxy, Seeds } from "./Seeds.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))
const [python = "python3", flag, kept] = process.argv.slice(2)
const work = mkdtempSync(join(tmpdir(), "cookbook-"))
const shipped = join(root, "packages/engine/model")

let failures = 0
const check = (what: string, isTrue: boolean, detail = "") => {
  console.log(`${isTrue ? "ok  " : "FAIL"} ${what}${detail === "" ? "" : `: ${detail}`}`)
  if (!isTrue) failures++
}
const equal = (what: string, got: unknown, wanted: unknown) => {
  const isEqual = JSON.stringify(got) === JSON.stringify(wanted)
  check(what, isEqual, isEqual ? "" : `got ${JSON.stringify(got)}, wanted ${JSON.stringify(wanted)}`)
}

/** Starts the server, and returns its address and how to stop it. */
const serve = (): Promise<{ readonly url: string; readonly stop: () => void }> =>
  new Promise((found, failed) => {
    const args = ["--import", "tsx", "packages/cli/src/internal/bin.ts", "serve", "--port", "0"]
    const child = spawn(process.execPath, [...args, "--model", `${Plan.model}=${shipped}`], { cwd: root })
    let output = ""
    child.stdout.on("data", (chunk) => {
      output += String(chunk)
      const url = /^listening on (\S+)$/m.exec(output)?.[1]
      if (url !== undefined) found({ url, stop: () => child.kill("SIGTERM") })
    })
    child.stderr.on("data", (chunk) => process.stderr.write(chunk))
    child.on("exit", (code) => failed(new Error(`the server exited with ${code}`)))
  })

/** Runs the cookbook in a directory that has the tokenizer under the name of the model. */
const cookbook = (plan: string): Promise<void> =>
  new Promise((done, failed) => {
    const cwd = join(work, "hub")
    mkdirSync(dirname(join(cwd, Plan.model)), { recursive: true })
    symlinkSync(shipped, join(cwd, Plan.model))
    const env = { ...process.env, TINKER_API_KEY: "tml-cookbook", HF_HUB_OFFLINE: "1", TQDM_DISABLE: "1" }
    const child = spawn(python, [join(root, "scripts/cookbook/cookbook.py"), plan], { cwd, env })
    let log = ""
    child.stdout.on("data", (chunk) => (log += String(chunk)))
    child.stderr.on("data", (chunk) => (log += String(chunk)))
    child.on("error", failed)
    child.on("exit", (code) => {
      writeFileSync(join(work, "cookbook.log"), log)
      if (code === 0) done()
      else failed(new Error(`the cookbook exited with ${code}:\n${log.slice(-4_000)}`))
    })
  })

const linesOf = (path: string): ReadonlyArray<Compare.Row> =>
  readFileSync(path, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line))

const short = (value: number) => (Number.isInteger(value) ? String(value) : value.toPrecision(6))

/** Compares the metrics of a run, and prints them. */
const compare = (title: string, ours: ReadonlyArray<Compare.Row>, theirs: ReadonlyArray<Compare.Row>) => {
  console.log(`\n== ${title}`)
  const compared = Compare.metrics(ours, theirs)
  for (const { difference, first, last, name, steps } of compared)
    check(
      name.padEnd(34),
      difference <= (title === "penalty" && name === "grad_norm:unique" ? rounding : Compare.tolerance),
      `${steps} steps, from ${short(first)} to ${short(last)}, largest difference ${difference.toExponential(1)}`,
    )
  return new Set(compared.map(({ name }) => name))
}

/** The last path of a kind in the ledger of a run. */
const lastOf = (rows: ReadonlyArray<Compare.Row>, key: string) => String(rows.findLast((row) => key in row)?.[key])

const names = ["supervised", "penalty", "updates"] as const

/** Metrics of the cookbook that our recipes don't have: see docs/recipes.md. */
const onlyTheirs = /^(time\/|progress\/batch$)/

/**
 * The cookbook computes penalties in single precision, our recipes in double precision, and Adam turns the last bit of a
 * small gradient into a step of full size. Losses and distances agree all the same, but what depends on every single
 * weight differs a little more. (With penalties in single precision on our side, all of it is equal to the last bit.)
 */
const rounding = 1e-4

const main = async () => {
  const started = Date.now()
  const server = await serve()
  const [ours, theirs] = [join(work, "ours"), join(work, "theirs")]
  const sides = []
  for (const name of names) {
    const seeds = new Seeds()
    const noting = await proxy(server.url, seeds.note)
    const directory = join(ours, name)
    await Effect.runPromise(
      name === "supervised"
        ? Ours.supervised(noting.url, directory)
        : Ours.reinforced(noting.url, directory, Plan.reinforcements[name]),
    )
    noting.close()
    sides.push({ name, seeds, proxy: await proxy(server.url, seeds.fill) })
  }
  console.log(`our recipes took ${((Date.now() - started) / 1_000).toFixed(1)} s`)

  const plan = join(work, "plan.json")
  const result = join(work, "result.json")
  const tasks = Math.max(...Object.values(Plan.reinforcements).map(({ iterations }) => iterations)) * 3
  writeFileSync(
    plan,
    JSON.stringify({
      ...Plan,
      order: await Effect.runPromise(Ours.order),
      questions: Array.from({ length: tasks }, (_, task) => Plan.question(task)),
      urls: Object.fromEntries(sides.map(({ name, proxy }) => [name, proxy.url])),
      ours,
      theirs,
      result,
    }),
  )
  const began = Date.now()
  await cookbook(plan)
  console.log(`the cookbook took ${((Date.now() - began) / 1_000).toFixed(1)} s`)

  const read = JSON.parse(readFileSync(result, "utf8"))
  for (const { name, seeds } of sides) {
    const [own, other] = [linesOf(join(ours, name, "metrics.jsonl")), linesOf(join(theirs, name, "metrics.jsonl"))]
    // With several updates in an iteration, the cookbook counts iterations and ours counts updates: the first update of
    // an iteration has the metrics of its rollouts.
    const updates = name === "updates" ? Plan.reinforcements.updates.updatesPerIteration : 1
    const first = own.flatMap(({ step, ...row }) =>
      Number(step) % updates === 0 ? [{ ...row, step: Number(step) / updates }] : [],
    )
    const isOfIteration = (metric: string) => updates === 1 || /^(env\/|optim\/lr$|step$)/.test(metric)
    const only = (rows: ReadonlyArray<Compare.Row>) =>
      rows.map((row) => Object.fromEntries(Object.entries(row).filter(([metric]) => isOfIteration(metric))))
    const found = compare(name, only(first), only(other))
    const needed =
      name === "supervised"
        ? ["train_mean_nll", "train_mean_bpb", "test/nll", "test/bpb", "learning_rate"]
        : ["env/all/reward/total", ...(updates === 1 ? ["optim/kl_sample_train_v1", "kl_policy_base"] : [])]
    equal(
      "what has to be compared was",
      needed.filter((metric) => !found.has(metric)),
      [],
    )
    equal("every sample of the cookbook got a seed of ours", [seeds.filled, seeds.missing], [seeds.size, 0])
    const missing = Compare.onlyIn(other, own)
    equal(
      "metrics that we lack",
      missing.filter((metric) => !onlyTheirs.test(metric)),
      [],
    )
    console.log(`     only theirs: ${missing.join(", ")}\n     only ours: ${Compare.onlyIn(own, other).join(", ")}`)

    const ledgers = [linesOf(join(ours, name, "checkpoints.jsonl")), linesOf(join(theirs, name, "checkpoints.jsonl"))]
    const [mine = [], yours = []] = await Promise.all(
      ledgers.map((ledger) => Effect.runPromise(Ours.logprobs(server.url, lastOf(ledger, "sampler_path")))),
    )
    const difference = Math.max(...mine.map((value, at) => Math.abs(value - (yours[at] ?? Number.NaN))))
    check(
      `${mine.length} log probabilities under the final weights`,
      difference <= (name === "penalty" ? rounding : Compare.tolerance),
      `largest difference ${difference.toExponential(1)}`,
    )
    equal(
      "the cookbook reads our ledger",
      read[name].checkpoints.map(({ name }: { name: string }) => name),
      [...(name === "supervised" ? ["000006"] : []), "final"],
    )
    equal(
      "the last checkpoint, as the cookbook finds it",
      read[name].last.state_path,
      lastOf(ledgers[0] ?? [], "state_path"),
    )
    equal("the cookbook reads as many lines of metrics as we wrote", read[name].metrics.length, own.length)
  }

  const continued = linesOf(join(theirs, "continued.jsonl"))
  const later = linesOf(join(ours, "supervised", "metrics.jsonl")).filter(({ step }) => Number(step) >= 6)
  // For the cookbook's loop, the steps of all epochs are one epoch here: `batch` counts them in our checkpoints.
  const found = compare(
    "the cookbook continues our run at step 6",
    later,
    continued.map((row) => ({ ...row, epoch: "" })),
  )
  equal(
    "what has to be compared was",
    ["train_mean_nll", "test/nll"].filter((metric) => !found.has(metric)),
    [],
  )

  for (const { proxy } of sides) proxy.close()
  server.stop()
}

await main()
  .catch((error: unknown) => {
    console.error(error instanceof Error ? error.message : error)
    failures++
  })
  .finally(() => {
    if (flag === "--keep" && kept !== undefined) cpSync(work, resolve(kept), { recursive: true, dereference: false })
    rmSync(work, { recursive: true, force: true })
  })
console.log(failures === 0 ? "\nthe cookbook and our recipes agree" : `\n${failures} checks failed`)
process.exit(failures === 0 ? 0 : 1)
