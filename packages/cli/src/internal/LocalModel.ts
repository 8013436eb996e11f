/** Reads the models of the command line that the embedded engine serves: NAME=DIR. */
import * as Effect from "effect/Effect"
import { existsSync } from "node:fs"
import { resolve } from "node:path"
import { UsageError } from "./Failure.ts"

export interface LocalModel {
  readonly name: string
  readonly directory: string
}

/** Reads the value of an option. */
export const parse =
  (option: string, directory: string) =>
  (text: string): Effect.Effect<LocalModel, UsageError> => {
    const at = text.indexOf("=")
    const [name, folder] = [text.slice(0, at), text.slice(at + 1)]
    const invalid = (problem: string) => new UsageError({ message: `Invalid value for '--${option}': ${problem}` })
    if (at < 1 || folder === "") return invalid(`expected NAME=DIR, got "${text}"`)
    return existsSync(resolve(directory, folder, "config.json"))
      ? Effect.succeed({ name, directory: resolve(directory, folder) })
      : invalid(`no config.json found in ${folder}`)
  }
