/** Reinforcement learning on a scripted server. */
import { type Environment, Rl, RunStore } from "@effect-tinker/recipes"
import { Data, Effect, type Scope, Stream } from "effect"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import { clients } from "./Scripted.ts"

export class Gone extends Data.TaggedError("Gone")<{ readonly message: string }> {}

/** The events in the environments of {@link scripted}. */
export interface Faults {
  readonly fails?: number
  /** The task that never ends. */
  readonly hangs?: number
  /** Runs when a rollout of a task begins. */
  readonly onStart?: (task: number) => Effect.Effect<void>
}

/** A task whose environment may fail or hang, with counts of what was opened and closed. */
export const scripted = ({ fails = 0, hangs, onStart = () => Effect.void }: Faults = {}) => {
  const counts = { made: 0, closed: 0, acted: 0 }
  let failures = fails
  const task = (index: number): Environment.Task<Gone, Scope.Scope> => ({
    name: `task ${index}`,
    make: Effect.acquireRelease(
      Effect.sync(() => {
        counts.made++
        return {
          start: Effect.as(onStart(index), { prompt: [index + 1, 2], stop: [] }),
          act: ({ tokens }: Environment.Action) =>
            Effect.suspend((): Effect.Effect<Environment.Outcome, Gone> => {
              counts.acted++
              if (index === hangs) return Effect.never
              if (failures-- > 0) return Effect.fail(new Gone({ message: "the sandbox is gone" }))
              return Effect.succeed({ reward: (tokens[0] ?? 0) % 7 })
            }),
        }
      }),
      () => Effect.sync(() => counts.closed++),
    ),
  })
  return { task, counts }
}

export const small: Rl.Input = {
  model: "m",
  iterations: 3,
  groupsPerIteration: 2,
  groupSize: 2,
  maxTokens: 3,
  updatesPerIteration: 2,
  learningRate: 1e-3,
  rolloutTimeoutSeconds: 30,
  checkpoints: { everySteps: 0, rollingEverySteps: 2 },
}

/** A user's program: trains on the tasks, and shows tokens as numbers. */
export const program = (
  store: RunStore.Service,
  task: Rl.Options<Gone, Scope.Scope>["task"],
  config: Rl.Input = small,
) =>
  Rl.train({ config, task, tasks: "scripted", decode: (tokens) => Effect.succeed(tokens.join(" ")) }).pipe(
    Stream.runCollect,
    Effect.scoped,
    Effect.provideService(RunStore.RunStore, store),
    Effect.provide(clients),
  )

export const weights = Effect.flatMap(ScriptedServer.ScriptedServer, ({ models }) =>
  Effect.map(models, (models) => models.at(-1)?.weights),
)
