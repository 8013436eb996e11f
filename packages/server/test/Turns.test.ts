/** Tests how samples of several tenants share the model. */
import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Redacted } from "effect"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import * as Turns from "../src/internal/Turns.js"
import * as Raw from "./support/Raw.ts"
import { name as baseModel } from "./support/StandInModel.ts"

/** Work of tenants that ends when the test says so, with a record of the order in which it began. */
const workshop = (limit: number) => {
  const turns = Turns.make(limit)
  const began: Array<string> = []
  const work = (owner: string, name: string) =>
    Effect.gen(function* () {
      const end = yield* Deferred.make<void>()
      const job = Effect.zipRight(
        Effect.sync(() => began.push(name)),
        Deferred.await(end),
      )
      const fiber = yield* Effect.fork(turns.run(owner)(job))
      yield* Effect.yieldNow()
      return { end: Effect.zipRight(Deferred.succeed(end, undefined), Fiber.await(fiber)), fiber }
    })
  return { turns, began, work }
}

describe("Turns", () => {
  it.effect("a tenant with one sample waits for one turn, not for all samples of another tenant", () =>
    Effect.gen(function* () {
      const { began, work } = workshop(1)
      const jobs = [yield* work("large", "l1"), yield* work("large", "l2"), yield* work("large", "l3")]
      jobs.splice(2, 0, yield* work("small", "s1"))
      expect(began).toEqual(["l1"])
      for (const { end } of jobs) {
        yield* end
        yield* Effect.yieldNow()
      }
      expect(began).toEqual(["l1", "l2", "s1", "l3"])
    }),
  )

  it.effect("no more than the limit run at once, and a free place is used at once", () =>
    Effect.gen(function* () {
      const { began, work } = workshop(2)
      const [first] = [yield* work("a", "a1"), yield* work("a", "a2"), yield* work("b", "b1")]
      expect(began).toEqual(["a1", "a2"])
      yield* first.end
      yield* Effect.yieldNow()
      expect(began).toEqual(["a1", "a2", "b1"])
    }),
  )

  it.effect("work that is interrupted while it waits or runs gives up its place", () =>
    Effect.gen(function* () {
      const { began, work } = workshop(1)
      const running = yield* work("a", "a1")
      const waiting = yield* work("a", "a2")
      yield* work("b", "b1")
      yield* Fiber.interrupt(waiting.fiber)
      yield* Fiber.interrupt(running.fiber)
      yield* Effect.yieldNow()
      expect(began).toEqual(["a1", "b1"])
    }),
  )

  it.effect("an interruption that arrives together with the turn does not keep the place", () =>
    Effect.gen(function* () {
      const { began, turns, work } = workshop(1)
      const first = yield* work("a", "a1")
      const second = yield* work("b", "b1")
      const ended = yield* Effect.fork(first.end)
      yield* Effect.yieldNow()
      yield* Fiber.interruptFork(second.fiber)
      yield* Fiber.join(ended)
      yield* Fiber.await(second.fiber)
      expect(yield* turns.run("c")(Effect.succeed("free"))).toBe("free")
      expect(began[0]).toBe("a1")
    }),
  )

  it.effect("work that fails or dies frees its place", () =>
    Effect.gen(function* () {
      const turns = Turns.make(1)
      expect(yield* Effect.exit(turns.run("a")(Effect.fail("no")))).toEqual(Exit.fail("no"))
      expect(yield* Effect.exit(turns.run("a")(Effect.die("no")))).toEqual(Exit.die("no"))
      expect(yield* turns.run("b")(Effect.succeed(1))).toBe(1)
    }),
  )
})

describe("samples of several keys", () => {
  it.effect("the sample of a second key completes before most of the many samples of the first", () =>
    Effect.gen(function* () {
      const order: Array<string> = []
      let open = () => {}
      const opened = new Promise<void>((resolve) => (open = resolve))
      yield* Effect.flatMap(
        Raw.make(
          { apiKeys: [Redacted.make("tml-a"), Redacted.make("tml-b")], maxRunningSamples: 1 },
          { delay: () => opened },
        ),
        ({ post, result }) =>
          Effect.gen(function* () {
            const sample = (key: string, count: number) =>
              Effect.gen(function* () {
                const as = { "x-api-key": key }
                const session = (yield* post("create_session", { sdk_version: "1" }, as)).body.session_id
                const sampler = (yield* post(
                  "create_sampling_session",
                  { session_id: session, sampling_session_seq_id: 0, base_model: baseModel },
                  as,
                )).body.sampling_session_id
                const accepted = yield* Effect.forEach(Array.from({ length: count }).keys(), (seq) =>
                  post(
                    "asample",
                    {
                      sampling_session_id: sampler,
                      seq_id: seq,
                      prompt: { chunks: [{ type: "encoded_text", tokens: [1] }] },
                      sampling_params: { max_tokens: 2 },
                    },
                    as,
                  ),
                )
                return yield* Effect.fork(
                  Effect.forEach(
                    accepted,
                    (one) => Effect.tap(result(one, as), () => Effect.sync(() => order.push(key))),
                    { concurrency: "unbounded" },
                  ),
                )
              })
            const large = yield* sample("tml-a", 20)
            const small = yield* sample("tml-b", 1)
            open()
            yield* Fiber.join(small)
            yield* Fiber.join(large)
          }),
      ).pipe(Effect.scoped, VirtualTime.run)
      expect(order).toHaveLength(21)
      expect(order.indexOf("tml-b")).toBeLessThan(10)
    }),
  )
})
