/** A process that dies at a certain write. */
import { expect } from "@effect/vitest"
import { RunStore } from "@effect-tinker/recipes"
import { Data, Effect, Exit } from "effect"
import { onServer, type Server } from "./Scripted.ts"

class Crash extends Error {}

/** A process that dies when it has written `writes` times. */
export const dying = (store: RunStore.Service, writes: number): RunStore.Service => {
  let left = writes
  const count = <A, E>(effect: Effect.Effect<A, E>) =>
    Effect.suspend(() => (left-- > 0 ? effect : Effect.die(new Crash())))
  return {
    ...store,
    write: (file, text) => count(store.write(file, text)),
    append: (file, lines) => (lines.length === 0 ? Effect.void : count(store.append(file, lines))),
    journal: { ...store.journal, append: (entries) => count(store.journal.append(entries)) },
  }
}

class Survived extends Data.TaggedError("Survived") {}

/** A run that is killed once. */
export interface Life {
  readonly store: RunStore.Service
  /** After how many writes it dies. */
  readonly writes: number
  /** Runs the program until it dies. */
  readonly die: (
    program: (store: RunStore.Service) => Effect.Effect<unknown, unknown, Server>,
  ) => Effect.Effect<void, Survived, Server>
}

/**
 * Kills a program after its first write, after its `every`-th next one and so on, each time on a server of its own, until
 * it makes fewer writes than that. `life` kills it, runs it again and checks what it left.
 */
export const afterAnyWrite = <E>(
  { atLeast, every, from = 1 }: { readonly every: number; readonly atLeast: number; readonly from?: number },
  life: (life: Life) => Effect.Effect<void, E | Survived, Server>,
): Effect.Effect<void, E | Survived> =>
  Effect.gen(function* () {
    let deaths = 0
    for (let writes = from; ; writes += every) {
      const survived = yield* onServer(
        Effect.gen(function* () {
          const store = yield* RunStore.memory()
          let isAlive = false
          const die: Life["die"] = (program) =>
            Effect.gen(function* () {
              isAlive = Exit.isSuccess(yield* Effect.exit(program(dying(store, writes))))
              if (isAlive) return yield* new Survived()
            })
          yield* Effect.catchAll(life({ store, writes, die }), (error) => (isAlive ? Effect.void : Effect.fail(error)))
          return isAlive
        }),
      )
      if (survived) break
      deaths++
    }
    expect(deaths).toBeGreaterThanOrEqual(atLeast)
  })
