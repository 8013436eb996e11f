/**
 * How fast is the engine, against torch on one thread doing the same work in the same run?
 *
 *   pnpm exec tsx scripts/bench/engine.ts [rounds]
 *
 * Makes a virtual environment with torch (large) unless ENGINE_VENV names one. Rounds are interleaved, processor time is
 * counted, the best of each counts: use the ratios, not the rates. Two at once: two engines at work at once against one,
 * in wall time, which is what dividing a batch among threads could win at most.
 */
import { NodeContext } from "@effect/platform-node"
import { type Engine, ModelFiles } from "@effect-tinker/engine"
import { Effect, Either } from "effect"
import { spawn, spawnSync } from "node:child_process"
import { createInterface } from "node:readline"
import { existsSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

const rounds = Number(process.argv[2] ?? 5)
const works = ["train", "sample 1", "sample 16"] as const
type Work = (typeof works)[number]

const data = Array.from({ length: 8 }, (_, row) => {
  const tokens = Array.from({ length: 128 }, (_, i) => (row * 128 + i) % 1000)
  return { tokens, inputs: { target_tokens: { data: tokens }, weights: { data: tokens.map(() => 1) } } }
})

const load = (kernel: "simd" | "plain") =>
  ModelFiles.engine(undefined, { kernel }).pipe(
    Effect.tap((engine) => engine.createAdapter("a", { rank: 8, seed: 1 })),
    Effect.provide(NodeContext.layer),
    Effect.runPromise,
  )

/** Tokens. */
const run = (engine: Engine.Engine, work: Work): number => {
  if (work === "train") {
    Either.getOrThrow(engine.forwardBackward("a", data, { name: "cross_entropy" }))
    Either.getOrThrow(engine.optimStep("a", {}))
    return 8 * 128
  }
  const samples = work === "sample 1" ? 1 : 16
  const prompt = Array.from({ length: 10 }, (_, i) => i)
  Either.getOrThrow(engine.sample("a", { prompt, samples, maxTokens: 64, stopTokens: [] }))
  return 64 * samples
}

const cpu = () => {
  const { system, user } = process.cpuUsage()
  return (user + system) / 1e6
}

const main = async () => {
  const venv = process.env["ENGINE_VENV"] ?? join(tmpdir(), "effect-tinker-engine-venv")
  const python = join(venv, "bin/python")
  if (!existsSync(python)) {
    spawnSync("python3", ["-m", "venv", venv], { stdio: "inherit" })
    spawnSync(python, ["-m", "pip", "install", "--quiet", "torch==2.15.0", "transformers==5.22.2"], {
      stdio: "inherit",
    })
  }
  const here = fileURLToPath(new URL(".", import.meta.url))
  const model = fileURLToPath(new URL("../../packages/engine/model", import.meta.url))
  const torch = spawn(python, [join(here, "engine_torch.py"), model], { stdio: ["pipe", "pipe", "ignore"] })
  const lines = createInterface({ input: torch.stdout })[Symbol.asyncIterator]()
  const ask = async (work: Work): Promise<{ rate: number; memory: number; load: number }> => {
    torch.stdin.write(`${work}\n`)
    const { value } = await lines.next()
    return JSON.parse(value)
  }

  const before = cpu()
  const simd = await load("simd")
  const start = cpu() - before
  const plain = await load("plain")
  const rates: Record<string, Record<string, number>> = {}
  const note = (work: string, who: string, rate: number) => {
    const row = (rates[work] ??= {})
    row[who] = Math.max(row[who] ?? 0, rate)
  }
  let reference = { rate: 0, memory: 0, load: 0 }
  for (let round = 0; round < rounds; round++) {
    for (const work of works) {
      reference = await ask(work)
      note(work, "torch", reference.rate)
      for (const [name, engine] of Object.entries({ simd, plain })) {
        if (name === "plain" && (round > 0 || work === "sample 16")) continue
        const began = cpu()
        const tokens = run(engine, work)
        note(work, name, tokens / (cpu() - began))
      }
    }
  }
  torch.kill()
  const ratio = (row: Record<string, number>, who: string) => {
    const [mine, theirs] = [row[who], row["torch"]]
    return mine === undefined || theirs === undefined ? "-" : (mine / theirs).toFixed(2)
  }
  console.table(
    Object.entries(rates).map(([work, row]) => ({
      work,
      "tokens/s of a processor": Math.round(row["simd"] ?? 0),
      "ratio to torch": ratio(row, "simd"),
      "plain kernel, ratio": ratio(row, "plain"),
    })),
  )
  const mb = (bytes: number) => `${Math.round(bytes / 1e6)} MB`
  console.log(`start-up ${start.toFixed(2)} s of processor (torch: ${reference.load.toFixed(2)} s after its imports)`)
  console.log(
    `kernel memory ${mb(simd.memory().reserved)}, process ${mb(process.memoryUsage.rss())}, torch's ${mb(reference.memory * 1e6)}`,
  )

  const alone = await together(1)
  const two = await together(2)
  console.log(`two at once: ${(two / alone).toFixed(2)} times the tokens of one in the same time`)
}

/** Tokens a second, all processes together: they share nothing, so threads could not do better. */
const together = async (count: number): Promise<number> => {
  const one = () =>
    new Promise<number>((resolve, reject) => {
      const child = spawn(process.execPath, [...process.execArgv, fileURLToPath(import.meta.url), "alone"], {
        stdio: ["ignore", "pipe", "inherit"],
      })
      let output = ""
      child.stdout.on("data", (chunk) => (output += String(chunk)))
      child.once("close", (code) => (code === 0 ? resolve(Number(output)) : reject(new Error(`exit ${code}`))))
    })
  const results = await Promise.all(Array.from({ length: count }, one))
  return results.reduce((a, b) => a + b, 0)
}

if (process.argv[2] === "alone") {
  const engine = await load("simd")
  run(engine, "train")
  const began = performance.now()
  let tokens = 0
  while (performance.now() - began < 5000) tokens += run(engine, "train")
  console.log((tokens / (performance.now() - began)) * 1000)
} else await main()
