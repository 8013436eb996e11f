/** Sequence numbers when several failures coincide. Every test is a regression. */
import { describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Logger, Option, Ref, type Scope, Stream } from "effect"
import { Loss, ServiceClient, type TinkerError, TrainingJournal } from "effect-tinker"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import { expect } from "vitest"
import * as Clients from "./support/Clients.ts"

const { adam, applied, datum, ending, fault, lora, model, pass, run, sent } = Clients

const serial = { fwdbwd_max_chunk_len: 1 }
const parallel = { fwdbwd_max_chunk_len: 1, parallel_fwdbwd_chunks: true }
const three = [datum(1, 2), datum(3, 4), datum(5, 6)]
const boom = { failFuture: { error: "boom", category: "server" } }
const no = { status: 422, body: { detail: "no" } }

/** Several client processes on one server. */
const onServer = <A, E>(
  program: Effect.Effect<
    A,
    E,
    ScriptedServer.ScriptedServer | Layer.Layer.Success<ReturnType<typeof ScriptedServer.layer>>
  >,
  options?: ScriptedServer.Options,
) =>
  program.pipe(
    Effect.provide(Layer.merge(ScriptedServer.layer(options), Logger.remove(Logger.defaultLogger))),
    VirtualTime.run,
  )

const runProcess = <A, E>(program: Effect.Effect<A, E, Clients.Env | Scope.Scope>) =>
  Effect.scoped(program).pipe(Effect.provide(Clients.clients()))

const resume = (journal: TrainingJournal.Journal) =>
  Effect.flatMap(ServiceClient.ServiceClient, (service) => service.resumeTrainingClient({ journal }))

const passes = Effect.map(model, ({ applied }) =>
  applied.filter(({ operation }) => operation === "forward_backward").map(({ seq }) => seq),
)

describe("renumbered requests", () => {
  it.effect("a renumbered request whose response is lost is not sent under its first number as well", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* pass(client, 1, 2)
        yield* fault({ on: "optim_step", ...boom })
        yield* ending(client.optimStep(adam))
        yield* fault({ on: ({ operation, seq }) => operation === "forward_backward" && seq === 2, drop: "after" })
        yield* ending(pass(client, 3, 4))
        expect(yield* passes).toEqual([1, 2])
      }),
      { mode: "nextOnly" },
    ),
  )

  it.effect("a renumbered request cut off by the end of the process is not resumed under both numbers", () =>
    onServer(
      Effect.gen(function* () {
        const journal = yield* TrainingJournal.memory
        yield* runProcess(
          Effect.gen(function* () {
            const client = yield* lora({ journal })
            yield* pass(client, 1, 2)
            yield* fault({ on: "optim_step", ...boom })
            yield* ending(client.optimStep(adam))
            yield* fault({ on: ({ operation, seq }) => operation === "forward_backward" && seq === 2, hang: true })
            yield* Effect.fork(pass(client, 3, 4))
            yield* Effect.sleep("1 second")
            return yield* Effect.interrupt
          }),
        ).pipe(Effect.exit)
        yield* ending(runProcess(resume(journal)))
        yield* Effect.sleep("1 minute")
        expect((yield* passes).length).toBeLessThanOrEqual(2)
      }),
      { mode: "nextOnly" },
    ),
  )

  it.effect.each(["dedupe", "nextOnly"] as const)(
    "renumbering a chunk upward renumbers the chunks after it: %s",
    (mode) =>
      run(
        Effect.gen(function* () {
          const client = yield* lora({ journal: yield* TrainingJournal.memory })
          yield* fault({ on: "optim_step", ...no })
          yield* ending(client.optimStep(adam))
          expect(yield* ending(client.forwardBackward(three, Loss.crossEntropy))).toBe("done")
          expect(yield* passes).toEqual([2, 3, 4])
        }),
        { flags: serial, mode, rejectedUsesNumber: true },
      ),
  )

  it.effect("renumbering a chunk downward renumbers the chunks after it", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora({ journal: yield* TrainingJournal.memory })
        yield* pass(client, 1, 2)
        yield* fault({ on: "optim_step", ...boom })
        yield* ending(client.optimStep(adam))
        expect(yield* ending(client.forwardBackward(three, Loss.crossEntropy))).toBe("done")
        expect(yield* passes).toEqual([1, 2, 3, 4])
      }),
      { flags: serial, mode: "nextOnly" },
    ),
  )
})

describe("training steps", () => {
  it.effect("a step interrupted while its pass is sent keeps its update", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "forward_backward", delay: "30 seconds" })
        const step = yield* Effect.fork(client.trainStep([datum(1, 2)], Loss.crossEntropy, adam))
        yield* Effect.sleep("1 second")
        yield* Fiber.interrupt(step)
        yield* client.trainStep([datum(1, 2)], Loss.crossEntropy, adam)
        expect((yield* model).weights.steps).toBe(2)
      }),
    ),
  )

  it.effect("a step of a stream that ends early is sent completely or not at all", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "forward_backward", nth: 2, delay: "30 seconds" })
        yield* Stream.forever(Stream.make([datum(1, 2)])).pipe(
          client.trainSteps(Loss.crossEntropy, adam),
          Stream.take(1),
          Stream.runDrain,
        )
        yield* Effect.sleep("1 hour")
        expect((yield* model).gradient).toBe(0)
      }),
    ),
  )

  const conflict = { failFuture: { status: 409, detail: "Sequence conflict" } }

  it.effect("a step whose pass conflicts applies no update", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        let expected = 1
        yield* fault({
          on: ({ operation, seq }) => operation === "forward_backward" && seq === 4,
          delay: "30 seconds",
          ...conflict,
        })
        yield* fault({
          on: ({ operation, seq }) => {
            if (seq === undefined || operation === "load_weights") return false
            if (seq !== expected) return true
            expected++
            return false
          },
          times: 1e9,
          ...conflict,
        })
        yield* fault({ on: "load_weights", times: 1e9, failFuture: { status: 404, detail: "not found" } })
        yield* ending(client.loadState("tinker://m/weights/missing"))
        yield* fault({ on: "retrieve_future", delay: "10 seconds", times: 2 })
        const one = yield* Effect.fork(client.trainStep([datum(1, 2)], Loss.crossEntropy, adam))
        const two = yield* Effect.fork(client.trainStep([datum(3, 4)], Loss.crossEntropy, adam))
        yield* Fiber.await(one)
        yield* Fiber.await(two)
        expect((yield* model).weights.steps).toBe(0)
      }),
      { mode: "anything" },
    ),
  )

  it.effect("passes succeed after any number of failed loads", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        let expected = 1
        yield* fault({
          on: ({ operation, seq }) => {
            if (seq === undefined) return false
            if (seq !== expected) return true
            if (operation !== "load_weights") expected++
            return false
          },
          times: 1e9,
          ...conflict,
        })
        yield* fault({ on: "load_weights", times: 1e9, failFuture: { status: 404, detail: "not found" } })
        yield* pass(client, 1, 2)
        yield* ending(client.loadState("tinker://m/weights/x"))
        yield* ending(pass(client, 3, 4))
        yield* ending(client.loadState("tinker://m/weights/y"))
        for (let i = 0; i < 3; i++) yield* ending(pass(client, 3, 4))
        expect(yield* ending(pass(client, 3, 4))).toBe("done")
      }),
      { mode: "anything" },
    ),
  )
})

describe("servers that accept only JSON", () => {
  it.effect("the first of several chunks detects a JSON server, with a journal", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora({ journal: yield* TrainingJournal.memory })
        expect(yield* ending(client.forwardBackward(three, Loss.crossEntropy))).toBe("done")
      }),
      { flags: serial, wire: "json", results: "json" },
    ),
  )

  it.effect("the first of several chunks detects a JSON server, with parallel chunks", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: ({ operation, seq }) => operation === "forward_backward" && seq === 3, delay: "1 second" })
        expect(yield* ending(client.forwardBackward(three, Loss.crossEntropy))).toBe("done")
      }),
      { flags: parallel, wire: "json", results: "json" },
    ),
  )
})

describe("failed results", () => {
  it.effect("a failed result with another request in flight leaves a healthy client", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "optim_step", ...boom })
        const failing = yield* client.submit.optimStep(adam)
        yield* client.submit.forwardBackward([datum(3, 4)], Loss.crossEntropy)
        yield* ending(failing.await)
        expect(yield* ending(pass(client, 5, 6))).toBe("done")
      }),
      { mode: "nextOnly", work: "1 second" },
    ),
  )

  it.effect("the number of a failed result is not reused twice", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* pass(client, 1, 2)
        yield* fault({ on: "optim_step", ...boom })
        const second = yield* client.submit.optimStep(adam)
        yield* fault({
          on: ({ json, operation }) => operation === "retrieve_future" && JSON.stringify(json).includes("req-0004"),
          delay: "40 seconds",
          times: 10,
        })
        const third = yield* client.submit.forwardBackward([datum(3, 4)], Loss.crossEntropy)
        yield* ending(second.await)
        yield* Effect.sleep("5 seconds")
        yield* client.submit.forwardBackward([datum(5, 6)], Loss.crossEntropy)
        yield* ending(third.await)
        expect(yield* ending(client.optimStep(adam))).toBe("done")
      }),
      {
        mode: "nextOnly",
        work: ({ operation, seq }) => (operation === "forward_backward" && seq === 2 ? "5 minutes" : "1 second"),
      },
    ),
  )

  it.effect("a name conflict after a failed result does not break the client", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "forward_backward", ...boom })
        yield* fault({ on: "save_weights", failFuture: { status: 409, detail: "exists" } })
        yield* ending(pass(client, 1, 2))
        yield* ending(client.saveState("a"))
        expect(yield* ending(pass(client, 3, 4))).toBe("done")
      }),
    ),
  )

  it.effect("the number of a failed result is not used to probe the server", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* pass(client, 1, 2)
        yield* fault({ on: "optim_step", ...boom })
        yield* ending(client.optimStep(adam))
        yield* fault({ on: ({ operation, seq }) => operation === "forward_backward" && seq === 3, drop: "underway" })
        // It is unknown whether the third was applied, but the server still counts as one that guards numbers.
        expect(yield* ending(pass(client, 3, 4))).toBe("SequenceBroken unknown")
        expect((yield* Ref.get(client.session.learnt)).guardsNumbers).toEqual(Option.some(true))
      }),
      { mode: "nextOnly" },
    ),
  )
})

describe("rejections that use their numbers", () => {
  it.effect("consecutive rejections that use their numbers do not break the client", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        for (const n of [1, 2])
          yield* fault({ on: ({ operation, seq }) => operation === "optim_step" && seq === n, ...no })
        yield* ending(client.optimStep(adam))
        yield* ending(client.optimStep(adam))
        expect(yield* ending(pass(client, 1, 2))).toBe("done")
      }),
      { mode: "nextOnly", rejectedUsesNumber: true },
    ),
  )

  it.effect("a rejection that used its number is detected before chunks are sent in parallel", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "optim_step", ...no })
        yield* ending(client.optimStep(adam))
        expect(yield* ending(client.forwardBackward(three, Loss.crossEntropy))).toBe("done")
      }),
      { flags: parallel, rejectedUsesNumber: true },
    ),
  )

  it.effect("rejected parallel chunks that used their numbers do not break the client", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({
          on: ({ operation, seq }) => operation === "forward_backward" && (seq ?? 0) > 1,
          status: 403,
          body: {},
          times: 2,
        })
        yield* ending(client.forwardBackward(three, Loss.crossEntropy))
        yield* client.optimStep(adam)
        expect(yield* ending(client.optimStep(adam))).toBe("done")
      }),
      { flags: parallel, rejectedUsesNumber: true },
    ),
  )
})

describe("saves", () => {
  const taken = Effect.gen(function* () {
    let isTaken = false
    yield* fault({
      on: ({ operation }) => operation === "save_weights" && isTaken,
      status: 409,
      body: { detail: "exists" },
      times: 1000,
    })
    return ({ operation }: ScriptedServer.Seen) => operation === "save_weights" && (isTaken = true)
  })

  it.effect("a resent save whose first attempt took its name fails alone", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: yield* taken, drop: "after" })
        expect(yield* ending(client.saveState("a"))).toBe("RequestRejected Conflict")
        expect(yield* ending(pass(client, 1, 2))).toBe("done")
      }),
      { mode: "anything" },
    ),
  )

  it.effect("a save that was cut off does not prevent resuming the run", () =>
    onServer(
      Effect.gen(function* () {
        const journal = yield* TrainingJournal.memory
        yield* fault({ on: yield* taken, delay: "1 hour" })
        yield* runProcess(
          Effect.gen(function* () {
            const client = yield* lora({ journal })
            yield* Effect.fork(client.saveState("a"))
            yield* Effect.sleep("1 second")
            return yield* Effect.interrupt
          }),
        ).pipe(Effect.exit)
        expect(yield* ending(runProcess(Effect.flatMap(resume(journal), ({ client }) => pass(client, 1, 2))))).toBe(
          "done",
        )
      }),
      { mode: "anything" },
    ),
  )
})

describe("partial batches", () => {
  it.effect("a conflict on a later chunk leaves a partial batch", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({
          on: ({ operation, seq }) => operation === "forward_backward" && seq === 2,
          status: 409,
          body: {},
          times: 100,
        })
        expect(yield* ending(client.forwardBackward(three, Loss.crossEntropy))).toBe("SequenceBroken partial")
      }),
      { flags: serial },
    ),
  )

  it.effect("a partial batch is still partial after a restart, even if a load failed in between", () =>
    onServer(
      Effect.gen(function* () {
        const journal = yield* TrainingJournal.memory
        yield* runProcess(
          Effect.gen(function* () {
            const client = yield* lora({ journal })
            yield* fault({ on: "forward_backward", nth: 2, status: 400, body: { detail: "bad" } })
            expect(yield* ending(client.forwardBackward(three, Loss.crossEntropy))).toBe("SequenceBroken partial")
            yield* ending(client.loadState("tinker://nobody/weights/x"))
            return yield* Effect.interrupt
          }),
        ).pipe(Effect.exit)
        const end = yield* runProcess(Effect.flatMap(resume(journal), ({ client }) => ending(client.optimStep(adam))))
        expect(end).toBe("SequenceBroken partial")
      }),
      { flags: serial },
    ),
  )
})

describe("restarts", () => {
  it.effect("resuming after a failed checkpoint load loads the checkpoint first", () =>
    onServer(
      Effect.gen(function* () {
        const journal = yield* TrainingJournal.memory
        const path = yield* runProcess(
          Effect.gen(function* () {
            const client = yield* lora()
            yield* pass(client, 1, 2)
            yield* client.optimStep(adam)
            return (yield* client.saveState("a")).path
          }),
        )
        yield* fault({ on: "load_weights", failFuture: { error: "out of memory", category: "server" } })
        const open = Effect.gen(function* () {
          const service = yield* ServiceClient.ServiceClient
          return (yield* journal.read).length === 0
            ? yield* service.createTrainingClientFromCheckpoint(path, { journal })
            : (yield* service.resumeTrainingClient({ journal })).client
        })
        expect(yield* ending(runProcess(open))).toBe("RequestFailed Server")
        yield* runProcess(Effect.flatMap(open, (client) => pass(client, 5, 6)))
        const made = (yield* (yield* ScriptedServer.ScriptedServer).models).at(-1)
        expect(made?.applied.map(({ operation }) => operation)).toEqual(["load_weights", "forward_backward"])
      }),
    ),
  )

  it.effect("resuming does not finish a step whose pass failed", () =>
    onServer(
      Effect.gen(function* () {
        const journal = yield* TrainingJournal.memory
        yield* runProcess(
          Effect.gen(function* () {
            const client = yield* lora({ journal })
            yield* fault({ on: "forward_backward", ...boom })
            yield* fault({ on: "optim_step", ...no })
            yield* Stream.make([datum(1, 2)]).pipe(client.trainSteps(Loss.crossEntropy, adam), Stream.runDrain)
          }),
        ).pipe(Effect.exit)
        const { nextStep, unfinished } = yield* runProcess(resume(journal))
        expect({ nextStep, unfinished }).toEqual({ nextStep: 0, unfinished: Option.none() })
      }),
    ),
  )
})

it.effect("SessionLost names the last checkpoint, and the next client gets a new session", () =>
  run(
    Effect.gen(function* () {
      const client = yield* lora()
      const { path } = yield* client.saveState("a")
      yield* (yield* Clients.server).endSession()
      yield* Effect.sleep("1 minute")
      const error: TinkerError.TrainingError = yield* Effect.flip(client.optimStep(adam))
      expect(error).toMatchObject({ _tag: "SessionLost", lastCheckpoint: Option.some(path) })
      const service = yield* ServiceClient.ServiceClient
      expect(yield* ending(service.createTrainingClientFromCheckpoint(path))).toBe("done")
    }),
  ),
)

it.effect("the queueState stream of a canceled ticket ends", () =>
  run(
    Effect.gen(function* () {
      const client = yield* lora()
      yield* fault({ on: "optim_step", delay: "1 minute" })
      yield* client.enqueue.optimStep(adam)
      const ticket = yield* client.enqueue.saveState("a")
      const watching = yield* Effect.fork(ending(Stream.runDrain(ticket.queueState)))
      yield* Effect.sleep("1 second")
      yield* ticket.cancel
      expect(yield* Fiber.join(watching)).toBe("done")
      expect(yield* sent("save_weights")).toEqual([])
      expect(yield* applied).toEqual(["1 optim_step"])
    }),
  ),
)
