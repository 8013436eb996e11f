/**
 * Measures the speed of the engine compared with torch on one thread, and compares their loss curves.
 *
 *   npx -y pnpm@10.34.9 exec tsx scripts/bench/engine.ts [--rounds N] [--docs]
 *
 * `--docs` writes existing results to docs/engine.md, docs/engine.json and docs/images without measuring.
 * `scripts/engine/run` creates the virtual environment with torch (large) unless ENGINE_VENV names one. Rounds are
 * interleaved and measure CPU time: use the ratios, not the rates.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process"
import { mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { loadavg, tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { Worker } from "node:worker_threads"
import { NodeContext } from "@effect/platform-node"
import { Engine, ModelFiles, Random, Safetensors } from "@effect-tinker/engine"
import { Effect, Either } from "effect"
import { root } from "../published.ts"
import { curves, type EngineFigures, inPage, type Work, works } from "./harness/EnginePage.ts"
import { cpu, run } from "./harness/EngineWork.ts"
import { bundle, output } from "./harness/Prepare.ts"
import { machine, median } from "./harness/Results.ts"

const here = fileURLToPath(new URL(".", import.meta.url))
const model = join(root, "packages/engine/model")
const right = Either.getOrThrow

const load = (kernel: "simd" | "plain") =>
  ModelFiles.engine(undefined, { kernel }).pipe(
    Effect.tap((engine) => engine.createAdapter("a", { rank: 8, seed: 1 })),
    Effect.provide(NodeContext.layer),
    Effect.runPromise,
  )

/** Repetitions per measurement: a single one of a third of a second is too noisy. */
const repeat = 4

const rateOf = (engine: Engine.Engine, work: Work | "train half"): number => {
  const began = cpu()
  const tokens = Array.from({ length: repeat }, () => run(engine, work)).reduce((a, b) => a + b, 0)
  return tokens / (cpu() - began)
}

/** Communicates with a process that answers each line with a line of JSON. */
const talk = (child: ChildProcess) => {
  if (child.stdout === null || child.stdin === null) throw new Error("no pipes")
  const { stdin } = child
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  return async (asked: object) => {
    stdin.write(`${JSON.stringify(asked)}\n`)
    const { done, value } = await lines.next()
    if (done === true) throw new Error("the torch process exited unexpectedly")
    return JSON.parse(value)
  }
}

/** Measures one engine in its own process, as a program shipped in one file. */
const alone = (): EngineFigures["start"]["engine"] => {
  const file = join(output, "engine-alone.mjs")
  bundle(join(here, "engine-alone.ts"), file)
  return JSON.parse(execFileSync(process.execPath, [file, model], { encoding: "utf8" }))
}

/** Measures the microseconds to pass a message to another thread and back, at best. */
const handOver = async (): Promise<number> => {
  const shared = new Int32Array(new SharedArrayBuffer(8))
  const source = `const { workerData: s } = require("node:worker_threads")
    for (;;) { Atomics.wait(s, 0, 0); if (s[0] < 0) break
      Atomics.store(s, 0, 0); Atomics.store(s, 1, 1); Atomics.notify(s, 1) }`
  const worker = new Worker(source, { eval: true, workerData: shared })
  await new Promise((resolve) => worker.once("online", resolve))
  const times: Array<number> = []
  for (let i = 0; i < 2000; i++) {
    const began = performance.now()
    Atomics.store(shared, 1, 0)
    Atomics.store(shared, 0, 1)
    Atomics.notify(shared, 0)
    Atomics.wait(shared, 1, 0)
    times.push((performance.now() - began) * 1000)
  }
  Atomics.store(shared, 0, -1)
  Atomics.notify(shared, 0)
  await worker.terminate()
  // A low quantile, because a busy machine slows down most of them.
  return times.toSorted((a, b) => a - b)[times.length >> 2] ?? Number.NaN
}

const scratch = { rank: 64, rate: 3e-3, steps: 120, rows: 8, length: 32 }

/** Counting tasks: the first token gives the step, so that every other token follows from the previous ones. */
const counting = (random: Random.Random) =>
  Array.from({ length: scratch.rows }, () => {
    const step = 1 + Math.floor(random() * 4)
    const start = Math.floor(random() * 64)
    const all = [step, ...Array.from({ length: scratch.length }, (_, i) => 10 + ((start + i * step) % 64))]
    const weights = all.slice(1).map((_, i) => (i === 0 ? 0 : 1 / (scratch.rows * (scratch.length - 1))))
    return { tokens: all.slice(0, -1), targets: all.slice(1), weights }
  })

/** Trains a model of the shipped shape from random weights, so that the adapter has to learn everything. */
const fromScratch = async (ask: ReturnType<typeof talk>): Promise<EngineFigures["scratch"]> => {
  const folder = join(tmpdir(), "effect-tinker-engine-scratch")
  mkdirSync(folder, { recursive: true })
  const config = JSON.parse(readFileSync(join(model, "config.json"), "utf8"))
  const shipped = right(Safetensors.read(readFileSync(join(model, "model.safetensors"))))
  const random = Random.make(7)
  const tensors = Object.fromEntries(
    shipped.names.map((name) => {
      const shape = shipped.get(name)?.shape ?? []
      const size = shape.reduce((a, b) => a * b, 1)
      const width = Math.sqrt(3 / (shape[1] ?? 1))
      return [
        name,
        {
          shape,
          data: Float32Array.from({ length: size }, () => (shape.length === 1 ? 1 : width * (2 * random() - 1))),
        },
      ]
    }),
  )
  const weights = Safetensors.write(tensors)
  writeFileSync(join(folder, "config.json"), JSON.stringify(config))
  writeFileSync(join(folder, "model.safetensors"), weights)
  const engine = right(Engine.make({ config, weights: [weights] }))
  right(engine.createAdapter("a", { rank: scratch.rank, seed: 1 }))
  const adapter = join(folder, "adapter.safetensors")
  writeFileSync(adapter, right(engine.saveAdapter("a")))
  const data = Random.make(8)
  const batches = Array.from({ length: scratch.steps }, () => counting(data))
  const losses = batches.map((some) => {
    const datums = some.map(({ targets, tokens, weights }) => ({
      tokens,
      inputs: { target_tokens: { data: targets }, weights: { data: weights } },
    }))
    const { metrics } = right(engine.forwardBackward("a", datums, { name: "cross_entropy" }))
    right(engine.optimStep("a", { learningRate: scratch.rate }))
    return metrics["loss:sum"]
  })
  const { rank, rate } = scratch
  const reference: { losses: ReadonlyArray<number> } = await ask({
    work: "curve",
    folder,
    adapter,
    rank,
    rate,
    batches,
  })
  return { ...scratch, losses, torch: reference.losses }
}

/** Runs the demo as a user does, and reads its losses. */
const demo = (): EngineFigures["demo"] => {
  const text = execFileSync(process.execPath, [...process.execArgv, join(root, "scripts/demo.ts")], {
    encoding: "utf8",
  })
  const folder = /^Files in (.*):$/m.exec(text)?.[1]
  if (folder === undefined) throw new Error(`the output of the demo does not name its directory:\n${text}`)
  const [, ...rows] = readFileSync(join(folder, "losses.csv"), "utf8").trim().split("\n")
  return { losses: rows.map((row) => Number(row.split(",")[1])) }
}

const measure = async (rounds: number): Promise<EngineFigures> => {
  const tell = (text: string) => console.error(`[${(performance.now() / 1000).toFixed(0).padStart(4)} s] ${text}`)
  const python = execFileSync(join(root, "scripts/engine/run"), ["python"], { encoding: "utf8" }).trim()
  const torch = spawn(python, [join(here, "engine_torch.py"), model], { stdio: ["pipe", "pipe", "inherit"] })
  try {
    const ask = talk(torch)
    const simd = await load("simd")
    const plain = await load("plain")
    const loads = [loadavg()[0] ?? 0]
    const seen = works.map((work) => ({ work, torch: [] as Array<number>, engine: [] as Array<number>, plain: 0 }))
    const halves: Array<number> = []
    for (const row of seen) {
      // Warm-up of the compilers on both sides.
      await ask({ work: row.work, repeat: 1 })
      run(simd, row.work)
    }
    for (let round = 0; round < rounds; round++) {
      tell(`round ${round + 1} of ${rounds}`)
      for (const row of seen) {
        row.torch.push((await ask({ work: row.work, repeat })).rate)
        row.engine.push(rateOf(simd, row.work))
        if (round === 0 && row.work !== "sample 16") row.plain = rateOf(plain, row.work)
      }
      halves.push(rateOf(simd, "train half") / rateOf(simd, "train"))
      loads.push(loadavg()[0] ?? 0)
    }
    const { imports, load: loading, memory, versions } = await ask({ work: "about" })
    tell("measuring a separate process")
    const start = { engine: alone(), torch: { imports, load: loading, memory } }
    tell("threads")
    const micros = await handOver()
    tell("training from scratch in the engine and in torch")
    const curve = await fromScratch(ask)
    tell("the demo")
    const rates = seen.map((row) => ({
      work: row.work,
      engine: median(row.engine),
      torch: median(row.torch),
      ratios: row.engine.map((rate, i) => rate / (row.torch[i] ?? Number.NaN)).toSorted((a, b) => a - b),
      plain: row.plain === 0 ? null : row.plain / median(row.torch),
    }))
    const single = rates.find(({ work }) => work === "sample 1")?.engine ?? Number.NaN
    return {
      date: new Date().toISOString().slice(0, 10),
      rounds,
      ...machine(),
      load: median(loads),
      versions: { node: process.versions.node, ...versions },
      rates,
      start,
      threads: {
        halfBatch: median(halves),
        handOver: micros,
        // Seven matrices per layer, plus the unembedding.
        matrix: 1e6 / single / (7 * simd.config.layers + 1),
      },
      scratch: curve,
      demo: demo(),
    }
  } finally {
    torch.kill()
  }
}

const { values: options } = parseArgs({
  options: { rounds: { type: "string", default: "5" }, docs: { type: "boolean" } },
})
const file = join(output, "engine.json")
if (options.docs === true) {
  const figures: EngineFigures = JSON.parse(readFileSync(file, "utf8"))
  const docs = join(root, "docs")
  writeFileSync(join(docs, "engine.json"), `${JSON.stringify(figures, null, 2)}\n`)
  writeFileSync(join(docs, "engine.md"), inPage(readFileSync(join(docs, "engine.md"), "utf8"), figures))
  writeFileSync(join(docs, "images/engine-loss.svg"), curves(figures))
} else {
  mkdirSync(output, { recursive: true })
  const figures = await measure(Math.max(1, Number(options.rounds) || 1))
  writeFileSync(file, `${JSON.stringify(figures, null, 2)}\n`)
  console.log(inPage(undefined, figures))
}
