/**
 * Compares our rendering with that of transformers: the same text, an error on both sides (with the same message if the
 * template raised it), or a refusal. Anything else is a difference and fails.
 */
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { ChatTemplate, ExactJson, type TemplateError } from "@effect-tinker/tokenizer"
import { DateTime, Effect, Either, TestClock, TestContext } from "effect"

type Exact = ExactJson.ExactJson
type ExactObject = ReadonlyMap<string, Exact>

const directory = process.argv[2] ?? ""
const only = process.argv[3] ?? ""

const read = (line: string): ExactObject => {
  const value = Either.getOrThrow(ExactJson.parse(line))
  if (!(value instanceof Map)) throw new Error("expected a JSON object per line")
  return value
}
const objects = (value: Exact | undefined) => (value ?? []) as ReadonlyArray<ExactObject>
const text = (value: Exact | undefined) => (typeof value === "string" ? value : undefined)

const verdicts = ["same", "both raise", "both fail", "refused", "different"] as const
type Verdict = (typeof verdicts)[number]
const counts: Record<Verdict, number> = { same: 0, "both raise": 0, "both fail": 0, refused: 0, different: 0 }
const refusals = new Map<string, number>()
const differences: Array<string> = []

const judge = (expected: ExactObject, ours: Either.Either<string, TemplateError.TemplateError>): Verdict => {
  if (Either.isRight(ours)) return ours.right === text(expected.get("text")) ? "same" : "different"
  const { problem, reason } = ours.left
  if (reason === "Unsupported") return "refused"
  if (reason === "Limit") return text(expected.get("error")) === "RecursionError" ? "both fail" : "different"
  if (expected.has("raised"))
    return reason === "Raised" && problem === text(expected.get("raised")) ? "both raise" : "different"
  return expected.has("error") && reason !== "Raised" ? "both fail" : "different"
}

const inputOf = (head: ExactObject, row: ExactObject): ChatTemplate.RenderInput => {
  const options = row.get("options") as ExactObject
  const variables = Object.fromEntries(
    [...options].filter(([key]) => key !== "add_generation_prompt" && key !== "continue_final_message"),
  )
  return {
    messages: objects(row.get("messages")),
    tools: row.get("tools") === true ? objects(head.get("tools")) : undefined,
    addGenerationPrompt: options.get("add_generation_prompt") === true,
    continueFinalMessage: options.get("continue_final_message") === true,
    variables,
  }
}

const excerpt = (row: ExactObject, ours: Either.Either<string, TemplateError.TemplateError>): string => {
  const theirs = text(row.get("text"))
  const shown =
    theirs ?? `raises ${text(row.get("raised")) ?? `${text(row.get("error"))}: ${text(row.get("message"))}`}`
  if (Either.isLeft(ours))
    return `ours: ${ours.left.reason} ${ours.left.message}; theirs: ${JSON.stringify(shown.slice(0, 200))}`
  let at = 0
  while (at < shown.length && shown[at] === ours.right[at]) at++
  const around = (whole: string) => JSON.stringify(whole.slice(Math.max(0, at - 30), at + 60))
  return theirs === undefined
    ? `ours: a text; theirs: ${shown.slice(0, 200)}`
    : `ours: ${around(ours.right)}; theirs: ${around(theirs)}`
}

const compareTemplate = (file: string) =>
  Effect.gen(function* () {
    const [first, ...rows] = readFileSync(join(directory, file), "utf8").trimEnd().split("\n")
    const head = read(first ?? "")
    const source = text(head.get("source")) ?? ""
    const name = `${text(head.get("package"))} ${text(head.get("path"))} ${file.slice(0, 8)}`
    const special = Object.fromEntries(head.get("special") as ReadonlyMap<string, string>)
    yield* TestClock.setTime(DateTime.toEpochMillis(DateTime.unsafeMake(text(head.get("now")) ?? "")))
    const template = ChatTemplate.make(source, { specialTokens: special })
    const seen = new Set<Verdict>()
    for (const line of rows) {
      const row = read(line)
      const ours = Either.isLeft(template)
        ? Either.left(template.left)
        : yield* Effect.either(template.right.render(inputOf(head, row)))
      const verdict = judge(row, ours)
      counts[verdict]++
      if (verdict === "refused" && Either.isLeft(ours)) {
        const construct = ours.left.construct ?? ""
        refusals.set(construct, (refusals.get(construct) ?? 0) + 1)
      }
      if (verdict === "different" && !seen.has(verdict)) differences.push(`${name}\n    ${excerpt(row, ours)}`)
      seen.add(verdict)
    }
    return seen
  })

const program = Effect.gen(function* () {
  const files = readdirSync(directory).filter((file) => file.endsWith(".jsonl") && file.startsWith(only))
  const templates = { identical: 0, refused: 0, different: 0 }
  for (const file of files) {
    const seen = yield* compareTemplate(file)
    templates[seen.has("different") ? "different" : seen.has("refused") ? "refused" : "identical"]++
  }
  console.log(
    `${files.length} templates: ${templates.identical} identical in every case, ${templates.refused} with a refusal, ${templates.different} different`,
  )
  console.log(verdicts.map((verdict) => `${counts[verdict]} ${verdict}`).join(", "))
  for (const [construct, count] of refusals) console.log(`  refused: ${construct} (${count} cases)`)
  for (const difference of differences) console.log(`  different: ${difference}`)
  if (differences.length > 0 || files.length < (only === "" ? 250 : 1)) process.exitCode = 1
})

void Effect.runPromise(program.pipe(Effect.provide(TestContext.TestContext)))
