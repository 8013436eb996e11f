/** Writes the tokenizers of the models that ship with the engine into packages/tokenizer, which works without files. */
import { readFileSync, writeFileSync } from "node:fs"

const packages = new URL("../../packages/", import.meta.url)

/** Writes a JSON file as a string literal that is plain ASCII, in the quotes that need fewer escapes. */
const literal = (path) => {
  // Drops the spaces between strings; parsing would change the order of the keys.
  const compact = readFileSync(new URL(path, packages), "utf8").replace(
    /("(?:[^"\\]|\\.)*")|\s+/g,
    (_, text) => text ?? "",
  )
  const ascii = compact.replace(/[^\x20-\x7f]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`)
  const quote = ascii.split("'").length < ascii.split('"').length ? "'" : '"'
  return quote + ascii.replaceAll("\\", "\\\\").replaceAll(quote, `\\${quote}`) + quote
}

for (const [model, name, which] of [
  ["model", "Valley", "the model"],
  ["model-tools", "ValleyTools", "the model with tools"],
])
  writeFileSync(
    new URL(`tokenizer/src/internal/${name}.ts`, packages),
    `/** The tokenizer of ${which} that ships with \`@effect-tinker/engine\`, as in that package; a test compares them. */

export const tokenizer: string =
  ${literal(`engine/${model}/tokenizer.json`)}

export const config: string =
  ${literal(`engine/${model}/tokenizer_config.json`)}
`,
  )
