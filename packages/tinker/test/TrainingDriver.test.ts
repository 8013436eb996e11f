/** The driver around the sequence core: its semaphore, its polling fibers, and requests that are rendered ahead. */
import { describe, expect, it } from "@effect/vitest"
import { Context, Deferred, Duration, Effect, Either, Exit, Fiber, Layer, Option, Redacted, Ref, Scope } from "effect"
import type { ApiFuture } from "effect-tinker"
import { RateLimiter, TinkerError } from "effect-tinker"
import * as BaseUrl from "effect-tinker/http/BaseUrl"
import type { Accepted } from "effect-tinker/protocol/schemas/Futures"
import * as Session from "effect-tinker/Session"
import type { Operation } from "../src/internal/training/Submission.js"
import * as TrainingDriver from "../src/internal/training/TrainingDriver.js"

type Answer = Exit.Exit<Accepted, TinkerError.TinkerError>

/** A driver that logs what it renders, sends and polls, and waits for each response. */
const rig = Effect.gen(function* () {
  const log: Array<string> = []
  const waiting: Array<Deferred.Deferred<Accepted, TinkerError.TinkerError>> = []
  const context = yield* Layer.build(RateLimiter.layer)
  const limiter = yield* Context.get(context, RateLimiter.RateLimiter).limiter({
    baseUrl: BaseUrl.BaseUrl.make("http://server"),
    credential: Redacted.make("tml-a"),
  })
  const polling = new Set<string>()
  const follow = (_: ApiFuture.Kind<unknown>, requestId: string) =>
    Effect.acquireUseRelease(
      Effect.sync(() => polling.add(requestId)),
      () => Effect.never,
      () => Effect.sync(() => polling.delete(requestId)),
    )
  const driver = yield* TrainingDriver.make({
    limiter,
    // Only `follow` is used by a driver.
    futures: { follow } as unknown as ApiFuture.Service,
    learnt: yield* Ref.make(Session.nothingLearnt),
    journal: Option.none(),
    keepRequests: false,
    onUnknownOutcome: "stop",
    checkSession: Effect.void,
    probe: () => Effect.succeed({ answer: "Unknown", requestId: undefined }),
    readsOnlyJson: Effect.succeed(false),
    capacity: 64,
    closeGrace: Duration.zero,
    meters: () => undefined,
    attributes: {},
    report: () => undefined,
    logged: (effect) => effect,
  })
  const kindOf = (type: string) => ({ type, fromJson: Either.right, fromProtobuf: Option.none() })
  const operation = (name: string, bytes = 10): Operation<unknown, unknown> => ({
    kind: kindOf(name),
    requests: [
      {
        kind: kindOf(name),
        bytes,
        renderings: [
          {
            operation: name,
            encoding: "fixed",
            check: () => Either.void,
            render: (seq) => {
              log.push(`render ${name} ${seq}`)
              return Either.right({ method: "POST", path: name, query: String(seq), body: undefined, secrets: [] })
            },
            send: ({ query }) =>
              Effect.suspend(() => {
                log.push(`send ${name} ${query}`)
                const answer = Deferred.unsafeMake<Accepted, TinkerError.TinkerError>(
                  Fiber.getCurrentFiber().pipe(Option.getOrThrow).id(),
                )
                waiting.push(answer)
                return Deferred.await(answer)
              }),
          },
        ],
      },
    ],
    parallel: false,
    repeatable: true,
    independentPieces: true,
    conflictMeansNameTaken: false,
    clearsPartial: false,
    combine: (results) => results,
    tag: Option.none(),
    wait: {},
    onSuccess: () => undefined,
  })
  const settle = Effect.repeatN(Effect.yieldNow(), 20)
  const eventLoop = Effect.async<void>((resume) => void setImmediate(() => setImmediate(() => resume(Effect.void))))
  const answer = (exit: Answer) =>
    Effect.suspend(() => {
      const next = waiting.shift()
      return next === undefined ? Effect.die("nothing was sent") : Effect.zipRight(Deferred.done(next, exit), settle)
    })
  const accept = (requestId: string) =>
    answer(Exit.succeed({ requestId, modelId: Option.none(), sampleSequenceIds: Option.none() }))
  return { accept, answer, driver, eventLoop, log, operation, polling, settle }
})

describe("TrainingDriver", () => {
  it.scopedLive("the semaphore keeps other work out while a request is being submitted", () =>
    Effect.gen(function* () {
      const { accept, driver, log, operation, settle } = yield* rig
      const submitted = yield* Effect.fork(driver.submit(operation("a")))
      yield* settle
      const exclusive = yield* Effect.fork(driver.exclusively(Effect.sync(() => log.push("exclusive"))))
      yield* settle
      expect(log).toEqual(["render a 1", "send a 1"])
      yield* accept("id-a")
      yield* Fiber.join(exclusive)
      yield* Fiber.join(submitted)
      expect(log.at(-1)).toBe("exclusive")
    }),
  )

  it.scopedLive("no request is submitted while other work holds the semaphore", () =>
    Effect.gen(function* () {
      const { driver, log, operation, settle } = yield* rig
      const release = yield* Deferred.make<void>()
      const exclusive = yield* Effect.fork(driver.exclusively(Deferred.await(release)))
      yield* settle
      yield* Effect.fork(driver.submit(operation("a")))
      yield* settle
      expect(log).toEqual([])
      yield* Deferred.succeed(release, undefined)
      yield* Fiber.join(exclusive)
      yield* settle
      expect(log).toEqual(["render a 1", "send a 1"])
    }),
  )

  it.live(
    "each acknowledged request has a polling fiber that ends with the client's scope and resumes its caller",
    () =>
      Effect.gen(function* () {
        const scope = yield* Scope.make()
        const { accept, driver, operation, polling, settle } = yield* Scope.extend(rig, scope)
        const callers = yield* Effect.forEach(["a", "b"], (name) => Effect.fork(driver.run(operation(name))))
        yield* settle
        yield* accept("id-a")
        yield* accept("id-b")
        expect([...polling]).toEqual(["id-a", "id-b"])
        yield* Scope.close(scope, Exit.void)
        expect([...polling]).toEqual([])
        const exits = yield* Effect.forEach(callers, Fiber.await)
        for (const exit of exits)
          expect(exit).toEqual(Exit.fail(new TinkerError.ClientClosed({ operation: "training" })))
      }),
  )

  it.scopedLive("the next request is rendered while one is in flight and sent as it was rendered", () =>
    Effect.gen(function* () {
      const { accept, driver, eventLoop, log, operation, settle } = yield* rig
      yield* driver.enqueue(operation("a"))
      yield* driver.enqueue(operation("b"))
      yield* settle
      yield* accept("id-a")
      // `b` was enqueued after `a` had been sent, so `c` is the first that is rendered ahead.
      yield* driver.enqueue(operation("c"))
      yield* driver.enqueue(operation("d"))
      yield* accept("id-b")
      yield* eventLoop
      expect(log.slice(4)).toEqual(["render c 3", "send c 3", "render d 4"])
      yield* accept("id-c")
      expect(log.slice(7)).toEqual(["send d 4"])
    }),
  )

  it.scopedLive("a request that was rendered ahead is rendered again when its number changes", () =>
    Effect.gen(function* () {
      const { accept, answer, driver, eventLoop, log, operation, settle } = yield* rig
      yield* driver.enqueue(operation("first"))
      yield* settle
      yield* driver.enqueue(operation("a"))
      yield* driver.enqueue(operation("b"))
      yield* accept("id-first")
      yield* eventLoop
      expect(log.slice(2)).toEqual(["render a 2", "send a 2", "render b 3"])
      yield* answer(Exit.fail(new TinkerError.Forbidden({ operation: "a" })))
      expect(log.slice(5).at(-1)).toBe("send b 2")
    }),
  )

  it.scopedLive("a large request is not rendered ahead: it would be outside of the byte budget", () =>
    Effect.gen(function* () {
      const { accept, driver, eventLoop, log, operation, settle } = yield* rig
      yield* driver.enqueue(operation("first"))
      yield* settle
      yield* driver.enqueue(operation("a"))
      yield* driver.enqueue(operation("big", 2 * 1024 * 1024))
      yield* accept("id-first")
      yield* eventLoop
      expect(log.slice(2)).toEqual(["render a 2", "send a 2"])
    }),
  )

  it.scopedLive("the printed state names what is queued, what is being sent and what is open", () =>
    Effect.gen(function* () {
      const { accept, driver, operation, settle } = yield* rig
      yield* driver.enqueue(operation("a"))
      yield* settle
      yield* accept("id-a")
      yield* driver.enqueue(operation("b"))
      yield* settle
      yield* driver.enqueue(operation("c"))
      const printed = JSON.parse(JSON.stringify(driver.state))
      expect(printed).toMatchObject({
        next: 2,
        unsettled: [1],
        newest: { seq: 1, requestId: "id-a" },
        active: { operation: { name: "b" }, pieces: [{ current: { seq: 2 }, phase: "Sending" }] },
        queue: [{ name: "c" }],
      })
    }),
  )
})
