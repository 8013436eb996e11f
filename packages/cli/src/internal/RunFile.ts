/**
 * Keeps the settings of a run in its directory: `tinkerfx resume` continues it from there. Paths are relative to the
 * directory, so that a project can be moved.
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { existsSync } from "node:fs"
import { join } from "node:path"
import { Failure } from "./Failure.ts"
import * as Files from "./Files.ts"

const Settings = Schema.Struct(
  {
    model: Schema.optional(Schema.String),
    local: Schema.optionalWith(Schema.Boolean, { default: () => false }),
    localModel: Schema.optionalWith(Schema.UndefinedOr(Schema.String), { default: () => undefined }),
    renderer: Schema.optional(Schema.String),
    tokenizer: Schema.optional(Schema.String),
  },
  Schema.Record({ key: Schema.String, value: Schema.Unknown }),
)

const RunFile = Schema.parseJson(
  Schema.Struct({ recipe: Schema.Literal("sft", "rl", "dpo", "distill"), settings: Settings }),
)

export type RunFile = typeof RunFile.Type

const fileOf = (directory: string) => join(directory, "train.json")

/** Whether a directory is that of a run. */
export const exists = (directory: string): boolean => existsSync(fileOf(directory))

/** Reads how a run was started. */
export const read = (directory: string): Effect.Effect<RunFile, Failure> =>
  exists(directory)
    ? Effect.flatMap(Files.read(fileOf(directory)), (text) =>
        Effect.mapError(
          Schema.decode(RunFile)(text),
          (cause) =>
            new Failure({
              message: `${fileOf(directory)} is damaged: ${cause.message.replaceAll(/\s+/g, " ")}`,
              hint: "Start the run with 'tinkerfx train' and its settings; it continues where it stopped.",
              cause,
            }),
        ),
      )
    : new Failure({
        message: `${directory} is not the directory of a run`,
        hint: "A run that 'tinkerfx train' has started contains train.json.",
      })

/** Writes how a run was started. */
export const write = (
  directory: string,
  recipe: RunFile["recipe"],
  settings: Readonly<Record<string, unknown>>,
): Effect.Effect<void, Failure> => Files.write(fileOf(directory), `${JSON.stringify({ recipe, settings }, null, 2)}\n`)
