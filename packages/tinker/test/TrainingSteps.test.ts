/** Tests guarantees of `trainStep`, `trainSteps` and `resume` that go beyond single operations. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Layer, Logger, Option, Stream } from "effect"
import { CustomLoss, Loss, ServiceClient, TrainingJournal } from "effect-tinker"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import * as Clients from "./support/Clients.ts"

const { adam, applied, baseModel, datum, ending, fault, lora, run, server } = Clients

const batch = [datum(1, 2, 3)]

describe("trainSteps", () => {
  it.effect("afterUpdate places a save after exactly its step while later steps are sent ahead", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        const saved = yield* Stream.range(0, 3).pipe(
          Stream.map((step) => [datum(step, step + 1)]),
          client.trainSteps(Loss.crossEntropy, adam, {
            ahead: 2,
            afterUpdate: (step) =>
              step === 1 ? Effect.asSome(client.enqueue.saveState(`step-${step}`)) : Effect.succeedNone,
          }),
          Stream.filterMap(({ placed }) => placed),
          Stream.mapEffect((ticket) => ticket.await),
          Stream.runCollect,
        )
        expect(Array.from(saved, ({ path }) => path.endsWith("step-1"))).toEqual([true])
        expect(yield* applied).toEqual([
          "1 forward_backward",
          "2 optim_step",
          "3 forward_backward",
          "4 optim_step",
          "5 save_weights",
          "6 forward_backward",
          "7 optim_step",
          "8 forward_backward",
          "9 optim_step",
        ])
      }),
      { work: "1 second" },
    ),
  )

  it.effect("a step with several passes sends each part of its batch before one update", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        const data = [datum(1, 2), datum(3, 4), datum(5, 6), datum(7, 8), datum(9, 10)]
        const steps = yield* Stream.make(data, data.slice(0, 2)).pipe(
          client.trainSteps(Loss.crossEntropy, adam, { passes: 3 }),
          Stream.runCollect,
        )
        expect(Array.from(steps, ({ pass }) => pass.outputs.length)).toEqual([5, 2])
        expect(yield* applied).toEqual([
          "1 forward_backward",
          "2 forward_backward",
          "3 forward_backward",
          "4 optim_step",
          "5 forward_backward",
          "6 forward_backward",
          "7 optim_step",
        ])
        expect(yield* ending(client.trainStep(data, Loss.crossEntropy, adam, { passes: 0 }))).toBe("InvalidInput")
      }),
    ),
  )

  it.effect("a step that was not sent yet is withdrawn when afterUpdate fails", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        const failing = client.trainSteps(Loss.crossEntropy, adam, {
          afterUpdate: () => Effect.fail({ _tag: "DiskFull" as const }),
        })
        expect(yield* ending(Stream.runDrain(failing(Stream.make(batch))))).toBe("DiskFull")
        expect(yield* ending(client.saveState("after"))).toBe("done")
      }),
    ),
  )

  it.effect("trainSteps with a custom loss sends each forward pass after the previous update", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        const loss = CustomLoss.analytic((data) => ({
          loss: 7,
          gradients: data.map(({ logprobs }) => new Float32Array(logprobs.length).fill(0.5)),
        }))
        const steps = yield* Stream.make(batch, batch).pipe(client.trainSteps(loss, adam), Stream.runCollect)
        expect(Array.from(steps, ({ metrics }) => metrics["loss:sum"])).toEqual([7, 7])
        const single = yield* client.trainStep(batch, loss, adam)
        expect(single.step).toBe(2)
        expect(yield* applied).toEqual(
          [0, 3, 6].flatMap((n) => [`${n + 1} forward`, `${n + 2} forward_backward`, `${n + 3} optim_step`]),
        )
      }),
    ),
  )

  it.effect("a custom loss that fails sends no second pass and no update", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        const loss = CustomLoss.effect(() => Effect.fail({ _tag: "NoJudge" as const }))
        expect(yield* ending(client.trainStep(batch, loss, adam))).toBe("NoJudge")
        expect(yield* applied).toEqual(["1 forward"])
      }),
    ),
  )
})

describe("errors of a training step", () => {
  it.effect("SequenceBroken is caught by its own tag around trainStep and trainSteps", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora({ onUnknownOutcome: "stop" })
        yield* fault({ on: "optim_step", drop: "underway" })
        const caught = yield* client.trainStep(batch, Loss.crossEntropy, adam).pipe(
          Effect.as("done"),
          Effect.catchTag("SequenceBroken", ({ applied }) => Effect.succeed(applied)),
        )
        expect(caught).toBe("unknown")
        const steps = Stream.runDrain(client.trainSteps(Loss.crossEntropy, adam)(Stream.make(batch)))
        const again = yield* Effect.catchTag(steps, "SequenceBroken", ({ operation }) => Effect.succeed(operation))
        expect(again).toBe("optim_step")
      }),
    ),
  )

  it.effect("a step whose halves fail for different reasons reports both, each once", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "forward_backward", failFuture: { error: "bad pass" } })
        yield* fault({ on: "optim_step", failFuture: { error: "bad update" } })
        const error = yield* Effect.flip(client.trainStep(batch, Loss.crossEntropy, adam))
        expect(error._tag).toBe("StepFailed")
        expect(error.message.match(/bad pass/g)?.length).toBe(1)
        expect(error.message.match(/bad update/g)?.length).toBe(1)
      }),
    ),
  )

  it.effect.each(["submission", "result"] as const)(
    "a session that the server has ended is SessionLost for the first caller, at its %s",
    (when) =>
      run(
        Effect.gen(function* () {
          const client = yield* lora()
          const { endSession } = yield* server
          const ticket = yield* client.submit.forwardBackward(batch, Loss.crossEntropy)
          yield* endSession()
          const first = when === "result" ? ticket.await : client.optimStep(adam)
          expect(yield* ending(first)).toBe("SessionLost Gone")
          expect(yield* ending(client.optimStep(adam))).toBe("SessionLost Gone")
        }),
        { work: "1 minute" },
      ),
  )
})

describe("resume", () => {
  const quiet = Logger.remove(Logger.defaultLogger)
  const inProcess = <A, E>(program: Effect.Effect<A, E, ServiceClient.ServiceClient>) =>
    program.pipe(Effect.provide(Layer.merge(Clients.clients(), quiet)), Effect.exit)

  it.effect.each(["trainStep", "trainSteps", "single operations"] as const)(
    "nextStep counts the steps that a previous process made with %s",
    (how) =>
      Effect.gen(function* () {
        const journal = yield* TrainingJournal.memory
        yield* inProcess(
          Effect.scoped(
            Effect.gen(function* () {
              const service = yield* ServiceClient.ServiceClient
              const client = yield* service.createLoraTrainingClient({ baseModel, journal })
              if (how === "trainSteps")
                yield* Stream.runDrain(client.trainSteps(Loss.crossEntropy, adam)(Stream.make(batch, batch)))
              else
                for (let step = 0; step < 2; step++) {
                  if (how === "trainStep") yield* client.trainStep(batch, Loss.crossEntropy, adam)
                  else {
                    yield* client.forwardBackward(batch, Loss.crossEntropy)
                    yield* client.optimStep(adam)
                  }
                }
              return yield* Effect.fail("the process stops")
            }),
          ),
        )
        const resumed = yield* inProcess(
          Effect.scoped(
            Effect.gen(function* () {
              const service = yield* ServiceClient.ServiceClient
              const { client, nextStep, unfinished } = yield* service.resumeTrainingClient({ journal })
              const { step } = yield* client.trainStep(batch, Loss.crossEntropy, adam)
              return { nextStep, step, unfinished: Option.isSome(unfinished) }
            }),
          ),
        )
        expect(yield* resumed).toEqual({ nextStep: 2, step: 2, unfinished: false })
      }).pipe(Effect.provide(Layer.merge(ScriptedServer.layer(), quiet)), VirtualTime.run),
  )
})
