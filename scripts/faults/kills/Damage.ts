/** Flips bits in what a killed client or server left on disk, and lets the next process continue from it. */
import { readdir, readFile, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { Effect, Random } from "effect"
import type { Bundles } from "../lab/Bundles.ts"
import type { Row } from "../results/Results.ts"
import { check } from "./Check.ts"
import * as Kills from "./Kills.ts"

/** Flips a bit of a file and returns whether there was one. */
const flip = (path: string) =>
  Effect.gen(function* () {
    const bytes = yield* Effect.promise(() => readFile(path))
    if (bytes.length === 0) return false
    const at = yield* Random.nextIntBetween(0, bytes.length)
    bytes[at] = bytes[at]! ^ (1 << (yield* Random.nextIntBetween(0, 8)))
    yield* Effect.promise(() => writeFile(path, bytes))
    return true
  })

const weightsIn = (directory: string) =>
  Effect.promise(async () => {
    const entries = await readdir(join(directory, "files"), { recursive: true, withFileTypes: true })
    return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
  })

const journalOf = ({ client }: Kills.Directories) => flip(join(client, "journal"))

/** Damages weights: the database is SQLite's own affair. */
const weightsOf = ({ server }: Kills.Directories) =>
  Effect.flatMap(weightsIn(server), (paths) =>
    paths.length === 0
      ? Effect.succeed(false)
      : Effect.flatMap(Random.nextIntBetween(0, paths.length), (at) => flip(paths[at]!)),
  )

const count = 12

/** Counts how runs end whose files were damaged after a kill. */
const campaign = (
  bundles: Bundles,
  victim: Kills.Victim,
  damage: (directories: Kills.Directories) => Effect.Effect<boolean>,
  texts: Pick<Row, "id" | "promise" | "tried">,
) =>
  Effect.gen(function* () {
    const reference = yield* Kills.run(bundles, victim, [])
    let [equal, typed] = [0, 0]
    const wrong: Array<string> = []
    for (let seed = 1; seed <= count; seed++) {
      // After some training, so that there is something to damage.
      const moment = { requests: 28 + 2 * seed, millis: 2 }
      let isDamaged = false
      const noted = (directories: Kills.Directories) =>
        Effect.map(damage(directories), (done) => {
          isDamaged = done
        })
      const observation = yield* Effect.withRandom(
        Kills.run(bundles, victim, [moment], noted),
        Random.make(`damage ${victim} ${seed}`),
      )
      const problems = check(observation, reference)
      const errors = (observation.report?.entries ?? []).flatMap(({ errors = {} }) => Object.values(errors))
      if (!isDamaged) wrong.push(`seed ${seed}: nothing was damaged`)
      else if (problems.length === 0) equal++
      else if (errors.length > 0 && errors.every(({ isTyped }) => isTyped)) typed++
      else wrong.push(`seed ${seed}: ${problems.join(", ").slice(0, 200)}`)
    }
    const row: Row = {
      ...texts,
      outcome: `${wrong.length === 0 ? "" : "failed: "}${[`${equal} equal`, `${typed} typed errors`, ...wrong].join(", ")}`,
      command: "pnpm faults:kills --only disks",
    }
    return row
  })

export const journal = (bundles: Bundles): Effect.Effect<Row> =>
  campaign(bundles, "client", journalOf, {
    id: "disks journal damaged",
    promise: "A damaged journal is noticed.",
    tried: `${count} journals with one flipped bit, after a kill`,
  })

export const data = (bundles: Bundles): Effect.Effect<Row> =>
  campaign(bundles, "server", weightsOf, {
    id: "disks weights damaged",
    promise: "Damaged weights in the data directory are noticed when they are read.",
    tried: `${count} data directories with one flipped bit in a file of weights, after a kill`,
  })
