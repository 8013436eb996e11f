/** The next request is written while the one before it is on its way, and sent only if it is still the right one. */
import { describe, expect, it } from "@effect/vitest"
import { Context, Effect, Either, Exit, Fiber, Layer, Option, Redacted, Ref } from "effect"
import { RateLimiter, TinkerError } from "effect-tinker"
import * as BaseUrl from "effect-tinker/http/BaseUrl"
import * as Session from "effect-tinker/Session"
import type * as Transport from "effect-tinker/Transport"
import * as Sequencer from "../src/internal/training/Sequencer.js"

type End = Parameters<NonNullable<Sequencer.Form["dispatch"]>>[3]

/** A sequencer that shows what it does, and waits for each answer. */
const rig = Effect.gen(function* () {
  const log: Array<string> = []
  const waiting: Array<End> = []
  const context = yield* Layer.build(RateLimiter.layer)
  const limiter = yield* Context.get(context, RateLimiter.RateLimiter).limiter({
    baseUrl: BaseUrl.BaseUrl.make("http://server"),
    credential: Redacted.make("tml-a"),
  })
  const sequencer = Sequencer.make({
    // Forms bring their own way to be sent.
    transport: {} as Transport.Service,
    limiter,
    learnt: yield* Ref.make(Session.nothingLearnt),
    journal: Option.none(),
    keepRequests: false,
    whenUnknown: "stop",
    probe: () => Effect.succeedNone,
    readsOnlyJson: Effect.succeed(false),
  })
  const request = (name: string, bytes = 10): Sequencer.Request => ({
    bytes,
    forms: [
      {
        operation: name,
        wire: undefined,
        check: () => Either.void,
        render: (seq) => {
          log.push(`write ${name} ${seq}`)
          return Either.right({ method: "POST", path: name, query: String(seq), body: undefined, secrets: [] })
        },
        send: () => Effect.dieMessage("the long way"),
        dispatch: (_, { query }, __, end) => {
          log.push(`send ${name} ${query}`)
          waiting.push(end)
          return () => Effect.void
        },
      },
    ],
  })
  const submit = (...requests: ReadonlyArray<Sequencer.Request>) =>
    Effect.fork(
      sequencer.submit({
        kind: "Test",
        requests,
        parallel: false,
        repeatable: true,
        named: false,
        separable: true,
        heals: false,
        follows: false,
        tag: Option.none(),
        onAcknowledged: () => {},
        onDelay: () => Effect.void,
      }),
    )
  const answer = (result: Parameters<End>[0]) => Effect.sync(() => waiting.shift()?.(result))
  const accept = answer(Exit.succeed({ requestId: "id", modelId: Option.none(), sampleSequenceIds: Option.none() }))
  return { accept, answer, log, prepare: sequencer.prepare, request, submit }
})

describe("a request that is written ahead", () => {
  it.scoped("is sent as it is in its turn", () =>
    Effect.gen(function* () {
      const { accept, log, prepare, request, submit } = yield* rig
      const [a, b] = [request("a"), request("b")]
      const first = yield* submit(a)
      yield* Effect.yieldNow()
      prepare([b])
      expect(log).toEqual(["write a 1", "send a 1", "write b 2"])
      yield* accept
      yield* Fiber.join(first)
      yield* submit(b)
      yield* Effect.yieldNow()
      expect(log.slice(3)).toEqual(["send b 2"])
    }),
  )

  it.scoped("is written again when it gets another number, or another one comes", () =>
    Effect.gen(function* () {
      const { accept, answer, log, prepare, request, submit } = yield* rig
      const [a, b, c] = [request("a"), request("b"), request("c")]
      const first = yield* submit(a)
      yield* Effect.yieldNow()
      prepare([b])
      yield* answer(Exit.fail(new TinkerError.Forbidden({ operation: "a", detail: "no" })))
      expect(Exit.isFailure(yield* Fiber.await(first))).toBe(true)
      log.length = 0
      const second = yield* submit(b)
      yield* Effect.yieldNow()
      expect(log).toEqual(["write b 1", "send b 1"])
      prepare([c])
      yield* accept
      yield* Fiber.join(second)
      yield* submit(a)
      yield* Effect.yieldNow()
      expect(log.slice(2)).toEqual(["write c 2", "write a 2", "send a 2"])
    }),
  )

  it.scoped("is none that is big, in pieces, or comes when nothing is on its way", () =>
    Effect.gen(function* () {
      const { accept, log, prepare, request, submit } = yield* rig
      prepare([request("early")])
      const first = yield* submit(request("a"))
      yield* Effect.yieldNow()
      prepare([request("big", 2_000_000)])
      prepare([request("one"), request("two")])
      yield* accept
      yield* Fiber.join(first)
      prepare([request("late")])
      expect(log).toEqual(["write a 1", "send a 1"])
    }),
  )
})
