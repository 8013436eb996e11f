/** Generates the figures of docs/engine.md from the measurements. */
import { median, round } from "./Results.ts"
import { curves as draw } from "./Svg.ts"
import { grid } from "./Table.ts"

export const works = ["train", "sample 1", "sample 16"] as const
export type Work = (typeof works)[number]

/** Rates are in tokens per second of CPU time, times in seconds of CPU time, memory in bytes. */
export interface EngineFigures {
  readonly date: string
  readonly rounds: number
  readonly cpus: number
  readonly cpu: string
  readonly memory_gb: number
  readonly kernel: string
  readonly load: number
  readonly versions: Readonly<Record<string, string>>
  readonly rates: ReadonlyArray<{
    readonly work: Work
    readonly engine: number
    readonly torch: number
    /** The ratio of each round, smallest first. */
    readonly ratios: ReadonlyArray<number>
    readonly plain: number | null
  }>
  readonly start: {
    readonly engine: {
      readonly imports: number
      readonly load: number
      readonly memory: number
      readonly kernel: number
    }
    readonly torch: { readonly imports: number; readonly load: number; readonly memory: number }
  }
  readonly threads: {
    /** The rate of half a batch relative to that of a whole batch. */
    readonly halfBatch: number
    /** In microseconds. */
    readonly handOver: number
    readonly matrix: number
  }
  readonly scratch: {
    readonly rank: number
    readonly rate: number
    readonly steps: number
    readonly rows: number
    readonly length: number
    readonly losses: ReadonlyArray<number>
    readonly torch: ReadonlyArray<number>
  }
  readonly demo: { readonly losses: ReadonlyArray<number> }
}

const names: Readonly<Record<Work, string>> = {
  train: "a pass and a step, 8 x 128 tokens",
  "sample 1": "one sample, 64 tokens",
  "sample 16": "sixteen concurrent samples",
}

export const curves = ({ demo, scratch }: EngineFigures): string =>
  draw([
    {
      title: "Demo: a LoRA of rank 8 learns to answer like a sailor",
      lines: [{ name: "engine", values: demo.losses }],
    },
    {
      title: `From random weights: a LoRA of rank ${scratch.rank} learns to count`,
      lines: [
        { name: "torch", values: scratch.torch },
        { name: "engine", values: scratch.losses },
      ],
    },
  ])

const mb = (bytes: number) => `${Math.round(bytes / 1e6)} MB`
const seconds = (value: number) => `${value.toFixed(2)} s`
const fixed = (value: number | undefined) => (value === undefined ? "-" : value.toFixed(2))

const block = (figures: EngineFigures): string => {
  const { cpu, cpus, date, demo, load, rates, rounds, scratch, start, threads, versions } = figures
  const apart = Math.max(...scratch.losses.map((loss, i) => Math.abs(loss - (scratch.torch[i] ?? Number.NaN))))
  const split = Math.min(2, 2 * threads.halfBatch)
  const table = grid(
    ["work", "tokens per second", "torch", "ratio", "lowest to highest", "ratio with plain kernel"],
    rates.map(({ engine, plain, ratios, torch, work }) => [
      names[work],
      round(engine),
      round(torch),
      fixed(median(ratios)),
      `${fixed(ratios[0])}–${fixed(ratios.at(-1))}`,
      plain === null ? "not run" : fixed(plain),
    ]),
  )
  const costs = grid(
    ["", "engine", "torch"],
    [
      ["process start and imports, CPU time", seconds(start.engine.imports), seconds(start.torch.imports)],
      ["loading the model, CPU time", seconds(start.engine.load), seconds(start.torch.load)],
      ["peak memory of the process", mb(start.engine.memory), mb(start.torch.memory)],
      ["of which kernel memory", mb(start.engine.kernel), "-"],
    ],
  )
  return `${date}, ${rounds} ${rounds === 1 ? "round" : "rounds"} in turns, medians; ${cpus} shared cores (${cpu}), load average ${load.toFixed(1)}. ${Object.entries(
    versions,
  )
    .map(([name, version]) => `${name} ${version}`)
    .join(
      ", ",
    )}. Shipped model, LoRA of rank 8 on all layers. Rates are tokens per second of CPU time, torch uses one thread, and a ratio above 1 means that the engine is faster.

${table}

Sampling is compared with \`generate\` of transformers, whose cost per token is mostly its own code, not arithmetic.

${costs}

![Loss by step: the demo, and a run from scratch compared with torch](images/engine-loss.svg)

Left: the demo, through client, server and engine, from ${fixed(demo.losses[0])} to ${fixed(demo.losses.at(-1))} in ${demo.losses.length} steps. Right: a model of the same shape with random weights, ${scratch.rows} x ${scratch.length} tokens per step, from ${fixed(scratch.losses[0])} to ${fixed(scratch.losses.at(-1))} in ${scratch.steps} steps in the engine, and to ${fixed(scratch.torch.at(-1))} in torch from the same weights and data; the losses differ by at most ${apart.toPrecision(1)}.

Potential gain of a second thread: half a batch runs at ${fixed(threads.halfBatch)} times the rate of a whole batch, so two threads with half a batch each are at most ${fixed(split)} times as fast. Passing work to another thread and back takes ${round(threads.handOver)} µs; one matrix of a sampled token takes ${round(threads.matrix)} µs, including overhead.`
}

const from = "<!-- Figures: written by `scripts/bench/engine.ts --docs` from engine.json. -->"
const to = "<!-- End of figures. -->"

/** Inserts the figures into the page; without a page, returns only the figures. */
export const inPage = (page: string | undefined, figures: EngineFigures): string => {
  if (page === undefined) return block(figures)
  const [start, end] = [page.indexOf(from), page.indexOf(to)]
  if (start < 0 || end < start) throw new Error(`the page has no markers for the figures: ${from} … ${to}`)
  return `${page.slice(0, start)}${from}\n\n${block(figures)}\n\n${page.slice(end)}`
}
