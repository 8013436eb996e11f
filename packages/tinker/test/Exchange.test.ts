/** A server in the process and its client: what is there at once is told at once, the rest when it comes. */
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

/** Sends the short way from this fiber; what was told, in order, and the way to give it up. */
const send = (handle: Exchange.Handle) =>
  Effect.withFiberRuntime<{ readonly told: ReadonlyArray<HttpDirect.Outcome>; readonly cancel: () => void }>(
    (fiber) => {
      const direct = HttpDirect.of(Exchange.client(handle))
      const told: Array<HttpDirect.Outcome> = []
      const cancel = direct?.(outgoing, (outcome) => told.push(outcome), fiber)
      if (cancel === undefined) throw new TypeError("there is no short way")
      return Effect.succeed({ told, cancel })
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

describe("the short way", () => {
  it.effect.each(outcomes)("tells %s at once, and needs no fiber for it", ([, expected, handle]) =>
    Effect.gen(function* () {
      const before = FiberId.unsafeMake().id
      const { cancel, told } = yield* send(handle)
      expect(FiberId.unsafeMake().id).toBe(before + 1)
      expect(told.map(words)).toEqual([expected])
      cancel()
      yield* Effect.yieldNow()
      expect(told.length).toBe(1)
    }),
  )

  it.effect.each(outcomes)("tells %s that comes later, once", ([, expected, handle]) =>
    Effect.gen(function* () {
      const { cancel, told } = yield* send((request, fiber) => Effect.delay(handle(request, fiber), "1 second"))
      yield* TestClock.adjust(999)
      expect(told).toEqual([])
      yield* TestClock.adjust(1)
      expect(told.map(words)).toEqual([expected])
      cancel()
      yield* TestClock.adjust("1 hour")
      expect(told.length).toBe(1)
    }),
  )

  it.effect("tells what a server throws", () =>
    Effect.gen(function* () {
      const { told } = yield* send(() => {
        throw new Error("of the server")
      })
      expect(told.map(words)).toEqual(["died: Error: of the server"])
    }),
  )

  it.effect("waits for a body that comes in parts, though its answer was there at once", () =>
    Effect.gen(function* () {
      const more = yield* Deferred.make<void>()
      const parts = Stream.concat(Stream.make("a"), Stream.fromEffect(Effect.as(Deferred.await(more), "b")))
      const { told } = yield* send(() => Effect.succeed({ ...answer, body: Stream.encodeText(parts) }))
      yield* TestClock.adjust(0)
      expect(told).toEqual([])
      yield* Deferred.succeed(more, undefined)
      yield* TestClock.adjust(0)
      expect(told.map(words)).toEqual(["201 yes ab"])
    }),
  )

  it.effect("interrupts a server that is still at it when nobody wants to know any more", () =>
    Effect.gen(function* () {
      const stopped = yield* Deferred.make<void>()
      const { cancel, told } = yield* send(() =>
        Effect.onInterrupt(Effect.never, () => Deferred.succeed(stopped, undefined)),
      )
      yield* TestClock.adjust("1 minute")
      expect(Option.isNone(yield* Deferred.poll(stopped))).toBe(true)
      cancel()
      yield* Deferred.await(stopped)
      yield* TestClock.adjust("1 minute")
      expect(told).toEqual([])
    }),
  )
})

describe("a server", () => {
  const ways = [
    ["the short way", (handle: Exchange.Handle) => Effect.asVoid(send(handle))],
    [
      "any other",
      (handle: Exchange.Handle) =>
        Effect.asVoid(
          Exchange.client(handle).post(outgoing.url, { headers: { "content-type": "text/plain", "x-name": "value" } }),
        ),
    ],
  ] as const

  it.effect.each(ways)("gets the request, and what its client has around it: %s", ([, ask]) =>
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
