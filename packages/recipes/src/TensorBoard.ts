/**
 * Writes the metrics of a run as event files, which TensorBoard, and what reads its files, can show. Metrics and
 * evaluations are scalars; samples, warnings and checkpoints are texts.
 *
 * @since 0.1.0
 */
import * as FileSystem from "@effect/platform/FileSystem"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as TfEvents from "./internal/TfEvents.ts"
import { RunStoreFailed } from "./RunError.ts"
import type { RunEvent } from "./RunEvent.ts"
import { evaluationMetric, type Service } from "./RunLogger.ts"

const valuesOf = (event: RunEvent): ReadonlyArray<TfEvents.Value> => {
  switch (event._tag) {
    case "Step":
      return Object.entries(event.metrics).map(([name, value]) => TfEvents.scalar(name, value))
    case "Evaluation":
      return Object.entries(event.metrics).map(([name, value]) =>
        TfEvents.scalar(evaluationMetric(event.name, name), value),
      )
    case "Sample": {
      const answer = event.tokens.map(({ text }) => text).join("")
      const reward = event.reward === undefined ? "" : `\n\n---\n\nreward ${event.reward}`
      return [TfEvents.note(`sample/${event.source}`, `${event.prompt}\n\n---\n\n${answer}${reward}`)]
    }
    case "Checkpoint":
      return [TfEvents.note(`checkpoint/${event.kind}`, event.statePath ?? event.samplerPath ?? event.name)]
    case "Warning":
      return [TfEvents.note(`warning/${event.reason}`, event.message)]
    case "Done":
      return []
  }
}

/**
 * Encodes an event as a record of an event file, or returns undefined if TensorBoard has no form for it.
 *
 * @since 0.1.0
 * @category encoding
 */
export const encode = (event: RunEvent): Uint8Array | undefined => {
  const values = valuesOf(event)
  return values.length === 0 ? undefined : TfEvents.frame(TfEvents.summary(event.at / 1000, event.step, values))
}

/**
 * Encodes the first record of an event file, which names its format.
 *
 * @since 0.1.0
 * @category encoding
 */
export const header = (at: number): Uint8Array => TfEvents.frame(TfEvents.version(at / 1000))

/**
 * Encodes a record that says that a process continues at a step. TensorBoard then drops what earlier files of the
 * directory have of this step and later ones.
 *
 * @since 0.1.0
 * @category encoding
 */
export const restart = (at: number, step: number): Uint8Array => TfEvents.frame(TfEvents.sessionStart(at / 1000, step))

/**
 * Options of the logger.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** The directory of the run's event files. It is created if needed. */
  readonly directory: string
}

/**
 * Creates a logger that writes an event file of its own until the scope closes; earlier files of the directory stay.
 * Each event is in the file when its effect completes.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = ({
  directory,
}: Options): Effect.Effect<Service, RunStoreFailed, FileSystem.FileSystem | Scope.Scope> =>
  Effect.gen(function* () {
    const files = yield* FileSystem.FileSystem
    const now = yield* Clock.currentTimeMillis
    const seconds = String(Math.floor(now / 1000)).padStart(10, "0")
    const failed = Effect.mapError(
      (cause: { readonly message: string }) =>
        new RunStoreFailed({
          reason: "Write",
          run: directory,
          file: "events.out.tfevents",
          detail: cause.message,
          cause,
        }),
    )
    yield* failed(files.makeDirectory(directory, { recursive: true }))
    const taken = new Set(yield* failed(files.readDirectory(directory)))
    let number = 0
    const nameOf = () => `events.out.tfevents.${seconds}.effect-tinker.${number}`
    while (taken.has(nameOf())) number++
    const file = yield* failed(files.open(`${directory}/${nameOf()}`, { flag: "ax" }))
    yield* failed(file.writeAll(header(now)))
    let begun = false
    return {
      log: (event) => {
        const record = encode(event)
        if (record === undefined) return Effect.void
        const isRestart = !begun && event.step > 0
        begun = true
        // A record that is only partly written would end the file for its readers.
        return Effect.uninterruptible(
          failed(
            isRestart
              ? Effect.zipRight(file.writeAll(restart(event.at, event.step)), file.writeAll(record))
              : file.writeAll(record),
          ),
        )
      },
    }
  })
