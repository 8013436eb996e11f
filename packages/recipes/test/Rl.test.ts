import { describe, expect, it } from "@effect/vitest"
import type { Rl } from "@effect-tinker/recipes"
import { RunStore } from "@effect-tinker/recipes"
import { Chunk, Effect, Option } from "effect"
import { ModelInput, ServiceClient } from "effect-tinker"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import { afterAnyWrite } from "./support/Dying.ts"
import { program, scripted, small, weights } from "./support/Rollouts.ts"
import { clients, onServer } from "./support/Scripted.ts"

/** Tries every write instead of a few. */
const isFull = process.env["TINKER_TESTS"] === "all"

describe("rollouts", () => {
  it.effect("a run that dies after any write samples no finished rollout again and ends with the same weights", () =>
    Effect.gen(function* () {
      const whole = yield* onServer(
        Effect.gen(function* () {
          const store = yield* RunStore.memory()
          yield* program(store, scripted().task)
          return { rollouts: (yield* store.lines("rollouts.jsonl")).toSorted(), weights: yield* weights }
        }),
      )
      expect(whole.rollouts).toHaveLength(12)
      yield* afterAnyWrite({ every: isFull ? 1 : 11, atLeast: isFull ? 45 : 5 }, ({ die, store, writes }) =>
        Effect.gen(function* () {
          const { counts, task } = scripted()
          yield* die((store) => program(store, task))
          const finished = (yield* store.lines("rollouts.jsonl")).length
          const before = counts.made
          yield* program(store, task)
          expect({ writes, made: counts.made - before }).toEqual({ writes, made: 12 - finished })
          expect((yield* store.lines("rollouts.jsonl")).toSorted()).toEqual(whole.rollouts)
          expect(yield* weights).toEqual(whole.weights)
          expect(counts.closed).toBe(counts.made)
        }),
      )
    }),
  )

  it.effect("a run that goes back to the middle of an iteration uses the rollouts of that iteration", () =>
    Effect.gen(function* () {
      const config = { ...small, checkpoints: { everySteps: 3 } }
      const whole = yield* onServer(
        Effect.gen(function* () {
          yield* program(yield* RunStore.memory(), scripted().task, config)
          return yield* weights
        }),
      )
      yield* onServer(
        Effect.gen(function* () {
          // Dies after the checkpoint in the middle of the second iteration.
          const store = yield* RunStore.memory()
          const dies: RunStore.Service = {
            ...store,
            append: (file, lines) =>
              file === "events.jsonl" && lines.some((line) => line.includes('"step":4'))
                ? Effect.die("killed")
                : store.append(file, lines),
          }
          yield* Effect.exit(program(dies, scripted().task, config))
          expect((yield* store.lines("checkpoints.jsonl")).length).toBe(1)
          yield* Effect.flatMap(ScriptedServer.ScriptedServer, ({ endSession }) => endSession())
          yield* program(store, scripted().task, config)
          expect(yield* weights).toEqual(whole)
        }),
      )
    }),
  )

  it.effect("more updates than rollouts are refused before anything is sent", () =>
    onServer(
      Effect.gen(function* () {
        const error = yield* Effect.flip(
          program(yield* RunStore.memory(), scripted().task, { ...small, updatesPerIteration: 5 }),
        )
        expect(error).toMatchObject({ _tag: "InvalidInput", path: "config.updatesPerIteration" })
      }),
    ),
  )

  it.effect("a failed rollout ends the run only after the others have ended, and they are kept", () =>
    onServer(
      Effect.gen(function* () {
        const store = yield* RunStore.memory()
        const { counts, task } = scripted({ fails: 1 })
        const error = yield* Effect.flip(program(store, task))
        expect(error).toMatchObject({ _tag: "RolloutFailed", message: expect.stringContaining("the sandbox is gone") })
        expect(yield* store.lines("rollouts.jsonl")).toHaveLength(3)
        expect(counts).toMatchObject({ made: 4, closed: 4 })
      }),
    ),
  )

  it.effect("a failed rollout is repeated in a new environment", () =>
    onServer(
      Effect.gen(function* () {
        const { counts, task } = scripted({ fails: 2 })
        yield* program(yield* RunStore.memory(), task, { ...small, onFailedRollout: "retry" })
        expect(counts).toMatchObject({ made: 14, closed: 14 })
      }),
    ),
  )

  it.effect("a prompt that the server refuses is a failed rollout, and the others go on", () =>
    onServer(
      Effect.gen(function* () {
        const { fault } = yield* ScriptedServer.ScriptedServer
        const tooLong = { failFuture: { error: "the prompt is longer than the context", category: "user" as const } }
        yield* fault({ on: "asample", times: 1, ...tooLong })
        const store = yield* RunStore.memory()
        const failed = yield* Effect.flip(program(store, scripted().task))
        expect(failed).toMatchObject({
          _tag: "RolloutFailed",
          message: expect.stringContaining("longer than the context"),
        })
        expect(yield* store.lines("rollouts.jsonl")).toHaveLength(3)
        yield* fault({ on: "asample", times: 1, status: 400, body: { detail: "the prompt is too long" } })
        const events = Chunk.toReadonlyArray(
          yield* program(yield* RunStore.memory(), scripted().task, { ...small, onFailedRollout: "shrink" }),
        )
        expect(events.filter(({ _tag }) => _tag === "Warning")).toMatchObject([
          { reason: "rollout_failed", message: expect.stringContaining("too long") },
        ])
        expect(events.at(-1)).toMatchObject({ _tag: "Done", step: 6 })
      }),
    ),
  )

  it.effect("an environment that can't be closed is a failed rollout, and the others are kept", () =>
    onServer(
      Effect.gen(function* () {
        const { task } = scripted()
        const brittle = (index: number) => {
          const { make, ...rest } = task(index)
          const closed = Effect.addFinalizer(() => (index === 1 ? Effect.die(new Error("still busy")) : Effect.void))
          return { ...rest, make: Effect.zipRight(closed, make) }
        }
        const store = yield* RunStore.memory()
        const error = yield* Effect.flip(program(store, brittle))
        expect(error).toMatchObject({ _tag: "RolloutFailed", message: expect.stringContaining("still busy") })
        expect(yield* store.lines("rollouts.jsonl")).toHaveLength(2)
      }),
    ),
  )

  it.effect("an iteration in which all rollouts have failed is sampled again when the run continues", () =>
    onServer(
      Effect.gen(function* () {
        const config: Rl.Input = { ...small, onFailedRollout: "shrink" }
        const store = yield* RunStore.memory()
        const error = yield* Effect.flip(program(store, scripted({ fails: 4 }).task, config))
        expect(error).toMatchObject({ _tag: "InvalidInput", message: expect.stringContaining("the sandbox is gone") })
        const { counts, task } = scripted()
        yield* program(store, task, config)
        expect(counts.made).toBe(12)
      }),
    ),
  )

  it.effect("a reward that is no number is named, e.g. a promise", () =>
    onServer(
      Effect.gen(function* () {
        for (const [reward, shown] of [
          [Number.NaN, "NaN"],
          [undefined, "undefined"],
          ["1", "a string"],
          [Promise.resolve(1), "a promise"],
        ] as const) {
          const task = (index: number) => {
            const { make, ...rest } = scripted().task(index)
            // A program in JavaScript may return this.
            const act = () => Effect.succeed({ reward: reward as number })
            return { ...rest, make: Effect.map(make, (environment) => ({ ...environment, act })) }
          }
          const error = yield* Effect.flip(program(yield* RunStore.memory(), task))
          expect(error.message).toContain(`expected a finite number as reward, got ${shown}; the task is "task 0"`)
        }
      }),
    ),
  )

  it.effect("a task that can't be made is an error with its number", () =>
    onServer(
      Effect.gen(function* () {
        const thrown = (index: number) => {
          if (index === 2) throw new Error("the file is gone")
          return scripted().task(index)
        }
        const error = yield* Effect.flip(program(yield* RunStore.memory(), thrown))
        expect(error).toMatchObject({ _tag: "InvalidInput", message: "task(2): the file is gone" })
        const missing = [scripted().task(0)]
        const none = yield* Effect.flip(
          program(yield* RunStore.memory(), (index) => missing[index] as (typeof missing)[0]),
        )
        expect(none.message).toBe("task(1): expected a task, got undefined")
      }),
    ),
  )

  it.effect("a rollout that hangs is left out of its group after its time, with a warning", () =>
    onServer(
      Effect.gen(function* () {
        const { counts, task } = scripted({ hangs: 0 })
        const events = Chunk.toReadonlyArray(
          yield* program(yield* RunStore.memory(), task, { ...small, onFailedRollout: "shrink" }),
        )
        const warnings = events.filter(({ _tag }) => _tag === "Warning")
        expect(warnings).toHaveLength(2)
        expect(warnings[0]).toMatchObject({ reason: "rollout_failed", message: expect.stringContaining("30s") })
        expect(counts.closed).toBe(counts.made)
        expect(events.at(-1)).toMatchObject({ _tag: "Done", step: 6 })
      }),
    ),
  )
})

describe("the penalty for the distance to a reference", () => {
  const config: Rl.Input = {
    ...small,
    iterations: 1,
    updatesPerIteration: 1,
    klPenalty: 0.5,
    checkpoints: { everySteps: 0 },
  }

  const samples = (config: Rl.Input) =>
    Effect.map(
      Effect.flatMap(RunStore.memory(), (store) => program(store, scripted().task, config)),
      (events) => ({
        samples: Chunk.toReadonlyArray(events).filter((event) => event._tag === "Sample"),
        metrics: Chunk.toReadonlyArray(events).flatMap((event) => (event._tag === "Step" ? [event.metrics] : []))[0],
      }),
    )

  it.effect("each token gets the coefficient times the mean distance minus its own", () =>
    onServer(
      Effect.gen(function* () {
        const plain = yield* samples({ ...config, klPenalty: 0 })
        const found = yield* samples(config)
        expect(found.samples).toHaveLength(4)
        const sampler = yield* Effect.flatMap(ServiceClient.ServiceClient, (service) =>
          service.createSamplingClient({ baseModel: "m" }),
        )
        const distances = yield* Effect.forEach(found.samples, ({ group, tokens }) => {
          const sequence = [Number(group) + 1, 2, ...tokens.map(({ text }) => Number(text))]
          const chunks = [sequence.slice(0, -1), sequence.slice(-1)].map(
            (tokens) => ({ type: "encoded_text", tokens: Int32Array.from(tokens) }) as const,
          )
          return Effect.map(sampler.computeLogprobs(ModelInput.fromChunks(chunks)), (reference) =>
            tokens.map(({ logprob = NaN }, at) => logprob - (reference[at + 2] ?? NaN)),
          )
        })
        const mean = distances.flat().reduce((sum, distance) => sum + distance, 0) / distances.flat().length
        expect(found.metrics?.["kl_policy_base"]).toBeCloseTo(mean, 5)
        expect(plain.metrics).not.toHaveProperty("kl_policy_base")
        for (const [index, { tokens }] of found.samples.entries()) {
          for (const [at, { advantage }] of tokens.entries()) {
            const before = plain.samples[index]?.tokens[at]?.advantage ?? NaN
            expect(advantage).toBeCloseTo(before + 0.5 * (mean - (distances[index]?.[at] ?? NaN)), 4)
          }
        }
      }).pipe(Effect.scoped, Effect.provide(clients)),
    ),
  )

  it.effect("the reference is the base model unless another one is named", () =>
    onServer(
      Effect.gen(function* () {
        const { requestsTo } = yield* ScriptedServer.ScriptedServer
        const references = Effect.map(requestsTo("create_sampling_session"), (requests) =>
          requests.map(({ json }) => (json as { base_model?: string }).base_model),
        )
        yield* samples(config)
        expect(yield* references).toEqual(["m"])
        yield* samples({ ...config, klReference: "other" })
        expect(yield* references).toEqual(["m", "other"])
      }),
    ),
  )

  it.effect("a run of an older version, whose configuration has no penalty, can be continued", () =>
    onServer(
      Effect.gen(function* () {
        const store = yield* RunStore.memory()
        yield* program(store, scripted().task, { ...small, klPenalty: 0, klDiscount: 0, maxStaleness: 0 })
        const written = JSON.parse(Option.getOrElse(yield* store.read("config.json"), () => ""))
        expect(Object.keys(written)).not.toContain("klPenalty")
        expect(Object.keys(written)).not.toContain("maxStaleness")
        yield* program(store, scripted().task)
      }),
    ),
  )
})
