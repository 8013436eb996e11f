/** Runs three training steps with a journal, or continues them: `JournaledClient.ts <base URL> <journal>`. */
import { FileJournal, NodeTinker } from "@effect-tinker/node"
import { Cause, Effect, Exit, Logger, LogLevel, Option, Redacted } from "effect"
import { ServiceClient } from "effect-tinker"
import * as ThreeSteps from "./ThreeSteps.ts"

const [baseUrl = "", path = ""] = process.argv.slice(2)

const program = Effect.gen(function* () {
  const service = yield* ServiceClient.ServiceClient
  const journal = yield* FileJournal.make(path)
  const resumed = yield* service.resumeTrainingClient({ journal }).pipe(
    Effect.asSome,
    Effect.catchIf(
      (error) => error._tag === "JournalFailed" && error.reason === "Empty",
      () => Effect.succeedNone,
    ),
  )
  if (Option.isNone(resumed)) return yield* ThreeSteps.run(yield* ThreeSteps.create(journal))
  yield* resumed.value.finishStep(() => ThreeSteps.adam)
  return yield* ThreeSteps.run(resumed.value.client, resumed.value.nextStep)
}).pipe(
  Effect.scoped,
  Effect.provide(NodeTinker.layer({ baseUrl, apiKey: Redacted.make("tml-a") })),
  Logger.withMinimumLogLevel(LogLevel.None),
)

Effect.runFork(program).addObserver((exit) => {
  console.log(Exit.isSuccess(exit) ? JSON.stringify(exit.value) : Cause.pretty(exit.cause))
  process.exit(Exit.isSuccess(exit) ? 0 : 1)
})
