/** Runs all checks of a server, in the order in which they depend on each other. */
import { NodeTinker } from "@effect-tinker/node"
import { Console, Effect, Logger, LogLevel, Redacted } from "effect"
import * as Recovery from "./RecoveryChecks.ts"
import * as Report from "./Report.ts"
import type { Address, Server } from "./Server.ts"
import * as Sampling from "./SamplingChecks.ts"
import * as Service from "./ServiceChecks.ts"
import * as Training from "./TrainingChecks.ts"

const lacking: Readonly<Record<Server["name"], Report.Lacking>> = {
  skyrl: {
    "a wrong key is refused": "it was accepted",
    "sessions/get": 404,
    "sessions lists it": 404,
    "sessions/search": 404,
    // The server returns the path without the kind of weights, and then does not recognize it.
    "weights_info of sampler weights": 400,
    "checkpoints lists it": 404,
    "checkpoints/publish": 404,
    "checkpoints/unpublish": 404,
    "checkpoints/ttl": 404,
    "checkpoints/archive": 404,
    "checkpoints/delete": 404,
    "one stop text": 422,
    "sample without a token limit": 400,
    "most likely tokens of the prompt": "the server ignored the request",
    "most likely tokens of the sample": "the server ignored the request",
    "an unknown base model is refused": "it was accepted",
    "loss: dro": 422,
    "save external weights": 404,
    "an update with another optimizer": 422,
  },
  tuft: {
    "sessions/search": 405,
    "checkpoints/unpublish": 500,
    "checkpoints/ttl": 405,
    "checkpoints/archive": "redirect to unsupported scheme file:",
    "most likely tokens of the sample": 422,
    "a rank above the server's limit is refused": "it was accepted",
    "save with metadata": 422,
    "save external weights": 404,
    "an update with another optimizer": 422,
  },
}

/** Returns true if no check failed. */
export const checks = (server: Server["name"], address: Address): Effect.Effect<boolean> =>
  Effect.gen(function* () {
    const report = Report.make(lacking[server])
    const tinker = NodeTinker.layer({ baseUrl: address.baseUrl, apiKey: Redacted.make(address.apiKey) })
    yield* Effect.gen(function* () {
      yield* Service.access(report, address)
      yield* Service.session(report)
      const { statePath, training } = yield* Training.curve(report, server)
      yield* Recovery.resuming(report, training, statePath)
      yield* Recovery.faults(report, address, statePath)
      yield* Training.finish(report, training)
      const samplerPath = yield* Sampling.learned(report, training)
      yield* Service.management(report, { modelId: training.modelId, statePath, samplerPath })
      yield* Sampling.base(report)
      yield* Training.operations(report, server)
      yield* Service.heartbeats(report)
    }).pipe(
      Effect.scoped,
      Effect.provide(tinker),
      // The reason is in the table.
      Effect.catchTag("Reported", () => Effect.void),
      Effect.catchAll((error) => report.probe("a client", Effect.fail(error))),
      Logger.withMinimumLogLevel(LogLevel.Error),
    )
    for (const name of report.unreached())
      yield* report.probe(name, new Report.CheckFailed({ message: "the check was not reached" }))
    const count = (outcome: Report.Outcome) => `${report.count(outcome)} ${outcome}`
    yield* Console.log(`${server}: ${count("ok")}, ${count("lacks")}, ${count("failed")}`)
    return report.count("failed") === 0
  })
