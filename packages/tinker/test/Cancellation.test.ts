/** Tests every row of the table in `docs/cancellation.md`. */
import { readFileSync } from "node:fs"
import { describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Scope } from "effect"
import { Loss, RateLimiter, ServiceClient, TinkerConfig } from "effect-tinker"
import { expect, test } from "vitest"
import * as Clients from "./support/Clients.ts"

const { adam, applied, baseModel, datum, ending, fault, lora, run, sent, server } = Clients

const batch = [datum(1, 2, 3)]

/** Interrupts a fiber and returns how it ended, checking how long that took. */
const interrupt = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) =>
  Effect.gen(function* () {
    const clock = yield* Effect.clock
    const before = clock.unsafeCurrentTimeMillis()
    const exit = yield* Fiber.interrupt(fiber)
    expect(clock.unsafeCurrentTimeMillis() - before).toBe(0)
    return Exit.isInterrupted(exit) ? "interrupted" : "ended by itself"
  })

const places = Effect.gen(function* () {
  const config = yield* TinkerConfig.TinkerConfig
  const limiter = yield* (yield* RateLimiter.RateLimiter).limiter(RateLimiter.keyOf(config))
  const { sampling, training } = yield* limiter.stats
  return { sampling: sampling.inFlight + sampling.waiting, training: training.inFlight + training.waiting }
})

const sampler = Effect.flatMap(ServiceClient.ServiceClient, (service) => service.createSamplingClient({ baseModel }))
const prompt = { prompt: [1, 2, 3], params: { maxTokens: 4 } }

const rows = {
  "training, queued": Effect.gen(function* () {
    const client = yield* lora()
    yield* fault({ on: "optim_step", delay: "1 minute" })
    yield* client.enqueue.optimStep(adam)
    const waiting = yield* Effect.fork(client.saveState("a"))
    yield* Effect.sleep("1 second")
    expect(yield* interrupt(waiting)).toBe("interrupted")
    yield* client.saveState("b")
    // It was not sent, so the next request gets its number.
    expect(yield* applied).toEqual(["1 optim_step", "2 save_weights"])
    expect(yield* sent("save_weights")).toEqual([2])
  }),

  "training, waiting for a place in the queue": Effect.gen(function* () {
    const client = yield* lora({ maxQueued: 1 })
    yield* fault({ on: "optim_step", delay: "1 minute" })
    yield* client.enqueue.optimStep(adam)
    yield* Effect.sleep("1 second")
    yield* client.enqueue.saveState("queued")
    const waiting = yield* Effect.fork(client.saveState("a"))
    yield* Effect.sleep("1 second")
    expect(yield* interrupt(waiting)).toBe("interrupted")
    yield* client.saveState("b")
    expect(yield* applied).toEqual(["1 optim_step", "2 save_weights", "3 save_weights"])
  }),

  "training, being encoded": Effect.gen(function* () {
    const client = yield* lora()
    // Validation and encoding are one synchronous step, so an interruption comes before or after it.
    const waiting = yield* Effect.fork(client.forwardBackward(batch, Loss.crossEntropy))
    expect(yield* interrupt(waiting)).toBe("interrupted")
    yield* client.optimStep(adam)
    expect(yield* applied).toEqual(["1 optim_step"])
  }),

  "training, being sent": Effect.gen(function* () {
    const client = yield* lora()
    yield* fault({ on: "optim_step", delay: "1 minute" })
    const waiting = yield* Effect.fork(client.optimStep(adam))
    yield* Effect.sleep("1 second")
    expect(yield* interrupt(waiting)).toBe("interrupted")
    yield* client.saveState("b")
    // The submission continued and used its number.
    expect(yield* applied).toEqual(["1 optim_step", "2 save_weights"])
  }),

  "training, awaited": Effect.gen(function* () {
    const client = yield* lora()
    const waiting = yield* Effect.fork(client.optimStep(adam))
    yield* Effect.sleep("1 second")
    expect(yield* interrupt(waiting)).toBe("interrupted")
    yield* Effect.sleep("1 hour")
    expect(yield* applied).toEqual(["1 optim_step"])
    expect(yield* (yield* server).requestsTo("cancel_future")).toEqual([])
  }),

  "sample, at the gate": Effect.gen(function* () {
    const client = yield* sampler
    yield* fault({ on: "asample", status: 429, headers: { "retry-after": "60" } })
    yield* Effect.fork(client.sample(prompt))
    yield* Effect.sleep("1 second")
    const waiting = yield* Effect.fork(client.sample(prompt))
    yield* Effect.sleep("1 second")
    const before = yield* places
    expect(yield* interrupt(waiting)).toBe("interrupted")
    expect((yield* places).sampling).toBe(before.sampling - 1)
    expect((yield* (yield* server).requestsTo("asample")).length).toBe(1)
  }),

  "sample, being sent": Effect.gen(function* () {
    const client = yield* sampler
    yield* fault({ on: "asample", hang: true })
    const waiting = yield* Effect.fork(client.sample(prompt))
    yield* Effect.sleep("1 second")
    expect((yield* places).sampling).toBe(1)
    expect(yield* interrupt(waiting)).toBe("interrupted")
    expect((yield* places).sampling).toBe(0)
    // The request id is not known, so there is nothing to cancel.
    expect(yield* (yield* server).requestsTo("cancel_future")).toEqual([])
  }),

  "sample, in flight": Effect.gen(function* () {
    const client = yield* sampler
    const waiting = yield* Effect.fork(client.sample(prompt))
    yield* Effect.sleep("1 second")
    expect(yield* interrupt(waiting)).toBe("interrupted")
    yield* Effect.sleep("1 second")
    expect((yield* (yield* server).requestsTo("cancel_future")).length).toBe(1)
    const polls = (yield* (yield* server).requestsTo("retrieve_future")).length
    yield* Effect.sleep("1 hour")
    expect((yield* (yield* server).requestsTo("retrieve_future")).length).toBe(polls)
  }),

  "scope closed": Effect.gen(function* () {
    const scope = yield* Scope.make()
    const client = yield* Scope.extend(lora(), scope)
    const awaited = yield* client.submit.optimStep(adam)
    yield* fault({ on: "save_weights", hang: true })
    const sending = yield* client.enqueue.saveState("a")
    const queued = yield* client.enqueue.saveState("b")
    yield* Effect.sleep("1 second")
    yield* Scope.close(scope, Exit.void)
    expect(yield* Effect.all([ending(awaited.await), ending(sending.await), ending(queued.await)])).toEqual([
      "ClientClosed",
      "ClientClosed",
      "ClientClosed",
    ])
    expect(yield* sent("save_weights")).toEqual([2])
  }),
}

describe("interruption", () => {
  for (const [row, program] of Object.entries(rows)) {
    it.effect(`interruption: ${row}`, () =>
      run(program, {
        dynamicFlags: { sample_cancel_enabled: true },
        work: ({ operation }) =>
          row.includes("flight") || row.includes("awaited") || row === "scope closed" || operation === "optim_step"
            ? "10 minutes"
            : 0,
      }),
    )
  }
})

test("every row of docs/cancellation.md has a test", () => {
  const table = readFileSync(new URL("../../../docs/cancellation.md", import.meta.url), "utf8")
  const [, ...documented] = [...table.matchAll(/^\| ([a-z][^|]*?) +\|/gm)].map(([, row]) => row)
  // The effect of killing a process is tested in the tests that kill processes.
  expect(documented).toEqual([...Object.keys(rows), "process killed"])
})
