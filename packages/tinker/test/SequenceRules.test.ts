/** The rules of `docs/sequence-numbers.md`, each on servers that treat numbers in three ways. */
import { describe, it } from "@effect/vitest"
import { Duration, Effect, Fiber, Option, Stream } from "effect"
import { Loss, ModelInput, type TrainingClient } from "effect-tinker"
import type * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import { expect } from "vitest"
import * as Clients from "./support/Clients.ts"

const { adam, applied, datum, ending, fault, lora, model, pass, run, sent } = Clients

const modes = ["dedupe", "nextOnly", "anything"] as const

const serial = { fwdbwd_max_chunk_len: 1 }
const parallel = { fwdbwd_max_chunk_len: 1, parallel_fwdbwd_chunks: true }
const three = [datum(1, 2), datum(3, 4), datum(5, 6)]
const chunked = (client: TrainingClient.Service) => client.forwardBackward(three, Loss.crossEntropy)

describe.each(modes)("sequence numbers on a server in mode %s", (mode) => {
  const on = (options: ScriptedServer.Options = {}): ScriptedServer.Options => ({ mode, ...options })

  it.effect("1: a resent request has the same bytes and the same idempotency key", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora({ onUnknownOutcome: "resend" })
        yield* fault({ on: "forward_backward", drop: "underway", times: 2 })
        yield* pass(client, 1, 2, 3)
        const requests = yield* (yield* Clients.server).requestsTo("forward_backward")
        expect(requests.length).toBe(3)
        for (const { bytes, headers } of requests) {
          expect(bytes).toEqual(requests[0]?.bytes)
          expect(headers["x-idempotency-key"]).toBe(requests[0]?.headers["x-idempotency-key"])
        }
      }),
      on(),
    ),
  )

  it.effect("2: acknowledged requests are numbered from 1 without gaps, one number per chunk", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* chunked(client)
        yield* client.optimStep(adam)
        yield* client.saveState("a")
        expect(yield* applied).toEqual([
          "1 forward_backward",
          "2 forward_backward",
          "3 forward_backward",
          "4 optim_step",
          "5 save_weights",
        ])
      }),
      on({ flags: serial }),
    ),
  )

  it.effect("3: a request that was never sent uses no number, and the client stays healthy", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        const refused = yield* fault({ on: "forward_backward", drop: "before", times: 1000 })
        expect(yield* ending(pass(client, 1, 2))).toBe("Unavailable Connect")
        yield* refused.remove
        expect(yield* ending(pass(client, 3, 4))).toBe("done")
        expect(yield* applied).toEqual(["1 forward_backward"])
      }),
      on(),
    ),
  )

  it.effect("3: input rejected by the client uses no number", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        expect(yield* ending(client.forwardBackward([], Loss.crossEntropy))).toBe("InvalidInput")
        expect(yield* ending(client.saveState("a", { ttl: Duration.infinity }))).toBe("InvalidInput")
        yield* pass(client, 1, 2)
        expect(yield* applied).toEqual(["1 forward_backward"])
      }),
      on(),
    ),
  )

  it.effect("4: the number of a rejected request is reused", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* pass(client, 1, 2)
        yield* fault({ on: "optim_step", status: 422, body: { detail: "no" } })
        expect(yield* ending(client.optimStep(adam))).toBe("RequestRejected Unprocessable")
        yield* pass(client, 3, 4)
        yield* client.optimStep(adam)
        expect(yield* applied).toEqual(["1 forward_backward", "2 forward_backward", "3 optim_step"])
      }),
      on(),
    ),
  )

  it.effect("4: the client learns once that a server uses up the numbers of rejected requests", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        const rejections = yield* fault({ on: "optim_step", status: 422, body: { detail: "no" } })
        expect(yield* ending(client.optimStep(adam))).toBe("RequestRejected Unprocessable")
        expect(yield* rejections.fired).toBe(1)
        yield* pass(client, 1, 2)
        yield* fault({ on: "optim_step", status: 422, body: { detail: "no" } })
        expect(yield* ending(client.optimStep(adam))).toBe("RequestRejected Unprocessable")
        yield* pass(client, 3, 4)
        // A server that accepts any number does not reveal this.
        const numbers = yield* sent("forward_backward")
        expect(numbers).toEqual(mode === "anything" ? [1, 2] : [1, 1, 1, 2, 4])
        expect(yield* ending(client.optimStep(adam))).toBe("done")
      }),
      on({ rejectedUsesNumber: true }),
    ),
  )

  it.effect(
    "5: a conflict on a first attempt is resent three times, then the client is broken and nothing was applied",
    () =>
      run(
        Effect.gen(function* () {
          const client = yield* lora()
          yield* pass(client, 1, 2)
          yield* fault({ on: "optim_step", status: 409, body: { detail: "seq" }, times: 1000 })
          const error = yield* Effect.flip(client.optimStep(adam))
          expect(error).toMatchObject({
            _tag: "SequenceBroken",
            operation: "optim_step",
            seq: 2,
            applied: "no",
            acknowledged: 1,
          })
          const seen = yield* (yield* Clients.server).requestsTo("optim_step")
          expect(seen.map(({ at }) => at - (seen[0]?.at ?? 0))).toEqual([0, 500, 1500, 3500])
          expect(yield* ending(pass(client, 3, 4))).toBe("SequenceBroken no")
        }),
        on(),
      ),
  )

  it.effect("5: a conflict that goes away only delays the request", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "optim_step", status: 409, body: { detail: "seq" }, times: 2 })
        expect(yield* ending(client.optimStep(adam))).toBe("done")
      }),
      on(),
    ),
  )

  it.effect("5: a save with a name that is taken is rejected without breaking the client", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "save_weights", status: 409, body: { detail: "exists" }, times: 4 })
        expect(yield* ending(client.saveState("a"))).toBe("RequestRejected Conflict")
        expect(yield* ending(client.saveState("b"))).toBe("done")
        expect(yield* applied).toEqual(["1 save_weights"])
      }),
      on(),
    ),
  )

  it.effect("6: after a lost response the request is applied exactly once, or its outcome is reported as unknown", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* pass(client, 1, 2)
        yield* fault({ on: "forward_backward", drop: "after" })
        const end = yield* ending(pass(client, 3, 4))
        const next = yield* ending(client.optimStep(adam))
        const done = yield* applied
        expect(done.filter((step) => step === "2 forward_backward").length).toBe(1)
        if (mode === "dedupe") {
          expect([end, next]).toEqual(["done", "done"])
        } else {
          expect([end, next]).toEqual(["SequenceBroken unknown", "SequenceBroken unknown"])
        }
      }),
      on(),
    ),
  )

  it.effect("6: a request lost on the way is resent if the server would detect a duplicate", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* pass(client, 1, 2)
        yield* fault({ on: "optim_step", drop: "underway" })
        const end = yield* ending(client.optimStep(adam))
        expect(end).toBe(mode === "anything" ? "SequenceBroken unknown" : "done")
        // The client probed once how the server counts, with a pass that changes nothing.
        expect((yield* applied).filter((step) => step.endsWith("optim_step")).length).toBe(mode === "anything" ? 0 : 1)
        yield* fault({ on: "optim_step", drop: "underway" })
        yield* ending(client.optimStep(adam))
        const probes = (yield* (yield* Clients.server).requestsTo("forward_backward")).slice(1)
        expect(probes.length).toBe(1)
      }),
      on(),
    ),
  )

  it.effect.each(["resend", "stop"] as const)(
    "6: with onUnknownOutcome set to %s the client does not probe the server",
    (onUnknownOutcome) =>
      run(
        Effect.gen(function* () {
          const client = yield* lora({ onUnknownOutcome })
          yield* fault({ on: "optim_step", drop: "underway" })
          expect(yield* ending(client.optimStep(adam))).toBe(
            onUnknownOutcome === "resend" ? "done" : "SequenceBroken unknown",
          )
          expect(yield* sent("forward_backward")).toEqual([])
        }),
        on(),
      ),
  )

  it.effect("6: a request that is harmless to repeat is resent without a probe", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora({ onUnknownOutcome: "stop" })
        yield* fault({ on: "save_weights", drop: "underway" })
        expect(yield* ending(client.saveState("a"))).toBe("done")
      }),
      on(),
    ),
  )

  it.effect("7: the client continues after a failed result, whether or not it used its number", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* pass(client, 1, 2)
        yield* fault({ on: "optim_step", failFuture: { error: "boom", category: "server" } })
        expect(yield* ending(client.optimStep(adam))).toBe("RequestFailed Server")
        expect(yield* ending(pass(client, 3, 4))).toBe("done")
        expect(yield* ending(client.optimStep(adam))).toBe("done")
        expect((yield* model).weights.steps).toBe(1)
      }),
      on(),
    ),
  )

  it.effect("7: a step whose result is lost still counts", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "forward_backward", expireFuture: true })
        expect(yield* ending(pass(client, 1, 2))).toBe("PromiseExpired")
        expect(yield* ending(client.optimStep(adam))).toBe("done")
        expect(yield* applied).toEqual(["1 forward_backward", "2 optim_step"])
      }),
      on(),
    ),
  )

  it.effect("8: 402 and 429 keep a request's place in the queue and appear in queueState", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "optim_step", status: 402, body: { detail: "pay" }, times: 2 })
        yield* fault({ on: "optim_step", status: 429, body: { detail: "slow" }, headers: { "retry-after": "7" } })
        const ticket = yield* client.enqueue.optimStep(adam)
        const behind = yield* client.enqueue.saveState("a")
        const states = yield* Effect.fork(Stream.runCollect(ticket.queueState))
        yield* behind.await
        const seenStates = Array.from(yield* Fiber.join(states), ({ state }) => state)
        expect(new Set(seenStates.filter((state) => state.startsWith("paused")))).toEqual(
          new Set(["paused_billing", "paused_rate_limit"]),
        )
        expect(yield* applied).toEqual(["1 optim_step", "2 save_weights"])
        const seen = yield* (yield* Clients.server).requestsTo("optim_step")
        expect(seen.map(({ at }) => at - (seen[0]?.at ?? 0))).toEqual([0, 5000, 10000, 17000])
      }),
      on(),
    ),
  )

  it.effect("9: a rejected later chunk leaves a partial batch, which must be accepted or reverted by loading", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        const { path } = yield* client.saveState("a")
        yield* fault({ on: "forward_backward", nth: 2, status: 400, body: { detail: "bad" } })
        expect(yield* ending(chunked(client))).toBe("SequenceBroken partial")
        const broken = yield* client.broken
        expect(broken).toMatchObject(Option.some({ seq: 3, acknowledged: 2, lastCheckpoint: Option.some(path) }))
        expect(yield* ending(client.optimStep(adam))).toBe("SequenceBroken partial")
        yield* client.acceptPartial
        expect(yield* ending(client.optimStep(adam))).toBe("done")

        yield* fault({ on: "forward_backward", nth: 2, status: 400, body: { detail: "bad" } })
        expect(yield* ending(chunked(client))).toBe("SequenceBroken partial")
        // A failed load changes nothing.
        expect(yield* ending(client.loadState("tinker://nobody/weights/x"))).not.toBe("done")
        expect(yield* ending(client.optimStep(adam))).toBe("SequenceBroken partial")
        expect(yield* ending(client.loadState(path))).toBe("done")
        expect(yield* ending(client.optimStep(adam))).toBe("done")
      }),
      on({ flags: serial }),
    ),
  )

  it.effect("9: a rejected first chunk, or any chunk of a forward pass, is an ordinary rejection", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "forward_backward", status: 403, body: { detail: "bad" } })
        expect(yield* ending(chunked(client))).toBe("Forbidden")
        yield* fault({ on: "forward_backward", nth: 2, status: 403, body: { detail: "bad" } })
        expect(yield* ending(client.forward(three, Loss.crossEntropy))).toBe("Forbidden")
        expect(yield* ending(chunked(client))).toBe("done")
      }),
      on({ flags: serial }),
    ),
  )

  it.effect(
    "10: when the client is broken, queued and new requests fail immediately and acknowledged ones still succeed",
    () =>
      run(
        Effect.gen(function* () {
          const client = yield* lora()
          const first = yield* client.submit.forwardBackward([datum(1, 2)], Loss.crossEntropy)
          yield* fault({ on: "optim_step", status: 409, body: {}, times: 4 })
          const breaking = yield* client.enqueue.optimStep(adam)
          const behind = yield* client.enqueue.saveState("a")
          expect(yield* ending(breaking.await)).toBe("SequenceBroken no")
          expect(yield* ending(behind.await)).toBe("SequenceBroken no")
          expect(yield* ending(client.saveState("b"))).toBe("SequenceBroken no")
          expect(yield* ending(first.await)).toBe("done")
        }),
        on({ work: "1 minute" }),
      ),
  )
})

describe("chunks that can't be encoded", () => {
  it.effect.each([serial, parallel])(
    "a chunk that can't be encoded is detected before any chunk is sent: %j",
    (flags) =>
      run(
        Effect.gen(function* () {
          const client = yield* lora()
          const pointer = ModelInput.make({
            type: "image_asset_pointer",
            format: "png",
            location: "x",
            expectedTokens: 1,
          })
          const bad = [datum(1, 2), { modelInput: pointer, inputs: { targetTokens: [1], weights: [1] } }]
          expect(yield* ending(client.forwardBackward(bad, Loss.crossEntropy))).toBe("InvalidInput")
          expect(yield* sent("forward_backward")).toEqual([])
          expect(yield* ending(chunked(client))).toBe("done")
        }),
        { flags },
      ),
  )
})

describe("parallel chunks", () => {
  it.effect("with parallel chunks the first chunk is sent last, and nothing is applied before it", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* chunked(client)
        expect(yield* sent("forward_backward")).toEqual([2, 3, 1])
        expect(yield* applied).toEqual(["1 forward_backward", "2 forward_backward", "3 forward_backward"])
      }),
      { flags: parallel },
    ),
  )

  it.effect("9: with parallel chunks the first is not sent after another was rejected, and nothing is applied", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "forward_backward", nth: 2, status: 400, body: { detail: "bad" } })
        expect(yield* ending(chunked(client))).toBe("SequenceBroken no")
        expect(yield* sent("forward_backward")).toEqual([2, 3])
        expect(yield* applied).toEqual([])
      }),
      { flags: parallel },
    ),
  )

  it.effect("9: with parallel chunks the numbers are reused if every sent chunk was rejected", () =>
    run(
      Effect.gen(function* () {
        const client = yield* lora()
        yield* fault({ on: "forward_backward", status: 403, body: { detail: "bad" }, times: 2 })
        expect(yield* ending(chunked(client))).toBe("Forbidden")
        expect(yield* ending(chunked(client))).toBe("done")
        expect(yield* applied).toEqual(["1 forward_backward", "2 forward_backward", "3 forward_backward"])
      }),
      { flags: parallel },
    ),
  )
})
