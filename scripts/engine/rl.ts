/**
 * Trains the bundled model with tools by reinforcement and evaluates it on the held-out tasks before and after, and once
 * more with shuffled rewards: `npx -y pnpm@10.34.9 exec tsx scripts/engine/rl.ts [--seeds 1,2,3] [--shuffled]`. Each
 * run keeps its result; `--docs` writes those of all runs into docs/engine.json and docs/engine.md.
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { NodeContext } from "@effect/platform-node"
import { ModelFiles, Random } from "@effect-tinker/engine"
import { type Environment, Evaluate, Rl, RunStore } from "@effect-tinker/recipes"
import { LocalTinker } from "@effect-tinker/server"
import { type Renderer, Renderers, TokenizerBackend } from "@effect-tinker/tokenizer"
import { Deferred, Effect, FiberId, Layer, Stream } from "effect"
import { ServiceClient } from "effect-tinker"
import * as Agent from "./Agent.ts"
import { type AgentRun, withAgent } from "./AgentPage.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))
const output = join(root, "bench/agent")

const { values: options } = parseArgs({
  options: {
    seeds: { type: "string", default: "1,2,3" },
    shuffled: { type: "boolean", default: false },
    tasks: { type: "string", default: "200" },
    docs: { type: "boolean", default: false },
  },
})

const settings = {
  rank: 8,
  iterations: 10,
  groupsPerIteration: 16,
  groupSize: 8,
  learningRate: 1e-3,
  maxTokens: Agent.limits.maxTokens,
  maxTurns: Agent.limits.maxTurns,
}

/** The rollouts of a task and what each of them gets once all have ended. */
interface Group {
  readonly rewards: Array<number>
  readonly paid: Deferred.Deferred<ReadonlyArray<number>>
}

/** Deals the rewards of a group to its rollouts at random, so that they say nothing about a rollout. */
const shuffling = (seed: number) => {
  const groups = new Map<number, Group>()
  const groupOf = (index: number): Group => {
    const group = groups.get(index) ?? { rewards: [], paid: Deferred.unsafeMake(FiberId.none) }
    groups.set(index, group)
    return group
  }
  return <E, R>(task: Environment.Task<E, R>, index: number): Environment.Task<E, R> => ({
    ...task,
    make: Effect.map(task.make, (environment) => {
      let turns = 0
      return {
        ...environment,
        act: (action) =>
          Effect.gen(function* () {
            const outcome = yield* environment.act(action)
            turns++
            if (outcome.next !== undefined && turns < settings.maxTurns) return outcome
            const { paid, rewards } = groupOf(index)
            const place = rewards.push(outcome.reward) - 1
            if (rewards.length === settings.groupSize)
              yield* Deferred.succeed(paid, Agent.shuffled(Random.make(seed, index), rewards))
            return { ...outcome, reward: (yield* Deferred.await(paid))[place] ?? 0 }
          }),
      }
    }),
  })
}

const solved = ({ outcomes }: Evaluate.Result<number>) =>
  outcomes.map((outcome) => (outcome._tag === "Answered" ? outcome.answer : 0))

/** Trains with a seed, collects the rewards, and returns the path of the weights. */
const train = (renderer: Renderer.Renderer, seed: number, rewards: Array<number>) =>
  Effect.gen(function* () {
    const disguise = options.shuffled ? shuffling(seed) : <E, R>(task: Environment.Task<E, R>) => task
    let path = ""
    yield* Rl.train({
      config: {
        ...settings,
        model: ModelFiles.shippedToolsName,
        seed,
        dropConstantGroups: true,
        samplesPerIteration: 0,
        checkpoints: { everySteps: 0 },
      },
      tasks: "agent",
      task: (index) => disguise(Agent.make(renderer, seed * 1_000_000 + index, { heldOut: false }).task, index),
    }).pipe(
      Stream.runForEach((event) =>
        Effect.sync(() => {
          if (event._tag === "Checkpoint") path = event.samplerPath ?? ""
          if (event._tag !== "Step") return
          const reward = event.metrics["env/all/reward/total"] ?? Number.NaN
          rewards.push(reward)
          console.error(`seed ${seed}, step ${event.step}: mean reward ${reward.toFixed(3)}`)
        }),
      ),
      Effect.provide(RunStore.layerMemory),
    )
    return path
  })

const main = Effect.gen(function* () {
  const { renderer } = yield* Renderers.localTools
  const service = yield* ServiceClient.ServiceClient
  const evaluation = Agent.evaluation(renderer, { count: Number(options.tasks) })
  const evaluate = (from: { readonly baseModel: string } | { readonly modelPath: string }) =>
    Effect.scoped(Effect.flatMap(service.createSamplingClient(from), (sampler) => Evaluate.run(sampler, evaluation)))
  const before = yield* evaluate({ baseModel: ModelFiles.shippedToolsName })
  console.error(Evaluate.format(before), Agent.byKind(before))
  for (const seed of options.seeds.split(",").map(Number)) {
    const began = process.cpuUsage()
    const rewards: Array<number> = []
    const modelPath = yield* train(renderer, seed, rewards)
    const { system, user } = process.cpuUsage(began)
    const after = yield* evaluate({ modelPath })
    console.error(Evaluate.format(after), Agent.byKind(after))
    const run: AgentRun = {
      seed,
      shuffled: options.shuffled,
      settings,
      rewards,
      before: solved(before),
      after: solved(after),
      kinds: { before: Agent.byKind(before), after: Agent.byKind(after) },
      cpuSeconds: Math.round((system + user) / 1e6),
    }
    mkdirSync(output, { recursive: true })
    writeFileSync(join(output, `seed-${seed}${options.shuffled ? "-shuffled" : ""}.json`), `${JSON.stringify(run)}\n`)
  }
})

if (options.docs) {
  const runs = readdirSync(output)
    .toSorted()
    .map((name): AgentRun => JSON.parse(readFileSync(join(output, name), "utf8")))
  const docs = join(root, "docs")
  writeFileSync(join(docs, "engine-agent.json"), `${JSON.stringify(runs)}\n`)
  writeFileSync(join(docs, "engine.md"), withAgent(readFileSync(join(docs, "engine.md"), "utf8"), runs))
} else {
  const layer = Layer.mergeAll(LocalTinker.layerTinker(), NodeContext.layer, TokenizerBackend.layer)
  await Effect.runPromise(main.pipe(Effect.scoped, Effect.provide(layer)))
}
