import type { HttpClient } from "@effect/platform"
import { describe, expect, it } from "@effect/vitest"
import { Run, type RunEvent, RunStore, TrainingLoop } from "@effect-tinker/recipes"
import { Chunk, Effect, Stream } from "effect"
import { Cost, Loss, Optimizer } from "effect-tinker"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import { afterAnyWrite } from "./support/Dying.ts"
import { clients, onServer } from "./support/Scripted.ts"

/** Tries every write and budget instead of a few. */
const isFull = process.env["TINKER_TESTS"] === "all"

/** A trained token costs a dollar, a sampled one ten, and one of a prompt a hundred. */
const prices: Cost.Prices = {
  ...Cost.free,
  models: { m: { train: 1e6, sample: 1e7, prefill: 1e8, cachedPrefill: 1e8 } },
}

const steps = 6
/** Each step trains on 2 tokens, each of the 3 evaluations samples 2 from a prompt of 2. */
const whole = steps * 2 + 3 * (2 * 10 + 2 * 100)

const program = (
  store: RunStore.Service,
  budget?: number,
  table = prices,
): Effect.Effect<ReadonlyArray<RunEvent.RunEvent>, unknown, HttpClient.HttpClient> =>
  Effect.gen(function* () {
    const run = yield* Run.open({
      model: { baseModel: "m" },
      configuration: {},
      cost: { prices: table, budget: budget === undefined ? undefined : Cost.usd(budget) },
    })
    if (run._tag === "Completed") return []
    return Chunk.toReadonlyArray(
      yield* Stream.runCollect(
        TrainingLoop.events(run, {
          batches: (from) =>
            Stream.map(
              Stream.iterate(from, (step) => step + 1),
              (step) => ({
                data: [{ modelInput: [step + 1, 1], inputs: { targetTokens: [1, 2], weights: [1, 0.5] } }],
                tokens: 2,
                metrics: {},
              }),
            ),
          steps,
          loss: Loss.crossEntropy,
          optimizer: Optimizer.adam(),
          metrics: () => Effect.succeed({}),
          evaluations: [
            {
              name: "test",
              everySteps: 3,
              evaluate: (sampler) =>
                Effect.as(sampler.sample({ prompt: [1, 2], params: { maxTokens: 2 } }), { metrics: { "test/x": 1 } }),
            },
          ],
        }),
      ),
    )
  }).pipe(Effect.scoped, Effect.provideService(RunStore.RunStore, store), Effect.provide(clients))

const spent = (store: RunStore.Service) =>
  Effect.map(Run.readEvents(store), (events) =>
    events.flatMap((event) => (event._tag === "Step" ? [event.metrics["cost/usd"] ?? Number.NaN] : [])),
  )

/** The recorded spending of the run, in dollars. */
const recorded = (store: RunStore.Service) =>
  Effect.map(
    store.read("spending.json"),
    (text) => Number(JSON.parse(String(text._tag === "Some" ? text.value : "")).spent) / 1e12,
  )

const weights = Effect.flatMap(ScriptedServer.ScriptedServer, ({ models }) =>
  Effect.map(models, (models) => models.at(-1)?.weights),
)

describe("the cost of a run", () => {
  it.effect("steps report what the run has spent so far, with its evaluations", () =>
    onServer(
      Effect.gen(function* () {
        const store = yield* RunStore.memory()
        yield* program(store)
        const costs = yield* spent(store)
        expect(costs).toHaveLength(steps)
        expect(costs.toSorted((a, b) => a - b)).toEqual(costs)
        expect(yield* recorded(store)).toBeCloseTo(whole, 6)
      }),
    ),
  )

  it.effect(
    "a budget stops the run with a checkpoint before the budget is exceeded, and a larger one continues it",
    () =>
      Effect.gen(function* () {
        const undisturbed = yield* onServer(
          Effect.zipRight(
            Effect.flatMap(RunStore.memory(), (store) => program(store)),
            weights,
          ),
        )
        for (const budget of isFull ? [0, 7, 225, 230, 445, 500, 600] : [0, 230, 500]) {
          yield* onServer(
            Effect.gen(function* () {
              const store = yield* RunStore.memory()
              const stopped = yield* Effect.flip(program(store, budget))
              expect(stopped).toMatchObject({ _tag: "RunStopped", reason: expect.stringContaining("the budget of") })
              const done = (yield* Run.readEvents(store)).at(-1)
              expect(done).toMatchObject({
                _tag: "Done",
                outcome: "stopped",
                message: expect.stringContaining("budget"),
              })
              expect(yield* recorded(store)).toBeLessThanOrEqual(budget)
              // The same budget does not suffice again.
              expect(yield* Effect.flip(program(store, budget))).toMatchObject({ _tag: "RunStopped" })
              yield* program(store, whole)
              expect({ budget, recorded: Math.round(yield* recorded(store)) }).toEqual({ budget, recorded: whole })
              expect(yield* weights).toEqual(undisturbed)
            }),
          )
        }
      }),
  )

  it.effect("what was spent before a crash counts after it", () =>
    afterAnyWrite({ every: isFull ? 1 : 13, atLeast: isFull ? 50 : 4 }, ({ die, store, writes }) =>
      Effect.gen(function* () {
        yield* die((store) => program(store))
        yield* program(store)
        // An evaluation that a crash cut off is made and paid for again.
        const extra = ((yield* recorded(store)) - whole) / 220
        expect({ writes, extra: [0, 1].includes(Math.round(extra * 1e6) / 1e6) }).toEqual({ writes, extra: true })
        expect((yield* spent(store)).length).toBe(steps)
      }),
    ),
  )

  it.effect("a missing price is an error before anything is sent", () =>
    onServer(
      Effect.gen(function* () {
        const store = yield* RunStore.memory()
        const error = yield* Effect.flip(program(store, 1, { ...prices, models: { m: { train: 1 } } }))
        expect(error).toMatchObject({ _tag: "InvalidInput", path: "cost.prices" })
        const { requestsTo } = yield* ScriptedServer.ScriptedServer
        expect(yield* requestsTo("create_model")).toEqual([])
      }),
    ),
  )
})
