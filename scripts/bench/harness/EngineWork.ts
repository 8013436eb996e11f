/** The workloads of the engine benchmark. */
import type { Engine, Losses } from "@effect-tinker/engine"
import { Either } from "effect"
import type { Work } from "./EnginePage.ts"

const right = Either.getOrThrow

/** CPU seconds of this process. */
export const cpu = () => {
  const { system, user } = process.cpuUsage()
  return (user + system) / 1e6
}

const batch = (rows: number): ReadonlyArray<Losses.Datum> =>
  Array.from({ length: rows }, (_, row) => {
    const tokens = Array.from({ length: 128 }, (_, i) => (row * 128 + i) % 1000)
    return { tokens, inputs: { target_tokens: { data: tokens }, weights: { data: tokens.map(() => 1) } } }
  })

/** Runs a workload and returns the number of tokens. */
export const run = (engine: Engine.Engine, work: Work | "train half"): number => {
  if (work === "train" || work === "train half") {
    const rows = work === "train" ? 8 : 4
    right(engine.forwardBackward("a", batch(rows), { name: "cross_entropy" }))
    right(engine.optimStep("a", {}))
    return rows * 128
  }
  const samples = work === "sample 1" ? 1 : 16
  const prompt = Array.from({ length: 10 }, (_, i) => i)
  right(engine.sample("a", { prompt, samples, maxTokens: 64, stopTokens: [] }))
  return 64 * samples
}
