/**
 * Runs the examples of docs/recipes.md as they are, except that their runs are kept, and draws their curves:
 * `docs:curves [HEADING...]`, e.g. `docs:curves Preferences`. Fails if a curve does not go where it should.
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"
import { Effect } from "effect"
import { Run, RunDirectory, type RunEvent } from "@effect-tinker/recipes"
import { type Curve, curves } from "./bench/harness/Svg.ts"

interface Row {
  /** The heading in docs/recipes.md below which the example is. */
  readonly heading: string
  /** The image, `docs/images/recipes-<name>.svg`. */
  readonly name: string
  readonly title: string
  readonly unit: string
  /** Names of lines by metric. */
  readonly metrics: Readonly<Record<string, string>>
  readonly goes: "up" | "down"
}

const rows: ReadonlyArray<Row> = [
  {
    heading: "Supervised fine-tuning",
    name: "supervised",
    title: "Supervised: the model learns to answer like a sailor",
    unit: "loss per token",
    metrics: { train_mean_nll: "training", "test/nll": "held out" },
    goes: "down",
  },
  {
    heading: "Reinforcement learning",
    name: "rl",
    title: "Reinforcement: the letter a becomes frequent",
    unit: "mean reward",
    metrics: { "env/all/reward/total": "reward" },
    goes: "up",
  },
  {
    heading: "Preferences",
    name: "preferences",
    title: "DPO: the better answer gains on the worse one",
    unit: "margin",
    metrics: { margin: "margin" },
    goes: "up",
  },
  {
    heading: "Distillation",
    name: "distillation",
    title: "Distillation: the student comes closer to the teacher",
    unit: "KL per token",
    metrics: { teacher_kl: "distance" },
    goes: "down",
  },
]

const root = fileURLToPath(new URL("..", import.meta.url))
const page = readFileSync(join(root, "docs/recipes.md"), "utf8")

/** Returns the first program below a heading. */
const programOf = (heading: string): string => {
  const [, below = ""] = page.split(`\n## ${heading}\n`)
  const [, text] = /^```ts\n([^]*?)^```$/m.exec(below.split("\n## ")[0] ?? "") ?? []
  if (text === undefined) throw new Error(`docs/recipes.md has no program below "${heading}"`)
  return text
}

/** Makes a program keep its runs in directories instead of memory. */
const keeping = (program: string, directory: string): string => {
  let runs = 0
  const kept = program.replaceAll(
    "RunStore.layerMemory",
    () => `Directory.layer(${JSON.stringify(join(directory, String(runs++)))})`,
  )
  return `import { RunDirectory as Directory } from "@effect-tinker/recipes"\n${kept}`
}

/** Returns the values of a metric in the order of steps. */
const curveOf = (events: ReadonlyArray<RunEvent.RunEvent>, metric: string, name: string): Curve => {
  const found = events.flatMap((event) => {
    const value = event._tag === "Step" || event._tag === "Evaluation" ? event.metrics[metric] : undefined
    return value === undefined ? [] : [{ step: event.step, value }]
  })
  return { name, steps: found.map(({ step }) => step), values: found.map(({ value }) => value) }
}

const draw = async ({ goes, heading, metrics, name, title, unit }: Row, work: string): Promise<boolean> => {
  const directory = join(work, name)
  const file = join(work, `${name}.ts`)
  mkdirSync(directory)
  writeFileSync(file, keeping(programOf(heading), directory))
  await import(pathToFileURL(file).href)
  const read = (run: string) =>
    RunDirectory.make(join(directory, run)).pipe(Effect.flatMap(Run.readEvents), Effect.scoped)
  const events = (await Effect.runPromise(Effect.forEach(readdirSync(directory).toSorted(), read))).flat()
  const lines = Object.entries(metrics).map(([metric, line]) => curveOf(events, metric, line))
  const isRight = lines.every(({ values }) => {
    const [first = Number.NaN, last = Number.NaN] = [values[0], values.at(-1)]
    return values.length > 1 && (goes === "up" ? last > first : last < first)
  })
  for (const { name, values } of lines)
    console.log(`${heading}: ${name} ${values.map((value) => value.toPrecision(4)).join(" ")}`)
  if (!isRight) console.error(`${heading}: the curve should go ${goes}; its image is left as it is`)
  else writeFileSync(join(root, `docs/images/recipes-${name}.svg`), curves([{ title, unit, lines }]))
  return isRight
}

const asked = process.argv.slice(2)
// Below the project, so that the programs find its packages.
mkdirSync(join(root, ".tsbuild"), { recursive: true })
const work = mkdtempSync(join(root, ".tsbuild", "curves-"))
let isRight = true
for (const row of rows.filter(({ heading }) => asked.length === 0 || asked.includes(heading)))
  isRight = (await draw(row, work)) && isRight
rmSync(work, { recursive: true })
process.exit(isRight ? 0 : 1)
