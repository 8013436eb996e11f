/** Kills recipes at random moments: `pnpm faults:recipes --help`. */
import { mkdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import * as Arguments from "./lab/Arguments.ts"
import { Console, Effect, Random } from "effect"
import * as Bundles from "./lab/Bundles.ts"
import * as Child from "./lab/Child.ts"
import * as Command from "./lab/Command.ts"
import { directory } from "./lab/Directory.ts"
import * as LabServer from "./lab/LabServer.ts"
import * as Record from "./lab/Record.ts"
import { keyVariable } from "./program/Settings.ts"
import type { RecipeSettings } from "./recipes/Settings.ts"
import { newKey } from "./seeds/Experiment.ts"

const help = `Usage: pnpm faults:recipes [options]

Runs supervised training, reinforcement learning and distillation, kills the process with SIGKILL at random moments,
runs the same command again until it ends, and compares weights (byte for byte) and metrics with a run without kills.

Options:
  --count N        kills of each recipe (default: 20)
  --from K         first seed (default: 1)
  --only NAME      only "supervised", "rl" or "distillation"
  -h, --help       show this help

The exit code is 1 if a run ends differently.`

interface Ending {
  readonly kills: number
  /** How long the last process lived, in milliseconds. */
  readonly millis: number
  readonly metrics: ReadonlyArray<string>
  readonly rollouts: ReadonlyArray<string>
  readonly weights: Readonly<globalThis.Record<string, string>>
  readonly problem: string | undefined
}

const linesOf = (path: string) =>
  Effect.promise(() => readFile(path, "utf8").catch(() => "")).pipe(
    Effect.map((text) => text.split("\n").filter((line) => line !== "")),
  )

/** Runs a recipe to its end. Each process but the last is killed after its number of milliseconds. */
const runRecipe = (bundles: Bundles.Bundles, recipe: RecipeSettings["recipe"], kills: ReadonlyArray<number>) =>
  Effect.gen(function* () {
    const home = yield* directory
    const dataDirectory = join(home, "data")
    yield* Effect.promise(() => mkdir(dataDirectory))
    const key = newKey()
    const server = yield* LabServer.make(
      bundles,
      { dataDirectory, model: Bundles.model, parallel: true, snapshotEvery: 3, jwt: false },
      key,
    )
    const settings: RecipeSettings = {
      recipe,
      baseUrl: `http://127.0.0.1:${server.port()}`,
      directory: join(home, "run"),
      model: Bundles.model,
    }
    let [done, startedAt] = [0, Date.now()]
    for (const millis of [...kills, undefined]) {
      startedAt = Date.now()
      const { end, output } = yield* Effect.scoped(
        Effect.gen(function* () {
          const child = yield* Child.run({
            program: bundles.recipe,
            args: [JSON.stringify(settings)],
            env: { [keyVariable]: key },
          })
          if (millis !== undefined) {
            yield* Effect.raceFirst(Effect.sleep(millis), child.ended)
            if (!child.hasEnded()) yield* child.kill("SIGKILL")
          }
          return { end: yield* child.ended, output: child.stdout() + child.stderr() }
        }),
      )
      if (end === "SIGKILL") done++
      else if (end !== 0)
        return { kills: done, millis: 0, metrics: [], rollouts: [], weights: {}, problem: `${end}: ${output}` }
      else break
    }
    const millis = Date.now() - startedAt
    yield* server.kill
    const events = yield* linesOf(join(home, "run", "events.jsonl"))
    const modelId = /tinker:\/\/([^/]+)\/weights\/final/.exec(events.join("\n"))?.[1]
    const { weights } = yield* Effect.orDie(Record.read(dataDirectory, modelId))
    return {
      kills: done,
      millis,
      metrics: (yield* linesOf(join(home, "run", "metrics.jsonl"))).toSorted(),
      rollouts: (yield* linesOf(join(home, "run", "rollouts.jsonl"))).toSorted(),
      weights,
      problem: undefined,
    }
  }).pipe(
    Effect.scoped,
    Effect.map((ending): Ending => ending),
  )

const differences = (ending: Ending, reference: Ending): ReadonlyArray<string> => {
  if (ending.problem !== undefined) return [ending.problem]
  return (["metrics", "rollouts", "weights"] as const).flatMap((part) =>
    JSON.stringify(ending[part]) === JSON.stringify(reference[part])
      ? []
      : [`${part} differ:\n${JSON.stringify(ending[part])}\n${JSON.stringify(reference[part])}`],
  )
}

/** Draws when processes die, anywhere in the life of one that is not killed. */
const moments = (seed: number, longest: number) =>
  Effect.replicateEffect(Random.nextIntBetween(100, longest), 4).pipe(Effect.withRandom(Random.make(`recipe ${seed}`)))

const campaign = (bundles: Bundles.Bundles, recipe: RecipeSettings["recipe"], count: number, from: number) =>
  Effect.gen(function* () {
    const reference = yield* runRecipe(bundles, recipe, [])
    if (reference.problem !== undefined) return yield* Effect.dieMessage(`without kills: ${reference.problem}`)
    let [kills, failed] = [0, 0]
    for (let seed = from; kills < count; seed++) {
      const plan = yield* moments(seed, reference.millis)
      const ending = yield* runRecipe(bundles, recipe, plan)
      const problems = differences(ending, reference)
      kills += ending.kills
      failed += Number(problems.length > 0)
      const outcome = problems.length === 0 ? "equal" : "FAILED"
      yield* Console.log(`[${kills}/${count}] ${recipe} seed ${seed}: ${ending.kills} kills, ${outcome}`)
      if (problems.length > 0)
        yield* Console.log(
          `    ${problems.join("\n    ")}\n    repeat: pnpm faults:recipes --only ${recipe} --from ${seed} --count 1`,
        )
    }
    yield* Console.log(`${recipe}: ${kills} kills, ${failed} runs ended differently`)
    return failed
  })

const program = Effect.gen(function* () {
  const flags = yield* Arguments.parse(process.argv.slice(2), {
    count: { type: "string" },
    from: { type: "string" },
    only: { type: "string" },
    help: { type: "boolean", short: "h" },
  })
  if (flags["help"] !== undefined) return yield* Console.log(help)
  const count = (yield* Arguments.integer(flags, "count", { from: 1, to: 10_000 })) ?? 20
  const from = (yield* Arguments.integer(flags, "from", { from: 0, to: 1_000_000 })) ?? 1
  const only = Arguments.text(flags, "only")
  const recipes = (["supervised", "rl", "distillation"] as const).filter(
    (recipe) => only === undefined || only === recipe,
  )
  if (recipes.length === 0) return yield* new Arguments.UsageError({ message: `--only: unknown recipe "${only}"` })
  const bundles = yield* Bundles.make
  let failed = 0
  for (const recipe of recipes) failed += yield* campaign(bundles, recipe, count, from)
  if (failed > 0) yield* Effect.sync(() => (process.exitCode = 1))
})

Command.run(help, program)
