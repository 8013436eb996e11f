import type { HttpClient } from "@effect/platform"
import { describe, expect, it } from "@effect/vitest"
import { CheckpointPolicy, Run, type RunEvent, RunStore, TrainingLoop } from "@effect-tinker/recipes"
import { Chunk, Deferred, Effect, Exit, Option, Schema, Stream } from "effect"
import { Loss, Optimizer, type TinkerError } from "effect-tinker"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import { afterAnyWrite, dying } from "./support/Dying.ts"
import { clients, onServer } from "./support/Scripted.ts"

/** Tries every write instead of a few. */
const isFull = process.env["TINKER_TESTS"] === "all"

const steps = 6
const adam = Optimizer.adam({ learningRate: 1e-3 })
const batchAt = (step: number, size = 1) => ({
  data: Array.from({ length: size }, (_, at) => ({
    modelInput: [step + 1, at + 1],
    inputs: { targetTokens: [1, 2], weights: [1, 0.5] },
  })),
  tokens: 2 * size,
  metrics: { epoch: 0 },
})
const policy = Schema.decodeSync(CheckpointPolicy.CheckpointPolicy)

const testLength: TrainingLoop.Evaluation<TinkerError.FutureError> = {
  name: "test",
  everySteps: 3,
  evaluate: (sampler, { step }) =>
    Effect.map(sampler.sample({ prompt: [1, 2], params: { maxTokens: 2, seed: step } }), ({ sequences }) => ({
      metrics: { "test/length": sequences[0]?.tokens.length ?? 0 },
    })),
}

interface Settings {
  /** How many events are read. */
  readonly take?: number
  /** How many steps the run has. */
  readonly count?: number
  readonly checkpoints?: CheckpointPolicy.CheckpointPolicy
  readonly stop?: Effect.Effect<unknown>
  readonly configuration?: Run.Options["configuration"]
  readonly evaluations?: ReadonlyArray<TrainingLoop.Evaluation<TinkerError.FutureError>>
  /** How many datums a batch has, and how many passes it is split into. */
  readonly size?: number
  readonly passes?: number
}

/** A user's program: opens the run and makes its steps. Returns the new events. */
const program = (
  store: RunStore.Service,
  {
    checkpoints = policy({ everySteps: 2, rollingEverySteps: 1 }),
    configuration = { steps },
    count = steps,
    evaluations = [testLength],
    passes,
    size,
    stop = Effect.never,
    take = 1_000,
  }: Settings = {},
): Effect.Effect<ReadonlyArray<RunEvent.RunEvent> | "complete", unknown, HttpClient.HttpClient> =>
  Effect.gen(function* () {
    const run = yield* Run.open({ model: { baseModel: "m" }, configuration })
    if (run._tag === "Completed") return "complete" as const
    return Chunk.toReadonlyArray(
      yield* Stream.runCollect(
        TrainingLoop.events(run, {
          batches: (from) =>
            Stream.map(
              Stream.iterate(from, (step) => step + 1),
              (step) => batchAt(step, size),
            ),
          steps: count,
          passes,
          loss: Loss.crossEntropy,
          optimizer: adam,
          metrics: ({ pass }) => Effect.succeed({ loss: pass.metrics["loss:sum"] ?? NaN }),
          checkpoints,
          evaluations,
          stop,
        }).pipe(Stream.take(take)),
      ),
    )
  }).pipe(Effect.scoped, Effect.provideService(RunStore.RunStore, store), Effect.provide(clients))

/** Events without their times, in an order that does not depend on when evaluations end. */
const outline = (events: ReadonlyArray<RunEvent.RunEvent>) =>
  events
    .map((event) => JSON.stringify({ ...event, at: undefined }).replaceAll(/tinker:\/\/[^/]+/g, "tinker://m"))
    .toSorted()

const weights = Effect.flatMap(ScriptedServer.ScriptedServer, ({ models }) =>
  Effect.map(models, (models) => models.at(-1)?.weights),
)

const undisturbed = onServer(
  Effect.gen(function* () {
    const store = yield* RunStore.memory()
    yield* program(store)
    return { events: outline(yield* Run.readEvents(store)), weights: yield* weights }
  }),
)

describe("a training loop", () => {
  it.effect("a run makes its steps, saves checkpoints, evaluates, and is complete", () =>
    onServer(
      Effect.gen(function* () {
        const store = yield* RunStore.memory()
        const events = yield* program(store)
        if (events === "complete") return expect.unreachable()
        const of = (tag: RunEvent.RunEvent["_tag"]) =>
          events.flatMap((event) => (event._tag === tag ? [event.step] : []))
        expect(of("Step")).toEqual([0, 1, 2, 3, 4, 5])
        expect(of("Evaluation").toSorted()).toEqual([0, 3, 6])
        expect(events.flatMap((event) => (event._tag === "Checkpoint" ? [`${event.kind} ${event.step}`] : []))).toEqual(
          ["rolling 1", "periodic 2", "rolling 3", "periodic 4", "rolling 5", "final 6"],
        )
        expect(events.at(-1)).toMatchObject({ _tag: "Done", step: 6, outcome: "complete" })
        expect(yield* program(store)).toBe("complete")
      }),
    ),
  )

  it.effect("the logs of a run have the names that the official cookbook reads", () =>
    onServer(
      Effect.gen(function* () {
        const store = yield* RunStore.memory()
        yield* program(store, { checkpoints: policy({ everySteps: 0 }) })
        const metrics = (yield* store.lines("metrics.jsonl")).map((line) => JSON.parse(line))
        expect(metrics).toContainEqual({ step: 0, epoch: 0, num_tokens: 2, loss: expect.any(Number) })
        expect(metrics).toContainEqual({ step: 3, "test/length": 2 })
        const [final] = yield* store.lines("checkpoints.jsonl")
        expect(JSON.parse(final ?? "")).toMatchObject({
          name: "final",
          batch: 6,
          final: true,
          state_path: expect.stringMatching(/\/weights\/final$/),
          sampler_path: expect.stringMatching(/\/sampler_weights\/final$/),
        })
      }),
    ),
  )

  it.effect("a run that dies after any write ends with the same events and weights", () =>
    Effect.gen(function* () {
      const whole = yield* undisturbed
      yield* afterAnyWrite({ every: isFull ? 1 : 17, atLeast: isFull ? 80 : 5, from: 0 }, ({ die, store, writes }) =>
        Effect.gen(function* () {
          yield* die((store) => program(store))
          yield* program(store)
          expect({ writes, events: outline(yield* Run.readEvents(store)) }).toEqual({ writes, events: whole.events })
          expect(yield* weights).toEqual(whole.weights)
        }),
      )
    }),
  )

  it.effect("a run with several passes for each update ends like one with a single pass, wherever it dies", () =>
    Effect.gen(function* () {
      const passesOf = (settings: Settings) =>
        onServer(
          Effect.gen(function* () {
            const store = yield* RunStore.memory()
            yield* program(store, settings)
            const { requestsTo } = yield* ScriptedServer.ScriptedServer
            const sent = (yield* requestsTo("forward_backward")).length
            return { sent, events: outline(yield* Run.readEvents(store)), weights: yield* weights }
          }),
        )
      const single = yield* passesOf({ size: 4 })
      const accumulated = yield* passesOf({ size: 4, passes: 3 })
      expect([single.sent, accumulated.sent]).toEqual([steps, 3 * steps])
      expect(accumulated.weights).toEqual(single.weights)
      expect(accumulated.events).toEqual(single.events)
      yield* afterAnyWrite({ every: isFull ? 1 : 23, atLeast: isFull ? 80 : 4 }, ({ die, store, writes }) =>
        Effect.gen(function* () {
          yield* die((store) => program(store, { size: 4, passes: 3 }))
          yield* program(store, { size: 4, passes: 3 })
          expect({ writes, events: outline(yield* Run.readEvents(store)) }).toEqual({ writes, events: single.events })
          expect(yield* weights).toEqual(single.weights)
        }),
      )
    }),
  )

  it.effect("a run whose session has ended goes back to its last checkpoint and ends the same", () =>
    Effect.gen(function* () {
      const whole = yield* undisturbed
      for (const writes of [20, 40, 60]) {
        yield* onServer(
          Effect.gen(function* () {
            const store = yield* RunStore.memory()
            yield* Effect.exit(program(dying(store, writes)))
            yield* Effect.flatMap(ScriptedServer.ScriptedServer, ({ endSession }) => endSession())
            yield* program(store)
            // Results and weights that only the session had are reported as lost.
            const stored = yield* Run.readEvents(store)
            const events = new Set(outline(stored))
            const missing = whole.events.filter((event) => !events.has(event)).map((event) => JSON.parse(event).step)
            const lost = stored.flatMap((event) => (event._tag === "Warning" ? [event.step] : []))
            expect(missing.toSorted()).toEqual(lost.toSorted())
            expect(events.size).toBe(whole.events.length)
            expect(yield* weights).toEqual(whole.weights)
          }),
        )
      }
    }),
  )

  it.effect("a run whose last checkpoint has expired goes back to the one before and ends the same", () =>
    Effect.gen(function* () {
      const whole = yield* undisturbed
      yield* onServer(
        Effect.gen(function* () {
          const store = yield* RunStore.memory()
          yield* Effect.exit(program(dying(store, 60)))
          const saved = (yield* Run.readEvents(store)).flatMap((event) =>
            event._tag === "Checkpoint" ? [event.step] : [],
          )
          expect(saved.length).toBeGreaterThan(1)
          const { endSession, fault } = yield* ScriptedServer.ScriptedServer
          yield* endSession()
          yield* fault({ on: "weights_info", times: 1, status: 404, body: { detail: "expired" } })
          yield* program(store)
          const steps = (yield* Run.readEvents(store)).flatMap((event) => (event._tag === "Step" ? [event.step] : []))
          expect(steps).toEqual([0, 1, 2, 3, 4, 5])
          expect(yield* weights).toEqual(whole.weights)
        }),
      )
    }),
  )

  it.effect("a run that is asked to stop saves a checkpoint and continues later", () =>
    Effect.gen(function* () {
      const whole = yield* undisturbed
      yield* onServer(
        Effect.gen(function* () {
          const store = yield* RunStore.memory()
          const stop = yield* Deferred.make<void>()
          const watched: RunStore.Service = {
            ...store,
            append: (file, lines) =>
              Effect.zipRight(
                store.append(file, lines),
                lines.some((line) => line.includes('"_tag":"Step","step":2'))
                  ? Deferred.succeed(stop, undefined)
                  : Effect.void,
              ),
          }
          const stopped = yield* Effect.flip(program(watched, { stop: Deferred.await(stop) }))
          expect(stopped).toMatchObject({
            _tag: "RunStopped",
            checkpoint: expect.stringMatching(/rolling-00000[345]$/),
          })
          yield* program(store)
          expect(yield* weights).toEqual(whole.weights)
        }),
      )
    }),
  )

  it.effect("minutes between checkpoints are counted from the last one, whenever the run is interrupted", () =>
    Effect.gen(function* () {
      const minutes = 60_000
      const settings: Settings = { count: 12, checkpoints: policy({ everySteps: 0, everyMinutes: 10 }) }
      /** Dies at the first line of the events with this text, and continues nine minutes later. */
      const savedAt = (text: string) =>
        onServer(
          Effect.gen(function* () {
            const store = yield* RunStore.memory()
            const dies: RunStore.Service = {
              ...store,
              append: (file, lines) =>
                lines.some((line) => line.includes(text)) ? Effect.die("killed") : store.append(file, lines),
            }
            expect(Exit.isFailure(yield* Effect.exit(program(dies, settings)))).toBe(true)
            yield* Effect.sleep("9 minutes")
            yield* program(store, settings)
            const { requestsTo } = yield* ScriptedServer.ScriptedServer
            return (yield* requestsTo("save_weights")).map(({ at, json }) => [
              (json as { readonly path: string }).path,
              Math.round(at / minutes),
            ])
          }),
          { work: ({ operation }) => (operation === "forward_backward" ? "4 minutes" : "0 seconds") },
        )
      // The process was last seen when step 3 was made, after 16 minutes.
      expect(yield* savedAt('"_tag":"Step","step":4')).toEqual([
        ["000005", 12],
        ["000006", 29],
        ["000011", 41],
        ["final", 53],
      ])
      // Step 4 was made after 20 minutes.
      expect(yield* savedAt('"_tag":"Checkpoint","step":5')).toEqual([
        ["000005", 12],
        ["000009", 33],
        ["final", 53],
      ])
      // The checkpoint was recorded after 20 minutes, and the run continues after 33.
      expect(yield* savedAt('"_tag":"Step","step":5')).toEqual([
        ["000005", 12],
        ["000007", 33],
        ["final", 53],
      ])
    }),
  )

  it.effect("a run whose consumer reads no more is not complete and continues later", () =>
    Effect.gen(function* () {
      const whole = yield* undisturbed
      yield* onServer(
        Effect.gen(function* () {
          const store = yield* RunStore.memory()
          expect(yield* program(store, { take: 4 })).toHaveLength(4)
          expect(yield* program(store)).not.toBe("complete")
          expect(outline(yield* Run.readEvents(store))).toEqual(whole.events)
          expect(yield* weights).toEqual(whole.weights)
          expect(yield* program(store)).toBe("complete")
        }),
      )
    }),
  )

  it.effect("evaluations run at their own steps, and a crash loses neither one nor the best weights", () =>
    Effect.gen(function* () {
      const values = [10, 0, 10, 10]
      const evaluated: Array<string> = []
      const options = (store: RunStore.Service) =>
        Effect.gen(function* () {
          const run = yield* Run.open({ model: { baseModel: "m" }, configuration: {} })
          if (run._tag === "Completed") return
          const evaluation = (name: string, everySteps: number) => ({
            name,
            everySteps,
            evaluate: (_: unknown, { step }: { readonly step: number }) =>
              Effect.sync(() => {
                evaluated.push(`${name} ${step}`)
                return { metrics: { [`${name}/x`]: values[step / 2] ?? Number.NaN } }
              }),
          })
          yield* Stream.runDrain(
            TrainingLoop.events(run, {
              batches: (from) =>
                Stream.map(
                  Stream.iterate(from, (step) => step + 1),
                  (step) => batchAt(step),
                ),
              steps,
              loss: Loss.crossEntropy,
              optimizer: adam,
              metrics: () => Effect.succeed({ diverged: Number.NaN }),
              checkpoints: policy({ everySteps: 0, best: { metric: "cheap/x", direction: "lowest" } }),
              evaluations: [evaluation("cheap", 2), evaluation("dear", 6)],
            }),
          )
        }).pipe(Effect.scoped, Effect.provideService(RunStore.RunStore, store), Effect.provide(clients))
      yield* afterAnyWrite({ every: isFull ? 1 : 17, atLeast: isFull ? 40 : 3 }, ({ die, store, writes }) =>
        Effect.gen(function* () {
          evaluated.length = 0
          yield* die(options)
          yield* options(store)
          const events = yield* Run.readEvents(store)
          const best = events.flatMap((event) =>
            event._tag === "Checkpoint" && event.kind === "best" ? [event.step] : [],
          )
          expect({ writes, best }).toEqual({ writes, best: [0, 2] })
          const names = events.flatMap((event) => (event._tag === "Evaluation" ? [`${event.name} ${event.step}`] : []))
          expect(names.toSorted()).toEqual(["cheap 0", "cheap 2", "cheap 4", "cheap 6", "dear 0", "dear 6"])
          expect(events.find(({ _tag }) => _tag === "Step")).toMatchObject({ metrics: { diverged: Number.NaN } })
        }),
      )
    }),
  )

  it.effect("evaluations that can't be told apart, or have no schedule, are refused before anything is sent", () =>
    onServer(
      Effect.gen(function* () {
        const refused = (...evaluations: ReadonlyArray<readonly [name: string, everySteps: number]>) =>
          Effect.flip(
            Effect.flatMap(RunStore.memory(), (store) =>
              program(store, {
                evaluations: evaluations.map(([name, everySteps]) => ({
                  name,
                  everySteps,
                  evaluate: () => Effect.succeed({ metrics: {} }),
                })),
              }),
            ),
          )
        expect(yield* refused(["test", 2], ["test", 3])).toMatchObject({ message: "evaluations.test: occurs twice" })
        expect(yield* refused(["test", Number.NaN])).toMatchObject({ path: "evaluations.test.everySteps" })
        const { requestsTo } = yield* ScriptedServer.ScriptedServer
        expect(yield* requestsTo("forward_backward")).toEqual([])
      }),
    ),
  )

  it.effect("a metric of the best weights that no evaluation has is a warning that names those there are", () =>
    onServer(
      Effect.gen(function* () {
        const best = (metric: string) => policy({ everySteps: 0, best: { metric, direction: "lowest" } })
        const warnings = (metric: string) =>
          Effect.map(
            Effect.flatMap(RunStore.memory(), (store) => program(store, { checkpoints: best(metric) })),
            (events) =>
              events === "complete"
                ? []
                : events.filter((event) => event._tag === "Warning" && event.reason === "best_unknown"),
          )
        expect(yield* warnings("test/length")).toEqual([])
        const [warning, ...others] = yield* warnings("test/lenght")
        expect(warning).toMatchObject({ step: 0, message: expect.stringMatching(/test\/lenght .* test\/length$/) })
        expect(others).toEqual([])
      }),
    ),
  )

  it.effect("a rolling checkpoint is deleted only when a newer one exists", () =>
    onServer(
      Effect.gen(function* () {
        const store = yield* RunStore.memory()
        const { fault, requests } = yield* ScriptedServer.ScriptedServer
        const deleted = Effect.map(requests, (all) =>
          // One that was replaced before a crash is deleted again.
          [...new Set(all.flatMap(({ method, path }) => (method === "DELETE" ? [path.split("/").at(-1) ?? ""] : [])))],
        )
        const saved: Array<{ readonly name: string; readonly deleted: ReadonlyArray<string> }> = []
        const watched: RunStore.Service = {
          ...store,
          append: (file, lines) =>
            Effect.gen(function* () {
              for (const line of file === "checkpoints.jsonl" ? lines : [])
                saved.push({ name: JSON.parse(line).name, deleted: yield* deleted })
              yield* store.append(file, lines)
            }),
        }
        const rolling = policy({ everySteps: 0, rollingEverySteps: 1 })
        // The save after the fourth update fails.
        yield* fault({ on: "save_weights", nth: 4, failFuture: { error: "disk full", category: "server" } })
        yield* Effect.exit(program(watched, { checkpoints: rolling }))
        expect((yield* deleted).filter((name) => name.startsWith("rolling"))).toEqual([
          "rolling-000001",
          "rolling-000002",
        ])
        yield* program(watched, { checkpoints: rolling })
        for (const [index, { deleted }] of saved.entries())
          expect(deleted.filter((name) => name.startsWith("rolling"))).toEqual(
            saved.slice(0, Math.max(0, index - 1)).map(({ name }) => name),
          )
        expect(saved.at(-1)?.name).toBe("final")
        expect(yield* deleted).toContain("rolling-000005")
      }),
    ),
  )

  it.effect("a loop without TrainingLoop continues after a crash, and is complete when it says so", () =>
    onServer(
      Effect.gen(function* () {
        const store = yield* RunStore.memory()
        const byHand = (last: number) =>
          Effect.gen(function* () {
            const run = yield* Run.open({ model: { baseModel: "m" }, configuration: { steps } })
            if (run._tag === "Completed") return [run._tag, run.steps]
            yield* run.finishStep(adam)
            yield* Stream.range(run.nextStep, last - 1).pipe(
              Stream.map((step) => batchAt(step).data),
              run.client.trainSteps(Loss.crossEntropy, adam, { startAt: run.nextStep }),
              Stream.runDrain,
            )
            if (last === steps) yield* run.complete
            return [run._tag, run.nextStep]
          }).pipe(Effect.scoped, Effect.provideService(RunStore.RunStore, store), Effect.provide(clients))
        expect(yield* byHand(2)).toEqual(["Started", 0])
        expect(yield* byHand(4)).toEqual(["Resumed", 2])
        expect(yield* byHand(steps)).toEqual(["Resumed", 4])
        expect(yield* byHand(steps)).toEqual(["Completed", steps])
        expect(yield* weights).toEqual((yield* undisturbed).weights)
      }),
    ),
  )

  it.effect("a save that failed does not keep a run from continuing", () =>
    Effect.gen(function* () {
      const whole = yield* undisturbed
      yield* onServer(
        Effect.gen(function* () {
          const store = yield* RunStore.memory()
          const { fault } = yield* ScriptedServer.ScriptedServer
          yield* fault({ on: "save_weights", times: 1, failFuture: { error: "disk full", category: "server" } })
          expect(yield* Effect.flip(program(store))).toMatchObject({ _tag: "RequestFailed" })
          yield* program(store)
          expect(yield* weights).toEqual(whole.weights)
        }),
      )
    }),
  )

  it.effect("a model that the server refuses leaves no configuration behind", () =>
    onServer(
      Effect.gen(function* () {
        const store = yield* RunStore.memory()
        const { fault } = yield* ScriptedServer.ScriptedServer
        yield* fault({ on: "create_model", status: 400, body: { detail: "no such model" } })
        const refused = yield* Effect.exit(program(store, { configuration: { model: "typo" } }))
        expect(Exit.isFailure(refused)).toBe(true)
        expect(yield* program(store, { configuration: { model: "m" } })).not.toBe("complete")
      }),
    ),
  )

  it.effect("a run is not continued with another configuration, and the error lists the differences", () =>
    onServer(
      Effect.gen(function* () {
        const store = yield* RunStore.memory()
        yield* Effect.exit(
          program(dying(store, 30), { configuration: { learningRate: 1e-3, data: { file: "a", rows: [1, 2] } } }),
        )
        const error = yield* Effect.flip(
          program(store, { configuration: { learningRate: 2e-3, data: { file: "a", rows: [1, 3] }, extra: true } }),
        )
        expect(String(error)).toContain(
          ["  data.rows[1]: 2 → 3", "  extra: (not set) → true", "  learningRate: 0.001 → 0.002"].join("\n"),
        )
      }),
    ),
  )

  it.effect("a damaged file of a run is an error that names the line and what is wrong with it", () =>
    onServer(
      Effect.gen(function* () {
        const store = yield* RunStore.memory("damaged")
        yield* Effect.exit(program(dying(store, 40)))
        const [first = "", ...rest] = yield* store.lines("events.jsonl")
        const damaged = (line: string) =>
          Effect.gen(function* () {
            yield* store.write("events.jsonl", [first, line, ...rest.slice(1)].map((line) => `${line}\n`).join(""))
            return (yield* Effect.flip(Run.readEvents(store))).message
          })
        const where = "events.jsonl of run damaged is damaged: line 2: "
        expect(yield* damaged('{"_tag":"Step","step":"one","metrics":{},"at":0}')).toBe(
          `${where}step: expected number, got "one"`,
        )
        const garbage = yield* damaged("garbage")
        expect(garbage.startsWith(where)).toBe(true)
        expect(garbage.length).toBeLessThan(150)
      }),
    ),
  )

  it.effect("a forked run continues from the checkpoint of the other run", () =>
    Effect.gen(function* () {
      const whole = yield* undisturbed
      yield* onServer(
        Effect.gen(function* () {
          const [store, forked] = [yield* RunStore.memory("first"), yield* RunStore.memory("second")]
          yield* program(store)
          expect(yield* Run.fork(store, forked, 5)).toBe(4)
          expect(yield* Effect.flip(Run.fork(forked, store, 2))).toMatchObject({ _tag: "RunExists" })
          yield* program(forked, { configuration: { steps, note: "another try" } })
          expect(yield* weights).toEqual(whole.weights)
          const made = (yield* Run.readEvents(forked)).flatMap((event) => (event._tag === "Step" ? [event.step] : []))
          expect(made).toEqual([0, 1, 2, 3, 4, 5])
          expect(Option.isSome(yield* forked.read("origin.json"))).toBe(true)
        }),
      )
    }),
  )
})
