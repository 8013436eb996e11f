/** The committed inputs of each target: each reaches code that the others do not. */
import { readFile, writeFile } from "node:fs/promises"
import { fileURLToPath } from "node:url"
import { Effect } from "effect"

const pathOf = (target: string) =>
  fileURLToPath(new URL(`./corpus/${target.replaceAll(" ", "-")}.json`, import.meta.url))

/** Only small inputs, and not many, are kept. */
const [most, longest] = [40, 400]

/** Reads the inputs of a target, in base64; there are none if the file does not exist. */
export const read = (target: string): Effect.Effect<ReadonlyArray<string>> =>
  Effect.promise(async () => {
    try {
      return JSON.parse(await readFile(pathOf(target), "utf8"))
    } catch {
      return []
    }
  })

/** Replaces the inputs of a target by the newest small ones. */
export const write = (target: string, inputs: ReadonlyArray<string>): Effect.Effect<void> =>
  Effect.promise(() => {
    const small = inputs.filter((input) => input.length <= longest).slice(0, most)
    return writeFile(pathOf(target), `${JSON.stringify(small, null, 2)}\n`)
  })
