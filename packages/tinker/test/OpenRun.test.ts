import type { HttpClient } from "@effect/platform"
import { describe, expect, it } from "@effect/vitest"
import { Cause, Effect, Exit, Layer, Logger, Option, Stream } from "effect"
import { CustomLoss, Loss, Optimizer, ServiceClient, type TrainingClient, TrainingJournal } from "effect-tinker"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import { clients } from "./support/Clients.ts"

type Server = HttpClient.HttpClient | ScriptedServer.ScriptedServer

const onServer = <A, E>(program: Effect.Effect<A, E, Server>, options?: ScriptedServer.Options) =>
  program.pipe(
    Effect.provide(Layer.merge(ScriptedServer.layer(options), Logger.remove(Logger.defaultLogger))),
    VirtualTime.run,
  )

const server = ScriptedServer.ScriptedServer
const adam = Optimizer.adam({ learningRate: 1e-3 })
const steps = 6
const batch = (step: number) => [{ modelInput: [step, 1], inputs: { targetTokens: [1, 2], weights: [1, 0.5] } }]

class Stopped extends Error {
  readonly _tag = "Stopped"
}

interface Outcome {
  readonly opened: TrainingClient.OpenRun["_tag"] | "Completed"
  readonly nextStep: number
  readonly lostSteps: number
}

/** The documented program: starts or continues, saves after every second step, and may fail before a step. */
const program = (
  journal: TrainingJournal.Journal,
  { failsBefore = steps, saves = true }: { readonly failsBefore?: number; readonly saves?: boolean } = {},
): Effect.Effect<Outcome, unknown, HttpClient.HttpClient> =>
  Effect.gen(function* () {
    const service = yield* ServiceClient.ServiceClient
    const run = yield* service.openTrainingClient({ baseModel: "m", journal })
    if (run._tag === "Completed") return { opened: run._tag, nextStep: run.steps, lostSteps: 0 }
    const { client, finishStep, lostSteps, nextStep } = run
    yield* finishStep(adam)
    yield* Stream.range(nextStep, steps - 1).pipe(
      Stream.mapEffect((step) => (step === failsBefore ? Effect.fail(new Stopped()) : Effect.succeed(batch(step)))),
      client.trainSteps(Loss.crossEntropy, adam, {
        startAt: nextStep,
        afterUpdate: (step) =>
          saves && step % 2 === 1 ? client.enqueue.saveState(`step-${step + 1}`, { overwrite: true }) : Effect.void,
      }),
      Stream.runDrain,
      Effect.when(() => nextStep < steps),
    )
    return { opened: run._tag, nextStep, lostSteps }
  }).pipe(Effect.scoped, Effect.provide(clients()))

const weights = Effect.gen(function* () {
  const { models } = yield* server
  return Option.getOrThrow(Option.fromNullable((yield* models).at(-1))).weights
})

const endSession = Effect.flatMap(server, ({ endSession }) => endSession())

const undisturbed = onServer(
  Effect.gen(function* () {
    yield* program(yield* TrainingJournal.memory)
    return yield* weights
  }),
)

const resultOf = (call: TrainingClient.Completed) =>
  Effect.map(
    call.kind === "pass" ? Effect.map(call.result, ({ outputs }) => outputs.length) : Effect.as(call.result, undefined),
    (outputs) => ({
      operation: call.operation,
      kind: call.kind,
      outputs,
    }),
  )

describe("TrainingClient.open", () => {
  it.effect("a program with an empty journal starts, and reports completion when it runs again", () =>
    onServer(
      Effect.gen(function* () {
        const journal = yield* TrainingJournal.memory
        expect(yield* program(journal)).toEqual({ opened: "Started", nextStep: 0, lostSteps: 0 })
        const sessions = yield* Effect.flatMap(server, ({ sessions }) => sessions)
        expect(yield* program(journal)).toEqual({ opened: "Completed", nextStep: steps, lostSteps: 0 })
        // A completed run opens no session.
        expect(yield* Effect.flatMap(server, ({ sessions }) => sessions)).toHaveLength(sessions.length)
      }),
    ),
  )

  it.effect("a completed run names its last checkpoint and the step after it", () =>
    onServer(
      Effect.gen(function* () {
        const journal = yield* TrainingJournal.memory
        yield* program(journal)
        const run = yield* Effect.flatMap(ServiceClient.ServiceClient, (service) =>
          service.openTrainingClient({ baseModel: "m", journal }),
        ).pipe(Effect.scoped, Effect.provide(clients()))
        expect(run).toMatchObject({
          _tag: "Completed",
          lastCheckpoint: Option.some({ path: expect.stringMatching(/\/step-6$/), step: 6, withOptimizer: true }),
        })
      }),
    ),
  )

  it.effect("a program that failed resumes in its session without losing a step", () =>
    onServer(
      Effect.gen(function* () {
        const journal = yield* TrainingJournal.memory
        yield* Effect.flip(program(journal, { failsBefore: 3 }))
        expect(yield* program(journal)).toEqual({ opened: "Resumed", nextStep: 3, lostSteps: 0 })
        expect(yield* weights).toEqual(yield* undisturbed)
      }),
    ),
  )

  it.effect("a resumed run can ask for the results of steps that were completed before", () =>
    onServer(
      Effect.gen(function* () {
        const journal = yield* TrainingJournal.memory
        const first = yield* Effect.flatMap(ServiceClient.ServiceClient, (service) =>
          service.createLoraTrainingClient({ baseModel: "m", journal }),
        ).pipe(
          Effect.flatMap((client) => client.trainStep(batch(0), Loss.crossEntropy, adam)),
          Effect.tap(Effect.die(new Stopped())),
          Effect.scoped,
          Effect.provide(clients()),
          Effect.exit,
        )
        expect(Exit.isFailure(first)).toBe(true)
        const again = yield* Effect.flatMap(ServiceClient.ServiceClient, (service) =>
          service.openTrainingClient({ baseModel: "m", journal }),
        ).pipe(
          Effect.flatMap((run) => Effect.forEach(run._tag === "Completed" ? [] : run.completed, resultOf)),
          Effect.scoped,
          Effect.provide(clients()),
        )
        expect(again).toEqual([
          { operation: "forward_backward", kind: "pass", outputs: 1 },
          { operation: "optim_step", kind: "update", outputs: undefined },
        ])
      }),
    ),
  )

  it.effect("a step whose custom loss was never sent back has no update to finish", () =>
    onServer(
      Effect.gen(function* () {
        const journal = yield* TrainingJournal.memory
        const dies = CustomLoss.effect(() => Effect.die(new Stopped()))
        yield* Effect.flatMap(ServiceClient.ServiceClient, (service) =>
          service.createLoraTrainingClient({ baseModel: "m", journal }),
        ).pipe(
          Effect.flatMap((client) => client.trainStep(batch(0), dies, adam)),
          Effect.scoped,
          Effect.provide(clients()),
          Effect.exit,
        )
        const finished = yield* Effect.flatMap(ServiceClient.ServiceClient, (service) =>
          service.openTrainingClient({ baseModel: "m", journal }),
        ).pipe(
          Effect.flatMap((run) =>
            run._tag === "Completed"
              ? Effect.die("complete")
              : Effect.zip(run.finishStep(adam), Effect.succeed(run.nextStep)),
          ),
          Effect.scoped,
          Effect.provide(clients()),
        )
        expect(finished).toEqual([Option.none(), 0])
      }),
    ),
  )

  for (const flags of [{}, { create_model_via_load_weights: true }]) {
    const how = "create_model_via_load_weights" in flags ? "created from weights" : "loaded after its creation"
    it.effect(`a run whose session has ended continues from its last checkpoint (model ${how})`, () =>
      onServer(
        Effect.gen(function* () {
          const journal = yield* TrainingJournal.memory
          yield* Effect.flip(program(journal, { failsBefore: 5 }))
          yield* endSession
          expect(yield* program(journal)).toEqual({ opened: "Restored", nextStep: 4, lostSteps: 1 })
          expect(yield* weights).toEqual(yield* undisturbed)
          expect(yield* program(journal)).toMatchObject({ opened: "Completed", nextStep: steps })
        }),
        { flags },
      ),
    )

    it.effect(`a run can lose its session again before its next checkpoint (model ${how})`, () =>
      onServer(
        Effect.gen(function* () {
          const journal = yield* TrainingJournal.memory
          yield* Effect.flip(program(journal, { failsBefore: 3 }))
          yield* endSession
          yield* Effect.flip(program(journal, { failsBefore: 3 }))
          yield* endSession
          expect(yield* program(journal)).toEqual({ opened: "Restored", nextStep: 2, lostSteps: 1 })
          expect(yield* weights).toEqual(yield* undisturbed)
        }),
        { flags },
      ),
    )
  }

  it.effect("a run whose last checkpoint is gone continues from the one before, and fails if all are gone", () =>
    onServer(
      Effect.gen(function* () {
        const journal = yield* TrainingJournal.memory
        yield* Effect.flip(program(journal, { failsBefore: 5 }))
        yield* endSession
        const { fault } = yield* server
        yield* fault({ on: "weights_info", times: 2, status: 404, body: { detail: "expired" } })
        expect(yield* Effect.flip(program(journal))).toMatchObject({ _tag: "NotFound" })
        yield* fault({ on: "weights_info", times: 1, status: 404, body: { detail: "expired" } })
        expect(yield* program(journal)).toEqual({ opened: "Restored", nextStep: 2, lostSteps: 3 })
        expect(yield* weights).toEqual(yield* undisturbed)
      }),
    ),
  )

  it.effect("a run without a checkpoint starts over when its session has ended, and says how many steps are lost", () =>
    onServer(
      Effect.gen(function* () {
        const journal = yield* TrainingJournal.memory
        yield* Effect.flip(program(journal, { failsBefore: 3, saves: false }))
        yield* endSession
        expect(yield* program(journal)).toEqual({ opened: "Started", nextStep: 0, lostSteps: 3 })
        expect(yield* weights).toEqual(yield* undisturbed)
      }),
    ),
  )

  it.effect("a run whose last request may or may not have arrived goes back to its last checkpoint", () =>
    onServer(
      Effect.gen(function* () {
        const journal = yield* TrainingJournal.memory
        const { fault } = yield* server
        // This server does not detect a repeated number, so that a resend would not be safe.
        yield* fault({ on: "optim_step", nth: 4, drop: "after" })
        const error = yield* Effect.flip(program(journal))
        expect(error).toMatchObject({ _tag: "SequenceBroken", applied: "unknown" })
        expect(yield* program(journal)).toMatchObject({ opened: "Restored", nextStep: 2 })
        expect(yield* weights).toEqual(yield* undisturbed)
      }),
      { mode: "anything" },
    ),
  )

  it.effect("a run that starts from a checkpoint goes back to it", () =>
    onServer(
      Effect.gen(function* () {
        yield* program(yield* TrainingJournal.memory)
        const journal = yield* TrainingJournal.memory
        const open = Effect.gen(function* () {
          const service = yield* ServiceClient.ServiceClient
          const { checkpoints } = yield* server
          const [path = ""] = (yield* checkpoints).map(({ path }) => path).filter((path) => path.endsWith("step-4"))
          const run = yield* service.openTrainingClient({ checkpoint: path, withOptimizer: true, journal })
          return run._tag === "Completed" ? yield* Effect.die("completed") : run
        })
        const stopped = Effect.gen(function* () {
          const { client } = yield* open
          yield* client.trainStep(batch(0), Loss.crossEntropy, adam)
          return yield* Effect.fail(new Stopped())
        })
        yield* Effect.flip(stopped.pipe(Effect.scoped, Effect.provide(clients())))
        yield* endSession
        const again = yield* open.pipe(
          Effect.map(({ _tag, lostSteps, nextStep }) => ({ _tag, lostSteps, nextStep })),
          Effect.scoped,
          Effect.provide(clients()),
        )
        expect(again).toEqual({ _tag: "Restored", lostSteps: 1, nextStep: 0 })
      }),
    ),
  )

  it.effect("a scope that closes after the sequence broke does not count as completion", () =>
    onServer(
      Effect.gen(function* () {
        const journal = yield* TrainingJournal.memory
        const { fault } = yield* server
        yield* fault({ on: "optim_step", drop: "after" })
        yield* Effect.gen(function* () {
          const service = yield* ServiceClient.ServiceClient
          const client = yield* service.createLoraTrainingClient({ baseModel: "m", journal })
          const exit = yield* Effect.exit(client.trainStep(batch(0), Loss.crossEntropy, adam))
          expect(exit._tag === "Failure" && Cause.isFailure(exit.cause)).toBe(true)
        }).pipe(Effect.scoped, Effect.provide(clients()))
        const state = Option.getOrThrow(TrainingJournal.state(yield* journal.read))
        expect(state.completed).toBe(false)
      }),
      { mode: "anything" },
    ),
  )
})
