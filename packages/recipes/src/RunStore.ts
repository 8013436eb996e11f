/**
 * Where a training run is kept: its journal, its logs and its documents. `RunDirectory` keeps them in a directory;
 * `memory` keeps them in this process.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as TrainingJournal from "effect-tinker/TrainingJournal"
import type { RunStoreFailed } from "./RunError.ts"

/**
 * The files of one run.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** Names the run in messages, e.g. its directory. */
  readonly name: string
  /** Records the requests of the run's training client. */
  readonly journal: TrainingJournal.Journal
  /** Returns a document, if it exists. */
  readonly read: (file: string) => Effect.Effect<Option.Option<string>, RunStoreFailed>
  /** Replaces a document as a whole: after a crash it is the old one or the new one. */
  readonly write: (file: string, text: string) => Effect.Effect<void, RunStoreFailed>
  /** Returns the complete lines of a log, in order. A line that a crash cut off is not returned. */
  readonly lines: (file: string) => Effect.Effect<ReadonlyArray<string>, RunStoreFailed>
  /** Appends lines to a log. They are durable when the effect completes. */
  readonly append: (file: string, lines: ReadonlyArray<string>) => Effect.Effect<void, RunStoreFailed>
}

/**
 * The service tag of a run's store.
 *
 * @since 0.1.0
 * @category tags
 */
export class RunStore extends Context.Tag("@effect-tinker/recipes/RunStore")<RunStore, Service>() {}

/**
 * Creates a store in this process. It survives the clients of the run, but not the process.
 *
 * @since 0.1.0
 * @category constructors
 */
export const memory = (name = "in memory"): Effect.Effect<Service> =>
  Effect.map(TrainingJournal.memory, (journal) => {
    const files = new Map<string, string>()
    return {
      name,
      journal,
      read: (file) => Effect.sync(() => Option.fromNullable(files.get(file))),
      write: (file, text) =>
        Effect.sync(() => {
          files.set(file, text)
        }),
      lines: (file) => Effect.sync(() => (files.get(file) ?? "").split("\n").slice(0, -1)),
      append: (file, lines) =>
        Effect.sync(() => {
          files.set(file, (files.get(file) ?? "") + lines.map((line) => `${line}\n`).join(""))
        }),
    }
  })

/**
 * Provides a store in this process. The layer is fresh: each use is another run.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerMemory: Layer.Layer<RunStore> = Layer.fresh(Layer.effect(RunStore, memory()))
