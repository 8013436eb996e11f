/**
 * An in-process server and its client: an immediate response is delivered synchronously, any other when it is ready.
 */
import { describe, expect, it } from "@effect/vitest"
import { Cause, Clock, Context, Deferred, Effect, Exit, type Fiber, FiberId, Option, Stream, TestClock } from "effect"
import * as HttpDirect from "effect-tinker/http/HttpDirect"
import * as HttpFailure from "effect-tinker/http/HttpFailure"
import * as Exchange from "effect-tinker/protocol/Exchange"

const outgoing: HttpDirect.Outgoing = {
  method: "POST",
  url: "http://server/prefix/api/v1/echo?a=1",
  purpose: "session",
  headers: ["content-type", "text/plain", "x-name", "value"],
  body: "hello",
}

const answer: Exchange.Answer = { status: 201, headers: { "X-Answer": "yes" }, body: "world" }

/** Sends over HttpDirect from this fiber; returns the outcomes in order and a cancel function. */
const send = (handle: Exchange.Handle) =>
  Effect.withFiberRuntime<{ readonly received: ReadonlyArray<HttpDirect.Outcome>; readonly cancel: () => void }>(
    (fiber) => {
      const direct = HttpDirect.of(Exchange.client(handle))
      const received: Array<HttpDirect.Outcome> = []
      const cancel = direct?.(outgoing, (outcome) => received.push(outcome), fiber)
      if (cancel === undefined) throw new TypeError("the client has no direct path")
      return Effect.succeed({ received, cancel })
    },
  )

const words = (outcome: HttpDirect.Outcome | undefined): string => {
  if (outcome === undefined) return "nothing"
  switch (outcome._tag) {
    case "Answered": {
      const { body, headers, status } = outcome.answer
      return `${status} ${headers["x-answer"]} ${new TextDecoder().decode(body)}`
    }
    case "Failed":
      return `failed: ${outcome.failure._tag}`
    case "Died":
      return `died: ${String(Cause.squash(outcome.cause))}`
  }
}

const outcomes: ReadonlyArray<readonly [string, string, Exchange.Handle]> = [
  ["an answer", "201 yes world", () => Effect.succeed(answer)],
  [
    "bytes",
    "200 undefined abc",
    () => Effect.succeed({ status: 200, headers: {}, body: new TextEncoder().encode("abc") }),
  ],
  ["a failure", "failed: Disconnected", () => Exit.fail(new HttpFailure.Disconnected({ cause: "gone" }))],
  ["a defect", "died: Error: of the server", () => Exit.die(new Error("of the server"))],
]

describe("HttpDirect over Exchange", () => {
  it.effect.each(outcomes)("HttpDirect delivers %s synchronously, without starting a fiber", ([, expected, handle]) =>
    Effect.gen(function* () {
      const before = FiberId.unsafeMake().id
      const { cancel, received } = yield* send(handle)
      expect(FiberId.unsafeMake().id).toBe(before + 1)
      expect(received.map(words)).toEqual([expected])
      cancel()
      yield* Effect.yieldNow()
      expect(received.length).toBe(1)
    }),
  )

  it.effect.each(outcomes)("HttpDirect delivers %s exactly once when the handler takes time", ([, expected, handle]) =>
    Effect.gen(function* () {
      const { cancel, received } = yield* send((request, fiber) => Effect.delay(handle(request, fiber), "1 second"))
      yield* TestClock.adjust(999)
      expect(received).toEqual([])
      yield* TestClock.adjust(1)
      expect(received.map(words)).toEqual([expected])
      cancel()
      yield* TestClock.adjust("1 hour")
      expect(received.length).toBe(1)
    }),
  )

  it.effect("HttpDirect delivers an exception of the handler as a defect", () =>
    Effect.gen(function* () {
      const { received } = yield* send(() => {
        throw new Error("of the server")
      })
      expect(received.map(words)).toEqual(["died: Error: of the server"])
    }),
  )

  it.effect("HttpDirect waits for a streamed body even if the response is immediate", () =>
    Effect.gen(function* () {
      const more = yield* Deferred.make<void>()
      const parts = Stream.concat(Stream.make("a"), Stream.fromEffect(Effect.as(Deferred.await(more), "b")))
      const { received } = yield* send(() => Effect.succeed({ ...answer, body: Stream.encodeText(parts) }))
      yield* TestClock.adjust(0)
      expect(received).toEqual([])
      yield* Deferred.succeed(more, undefined)
      yield* TestClock.adjust(0)
      expect(received.map(words)).toEqual(["201 yes ab"])
    }),
  )

  it.effect("canceling an HttpDirect request interrupts its handler, and no outcome is delivered", () =>
    Effect.gen(function* () {
      const stopped = yield* Deferred.make<void>()
      const { cancel, received } = yield* send(() =>
        Effect.onInterrupt(Effect.never, () => Deferred.succeed(stopped, undefined)),
      )
      yield* TestClock.adjust("1 minute")
      expect(Option.isNone(yield* Deferred.poll(stopped))).toBe(true)
      cancel()
      yield* Deferred.await(stopped)
      yield* TestClock.adjust("1 minute")
      expect(received).toEqual([])
    }),
  )
})

describe("Exchange handlers", () => {
  const clients = [
    ["HttpDirect", (handle: Exchange.Handle) => Effect.asVoid(send(handle))],
    [
      "HttpClient",
      (handle: Exchange.Handle) =>
        Effect.asVoid(
          Exchange.client(handle).post(outgoing.url, { headers: { "content-type": "text/plain", "x-name": "value" } }),
        ),
    ],
  ] as const

  it.effect.each(clients)("an Exchange handler gets the request and the fiber context of its client: %s", ([, ask]) =>
    Effect.gen(function* () {
      const got: Array<readonly [Exchange.Request, Fiber.RuntimeFiber<unknown, unknown>]> = []
      yield* TestClock.adjust("1 hour")
      yield* ask((request, fiber) => {
        got.push([request, fiber])
        return Exit.succeed(answer)
      })
      const [[request, fiber] = []] = got
      expect(got.length).toBe(1)
      expect(request).toMatchObject({
        method: "POST",
        path: "/prefix/api/v1/echo?a=1",
        headers: { "content-type": "text/plain", "x-name": "value" },
      })
      const clock = fiber && Context.get(fiber.currentDefaultServices, Clock.Clock)
      expect(clock?.unsafeCurrentTimeMillis()).toBe(3_600_000)
    }),
  )
})
