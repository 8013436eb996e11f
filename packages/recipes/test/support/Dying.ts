/** A process that dies at a certain write. */
import type { RunStore } from "@effect-tinker/recipes"
import { Effect } from "effect"

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
