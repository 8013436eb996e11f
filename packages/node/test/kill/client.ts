/** Runs a training run that resumes where a killed process stopped: `client.mjs <base URL> <journal> <steps>`. */
import { FileJournal, NodeTinker } from "@effect-tinker/node"
import { Cause, Effect, Exit, Layer, Logger, LogLevel, Option, Redacted, Stream } from "effect"
import { Loss, Optimizer, ServiceClient, type TinkerError, type TrainingClient } from "effect-tinker"
import type { Ending } from "./control.ts"

const [baseUrl = "", path = "", count = ""] = process.argv.slice(2)
const steps = Number(count)

const optimizer = (step: number) => Optimizer.adam({ learningRate: 1e-3 / (step + 1) })

const batch = (step: number) =>
  [step, step + 1000].map((token) => ({
    modelInput: [token, 1, 2, 3],
    inputs: { targetTokens: [1, 2, 3, 4], weights: [0, 1, 1, 1] },
  }))

const train = Effect.gen(function* () {
  const service = yield* ServiceClient.ServiceClient
  const journal = yield* FileJournal.make(path)
  const resumed = yield* service.resumeTrainingClient({ journal }).pipe(
    Effect.asSome,
    Effect.catchIf(
      (error) => error._tag === "JournalFailed" && error.reason === "Empty",
      () => Effect.succeedNone,
    ),
  )
  const client = Option.isSome(resumed)
    ? resumed.value.client
    : yield* service.createLoraTrainingClient({ baseModel: "m", journal })

  // If the process died between the two halves of a step, its gradients are already there and must not be added again.
  if (Option.isSome(resumed)) yield* resumed.value.finishStep(optimizer)
  const startAt = Option.match(resumed, { onNone: () => 0, onSome: ({ nextStep }) => nextStep })
  if (startAt < steps)
    yield* Stream.range(startAt, steps - 1).pipe(
      Stream.map(batch),
      client.trainSteps(Loss.crossEntropy, optimizer, { startAt }),
      Stream.runDrain,
    )
  const pending = Option.match(resumed, { onNone: () => [], onSome: ({ pending }) => pending })
  yield* Effect.forEach(pending, ({ future }) => future.await, { discard: true })
})

type Failure = Effect.Effect.Error<typeof train>

/** Returns the error of the first failed half of a step. */
const errorOf = (error: Failure): Exclude<Failure, TrainingClient.StepFailed> | undefined => {
  if (error._tag !== "StepFailed") return error
  const half: Exit.Exit<unknown, TinkerError.TrainingError> = Exit.isFailure(error.pass) ? error.pass : error.update
  return Exit.isFailure(half) ? Option.getOrUndefined(Cause.failureOption(half.cause)) : undefined
}

const end = (ending: Ending) => Effect.sync(() => console.log(JSON.stringify(ending)))

const program = train.pipe(
  Effect.scoped,
  Effect.zipRight(end({ end: "done" })),
  Effect.catchAll((failure) => {
    const error = errorOf(failure)
    return error?._tag === "SequenceBroken"
      ? end({ end: "SequenceBroken", applied: error.applied, seq: error.seq })
      : Effect.fail(failure)
  }),
  Effect.provide(
    Layer.provide(ServiceClient.layer(), NodeTinker.layer({ baseUrl, apiKey: Redacted.make("tml-test") })),
  ),
  Logger.withMinimumLogLevel(LogLevel.None),
)

Effect.runFork(program).addObserver((exit) => {
  if (Exit.isFailure(exit)) console.error(Cause.pretty(exit.cause))
  process.exit(Exit.isSuccess(exit) ? 0 : 1)
})
