/**
 * Measures what the cache of prefixes saves: `npx -y pnpm@10.34.9 exec tsx scripts/bench/prefix.ts`. Eight rollouts of one
 * task, each with three turns, as separate requests, in engines with and without the cache. Compares CPU time.
 */
import { NodeContext } from "@effect/platform-node"
import { type Engine, ModelFiles } from "@effect-tinker/engine"
import { Effect, Either } from "effect"
import { cpu } from "./harness/EngineWork.ts"
import { median } from "./harness/Results.ts"

const [rounds, rollouts, turns, sampled] = [9, 8, 3, 16]
const right = Either.getOrThrow

/** A prompt of the size that an agent has: tools and a question. Each round has its own. */
const promptOf = (round: number) => Array.from({ length: 120 }, (_, i) => (7 * i + round) % 1000)
const result = Array.from({ length: 24 }, (_, i) => 100 + i)

/** Returns the CPU time of a round and all sampled tokens. */
const play = (engine: Engine.Engine, round: number) => {
  const began = cpu()
  const all = Array.from({ length: rollouts }, (_, seed) => {
    let prompt = promptOf(round)
    for (let turn = 0; turn < turns; turn++) {
      const { sequences } = right(engine.sample("a", { prompt, maxTokens: sampled, seed, stopTokens: [] }))
      prompt = [...prompt, ...(sequences[0]?.tokens ?? []), ...result]
    }
    return prompt
  })
  return { seconds: cpu() - began, all }
}

const engines = await Effect.all(
  [undefined, 0].map((prefixCache) =>
    Effect.flatMap(ModelFiles.shippedTools, (directory) => ModelFiles.engine(directory, { prefixCache })).pipe(
      Effect.tap((engine) => engine.createAdapter("a", { rank: 8, seed: 1 })),
    ),
  ),
).pipe(Effect.provide(NodeContext.layer), Effect.runPromise)

const ratios: Array<number> = []
for (let round = 0; round < rounds; round++) {
  const [cached, bare] = engines.map((engine) => play(engine, round))
  if (cached === undefined || bare === undefined) throw new Error("expected two engines")
  if (JSON.stringify(cached.all) !== JSON.stringify(bare.all)) throw new Error("the tokens differ")
  // The first round warms up the compiler.
  if (round > 0) ratios.push(cached.seconds / bare.seconds)
}
const sorted = ratios.toSorted((a, b) => a - b)
console.log(
  `CPU time with the cache, relative to without: ${median(ratios).toFixed(2)} (${sorted[0]?.toFixed(2)} to ${sorted.at(-1)?.toFixed(2)} in ${ratios.length} rounds)`,
)
