/** Injects faults between SDK and server, by seed: `pnpm faults --help`. */
import * as Arguments from "./lab/Arguments.ts"
import { Console, Effect } from "effect"
import * as Command from "./lab/Command.ts"
import * as Bundles from "./lab/Bundles.ts"
import * as Results from "./results/Results.ts"
import * as Campaign from "./seeds/Campaign.ts"
import * as Progress from "./seeds/Progress.ts"
import * as Summary from "./seeds/Summary.ts"

const help = `Usage: pnpm faults [options]

Runs a training program through a proxy that injects faults, and compares what it gets with a run without faults.

Options:
  --seeds N        number of seeds, from --from (default: 20)
  --from K         first seed (default: 1)
  --seed K         only this seed
  --hostile        faults of every kind; errors are accepted if they are typed and truthful.
                   Default: faults that the SDK must survive
  --concurrency N  experiments at once (default: 4)
  --limit SECONDS  start no further seed after this time
  --record         add the result to docs/reliability.json
  --verbose        show every request at the proxy, and every error
  -h, --help       show this help

The exit code is 1 if a seed breaks a promise.`

const options = Effect.gen(function* () {
  const flags = yield* Arguments.parse(process.argv.slice(2), {
    seeds: { type: "string" },
    from: { type: "string" },
    seed: { type: "string" },
    hostile: { type: "boolean" },
    concurrency: { type: "string" },
    limit: { type: "string" },
    record: { type: "boolean" },
    verbose: { type: "boolean" },
    help: { type: "boolean", short: "h" },
  })
  const number = (name: string, fallback: number) =>
    Effect.map(Arguments.integer(flags, name, { from: 0, to: 1e9 }), (value) => value ?? fallback)
  const only = yield* number("seed", -1)
  const from = only >= 0 ? only : yield* number("from", 1)
  const count = only >= 0 ? 1 : yield* number("seeds", 20)
  return {
    kind: flags["hostile"] === undefined ? ("recoverable" as const) : ("hostile" as const),
    seeds: Array.from({ length: count }, (_, i) => from + i),
    concurrency: yield* number("concurrency", 4),
    limit: 1000 * (yield* number("limit", 1e6)),
    isRecorded: flags["record"] !== undefined,
    isVerbose: flags["verbose"] !== undefined,
    isHelp: flags["help"] !== undefined,
  }
})

const main = Effect.gen(function* () {
  const { isHelp, isRecorded, isVerbose, ...chosen } = yield* options
  if (isHelp) return yield* Console.log(help)
  yield* Console.log(`${chosen.kind}: ${chosen.seeds.length} seeds from ${chosen.seeds[0]}`)
  const bundles = yield* Bundles.make
  const verdicts = yield* Campaign.run(bundles, {
    ...chosen,
    onVerdict: Progress.show(chosen.seeds.length, isVerbose),
  })
  yield* Console.log(Summary.text(verdicts))
  if (isRecorded) yield* Results.add(Summary.row(chosen.kind, verdicts))
  if (verdicts.some(({ outcome }) => outcome === "failed")) yield* Effect.sync(() => (process.exitCode = 1))
})

Command.run(help, main)
