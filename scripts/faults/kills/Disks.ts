/** Runs the program under bad conditions, and damages what processes left on disk. */
import { Console, Effect, Option } from "effect"
import { type Bundles, model } from "../lab/Bundles.ts"
import * as Child from "../lab/Child.ts"
import { directory } from "../lab/Directory.ts"
import { keyVariable, type ServerSettings } from "../program/Settings.ts"
import type { Row } from "../results/Results.ts"
import * as Experiment from "../seeds/Experiment.ts"
import * as Invariants from "../seeds/Invariants.ts"
import type { Observation } from "../seeds/Observation.ts"
import * as Conditions from "./Conditions.ts"
import * as Damage from "./Damage.ts"

interface Case {
  readonly name: string
  readonly promise: string
  readonly conditions: Experiment.Conditions
  readonly needsMount: boolean
  /** `survives`: everything as usual. Otherwise the tag of the error that must come. */
  readonly expected: "survives" | "JournalFailed" | "any typed error"
}

const cases: ReadonlyArray<Case> = [
  {
    name: "journal on a full disk",
    promise: "A journal that cannot be written fails the request before it is sent.",
    conditions: { client: Conditions.small(12) },
    needsMount: true,
    expected: "JournalFailed",
  },
  {
    name: "journal on a read-only disk",
    promise: "A journal that cannot be created is a typed error.",
    conditions: { client: Conditions.readOnly },
    needsMount: true,
    expected: "JournalFailed",
  },
  {
    name: "slow disk of the client",
    promise: "A slow disk changes nothing but the time.",
    conditions: { client: Conditions.slow(30) },
    needsMount: false,
    expected: "survives",
  },
  {
    name: "data directory on a full disk",
    promise: "A server whose disk is full refuses new work and stays truthful about what it has done.",
    conditions: { server: Conditions.small(700) },
    needsMount: true,
    expected: "any typed error",
  },
  {
    name: "slow disk of the server",
    promise: "A slow disk changes nothing but the time.",
    conditions: { server: Conditions.slow(30) },
    needsMount: false,
    expected: "survives",
  },
  ...[3_600_000, -3_600_000, 86_400_000].flatMap((millis): ReadonlyArray<Case> => [
    {
      name: `client clock jumps by ${millis / 3_600_000} hours`,
      promise: "A clock that jumps changes nothing.",
      conditions: { client: Conditions.jumping(millis) },
      needsMount: false,
      expected: "survives",
    },
    {
      name: `server clock jumps by ${millis / 3_600_000} hours`,
      promise: "A clock that jumps changes nothing.",
      conditions: { server: Conditions.jumping(millis) },
      needsMount: false,
      expected: "survives",
    },
  ]),
]

const plan = { seed: 0, parallel: true, jwt: false, faults: [] }

/** Returns what is wrong with an observation, given the error that must come. */
const problems = ({ expected }: Case, observation: Observation, reference: Observation, key: string) => {
  const kind = expected === "survives" ? "recoverable" : "hostile"
  const violations = Invariants.check(kind, observation, reference, key).map(
    ({ detail, promise }) => `${promise}: ${detail}`,
  )
  const tags = (observation.report?.entries ?? []).flatMap(({ errors = {} }) =>
    Object.values(errors).map(({ tag }) => tag),
  )
  const isMissing =
    expected !== "survives" && (tags.length === 0 || (expected === "JournalFailed" && !tags.includes(expected)))
  return isMissing ? [...violations, `expected ${expected}, got ${tags.join(", ") || "no error"}`] : violations
}

const runCase = (bundles: Bundles, one: Case, reference: Observation): Effect.Effect<Row> =>
  Effect.gen(function* () {
    const base = {
      id: `disks ${one.name}`,
      promise: one.promise,
      tried: one.name,
      command: "pnpm faults:kills --only disks",
    }
    if (one.needsMount && !Conditions.canMount)
      return { ...base, outcome: "not tried: this system does not allow mounts" }
    const key = Experiment.newKey()
    const exit = yield* Effect.exit(Experiment.run(bundles, plan, key, one.conditions))
    const found =
      exit._tag === "Success"
        ? problems(one, exit.value, reference, key)
        : [`the experiment died: ${String(exit.cause)}`]
    const errors =
      exit._tag === "Success"
        ? (exit.value.report?.entries ?? []).flatMap(({ errors = {} }) => Object.values(errors).map(({ tag }) => tag))
        : []
    const good = errors.length === 0 ? "as without" : `typed error: ${[...new Set(errors)].join(", ")}`
    return { ...base, outcome: found.length === 0 ? good : `failed: ${found.join("; ").slice(0, 500)}` }
  })

/** Starts a server on a read-only data directory, which it has to refuse. */
const readOnlyServer = (bundles: Bundles): Effect.Effect<Row> =>
  Effect.gen(function* () {
    const base = {
      id: "disks data directory on a read-only disk",
      promise: "A server on a read-only disk does not start, and says why.",
      tried: "data directory on a read-only disk",
      command: "pnpm faults:kills --only disks",
    }
    if (!Conditions.canMount) return { ...base, outcome: "not tried: this system does not allow mounts" }
    const dataDirectory = yield* directory
    const settings: ServerSettings = { dataDirectory, model, parallel: true, jwt: false, snapshotEvery: 2 }
    const child = yield* Child.run({
      program: bundles.server,
      args: [JSON.stringify(settings)],
      env: { [keyVariable]: Experiment.newKey() },
      conditions: Conditions.readOnly(dataDirectory),
    })
    const end = yield* Effect.timeoutOption(child.ended, "30 seconds")
    const isRefused =
      Option.contains(end, 1) && (child.stdout() + child.stderr()).includes("is on a read-only file system")
    return {
      ...base,
      outcome: isRefused
        ? "refused: StoreError, exit code 1"
        : `failed: ${(child.stdout() + child.stderr()).slice(-300)}`,
    }
  }).pipe(Effect.scoped)

/** Runs all cases and returns a row for each. */
export const run = (bundles: Bundles): Effect.Effect<ReadonlyArray<Row>> =>
  Effect.gen(function* () {
    const reference = yield* Experiment.run(bundles, plan, Experiment.newKey())
    const rows: Array<Row> = []
    for (const one of cases) {
      const row = yield* runCase(bundles, one, reference)
      rows.push(row)
      yield* Console.log(`${one.name}: ${row.outcome}`)
    }
    for (const special of [readOnlyServer, Damage.journal, Damage.data]) {
      const row = yield* special(bundles)
      rows.push(row)
      yield* Console.log(`${row.tried}: ${row.outcome}`)
    }
    return rows
  })
