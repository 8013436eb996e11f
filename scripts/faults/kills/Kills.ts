/** Runs a training program whose client, or whose server, is killed at random moments. */
import { mkdir } from "node:fs/promises"
import { join } from "node:path"
import { Effect, Fiber, Random } from "effect"
import { type Bundles, model } from "../lab/Bundles.ts"
import * as Child from "../lab/Child.ts"
import { directory } from "../lab/Directory.ts"
import * as LabServer from "../lab/LabServer.ts"
import * as Record from "../lab/Record.ts"
import type { Report } from "../program/Report.ts"
import { type ClientSettings, keyVariable } from "../program/Settings.ts"
import * as Proxy from "../proxy/Proxy.ts"
import { newKey } from "../seeds/Experiment.ts"

export type Victim = "client" | "server"

/** When to kill: so many milliseconds after so many requests, counted from the start or from the last kill. */
export interface Moment {
  readonly requests: number
  readonly millis: number
}

/** Draws the moments of one run. Every third run begins with a kill during one of the first requests. */
export const moments = (seed: number): Effect.Effect<ReadonlyArray<Moment>> =>
  Effect.gen(function* () {
    const one = (most: number) =>
      Effect.all({ requests: Random.nextIntBetween(1, most + 1), millis: Random.nextIntBetween(0, 9) })
    const first = yield* one(seed % 3 === 0 ? 4 : 25)
    return [first, yield* one(25), yield* one(25)]
  }).pipe(Effect.withRandom(Random.make(`kill ${seed}`)))

export interface Observation {
  readonly kills: number
  readonly report: Report | undefined
  readonly end: Child.End
  readonly record: Record.Record
  readonly output: string
}

/** Calls back once when so many requests have arrived. */
const counter = () => {
  let [left, then] = [0, () => {}]
  return {
    onRequest: () => {
      if (--left === 0) then()
    },
    set: (requests: number, callback: () => void) => {
      left = requests
      then = callback
    },
  }
}

type Counter = ReturnType<typeof counter>

/** Performs the kills one after another, each counted from the one before. */
const killing = (requests: Counter, plan: ReadonlyArray<Moment>, kill: Effect.Effect<void>) =>
  Effect.forEach(
    plan,
    ({ millis, requests: count }) =>
      Effect.async<void>((resume) => requests.set(count, () => resume(Effect.void))).pipe(
        Effect.zipRight(Effect.sleep(millis)),
        Effect.zipRight(kill),
      ),
    { discard: true },
  )

const parse = (line: string | undefined): Report | undefined => (line === undefined ? undefined : JSON.parse(line))

/** Runs the client once, to its end or until it is killed. */
const life = (
  bundles: Bundles,
  settings: ClientSettings,
  key: string,
  whileAlive: (child: Child.Child) => Effect.Effect<void>,
) =>
  Effect.gen(function* () {
    const child = yield* Child.run({
      program: bundles.client,
      args: ["run", JSON.stringify(settings)],
      env: { [keyVariable]: key },
    })
    const fiber = yield* Effect.forkScoped(whileAlive(child))
    const end = yield* child.ended
    yield* Fiber.interrupt(fiber)
    return { end, report: parse(yield* child.firstLine), output: child.stderr() }
  }).pipe(Effect.scoped)

export interface Directories {
  readonly client: string
  readonly server: string
}

/**
 * Runs the program to its end, however often it, or its server, is killed. `onKilled` runs between a kill and the next
 * process.
 */
export const run = (
  bundles: Bundles,
  victim: Victim,
  plan: ReadonlyArray<Moment>,
  onKilled: (directories: Directories) => Effect.Effect<void> = () => Effect.void,
): Effect.Effect<Observation> =>
  Effect.gen(function* () {
    const home = yield* directory
    const key = newKey()
    const dataDirectory = join(home, "server")
    const clientDirectory = join(home, "client")
    yield* Effect.promise(() => mkdir(clientDirectory))
    const server = yield* LabServer.make(
      bundles,
      { dataDirectory, model, parallel: true, jwt: true, snapshotEvery: 2 },
      key,
    )
    const requests = counter()
    const peace = { seed: 0, parallel: true, jwt: true, faults: [] }
    const proxy = yield* Proxy.make(server, peace, requests.onRequest)
    const settings: ClientSettings = { baseUrl: proxy.url, directory: clientDirectory, attemptTimeout: 5000 }
    const meanwhile = onKilled({ client: clientDirectory, server: dataDirectory })
    let kills = 0
    const left = [...plan]
    for (;;) {
      const { end, output, report } = yield* life(bundles, settings, key, (child) =>
        victim === "client"
          ? killing(requests, left.splice(0, 1), child.kill("SIGKILL"))
          : killing(
              requests,
              left,
              Effect.zipRight(
                Effect.sync(() => kills++),
                server.restartAfter(meanwhile),
              ),
            ),
      )
      if (end === "SIGKILL") {
        kills++
        yield* meanwhile
        continue
      }
      yield* server.kill
      const record = yield* Record.read(dataDirectory, report?.modelId)
      return { kills, report, end, record, output }
    }
  }).pipe(Effect.scoped, Effect.orDie)
