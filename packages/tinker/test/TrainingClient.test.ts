import { describe, it } from "@effect/vitest"
import { Chunk, Clock, Duration, Effect, Exit, Fiber, Option, Redacted, Scope, Stream, Tracer } from "effect"
import { Checkpoint, CustomLoss, Loss, Optimizer, ServiceClient, type TrainingClient } from "effect-tinker"
import { expect } from "vitest"
import * as Clients from "./support/Clients.ts"
import { interruptedAt } from "./support/InterruptedAt.ts"

const { adam, applied, baseModel, datum, ending, fault, lora, model, pass, run, sent, server } = Clients

const batch = [datum(1, 2, 3)]

describe("TrainingClient order", () => {
  it.effect("operations are sent in the order of the calls, from any number of fibers", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* Effect.forEach(
          Array.from({ length: 40 }, (_, i) => i),
          (i) => client.saveState(`s${i}`),
          { concurrency: "unbounded" },
        )
        const names = (yield* (yield* server).requestsTo("save_weights")).map(
          ({ json }) => (json as { path: string }).path,
        )
        expect(names).toEqual(Array.from({ length: 40 }, (_, i) => `s${i}`))
      }),
    ),
  )

  it.effect("operations are sent in order behind a full queue", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora({ maxQueued: 2 })
        yield* fault({ on: "save_weights", delay: "1 minute", times: 1 })
        const fibers = yield* Effect.forEach(
          Array.from({ length: 12 }, (_, i) => i),
          (i) => Effect.fork(client.saveState(`s${i}`)),
        )
        yield* Effect.sleep("1 second")
        // One is being sent, two are queued, the others wait for the queue.
        expect(yield* sent("save_weights")).toEqual([1])
        yield* Fiber.joinAll(fibers)
        const names = (yield* (yield* server).requestsTo("save_weights")).map(
          ({ json }) => (json as { path: string }).path,
        )
        expect(names).toEqual(Array.from({ length: 12 }, (_, i) => `s${i}`))
      }),
    ),
  )

  it.effect(
    "TrainingClient.enqueue waits while maxQueued operations are queued, and interrupting it removes its operation",
    () =>
      run(
        Effect.gen(function* () {
          const client = yield* lora({ maxQueued: 2 })
          yield* fault({ on: "save_weights", delay: "1 minute", times: 1 })
          const enqueue = (name: string) => Effect.fork(client.enqueue.saveState(name))
          // The first is being sent, two are queued, and three wait for the queue.
          const fibers = yield* Effect.forEach(["a", "b", "c", "d", "e", "f"], enqueue)
          const isIn = Effect.map(Effect.forEach(fibers, Fiber.poll), (polled) => polled.filter(Option.isSome).length)
          yield* Effect.sleep("1 second")
          expect(yield* isIn).toBe(3)
          // A plain call is behind them, whether or not the queue has room.
          const plain = yield* Effect.fork(client.saveState("g"))
          yield* Fiber.interrupt(fibers[3]!)
          yield* Effect.sleep("1 second")
          expect(yield* isIn).toBe(4)
          const cancelled = yield* Fiber.join(fibers[1]!)
          expect(yield* cancelled.cancel).toBe(true)
          yield* Effect.sleep("1 second")
          // The plain call took the free place.
          expect(yield* isIn).toBe(4)
          yield* Fiber.join(plain)
          const names = (yield* (yield* server).requestsTo("save_weights")).map(
            ({ json }) => (json as { path: string }).path,
          )
          expect(names).toEqual(["a", "c", "e", "f", "g"])
          expect(yield* isIn).toBe(6)
        }),
      ),
  )

  it.effect("enqueue completes when queued, submit when acknowledged, and the plain form with the result", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "optim_step", delay: "10 seconds", times: 2 })
        const began = yield* Effect.clock.pipe(Effect.map((clock) => clock.unsafeCurrentTimeMillis()))
        const took = Effect.clock.pipe(Effect.map((clock) => clock.unsafeCurrentTimeMillis() - began))
        const ticket = yield* client.enqueue.optimStep(adam)
        expect(yield* took).toBe(0)
        const future = yield* client.submit.optimStep(adam)
        expect(yield* took).toBe(20_000)
        yield* future.await
        expect(yield* took).toBe(50_000)
        expect(yield* ending(ticket.await)).toBe("done")
      }),
      { work: ({ operation }) => (operation === "optim_step" ? "25 seconds" : 0) },
    ),
  )

  it.effect("an operation is submitted while the server still works on the previous one", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        const first = yield* client.submit.forwardBackward(batch, Loss.crossEntropy)
        yield* client.submit.optimStep(adam)
        expect(Option.isNone(yield* first.poll)).toBe(true)
        expect(yield* sent("optim_step")).toEqual([2])
      }),
      { work: "1 hour" },
    ),
  )

  it.effect("the first chunk is polled while later chunks are still being sent", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "forward_backward", nth: 2, delay: "30 seconds" })
        yield* Effect.fork(client.forwardBackward([datum(1, 2), datum(3, 4)], Loss.crossEntropy))
        yield* Effect.sleep("10 seconds")
        expect(yield* sent("forward_backward")).toEqual([1, 2])
        const polls = yield* (yield* server).requestsTo("retrieve_future")
        // The polls of the created model and of the first chunk.
        expect(new Set(polls.map(({ json }) => (json as { request_id: string }).request_id)).size).toBe(2)
      }),
      { flags: { fwdbwd_max_chunk_len: 1 } },
    ),
  )
})

describe("TrainingClient.trainStep", () => {
  it.effect("trainStep sends a pass and an update with nothing in between", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        const steps = Array.from({ length: 5 }, (_, i) => client.trainStep([datum(i, i + 1)], Loss.crossEntropy, adam))
        yield* Effect.all([...steps, client.saveState("a")], { concurrency: "unbounded" })
        expect((yield* applied).map((step) => step.split(" ")[1])).toEqual([
          ...Array.from({ length: 5 }, () => ["forward_backward", "optim_step"]).flat(),
          "save_weights",
        ])
      }),
    ),
  )

  it.effect("trainStep returns the metrics of both halves, the token count and the times", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "optim_step", delay: "3 seconds" })
        const step = yield* client.trainStep([datum(1, 2, 3), datum(4, 5)], Loss.crossEntropy, adam)
        expect(step).toMatchObject({ step: 0, tokens: 3 })
        expect(Object.keys(step.metrics)).toEqual(expect.arrayContaining(["loss:sum", "grad_norm:mean"]))
        expect(Duration.toMillis(step.queueTime)).toBe(3_000)
        expect(Duration.toMillis(step.duration)).toBe(10_000)
      }),
      {
        work: ({ operation }) => (operation === "optim_step" ? "10 seconds" : 0),
        metrics: ({ operation }) => (operation === "optim_step" ? { "grad_norm:mean": 1 } : {}),
      },
    ),
  )

  it.effect("a train step whose pass is not accepted sends no update and fails with the error of the pass", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "forward_backward", status: 403, body: { detail: "no" } })
        expect(yield* ending(client.trainStep(batch, Loss.crossEntropy, adam))).toBe("Forbidden")
        expect(yield* sent("optim_step")).toEqual([])
        expect(yield* ending(client.trainStep(batch, Loss.crossEntropy, adam))).toBe("done")
      }),
    ),
  )

  it.effect("a step whose update fails reports that its pass succeeded", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "optim_step", failFuture: { error: "boom" } })
        const error = yield* Effect.flip(client.trainStep(batch, Loss.crossEntropy, adam))
        expect(error).toMatchObject({ _tag: "StepFailed", pass: { _tag: "Success" }, update: { _tag: "Failure" } })
        expect(error.message).toContain("the pass succeeded; the update failed")
      }),
    ),
  )

  it.effect("trainStep rejects invalid data before sending a request", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        expect(yield* ending(client.trainStep([], Loss.crossEntropy, adam))).toBe("InvalidInput")
        expect(yield* ending(client.trainStep(batch, Loss.crossEntropy, Optimizer.adam({ learningRate: -1 })))).toBe(
          "InvalidInput",
        )
        expect(yield* sent("forward_backward")).toEqual([])
      }),
    ),
  )
})

describe("TrainingClient.trainSteps", () => {
  const batches = (n: number) => Stream.map(Stream.range(0, n - 1), (i) => [datum(i, i + 1)])

  it.effect("trainSteps emits steps in order and submits one step ahead", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        let most = 0
        const steps = yield* batches(6).pipe(
          client.trainSteps(Loss.crossEntropy, adam, { startAt: 10 }),
          Stream.mapEffect((step) =>
            Effect.map(sent("forward_backward"), (numbers) => {
              most = Math.max(most, numbers.length - (step.step - 9))
              return step.step
            }),
          ),
          Stream.runCollect,
        )
        expect(Chunk.toReadonlyArray(steps)).toEqual([10, 11, 12, 13, 14, 15])
        expect(most).toBeLessThanOrEqual(2)
        expect(most).toBeGreaterThanOrEqual(1)
      }),
      { work: "10 seconds" },
    ),
  )

  it.effect("trainSteps accepts an optimizer schedule", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        const schedule = (step: number) => Optimizer.adam({ learningRate: 1 / (step + 1) })
        yield* Stream.runDrain(client.trainSteps(Loss.crossEntropy, schedule, { startAt: 1 })(batches(3)))
        const rates = (yield* (yield* server).requestsTo("optim_step")).map(
          ({ json }) => (json as { adam_params: { learning_rate: number } }).adam_params.learning_rate,
        )
        expect(rates).toEqual([1 / 2, 1 / 3, 1 / 4])
      }),
    ),
  )

  it.effect("trainSteps fails with the error of a throwing schedule, of the source, or of a step", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        const drain = (
          optimizer: Optimizer.Optimizer | Optimizer.Schedule<Optimizer.Optimizer>,
          source: Stream.Stream<ReturnType<typeof datum>[], "broken source">,
        ) => Effect.flip(Stream.runDrain(client.trainSteps(Loss.crossEntropy, optimizer)(source)))
        const thrown = yield* drain(() => {
          throw new TypeError("mine")
        }, batches(2))
        expect(thrown).toMatchObject({ _tag: "InvalidInput", path: "optimizer" })
        expect(yield* sent("forward_backward")).toEqual([])
        expect(yield* drain(adam, Stream.concat(batches(2), Stream.fail("broken source" as const)))).toBe(
          "broken source",
        )
        yield* fault({ on: "optim_step", failFuture: { error: "boom" } })
        expect(yield* drain(adam, batches(3))).toMatchObject({ _tag: "StepFailed" })
      }),
    ),
  )

  it.effect("trainSteps sends no more steps after its stream is stopped", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* Stream.forever(batches(1)).pipe(
          client.trainSteps(Loss.crossEntropy, adam),
          Stream.take(3),
          Stream.runDrain,
        )
        const before = (yield* sent("forward_backward")).length
        expect(before).toBeLessThanOrEqual(5)
        yield* Effect.sleep("1 hour")
        expect((yield* sent("forward_backward")).length).toBe(before)
      }),
      { work: "1 second" },
    ),
  )
})

describe("TrainingClient.forwardBackwardCustom", () => {
  const negative = CustomLoss.analytic((data) => ({
    loss: 7,
    gradients: data.map(({ logprobs }) => new Float32Array(logprobs.length).fill(-1)),
    metrics: { "mine:mean": 2 },
  }))

  it.effect("a custom loss takes two passes and reports its own loss", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        const result = yield* client.forwardBackwardCustom(batch, negative)
        expect(result.metrics).toMatchObject({ "loss:sum": 7, "mine:mean": 2 })
        expect(result.metrics["surrogate_loss:sum"]).toBeTypeOf("number")
        yield* client.optimStep(adam)
        expect(yield* applied).toEqual(["1 forward", "2 forward_backward", "3 optim_step"])
      }),
    ),
  )

  it.effect("a custom loss that throws or returns NaN uses no number for the second pass", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        const throwing = CustomLoss.analytic(() => {
          throw new TypeError("mine")
        })
        const nan = CustomLoss.analytic((data) => ({
          loss: Number.NaN,
          gradients: data.map(({ logprobs }) => new Float32Array(logprobs.length)),
        }))
        expect(yield* ending(client.forwardBackwardCustom(batch, throwing))).toBe("InvalidInput")
        expect(yield* ending(client.forwardBackwardCustom(batch, nan))).toBe("InvalidInput")
        yield* pass(client, 1, 2)
        expect(yield* applied).toEqual(["1 forward", "2 forward", "3 forward_backward"])
      }),
    ),
  )

  it.effect("closing the client ends a call whose custom loss never finishes", () =>
    run(
      Effect.gen(function* () {
        const scope = yield* Scope.make()
        const client = yield* Scope.extend(lora(), scope)
        const endless = CustomLoss.effect(() => Effect.never)
        const waiting = yield* Effect.fork(ending(client.forwardBackwardCustom(batch, endless)))
        yield* Effect.sleep("1 minute")
        yield* Scope.close(scope, Exit.void)
        expect(yield* Fiber.join(waiting)).toBe("ClientClosed")
      }),
    ),
  )
})

describe("ending waiting calls", () => {
  /** A client in a scope that the test closes. */
  const open = Effect.gen(function* () {
    const scope = yield* Scope.make()
    const client = yield* Scope.extend(lora(), scope)
    return { client, close: Scope.close(scope, Exit.void) }
  })

  it.effect("a failed result is reported to the caller, whatever its kind", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "optim_step", failFuture: { error: "boom", category: "user" } })
        expect(yield* ending(client.optimStep(adam))).toBe("RequestRejected UserCategory")
        yield* fault({ on: "optim_step", failFuture: { status: 400, detail: "not loaded" } })
        expect(yield* ending(client.optimStep(adam))).toBe("RequestRejected BadRequest")
      }),
    ),
  )

  it.effect("an unreadable response is survived where the server detects a second request", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "retrieve_future", garbage: "<html>" })
        expect(yield* ending(client.optimStep(adam))).toBe("done")
        yield* fault({ on: "optim_step", garbage: "<html>" })
        expect(yield* ending(client.optimStep(adam))).toBe("done")
        yield* fault({ on: "retrieve_future", garbage: "<html>", for: "10 minutes" })
        expect(yield* ending(client.optimStep(adam))).toBe("UnexpectedResponse NotJson")
      }),
    ),
  )

  it.effect("an unreadable response to an update leaves its outcome unknown where the server ignores numbers", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "optim_step", garbage: "<html>" })
        expect(yield* ending(client.optimStep(adam))).toBe("SequenceBroken unknown")
      }),
      { mode: "anything" },
    ),
  )

  it.effect("closing the scope ends queued, sending and awaited operations with ClientClosed", () =>
    run(
      Effect.gen(function* () {
        const { client, close } = yield* open
        const waited = yield* client.submit.forwardBackward(batch, Loss.crossEntropy)
        yield* fault({ on: "optim_step", hang: true })
        const sending = yield* client.enqueue.optimStep(adam)
        const queued = yield* client.enqueue.saveState("a")
        yield* Effect.sleep("1 second")
        const ends = yield* Effect.fork(
          Effect.all([ending(waited.await), ending(sending.await), ending(queued.await)], { concurrency: "unbounded" }),
        )
        const before = yield* Effect.clock.pipe(Effect.map((clock) => clock.unsafeCurrentTimeMillis()))
        yield* close
        const after = yield* Effect.clock.pipe(Effect.map((clock) => clock.unsafeCurrentTimeMillis()))
        expect(yield* Fiber.join(ends)).toEqual(["ClientClosed", "ClientClosed", "ClientClosed"])
        expect(after - before).toBe(5_000)
        expect(yield* sent("save_weights")).toEqual([])
        expect(yield* ending(client.optimStep(adam))).toBe("ClientClosed")
      }),
      { work: ({ operation }) => (operation === "forward_backward" ? "1 day" : 0) },
    ),
  )

  it.effect("a submission that finishes within closeGrace is acknowledged", () =>
    run(
      Effect.gen(function* () {
        const { client, close } = yield* open
        yield* fault({ on: "optim_step", delay: "3 seconds" })
        const ticket = yield* client.enqueue.optimStep(adam)
        yield* Effect.sleep("1 second")
        const acknowledged = yield* Effect.fork(ending(ticket.acknowledged))
        yield* close
        expect(yield* Fiber.join(acknowledged)).toBe("done")
        expect(yield* applied).toEqual(["1 optim_step"])
      }),
    ),
  )

  it.effect("closing the scope ends calls that wait for a place in the queue", () =>
    run(
      Effect.gen(function* () {
        const scope = yield* Scope.make()
        const client = yield* Scope.extend(lora({ maxQueued: 1, closeGrace: 0 }), scope)
        yield* fault({ on: "save_weights", hang: true, times: 100 })
        const fibers = yield* Effect.forEach(
          Array.from({ length: 10 }, (_, i) => i),
          (i) => Effect.fork(ending(client.saveState(`s${i}`))),
        )
        yield* Effect.sleep("1 second")
        yield* Scope.close(scope, Exit.void)
        expect(yield* Fiber.join(Fiber.all(fibers))).toEqual(Array.from({ length: 10 }, () => "ClientClosed"))
      }),
    ),
  )

  it.effect("a client created in a closed scope fails with ClientClosed", () =>
    run(
      Effect.gen(function* () {
        const scope = yield* Scope.make()
        yield* Scope.close(scope, Exit.void)
        const client = yield* Scope.extend(lora(), scope)
        expect(yield* ending(client.optimStep(adam))).toBe("ClientClosed")
      }),
    ),
  )

  it.effect("losing the session ends queued, sending and awaited operations with SessionLost", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        const waited = yield* client.submit.forwardBackward(batch, Loss.crossEntropy)
        yield* fault({ on: "optim_step", hang: true })
        const sending = yield* client.enqueue.optimStep(adam)
        const queued = yield* client.enqueue.saveState("a")
        yield* fault({ on: "session_heartbeat", status: 410, body: { detail: "gone" } })
        expect(
          yield* Effect.all([ending(waited.await), ending(sending.await), ending(queued.await)], {
            concurrency: "unbounded",
          }),
        ).toEqual(["SessionLost Gone", "SessionLost Gone", "SessionLost Gone"])
        expect(yield* ending(client.optimStep(adam))).toBe("SessionLost Gone")
      }),
      { work: ({ operation }) => (operation === "forward_backward" ? "1 day" : 0) },
    ),
  )

  it.effect("canceling a ticket interrupts its waiters, and its operation is not sent", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "optim_step", delay: "1 minute" })
        const first = yield* client.enqueue.optimStep(adam)
        const second = yield* client.enqueue.saveState("a")
        yield* Effect.sleep("1 second")
        const waiting = yield* Effect.fork(ending(second.await))
        expect(yield* second.cancel).toBe(true)
        expect(yield* first.cancel).toBe(false)
        expect(yield* Fiber.join(waiting)).toBe("interrupted")
        expect(yield* ending(first.await)).toBe("done")
        yield* client.saveState("b")
        expect(yield* applied).toEqual(["1 optim_step", "2 save_weights"])
      }),
    ),
  )
})

/** `test:all` interrupts at every step. */
const stride = process.env["TINKER_TESTS"] === "all" ? 1 : 4

describe("interrupting a call cancels its whole operation or none of it", () => {
  const three = [datum(1, 2), datum(3, 4), datum(5, 6)]
  const forms = {
    "a pass": (client: TrainingClient.Service) => client.forwardBackward(batch, Loss.crossEntropy),
    "a pass in chunks": (client: TrainingClient.Service) => client.forwardBackward(three, Loss.crossEntropy),
    "a submission": (client: TrainingClient.Service) => client.submit.forwardBackward(batch, Loss.crossEntropy),
    "an enqueued pass": (client: TrainingClient.Service) => client.enqueue.forwardBackward(batch, Loss.crossEntropy),
  }
  const cases = Object.entries(forms).flatMap(([name, begin]) =>
    [false, true].flatMap((isQueued) => [false, true].map((isTraced) => ({ name, begin, isQueued, isTraced }))),
  )

  it.effect.each(cases)(
    "$name, queued: $isQueued, traced: $isTraced, is sent completely or not at all when interrupted at any step",
    ({ begin, isQueued, isTraced, name }) =>
      Effect.gen(function* () {
        const pieces = name === "a pass in chunks" ? 3 : 1
        const counts = new Set<number>()
        for (let step = 0; ; step += stride) {
          const { exit, hasWaited, numbers, open, wasReached } = yield* run(
            Effect.gen(function* () {
              const client = yield* lora()
              if (isQueued) {
                yield* fault({ on: "save_weights", delay: "1 minute", times: 1 })
                yield* client.enqueue.saveState("a")
                yield* Effect.sleep("1 second")
              }
              const spans: Array<Tracer.Span> = []
              const own = yield* Effect.tracer
              const tracer = Tracer.make({
                ...own,
                span: (...args) => {
                  const span = own.span(...args)
                  spans.push(span)
                  return span
                },
              })
              const effect: Effect.Effect<unknown, unknown> = begin(client)
              const before = yield* Clock.currentTimeMillis
              const { exit, wasReached } = yield* interruptedAt(
                step,
                isTraced ? Effect.withTracer(effect, tracer) : effect,
              )
              const hasWaited = (yield* Clock.currentTimeMillis) > before
              yield* Effect.sleep("2 minutes")
              const numbers = yield* sent("forward_backward")
              // In any case the next operation finds the client in a consistent state.
              yield* pass(client, 7, 8)
              return {
                exit,
                hasWaited,
                numbers,
                wasReached,
                open: spans.filter(({ status }) => status._tag !== "Ended"),
              }
            }),
            { flags: { fwdbwd_max_chunk_len: 1 } },
          )
          expect(open.map(({ name }) => name)).toEqual([])
          if (!wasReached) {
            expect(Exit.isSuccess(exit)).toBe(true)
            break
          }
          counts.add(numbers.length)
          // enqueue waits only for a place in the queue, and completes with it.
          const isMine = name === "an enqueued pass"
          if (isQueued && Exit.isFailure(exit) && !hasWaited && !isMine) expect(numbers).toEqual([])
        }
        expect([...counts].filter((count) => count !== 0 && count !== pieces)).toEqual([])
        expect(counts.has(0)).toBe(true)
      }),
  )
})

it.effect.each(["tinker.queue", "tinker.training.optim_step", "tinker.training.forward_backward"])(
  "operations succeed even if ending the span %s throws",
  (broken) =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        const own = yield* Effect.tracer
        const end = () => {
          throw new Error("a span that can't end")
        }
        const tracer = Tracer.make({
          ...own,
          span: (name, ...rest) => Object.assign(own.span(name, ...rest), name === broken ? { end } : {}),
        })
        const looked = <A, E>(effect: Effect.Effect<A, E>) => Effect.exit(Effect.withTracer(effect, tracer))
        const ends = yield* Effect.all(
          [
            looked(client.optimStep(adam)),
            looked(client.forwardBackward(batch, Loss.crossEntropy)),
            looked(client.trainStep(batch, Loss.crossEntropy, adam)),
            Effect.exit(client.optimStep(adam)),
          ],
          { concurrency: "unbounded" },
        )
        expect(ends.map((end) => end._tag)).toEqual(["Success", "Success", "Success", "Success"])
      }),
    ),
)

describe("checkpoints", () => {
  it.effect("checkpoints are saved with all options and loaded", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* client.trainStep(batch, Loss.crossEntropy, adam)
        const before = (yield* model).weights
        const saved = yield* client.saveState("a", { ttl: "1 hour", overwrite: true, userMetadata: { note: "x" } })
        expect((yield* (yield* server).requestsTo("save_weights"))[0]?.json).toMatchObject({
          path: "a",
          ttl_seconds: 3600,
          overwrite: true,
          user_metadata: { note: "x" },
        })
        yield* client.trainStep(batch, Loss.crossEntropy, adam)
        yield* client.loadStateWithOptimizer(saved.path, { weightsAccessToken: Redacted.make("tml-shared") })
        expect((yield* model).weights).toEqual(before)
        expect((yield* (yield* server).requestsTo("load_weights"))[0]?.json).toMatchObject({
          optimizer: true,
          weights_access_token: "tml-shared",
        })
        expect(yield* client.saveWeightsForSampler("s")).toEqual({
          path: expect.stringContaining("/sampler_weights/s"),
        })
        expect(yield* client.saveWeightsExternal("e")).toMatchObject({ path: expect.stringContaining("tinker://") })
      }),
    ),
  )

  it.effect.each([false, true])("a new client starts from a checkpoint: %s", (viaLoad) =>
    run(
      Effect.gen(function* () {
        const service = yield* ServiceClient.ServiceClient
        const client = yield* lora()
        yield* client.trainStep(batch, Loss.crossEntropy, adam)
        const { path } = yield* client.saveState("a")
        const second = yield* service.createTrainingClientFromCheckpoint(path, { withOptimizer: true })
        const [first, other] = yield* (yield* server).models
        expect(other?.weights).toEqual(first?.weights)
        expect(other?.id).toBe(second.modelId)
        expect(yield* ending(second.trainStep(batch, Loss.crossEntropy, adam))).toBe("done")
        const requests = (yield* (yield* server).requests).map(({ operation }) => operation)
        expect(requests.filter((operation) => operation === "weights_info").length).toBe(viaLoad ? 0 : 1)
      }),
      { flags: { create_model_via_load_weights: viaLoad } },
    ),
  )

  it.effect("weights shared by another user are looked up with that user's token", () =>
    run(
      Effect.gen(function* () {
        const service = yield* ServiceClient.ServiceClient
        const client = yield* lora()
        const { path } = yield* client.saveState("a")
        yield* service.createTrainingClientFromCheckpoint(path, { weightsAccessToken: Redacted.make("tml-shared") })
        const keys = (yield* (yield* server).requests).flatMap(({ headers, operation }) =>
          operation === "weights_info" || operation === "load_weights" ? [headers["x-api-key"]] : [],
        )
        expect(keys).toEqual(["tml-shared", "tml-a"])
      }),
    ),
  )
})

describe("the model of a TrainingClient", () => {
  it.effect("a TrainingClient describes, samples from and unloads its model", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        expect(yield* client.getInfo).toMatchObject({ modelId: client.modelId })
        yield* client.trainStep(batch, Loss.crossEntropy, adam)
        const sampler = yield* client.saveWeightsAndGetSamplingClient()
        const { sequences } = yield* sampler.sample({ prompt: [1, 2], params: { maxTokens: 4 } })
        expect(sequences[0]?.tokens).toBeInstanceOf(Int32Array)
        const { path } = yield* client.saveWeightsForSampler("s")
        const other = yield* client.createSamplingClient(path)
        const again = yield* other.sample({ prompt: [1, 2], params: { maxTokens: 4 } })
        expect(again.sequences[0]?.tokens).toEqual(sequences[0]?.tokens)
        yield* client.unload
        expect(yield* ending(client.optimStep(adam))).toBe("ClientClosed")
      }),
    ),
  )

  it.effect("unload runs after all operations enqueued before it", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "optim_step", delay: "1 minute" })
        const ticket = yield* client.enqueue.optimStep(adam)
        yield* client.unload
        expect(yield* ending(ticket.await)).not.toBe("ClientClosed")
        const order = (yield* (yield* server).requests).map(({ operation }) => operation)
        expect(order.indexOf("unload_model")).toBeGreaterThan(order.indexOf("optim_step"))
      }),
    ),
  )

  it.effect("each model has its own number in the session", () =>
    run(
      Effect.gen(function* () {
        const clients = yield* Effect.all([lora(), lora(), lora()], { concurrency: "unbounded" })
        expect(new Set(clients.map(({ modelId }) => modelId)).size).toBe(3)
        const sessions = yield* (yield* server).sessions
        expect(sessions.length).toBe(1)
      }),
    ),
  )
})

describe("protobuf and JSON encodings", () => {
  it.effect.each([415, 400, 422] as const)(
    "a JSON server that rejects protobuf once with %s gets the same number as JSON",
    (status) =>
      run(
        Effect.gen(function* () {
          const client = yield* lora()
          yield* client.forward(batch, Loss.crossEntropy)
          yield* client.trainStep(batch, Loss.crossEntropy, adam)
          expect(yield* applied).toEqual(["1 forward", "2 forward_backward", "3 optim_step"])
          const types = (yield* (yield* server).requests).flatMap(({ headers, path, seq }) =>
            path.includes("forward") ? [`${seq} ${headers["content-type"]}`] : [],
          )
          expect(types).toEqual(["1 application/x-protobuf", "1 application/json", "2 application/json"])
        }),
        { wire: "json", wireStatus: status, results: "json" },
      ),
  )

  it.effect("a JSON server that answers protobuf with 500 is probed for its encoding", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        const isProtobuf = (type: string | undefined) => type === "application/x-protobuf"
        yield* fault({
          on: ({ bytes, headers }) => isProtobuf(headers["content-type"]) && bytes.length > 0,
          status: 500,
          body: "Internal Server Error",
          times: 1000,
        })
        yield* fault({
          on: ({ bytes, headers }) => isProtobuf(headers["content-type"]) && bytes.length === 0,
          status: 422,
          body: { detail: [{ type: "missing", loc: ["body"], msg: "Field required", input: null }] },
          times: 1000,
        })
        yield* client.trainStep(batch, Loss.crossEntropy, adam)
        expect(yield* applied).toEqual(["1 forward_backward", "2 optim_step"])
        expect(yield* sent("forward_backward")).toEqual([1, undefined, 1])
      }),
      { results: "json" },
    ),
  )

  it.effect("a server that rejects both encodings is reported with its first response", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "forward_backward", status: 400, body: { detail: "first" } })
        yield* fault({ on: "forward_backward", status: 422, body: { detail: "second" } })
        expect(yield* Effect.flip(pass(client, 1, 2))).toMatchObject({ _tag: "RequestRejected", detail: "first" })
        expect(yield* ending(pass(client, 1, 2))).toBe("done")
        // An accepted encoding is kept: later rejections are final.
        yield* fault({ on: "forward_backward", status: 400, body: { detail: "third" } })
        expect(yield* ending(pass(client, 1, 2))).toBe("RequestRejected BadRequest")
        expect((yield* sent("forward_backward")).length).toBe(4)
      }),
    ),
  )

  it.effect("a server error does not change the encoding once protobuf was accepted", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora({ onUnknownOutcome: "resend" })
        yield* fault({ on: "forward_backward", status: 500, body: { detail: "busy" } })
        expect(yield* ending(pass(client, 1, 2))).toBe("done")
        const types = (yield* (yield* server).requestsTo("forward_backward")).map(
          ({ bytes, headers }) => `${headers["content-type"]} ${bytes.length > 0 ? "full" : "empty"}`,
        )
        expect(types).toEqual([
          "application/x-protobuf full",
          "application/x-protobuf empty",
          "application/x-protobuf full",
        ])
      }),
    ),
  )
})

describe("servers that do not know a field", () => {
  it.effect("a field with its default value is left out for an older server after its first rejection", () =>
    run(
      Effect.gen(function* () {
        yield* lora()
        yield* lora()
        const bodies = (yield* (yield* server).requestsTo("create_model")).map(
          ({ json }) => "optimizer_config" in (json as object),
        )
        expect(bodies).toEqual([true, false, false])
      }),
      { unknownFields: ["optimizer_config"] },
    ),
  )

  it.effect("a field with another value is rejected with the server's message", () =>
    run(
      Effect.gen(function* () {
        const service = yield* ServiceClient.ServiceClient
        const optimizer = Optimizer.dimuon({ learningRate: 1e-3 })
        const error = yield* Effect.flip(service.createLoraTrainingClient({ baseModel, optimizer }))
        expect(error).toMatchObject({ _tag: "RequestRejected", reason: "Unprocessable" })
        expect(error.message).toContain("optimizer_config")
      }),
      { unknownFields: ["optimizer_config"] },
    ),
  )

  it.effect("a numbered request without the unknown field keeps its number", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* client.saveState("a")
        expect(yield* sent("save_weights")).toEqual([1, 1])
        expect(yield* applied).toEqual(["1 save_weights"])
      }),
      { unknownFields: ["overwrite"] },
    ),
  )
})

describe("the session of a ServiceClient", () => {
  it.effect("heartbeat spans have no parent, whichever operation opened the session", () =>
    run(
      Effect.gen(function* () {
        const parents: Array<string> = []
        const own = yield* Effect.tracer
        const tracer = Tracer.make({
          ...own,
          span: (name, parent, ...rest) => {
            if (name === "tinker.session_heartbeat") parents.push(parent._tag)
            return own.span(name, parent, ...rest)
          },
        })
        yield* lora().pipe(Effect.withSpan("the first request"), Effect.withTracer(tracer))
        yield* Effect.sleep("1 minute")
        expect(new Set(parents)).toEqual(new Set(["None"]))
      }),
    ),
  )
})

describe("read-only programs", () => {
  it.effect("a program that only reads opens no session", () =>
    run(
      Effect.gen(function* () {
        const service = yield* ServiceClient.ServiceClient
        yield* service.getServerCapabilities
        expect(yield* (yield* server).sessions).toEqual([])
      }),
    ),
  )

  it.effect("an invalid checkpoint is rejected without a request", () =>
    Clients.run(
      Effect.gen(function* () {
        const service = yield* ServiceClient.ServiceClient
        const bad = [
          "tinker://",
          "tinker://run",
          "tinker://run/other/x",
          "tinker://run/weights/../x",
          "tinker:///weights/a",
        ]
        for (const path of bad) {
          expect(yield* Effect.flip(service.createTrainingClientFromCheckpoint(path))).toMatchObject({
            _tag: "InvalidInput",
          })
          expect(yield* Effect.flip(service.createSamplingClient({ modelPath: path }))).toMatchObject({
            _tag: "InvalidInput",
          })
        }
        expect(yield* (yield* Clients.server).requests).toEqual([])
        const client = yield* Clients.lora()
        const before = (yield* (yield* Clients.server).requests).length
        for (const path of bad) {
          expect(yield* Effect.flip(client.loadState(path))).toMatchObject({ _tag: "InvalidInput" })
          expect(yield* Effect.flip(client.createSamplingClient(path))).toMatchObject({ _tag: "InvalidInput" })
        }
        expect((yield* (yield* Clients.server).requests).length).toBe(before)
        const { path } = yield* client.saveState("good")
        yield* client.loadState(yield* Checkpoint.parse(path))
      }),
    ),
  )
})

it.effect("a server with unusual but valid responses is supported", () =>
  run(
    Effect.gen(function* () {
      const client = yield* lora()
      expect(yield* ending(client.trainStep(batch, Loss.crossEntropy, adam))).toBe("done")
      const { path } = yield* client.saveWeightsForSampler("s")
      expect(path).toBe(`tinker://${client.modelId}/s`)
      const sampler = yield* client.createSamplingClient(path)
      const { sequences } = yield* sampler.sample({ prompt: [1, 2], params: { maxTokens: 3 } })
      expect(sequences[0]?.sequenceId).toEqual(Option.none())
      const scores = yield* sampler.computeLogprobs([1, 2, 3])
      expect([...scores].map(Number.isNaN)).toEqual([true, false, false])
    }),
    {
      acceptedStatus: 202,
      requestIds: "uuid",
      samplerPath: "two-part",
      sampleSequenceIds: false,
      promptLogprobsShort: true,
      results: "json",
      pending: "try_again",
      dynamicFlags: "missing",
      metrics: () => ({ unsuffixed: 1 }),
    },
  ),
)
