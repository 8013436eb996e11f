/**
 * Runs a program of the lab against a server and prints a report: `client.js <tour|run> <settings as JSON>`. The process
 * is never told to exit: it has to end by itself.
 */
import { NodeTinker } from "@effect-tinker/node"
import { NodeContext } from "@effect/platform-node"
import { Cause, Config, Effect, Layer, Logger, LogLevel, Supervisor } from "effect"
import * as Leftovers from "./Leftovers.ts"
import { Recorder } from "./Recorder.ts"
import type { Report } from "./Report.ts"
import * as Run from "./Run.ts"
import { type ClientSettings, keyVariable } from "./Settings.ts"
import * as Tour from "./Tour.ts"

const programs = { tour: Tour.run, run: Run.run }

const isProgram = (name: string): name is keyof typeof programs => name in programs

const [name = "", text = "{}"] = process.argv.slice(2)
const { attemptTimeout, baseUrl, directory }: ClientSettings = JSON.parse(text)

const layer = Layer.unwrapEffect(
  Effect.map(Config.redacted(keyVariable), (apiKey) =>
    NodeTinker.layer({ baseUrl, apiKey, attemptTimeout, maxResponseBytes: 8 * 2 ** 20, telemetry: true }),
  ),
)

const logs = Layer.merge(
  Logger.replace(Logger.defaultLogger, Logger.withConsoleError(Logger.logfmtLogger)),
  Logger.minimumLogLevel(LogLevel.Debug),
)

const main = Effect.gen(function* () {
  const recorder = new Recorder()
  const supervisor = yield* Supervisor.track
  const before = Leftovers.descriptors()
  let modelId: string | undefined
  const program = programs[isProgram(name) ? name : "tour"](recorder, directory, (id) => (modelId = id))
  const permits = yield* Effect.zipRight(Effect.ignore(program), Leftovers.permits).pipe(
    Effect.provide(Layer.mergeAll(layer, NodeContext.layer)),
    Effect.catchAllCause((cause) => {
      recorder.entries.push({
        name: "layer",
        millis: 0,
        errors: { error: { tag: "Defect", message: Cause.pretty(cause), isTyped: false } },
      })
      return Effect.succeed(0)
    }),
    Effect.supervised(supervisor),
  )
  const report: Report = {
    entries: recorder.entries,
    modelId,
    leftovers: yield* Leftovers.find(supervisor, before, permits),
    peakMemory: process.resourceUsage().maxRSS * 1024,
  }
  yield* Effect.sync(() => process.stdout.write(`${JSON.stringify(report)}\n`))
})

Effect.runFork(Effect.provide(main, logs))
