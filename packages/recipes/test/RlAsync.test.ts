import { describe, expect, it } from "@effect/vitest"
import { type Rl, Run, type RunEvent, RunStore } from "@effect-tinker/recipes"
import { Chunk, Clock, Effect, Exit, Logger } from "effect"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import { afterAnyWrite } from "./support/Dying.ts"
import { program, scripted, small, weights } from "./support/Rollouts.ts"
import { onServer } from "./support/Scripted.ts"

/** Tries every write instead of a few. */
const isFull = process.env["TINKER_TESTS"] === "all"

const ahead: Rl.Input = { ...small, iterations: 5, updatesPerIteration: 1, maxStaleness: 1 }

/** Events without their times. */
const outline = (events: ReadonlyArray<RunEvent.RunEvent>) =>
  events
    .map((event) => JSON.stringify({ ...event, at: undefined }).replaceAll(/tinker:\/\/[^/]+/g, "tinker://m"))
    .toSorted()

const versionsOf = (lines: ReadonlyArray<string>) => {
  const versions = new Map<number, Set<number>>()
  for (const line of lines) {
    const { iteration, version } = JSON.parse(line) as { iteration: number; version: number }
    versions.set(iteration, (versions.get(iteration) ?? new Set()).add(version))
  }
  return [...versions].toSorted(([a], [b]) => a - b).map(([, found]) => [...found].join(" "))
}

/** Runs with updates and samples that take time, and returns what had been applied when rollouts began. */
const observed = (config: Rl.Input) =>
  onServer(
    Effect.gen(function* () {
      const { models } = yield* ScriptedServer.ScriptedServer
      const begun: Array<{ readonly iteration: number; readonly applied: number }> = []
      const onStart = (task: number) =>
        Effect.map(models, (all) => {
          begun.push({ iteration: Math.floor(task / 2), applied: all.at(-1)?.weights.steps ?? NaN })
        })
      const store = yield* RunStore.memory()
      const events = Chunk.toReadonlyArray(yield* program(store, scripted({ onStart }).task, config))
      const rollouts = yield* store.lines("rollouts.jsonl")
      return { begun, events, rollouts, millis: yield* Clock.currentTimeMillis }
    }),
    { work: ({ operation }) => (operation === "optim_step" || operation === "asample" ? "10 seconds" : "0 seconds") },
  )

describe("rollouts that are sampled ahead", () => {
  it.effect("sampling begins before the update before it is made, and never further ahead than allowed", () =>
    Effect.gen(function* () {
      for (const [maxStaleness, updatesPerIteration] of [
        [1, 1],
        [2, 1],
        [1, 2],
        [3, 2],
      ] as const) {
        const { begun } = yield* observed({ ...ahead, maxStaleness, updatesPerIteration })
        expect(begun).toHaveLength(20)
        for (const { applied, iteration } of begun) {
          const newest = iteration * updatesPerIteration
          expect(applied).toBeGreaterThanOrEqual(Math.max(0, newest - maxStaleness))
          if (iteration > 0) expect(applied).toBeLessThan(newest)
        }
      }
    }),
  )

  it.effect("a run without staleness samples from the current weights only", () =>
    Effect.gen(function* () {
      const { begun, rollouts } = yield* observed({ ...ahead, maxStaleness: 0 })
      expect(begun.map(({ applied, iteration }) => applied - iteration)).toEqual(Array.from({ length: 20 }, () => 0))
      expect(versionsOf(rollouts)).toEqual(["0", "1", "2", "3", "4"])
    }),
  )

  it.effect("updates and samples that take equally long take little more than half the time", () =>
    Effect.gen(function* () {
      const inTurn = yield* observed({ ...ahead, maxStaleness: 0 })
      const overlapping = yield* observed(ahead)
      expect(inTurn.millis).toBeGreaterThanOrEqual(100_000)
      expect(overlapping.millis).toBeLessThan(75_000)
    }),
  )

  it.effect("rollouts, samples and metrics carry the policy version that they come from", () =>
    Effect.gen(function* () {
      const { events, rollouts } = yield* observed({ ...ahead, maxStaleness: 3, updatesPerIteration: 2 })
      expect(versionsOf(rollouts)).toEqual(["0", "0", "1", "3", "5"])
      const samples = events.flatMap((event) => (event._tag === "Sample" ? [event] : []))
      expect([...new Set(samples.map(({ step, trainingStep }) => `${step} ${trainingStep ?? step}`))]).toEqual([
        "0 0",
        "0 2",
        "1 4",
        "3 6",
        "5 8",
      ])
      const ages = events.flatMap((event) =>
        event._tag === "Step" && event.step % 2 === 0
          ? [[event.metrics["sampling_client/step_mean"], event.metrics["rollouts/staleness"]]]
          : [],
      )
      expect(ages).toEqual([
        [0, 0],
        [0, 2],
        [1, 3],
        [3, 3],
        [5, 3],
      ])
    }),
  )
})

describe("a run that samples ahead", () => {
  for (const config of [ahead, { ...small, maxStaleness: 3 }]) {
    const { maxStaleness, updatesPerIteration } = config
    it.effect(
      `it ends the same if it dies after any write (${maxStaleness} updates ahead, ${updatesPerIteration} per iteration)`,
      () =>
        Effect.gen(function* () {
          const whole = yield* onServer(
            Effect.gen(function* () {
              const store = yield* RunStore.memory()
              yield* program(store, scripted().task, config)
              return {
                events: outline(yield* Run.readEvents(store)),
                rollouts: (yield* store.lines("rollouts.jsonl")).toSorted(),
                weights: yield* weights,
              }
            }),
          )
          yield* afterAnyWrite({ every: isFull ? 1 : 17, atLeast: isFull ? 60 : 4 }, ({ die, store, writes }) =>
            Effect.gen(function* () {
              const { counts, task } = scripted()
              yield* die((store) => program(store, task, config))
              const finished = (yield* store.lines("rollouts.jsonl")).length
              const before = counts.made
              yield* program(store, task, config)
              expect({ writes, made: counts.made - before }).toEqual({
                writes,
                made: whole.rollouts.length - finished,
              })
              expect((yield* store.lines("rollouts.jsonl")).toSorted()).toEqual(whole.rollouts)
              expect({ writes, events: outline(yield* Run.readEvents(store)) }).toEqual({
                writes,
                events: whole.events,
              })
              expect(yield* weights).toEqual(whole.weights)
              expect(counts.closed).toBe(counts.made)
            }),
          )
        }),
    )
  }

  it.effect("it ends the same if it goes back to a checkpoint while later iterations are sampled", () =>
    Effect.gen(function* () {
      const configOf = (everySteps: number): Rl.Input => ({ ...ahead, maxStaleness: 2, checkpoints: { everySteps } })
      const wholeOf = (config: Rl.Input) =>
        onServer(
          Effect.gen(function* () {
            const store = yield* RunStore.memory()
            yield* program(store, scripted().task, config)
            return { weights: yield* weights, rollouts: (yield* store.lines("rollouts.jsonl")).toSorted() }
          }),
        )
      for (const [everySteps, last] of [
        [2, 9],
        [2, 14],
        [2, 17],
        [0, 14],
      ] as const) {
        const config = configOf(everySteps)
        const whole = yield* wholeOf(config)
        yield* onServer(
          Effect.gen(function* () {
            const store = yield* RunStore.memory()
            let kept = 0
            const dies: RunStore.Service = {
              ...store,
              append: (file, lines) =>
                file === "rollouts.jsonl" && ++kept > last ? Effect.die("killed") : store.append(file, lines),
            }
            const exit = yield* Effect.exit(program(dies, scripted().task, config))
            expect(Exit.isFailure(exit)).toBe(true)
            yield* Effect.flatMap(ScriptedServer.ScriptedServer, ({ endSession }) => endSession())
            const logged: Array<string> = []
            const logger = Logger.make(({ message }) => void logged.push(String(message)))
            yield* Effect.provide(program(store, scripted().task, config), Logger.add(logger))
            // None is dropped without a word: without a checkpoint, the weights of all are made again.
            const dropped = logged.filter((line) => line.includes("rollouts are sampled again"))
            expect(dropped).toHaveLength(everySteps === 0 ? 1 : 0)
            const after = yield* store.lines("rollouts.jsonl")
            expect(after.toSorted()).toEqual(whole.rollouts)
            expect(yield* weights).toEqual(whole.weights)
            const events = yield* Run.readEvents(store)
            expect(new Set(outline(events)).size).toBe(events.length)
            expect(events.at(-1)).toMatchObject({ _tag: "Done", step: 5, outcome: "complete" })
          }),
        )
      }
    }),
  )

  it.effect("a rollout that fails ends the run when its iteration is due, and those under way are kept", () =>
    onServer(
      Effect.gen(function* () {
        const store = yield* RunStore.memory()
        const { counts, task } = scripted({ fails: 1 })
        const error = yield* Effect.flip(program(store, task, ahead))
        expect(error).toMatchObject({ _tag: "RolloutFailed", message: expect.stringContaining("the sandbox is gone") })
        expect(counts).toMatchObject({ made: 8, closed: 8 })
        expect(yield* store.lines("rollouts.jsonl")).toHaveLength(7)
        yield* program(store, task, ahead)
        expect(yield* store.lines("rollouts.jsonl")).toHaveLength(20)
      }),
    ),
  )

  it.effect("a rollout that fails is repeated in a new environment", () =>
    onServer(
      Effect.gen(function* () {
        const { counts, task } = scripted({ fails: 2 })
        yield* program(yield* RunStore.memory(), task, { ...ahead, onFailedRollout: "retry" })
        expect(counts).toMatchObject({ made: 22, closed: 22 })
      }),
    ),
  )

  it.effect("rollouts that hang delay only their own iteration, and stay left out after a crash", () =>
    onServer(
      Effect.gen(function* () {
        const config: Rl.Input = { ...ahead, onFailedRollout: "shrink" }
        const store = yield* RunStore.memory()
        const dies: RunStore.Service = {
          ...store,
          append: (file, lines) =>
            file === "events.jsonl" && lines.some((line) => line.includes("rollout_failed"))
              ? Effect.die("killed")
              : store.append(file, lines),
        }
        // The first task of the third iteration.
        const { counts, task } = scripted({ hangs: 4 })
        expect(Exit.isFailure(yield* Effect.exit(program(dies, task, config)))).toBe(true)
        const before = counts.acted
        const events = Chunk.toReadonlyArray(yield* program(store, task, config))
        const warnings = events.filter(({ _tag }) => _tag === "Warning")
        expect(warnings).toHaveLength(2)
        expect(warnings[0]).toMatchObject({
          step: 2,
          reason: "rollout_failed",
          message: expect.stringContaining("30s"),
        })
        expect(counts.acted - before).toBeLessThanOrEqual(4)
        expect(counts.closed).toBe(counts.made)
        expect(events.at(-1)).toMatchObject({ _tag: "Done", step: 5 })
      }),
    ),
  )
})
