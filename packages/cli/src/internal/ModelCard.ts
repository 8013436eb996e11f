/** Names, describes and selects what is uploaded to the Hugging Face Hub. */
import type * as Management from "effect-tinker/protocol/schemas/Management"
import * as Option from "effect/Option"

/** Makes a name that the hub accepts. */
export const repositoryName = (text: string): string =>
  text
    .replaceAll(/[^\p{L}\p{N}_.-]/gu, "-")
    .replaceAll(/-{2,}/g, "-")
    .replaceAll(/^[-_ .]+|[-_ .]+$/g, "")

const expressions = new Map<string, RegExp>()

/** Translates a shell pattern, in which `*` matches slashes as well. */
const expressionOf = (pattern: string): RegExp => {
  const known = expressions.get(pattern)
  if (known !== undefined) return known
  const whole = pattern.endsWith("/") ? `${pattern}*` : pattern
  const source = whole.replaceAll(/\*|\?|\[!?\]?[^\]]*\]|[^]/g, (part) => {
    if (part === "*") return "[^]*"
    if (part === "?") return "[^]"
    if (part.length > 1) return part.replace(/^\[!/, "[^").replaceAll("\\", "\\\\")
    return part.replaceAll(/[.+^${}()|[\]\\/]/g, String.raw`\$&`)
  })
  const expression = new RegExp(`^${source}$`, "u")
  expressions.set(pattern, expression)
  return expression
}

/** Decides whether a file is uploaded: it matches a wanted pattern, if there are any, and no ignored one. */
export const isChosen = (file: string, allowed: ReadonlyArray<string>, ignored: ReadonlyArray<string>): boolean =>
  (allowed.length === 0 || allowed.some((pattern) => expressionOf(pattern).test(file))) &&
  !ignored.some((pattern) => expressionOf(pattern).test(file))

const word = (value: Option.Option<boolean>): string =>
  Option.match(value, { onNone: () => "default", onSome: (value) => (value ? "yes" : "no") })

/** Writes the README of a repository. */
export const render = ({
  info,
  path,
  repo,
}: {
  readonly repo: string
  readonly path: string
  readonly info: Management.WeightsInfo | undefined
}): string => {
  const base = info?.baseModel ?? "unknown"
  const tags = ["tinker", "peft", "lora", ...(info === undefined ? [] : [`base_model:adapter:${base}`])]
  const details =
    info === undefined
      ? []
      : [
          ...Option.match(info.loraRank, { onNone: () => [], onSome: (rank) => [`- LoRA rank: ${rank}`] }),
          `- Trained parts: attention ${word(info.trainAttn)}, MLP ${word(info.trainMlp)}, unembedding ${word(info.trainUnembed)}`,
        ]
  return [
    "---",
    `base_model: ${base}`,
    "library_name: peft",
    "tags:",
    ...tags.map((tag) => `- ${tag}`),
    `tinker_path: ${path}`,
    "---",
    "",
    `# ${repo}`,
    "",
    `A LoRA adapter for ${base}, trained with Tinker.`,
    "",
    "```python",
    "from peft import AutoPeftModelForCausalLM",
    "",
    `model = AutoPeftModelForCausalLM.from_pretrained("${repo}", device_map="auto")`,
    "```",
    "",
    `- Checkpoint: \`${path}\``,
    `- Base model: ${base}`,
    ...details,
    "",
  ].join("\n")
}
