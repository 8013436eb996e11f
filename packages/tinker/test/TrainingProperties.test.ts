/**
 * Random programs: operations in all forms, faults of all kinds, interruptions and closings at any time. In all of them
 * nothing is applied twice, a healthy client skips no number, and every caller resumes.
 */
import { describe, it } from "@effect/vitest"
import { Effect, Exit, FastCheck as fc, Fiber, Option, Scope, Supervisor } from "effect"
import { CustomLoss, Loss, RateLimiter, ServiceClient, TinkerConfig, type TrainingClient } from "effect-tinker"
import type * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import { expect } from "vitest"
import * as Clients from "./support/Clients.ts"

const { adam, datum, fault, lora, run, server } = Clients

const modes = ["dedupe", "nextOnly", "anything"] as const

type Operation = "pass" | "big pass" | "forward" | "step" | "update" | "save" | "load" | "custom"

interface Action {
  readonly operation: Operation
  readonly form: "enqueue" | "submit" | "plain"
  /** Interrupted after this many milliseconds. */
  readonly interruptedAfter: number | undefined
  /** Before the next action. */
  readonly pause: number
}

interface Program {
  readonly actions: ReadonlyArray<Action>
  readonly faults: ReadonlyArray<ScriptedServer.Fault>
  readonly closedAfter: number | undefined
  readonly maxQueued: number
}

const milliseconds = fc.nat({ max: 20_000 })

const action: fc.Arbitrary<Action> = fc.record({
  operation: fc.constantFrom<Operation>("pass", "big pass", "forward", "step", "update", "save", "load", "custom"),
  form: fc.constantFrom("enqueue", "submit", "plain"),
  interruptedAfter: fc.option(milliseconds, { nil: undefined, freq: 4 }),
  pause: fc.constantFrom(0, 0, 0, 100, 7_000),
})

const numbered = new Set<unknown>(["forward_backward", "forward", "optim_step", "save_weights", "load_weights"])
const onSubmit = ({ operation, seq }: ScriptedServer.Seen) => numbered.has(operation) && (seq ?? 0) > 0

const aFault: fc.Arbitrary<ScriptedServer.Fault> = fc
  .record({
    nth: fc.integer({ min: 1, max: 12 }),
    times: fc.constantFrom(1, 1, 2, 30),
    what: fc.constantFrom<ScriptedServer.Action>(
      { status: 400, body: { detail: "bad" } },
      { status: 403, body: { detail: "no" } },
      { status: 409, body: { detail: "conflict" } },
      { status: 429, body: {}, headers: { "retry-after": "2" } },
      { status: 402, body: {} },
      { status: 500, body: { detail: "busy" } },
      { status: 408, body: {} },
      { drop: "before" },
      { drop: "underway" },
      { drop: "after" },
      { hang: true },
      { garbage: "{" },
      { failFuture: { error: "boom", category: "server" } },
      { failFuture: { status: 422, detail: "bad" } },
      { expireFuture: true },
      { delay: "3 seconds" },
    ),
  })
  .map(({ nth, times, what }): ScriptedServer.Fault => ({ on: onSubmit, nth, times, ...what }))

const program: fc.Arbitrary<Program> = fc.record({
  actions: fc.array(action, { minLength: 1, maxLength: 12 }),
  faults: fc.array(aFault, { maxLength: 3 }),
  closedAfter: fc.option(milliseconds, { nil: undefined }),
  maxQueued: fc.constantFrom(1, 3, 64),
})

const loss = CustomLoss.analytic((data) => ({
  loss: 1,
  gradients: data.map(({ logprobs }) => new Float32Array(logprobs.length).fill(0.5)),
}))

/** The call as a user would write it; its result does not matter. */
const perform = (client: TrainingClient.Service, { form, operation }: Action, i: number, path: string) => {
  const methods = form === "plain" ? client : client[form]
  const one = [datum(i, i + 1, i + 2)]
  const call = (): Effect.Effect<unknown, unknown> => {
    switch (operation) {
      case "pass":
        return methods.forwardBackward(one, Loss.crossEntropy)
      case "big pass":
        return methods.forwardBackward([...one, datum(i, i + 7), datum(7, i)], Loss.crossEntropy)
      case "forward":
        return methods.forward(one, Loss.crossEntropy)
      case "step":
        return client.trainStep(one, Loss.crossEntropy, adam)
      case "update":
        return methods.optimStep(adam)
      case "save":
        return methods.saveState(`s${i}`)
      case "load":
        return methods.loadState(path)
      case "custom":
        return methods.forwardBackwardCustom(one, loss)
    }
  }
  return Effect.exit(call())
}

/**
 * True if a server that accepts any number answered 409 to exactly the request that probes this. A client cannot detect
 * that.
 */
const deniesUsedNumber = (requests: ReadonlyArray<ScriptedServer.Seen>): boolean => {
  let newest = 0
  return requests.filter(onSubmit).some(({ answered, seq = 0 }) => {
    const isUsed = seq < newest
    newest = Math.max(newest, seq)
    return isUsed && answered === 409
  })
}

const check = (mode: (typeof modes)[number], parallel: boolean, { actions, closedAfter, faults, maxQueued }: Program) =>
  Effect.gen(function* () {
    // The session's fibers outlive the client.
    yield* (yield* ServiceClient.ServiceClient).session
    const supervisor = yield* Supervisor.track
    const scope = yield* Scope.make()
    const outcome = yield* Effect.gen(function* () {
      const client = yield* Scope.extend(lora({ maxQueued }), scope)
      const { path } = yield* client.saveState("first")
      yield* Effect.forEach(faults, fault, { discard: true })
      const callers: Array<Fiber.RuntimeFiber<unknown>> = []
      for (const [i, action] of actions.entries()) {
        const caller = yield* Effect.fork(perform(client, action, i, path))
        callers.push(caller)
        if (action.interruptedAfter !== undefined)
          yield* Effect.fork(Effect.delay(Fiber.interrupt(caller), action.interruptedAfter))
        if (action.pause > 0) yield* Effect.sleep(action.pause)
      }
      if (closedAfter !== undefined) yield* Effect.fork(Effect.delay(Scope.close(scope, Exit.void), closedAfter))
      // Every caller resumes; otherwise the test does not end.
      yield* Fiber.awaitAll(callers)
      // Enqueued requests outlive their callers: they are each of them is retried for up to five minutes.
      yield* Effect.sleep("1 hour")
      return { broken: yield* client.broken }
    }).pipe(Effect.supervised(supervisor))

    const config = yield* TinkerConfig.TinkerConfig
    const limiter = yield* (yield* RateLimiter.RateLimiter).limiter(RateLimiter.keyOf(config))
    yield* Scope.close(scope, Exit.void)
    yield* Effect.sleep("1 minute")
    const { training } = yield* limiter.stats
    expect({ inFlight: training.inFlight, waiting: training.waiting }).toEqual({ inFlight: 0, waiting: 0 })
    expect(
      yield* Effect.filter(yield* supervisor.value, (fiber) => Effect.map(Fiber.poll(fiber), Option.isNone)),
    ).toEqual([])

    const [model] = yield* (yield* server).models
    const applied = model?.applied ?? []
    // Nothing harmful is applied twice, and no number is used for two requests.
    const harmful = applied.filter(({ operation }) => operation === "forward_backward" || operation === "optim_step")
    const wasLiedTo = mode === "anything" && deniesUsedNumber(yield* (yield* server).requests)
    if (!wasLiedTo) expect(new Set(harmful.map(({ bodyHash, seq }) => `${seq} ${bodyHash}`)).size).toBe(harmful.length)
    if (mode !== "anything") expect(new Set(applied.map(({ seq }) => seq)).size).toBe(applied.length)
    // In order, except for parallel chunks on a server that accepts any number.
    const numbers = harmful.map(({ seq }) => seq)
    if (!(mode === "anything" && parallel)) expect(numbers).toEqual(numbers.toSorted((a, b) => a - b))
    // A healthy client leaves no gap that the server waits for.
    if (outcome.broken._tag === "None" && closedAfter === undefined) expect(model?.held ?? []).toEqual([])
  })

/** `test:all` runs more programs. */
const isFull = process.env["TINKER_TESTS"] === "all"

describe.each(modes)("random programs on a server in mode %s", (mode) => {
  it.effect.each([false, true])(
    "a random program applies nothing twice and every caller resumes, with parallel chunks: %s",
    (parallel) =>
      Effect.promise(() =>
        fc.assert(
          fc.asyncProperty(program, (random) =>
            Effect.runPromise(
              run(check(mode, parallel, random), {
                mode,
                flags: { fwdbwd_max_chunk_len: 1, parallel_fwdbwd_chunks: parallel && mode !== "nextOnly" },
              }),
            ),
          ),
          { numRuns: Number(process.env["TINKER_PROPERTY_RUNS"] ?? (isFull ? 25 : 8)) },
        ),
      ),
  )
})
