/** Fuzzes every decoder of the wire and of files: `pnpm faults:fuzz --help`. */
import * as Arguments from "./lab/Arguments.ts"
import { Console, Effect } from "effect"
import * as Command from "./lab/Command.ts"
import * as Campaign from "./fuzz/Campaign.ts"
import * as Corpus from "./fuzz/Corpus.ts"
import { names } from "./fuzz/Names.ts"
import * as Bundles from "./lab/Bundles.ts"
import * as Results from "./results/Results.ts"

const help = `Usage: pnpm faults:fuzz [options]

Feeds mutated bytes to every decoder, guided by the code that they reach. A decoder must not throw, loop without end, or
use more memory than a multiple of its input.

Options:
  --seconds N      time for each target (default: 5)
  --target NAME    only this target; repeatable. One of:
                   ${names.join(", ")}
  --seed K         seed of the mutations (default: 1)
  --save           keep the inputs that reach new code in scripts/faults/fuzz/corpus
  --record         add the result to docs/reliability.json
  -h, --help       show this help

The exit code is 1 if a decoder misbehaves; its input is printed in base64.`

const row = (outcomes: ReadonlyArray<Campaign.Outcome>, seconds: number): Results.Row => {
  const bad = outcomes.filter(({ problem }) => problem !== undefined)
  const runs = outcomes.reduce((sum, { runs }) => sum + runs, 0)
  return {
    id: "fuzz",
    promise: "No bytes make a decoder throw, loop without end, or use memory beyond a multiple of its input.",
    tried: `${outcomes.length} decoders, ${runs.toLocaleString("en-GB")} inputs guided by coverage (${names.join(", ")})`,
    outcome: bad.length === 0 ? "none misbehaved" : `failed: ${bad.map(({ target }) => target).join(", ")}`,
    command: `pnpm faults:fuzz --seconds ${seconds}`,
  }
}

const main = Effect.gen(function* () {
  const flags = yield* Arguments.parse(process.argv.slice(2), {
    seconds: { type: "string" },
    target: { type: "string", multiple: true },
    seed: { type: "string" },
    save: { type: "boolean" },
    record: { type: "boolean" },
    help: { type: "boolean", short: "h" },
  })
  if (flags["help"] !== undefined) return yield* Console.log(help)
  const seconds = (yield* Arguments.integer(flags, "seconds", { from: 1, to: 1e6 })) ?? 5
  const seed = (yield* Arguments.integer(flags, "seed", { from: 0, to: 1e9 })) ?? 1
  const chosen = Arguments.texts(flags, "target")
  const unknown = chosen.find((target) => !names.includes(target))
  if (unknown !== undefined) return yield* new Arguments.UsageError({ message: `--target: unknown target ${unknown}` })
  const bundles = yield* Bundles.make
  const outcomes: Array<Campaign.Outcome> = []
  for (const target of chosen.length === 0 ? names : chosen) {
    const outcome = yield* Campaign.run(bundles, { target, seconds, seed, corpus: yield* Corpus.read(target) })
    outcomes.push(outcome)
    yield* Console.log(
      `${target}: ${outcome.runs.toLocaleString("en-GB")} inputs, ${outcome.corpus.length} reach different code` +
        (outcome.problem === undefined
          ? ""
          : `\n    failed: ${outcome.problem}\n    input: ${outcome.input}\n    repeat: pnpm faults:fuzz --target "${target}" --seconds ${seconds} --seed ${seed}`),
    )
    if (flags["save"] !== undefined && outcome.problem === undefined) yield* Corpus.write(target, outcome.corpus)
  }
  if (flags["record"] !== undefined) yield* Results.add(row(outcomes, seconds))
  if (outcomes.some(({ problem }) => problem !== undefined)) yield* Effect.sync(() => (process.exitCode = 1))
})

Command.run(help, main)
