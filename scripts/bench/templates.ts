/**
 * Compares the speed of chat templates with the published `@huggingface/jinja` in the same run.
 *
 *   pnpm exec tsx scripts/bench/templates.ts [rounds]
 *
 * Both engines parse the template beforehand. Rounds are interleaved and the best of each counts: use the ratios, not
 * the times. Where the other engine renders a different text than Python, or none, this is printed, because it did
 * other work.
 */
import { ChatTemplate } from "@effect-tinker/tokenizer"
import { Template } from "@huggingface/jinja"
import { Effect, Either } from "effect"
import { readFileSync } from "node:fs"

const [rounds = 5] = process.argv.slice(2).map(Number)
const { conversations, options, special, templates } = JSON.parse(
  readFileSync(new URL("../../packages/tokenizer/test/goldens/templates/families.json", import.meta.url), "utf8"),
)

const times = (work: () => void): number => {
  const start = process.cpuUsage()
  for (let index = 0; index < 400; index++) work()
  const { system, user } = process.cpuUsage(start)
  return (user + system) / 400
}

const shapes = [
  ["chatml", "system", 0],
  ["thinking", "system", 0],
  ["thinking", "tools", 1],
  ["schema_macros", "tools", 1],
  ["flags", "tools", 0],
  ["middle", "tools", 1],
] as const

for (const [family, conversation, option] of shapes) {
  const ours = Either.getOrThrow(ChatTemplate.make(templates[family], { specialTokens: special }))
  const theirs = new Template(templates[family])
  const { add_generation_prompt: addGenerationPrompt, tools, ...variables } = options[option]
  const plain = JSON.parse(JSON.stringify(conversations[conversation]), (_, value: unknown) =>
    typeof value === "number" && !Number.isSafeInteger(value) && Number.isInteger(value) ? 1 : value,
  )
  const input = { messages: plain, tools, addGenerationPrompt, variables }
  const context = {
    messages: plain,
    tools: tools ?? null,
    add_generation_prompt: addGenerationPrompt,
    ...special,
    ...variables,
  }
  const our = () => Effect.runSync(ours.render(input))
  const their = () => theirs.render(context)
  const expected = our()
  const verdict = Either.try(their).pipe(
    Either.match({ onLeft: () => "it fails", onRight: (text) => (text === expected ? "same text" : "another text") }),
  )
  const best = { ours: Number.POSITIVE_INFINITY, theirs: Number.POSITIVE_INFINITY }
  for (let round = 0; round < rounds; round++) {
    best.ours = Math.min(best.ours, times(our))
    if (verdict !== "it fails") best.theirs = Math.min(best.theirs, times(their))
  }
  const ratio = verdict === "it fails" ? "" : `${(best.theirs / best.ours).toFixed(2)} times as fast, `
  console.log(`${family}, ${conversation}: ${ratio}${Math.round(1e6 / best.ours)} renders a CPU second (${verdict})`)
}
