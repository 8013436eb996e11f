/** Kills clients and servers at random moments: `pnpm faults:kills --help`. */
import * as Arguments from "./lab/Arguments.ts"
import { Console, Effect } from "effect"
import * as Command from "./lab/Command.ts"
import { check } from "./kills/Check.ts"
import * as Disks from "./kills/Disks.ts"
import * as Kills from "./kills/Kills.ts"
import * as Bundles from "./lab/Bundles.ts"
import * as Results from "./results/Results.ts"

const help = `Usage: pnpm faults:kills [options]

Kills the client or the server of a training run with SIGKILL at random moments, resumes, and compares the end with a
run without kills. Then runs the program on disks that are full, read-only, slow or damaged, and with a jumping clock.

Options:
  --count N        kills of clients, and as many of servers (default: 10)
  --from K         first seed (default: 1)
  --only NAME      only "client", "server" or "disks"
  --record         add the results to docs/reliability.json
  -h, --help       show this help

The exit code is 1 if a run ends differently.`

interface Tally {
  readonly kills: number
  readonly runs: number
  readonly failed: number
}

/** Runs until enough processes were killed. */
const campaign = (bundles: Bundles.Bundles, victim: Kills.Victim, count: number, from: number) =>
  Effect.gen(function* () {
    const reference = yield* Kills.run(bundles, victim, [])
    const broken = check(reference, reference)
    if (broken.length > 0) return yield* Effect.dieMessage(`the run fails without kills: ${broken.join("; ")}`)
    let tally: Tally = { kills: 0, runs: 0, failed: 0 }
    for (let seed = from; tally.kills < count; seed++) {
      const plan = yield* Kills.moments(seed)
      const observation = yield* Kills.run(bundles, victim, plan)
      const problems = check(observation, reference)
      tally = {
        kills: tally.kills + observation.kills,
        runs: tally.runs + 1,
        failed: tally.failed + Number(problems.length > 0),
      }
      const outcome = problems.length === 0 ? "equal" : "failed"
      yield* Console.log(`[${tally.kills}/${count}] ${victim} seed ${seed}: ${observation.kills} kills, ${outcome}`)
      if (outcome === "failed")
        yield* Console.log(
          `    ${problems.join("\n    ")}\n    plan: ${JSON.stringify(plan)}\n    repeat: pnpm faults:kills --only ${victim} --from ${seed} --count 1`,
        )
    }
    return tally
  })

const row = (victim: Kills.Victim, { failed, kills, runs }: Tally): Results.Row => ({
  id: `kills ${victim}`,
  promise:
    victim === "client"
      ? "A killed program continues from its journal and ends as if it had not been killed."
      : "A killed server continues on its data, and its clients end as if it had not been killed.",
  tried: `${kills} kills in ${runs} runs, at random moments, some during the first requests`,
  outcome: `${runs - failed} equal, ${failed} failed`,
  command: `pnpm faults:kills --only ${victim} --count ${kills}`,
})

const main = Effect.gen(function* () {
  const flags = yield* Arguments.parse(process.argv.slice(2), {
    count: { type: "string" },
    from: { type: "string" },
    only: { type: "string" },
    record: { type: "boolean" },
    help: { type: "boolean", short: "h" },
  })
  if (flags["help"] !== undefined) return yield* Console.log(help)
  const count = (yield* Arguments.integer(flags, "count", { from: 1, to: 1e6 })) ?? 10
  const from = (yield* Arguments.integer(flags, "from", { from: 0, to: 1e9 })) ?? 1
  const only = Arguments.text(flags, "only")
  const bundles = yield* Bundles.make
  let failed = 0
  for (const victim of ["client", "server"] as const) {
    if (only !== undefined && only !== victim) continue
    const tally = yield* campaign(bundles, victim, count, from)
    failed += tally.failed
    if (flags["record"] !== undefined) yield* Results.add(row(victim, tally))
  }
  if (only === undefined || only === "disks") {
    const rows = yield* Disks.run(bundles)
    failed += rows.filter(({ outcome }) => outcome.startsWith("failed")).length
    if (flags["record"] !== undefined) yield* Effect.forEach(rows, Results.add, { discard: true })
  }
  yield* Console.log(failed === 0 ? "\nall as without kills" : `\n${failed} failed`)
  if (failed > 0) yield* Effect.sync(() => (process.exitCode = 1))
})

Command.run(help, main)
