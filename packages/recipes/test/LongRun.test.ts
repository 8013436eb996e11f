/** In a file of its own: memory retained by other tests would be counted too. */
import { expect, it } from "@effect/vitest"
import { CheckpointPolicy, Run, RunStore, TrainingLoop } from "@effect-tinker/recipes"
import { Effect, FiberRef, type Scheduler, Schema, Stream } from "effect"
import { Loss, Optimizer } from "effect-tinker"
import { held } from "./support/Memory.ts"
import { clients, onServer } from "./support/Scripted.ts"

/** Makes ten thousand steps instead of 250. */
const isFull = process.env["TINKER_TESTS"] === "all"
const steps = isFull ? 10_000 : 250
/** Memory is compared after the first part, which fills caches and compiles code, and after the last one. */
const parts = 5

const tokens = Array.from({ length: 200 }, (_, at) => at % 100)
/** A batch with a note so long that keeping those of a few hundred steps would be noticed. */
const batchAt = (step: number) => ({
  data: [{ modelInput: tokens, inputs: { targetTokens: tokens, weights: tokens.map(() => 1) } }],
  tokens: tokens.length,
  metrics: { epoch: 0 },
  notes: [{ _tag: "Warning" as const, step, reason: "note", message: `${step} `.repeat(5_000) }],
})

/** Counts the operations of all fibers: the scheduler is asked before each. */
class Counting implements Scheduler.Scheduler {
  operations = 0
  private readonly scheduler: Scheduler.Scheduler
  constructor(scheduler: Scheduler.Scheduler) {
    this.scheduler = scheduler
  }
  shouldYield: Scheduler.Scheduler["shouldYield"] = (fiber) => {
    this.operations++
    return this.scheduler.shouldYield(fiber)
  }
  scheduleTask: Scheduler.Scheduler["scheduleTask"] = (task, priority, fiber) =>
    this.scheduler.scheduleTask(task, priority, fiber)
}

/** A store whose content is elsewhere, e.g. on a disk: it counts what is written. */
const counting = () => {
  const counts = { appends: 0, writes: 0, records: 0 }
  const store: RunStore.Service = {
    name: "counted",
    journal: {
      append: (entries) => Effect.sync(() => void (counts.records += entries.length)),
      read: Effect.succeed([]),
    },
    read: () => Effect.succeedNone,
    write: () => Effect.sync(() => void counts.writes++),
    lines: () => Effect.succeed([]),
    append: () => Effect.sync(() => void counts.appends++),
  }
  return { counts, store }
}

it.effect("a long run holds no more memory after its last step than after a fifth, and all steps cost the same", () =>
  onServer(
    Effect.gen(function* () {
      const scheduler = new Counting(yield* FiberRef.get(FiberRef.currentScheduler))
      const { counts, store } = counting()
      const memory: Array<number> = []
      const costs: Array<Readonly<Record<string, number>>> = []
      const measure = Effect.gen(function* () {
        costs.push({ operations: scheduler.operations, ...counts })
        memory.push(yield* held)
      })
      yield* Effect.gen(function* () {
        const run = yield* Run.open({ model: { baseModel: "m" }, configuration: { steps } })
        if (run._tag === "Completed") return expect.unreachable()
        const events = TrainingLoop.events(run, {
          batches: (from) =>
            Stream.map(
              Stream.iterate(from, (step) => step + 1),
              batchAt,
            ),
          steps,
          loss: Loss.crossEntropy,
          optimizer: Optimizer.adam({ learningRate: 1e-3 }),
          metrics: ({ pass }) => Effect.succeed({ loss: pass.metrics["loss:sum"] ?? NaN }),
          checkpoints: yield* Schema.decode(CheckpointPolicy.CheckpointPolicy)({
            everySteps: 50,
            rollingEverySteps: 10,
          }),
        })
        yield* Stream.runForEach(events, (event) =>
          event._tag === "Step" && (event.step + 1) % (steps / parts) === 0 ? measure : Effect.void,
        )
      }).pipe(
        Effect.scoped,
        Effect.provideService(RunStore.RunStore, store),
        Effect.provide(clients),
        Effect.withScheduler(scheduler),
      )
      expect(memory).toHaveLength(parts)
      expect((memory.at(-1) ?? NaN) - (memory[0] ?? NaN)).toBeLessThan(2_500_000)
      for (const name of ["operations", "appends", "records"]) {
        const perPart = costs.slice(1).map((cost, part) => (cost[name] ?? NaN) - (costs[part]?.[name] ?? NaN))
        const [before = NaN] = perPart
        expect(before).toBeGreaterThan(steps / parts)
        for (const after of perPart) expect(Math.abs(after / before - 1)).toBeLessThan(isFull ? 0.02 : 0.05)
      }
    }),
    { keep: 100, work: ({ operation }) => (operation === "forward_backward" ? "1 second" : "0 seconds") },
  ),
)
