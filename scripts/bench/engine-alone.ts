/** Measures the cost of starting an engine and its memory after a pass and samples. Bundled and run by `engine.ts`. */
import { ModelFiles } from "@effect-tinker/engine"
import * as NodeContext from "@effect/platform-node/NodeContext"
import { Effect } from "effect"
import { cpu, run } from "./harness/EngineWork.ts"

const imports = cpu()
const engine = await ModelFiles.engine(process.argv[2]).pipe(
  Effect.tap((engine) => engine.createAdapter("a", { rank: 8, seed: 1 })),
  Effect.provide(NodeContext.layer),
  Effect.runPromise,
)
const load = cpu() - imports
run(engine, "train")
run(engine, "sample 1")
run(engine, "sample 16")
const memory = process.resourceUsage().maxRSS * 1024
console.log(JSON.stringify({ imports, load, memory, kernel: engine.memory().reserved }))
