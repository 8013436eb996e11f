/** Runs the program once, through a proxy that injects the faults of a plan. */
import { randomBytes } from "node:crypto"
import { cp, mkdir, readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { Duration, Effect, Option } from "effect"
import { type Bundles, model } from "../lab/Bundles.ts"
import * as Child from "../lab/Child.ts"
import { directory } from "../lab/Directory.ts"
import * as LabServer from "../lab/LabServer.ts"
import * as Record from "../lab/Record.ts"
import type { Report } from "../program/Report.ts"
import { type ClientSettings, keyVariable } from "../program/Settings.ts"
import type { Plan } from "../proxy/Fault.ts"
import * as Proxy from "../proxy/Proxy.ts"
import type { Observation } from "./Observation.ts"

/** A new key that no other text contains. */
export const newKey = (): string => `tml-${randomBytes(24).toString("hex")}`

/** Longer than any client may need. */
const limit = Duration.minutes(6)
const exitLimit = Duration.seconds(10)

/** Reads a file; it is empty if it was removed since it was listed. */
const textOf = (path: string) => readFile(path, "latin1").catch(() => "")

/** Reads all files below a directory, as bytes in Latin-1, so that secrets in any file are found. */
export const textsIn = (root: string): Effect.Effect<ReadonlyArray<readonly [name: string, text: string]>> =>
  Effect.promise(async () => {
    const entries = await readdir(root, { recursive: true, withFileTypes: true })
    return Promise.all(
      entries
        .filter((entry) => entry.isFile())
        .map(async (entry) => [entry.name, await textOf(join(entry.parentPath, entry.name))] as const),
    )
  })

const parse = (line: string | undefined): Report | undefined => {
  try {
    return line === undefined ? undefined : JSON.parse(line)
  } catch {
    return undefined
  }
}

/** Runs the client to its end; kills it if it does not report or does not exit in time. */
const runClient = (bundles: Bundles, settings: ClientSettings, key: string, conditions: Child.Conditions | undefined) =>
  Effect.gen(function* () {
    const child = yield* Child.run({
      program: bundles.client,
      args: ["tour", JSON.stringify(settings)],
      env: { [keyVariable]: key },
      conditions,
    })
    const line = yield* Effect.timeoutOption(child.firstLine, limit)
    const end = yield* Effect.timeoutOption(child.ended, exitLimit)
    const report = parse(Option.getOrUndefined(line))
    return { report, end: Option.getOrUndefined(end), output: child.stdout() + child.stderr() }
  }).pipe(Effect.scoped)

/** Special conditions for the processes, each made for the directory that the process writes to. */
export interface Conditions {
  readonly client?: (directory: string) => Child.Conditions
  readonly server?: (directory: string) => Child.Conditions
}

/** Copies what a process sees in a directory, which may be a file system of its own. */
const copied = (pid: number, from: string, to: string) =>
  Effect.promise(() => cp(join(`/proc/${pid}/root`, from), to, { recursive: true, force: true }))

/** Runs one experiment. */
export const run = (
  bundles: Bundles,
  plan: Plan,
  key: string,
  conditions: Conditions = {},
): Effect.Effect<Observation> =>
  Effect.gen(function* () {
    const startedAt = performance.now()
    const home = yield* directory
    const dataDirectory = join(home, "server")
    const clientDirectory = join(home, "client")
    const recordDirectory = conditions.server === undefined ? dataDirectory : join(home, "record")
    for (const path of [clientDirectory, dataDirectory]) yield* Effect.promise(() => mkdir(path))
    const server = yield* LabServer.make(
      bundles,
      { dataDirectory, model, parallel: plan.parallel, jwt: plan.jwt, snapshotEvery: 2 },
      key,
      conditions.server?.(dataDirectory),
    )
    const proxy = yield* Proxy.make(server, plan)
    const settings: ClientSettings = { baseUrl: proxy.url, directory: clientDirectory, attemptTimeout: 1500 }
    const { end, output, report } = yield* runClient(bundles, settings, key, conditions.client?.(clientDirectory))
    if (recordDirectory !== dataDirectory) yield* copied(server.pid(), dataDirectory, recordDirectory)
    yield* server.kill
    const record = yield* Record.read(recordDirectory, report?.modelId)
    const observation: Observation = {
      plan,
      injected: proxy.injected(),
      report,
      end,
      record,
      texts: { client: output, server: server.output(), ...Object.fromEntries(yield* textsIn(home)) },
      log: proxy.log(),
      millis: Math.round(performance.now() - startedAt),
    }
    return observation
  }).pipe(Effect.scoped, Effect.orDie)
