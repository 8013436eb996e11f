/**
 * Compares with transformers on templates written for these tests; `scripts/goldens/template_goldens.py` writes the
 * goldens.
 */
import { readFileSync } from "node:fs"
import { describe, expect, it } from "@effect/vitest"
import type { TemplateError } from "@effect-tinker/tokenizer"
import { ChatTemplate, ExactJson } from "@effect-tinker/tokenizer"
import { Effect, Either, TestClock } from "effect"

type ExactObject = ReadonlyMap<string, ExactJson.ExactJson>

const object = (value: ExactJson.ExactJson | undefined): ExactObject => {
  if (value instanceof Map) return value
  throw new Error("expected an object")
}
const list = (value: ExactJson.ExactJson | undefined): ReadonlyArray<ExactObject> =>
  Array.isArray(value) ? value.map(object) : []
const text = (value: ExactJson.ExactJson | undefined): string => (typeof value === "string" ? value : "")

const golden = (name: string): ExactObject => {
  const file = new URL(`goldens/templates/${name}.json`, import.meta.url)
  return object(Either.getOrThrow(ExactJson.parse(readFileSync(file, "utf8"))))
}

/** The time at which the reference rendered the goldens. */
const atGoldenTime = TestClock.setTime(Date.UTC(2026, 2, 5, 14, 7, 9))

const syntaxErrors = ["TemplateSyntaxError", "TemplateAssertionError", "SyntaxError"]

const outcome = (result: Either.Either<string, TemplateError.TemplateError>) => {
  if (Either.isRight(result)) return { text: result.right }
  const { exception, problem, reason } = result.left
  if (reason === "Raised") return { raised: problem }
  if (reason === "Syntax") return { error: "syntax" }
  return reason === "Failed" || reason === "Input" ? { error: exception } : { unsupported: problem }
}

const expectation = (row: ExactObject) => {
  if (row.has("text")) return { text: row.get("text") }
  if (row.has("raised")) return { raised: row.get("raised") }
  const error = text(row.get("error"))
  return { error: syntaxErrors.includes(error) ? "syntax" : error }
}

const render = (source: string, input: ChatTemplate.RenderInput, options?: ChatTemplate.Options) =>
  Effect.gen(function* () {
    yield* atGoldenTime
    const template = ChatTemplate.make(source, options)
    return Either.isLeft(template) ? Either.left(template.left) : yield* Effect.either(template.right.render(input))
  })

describe("constructs", () => {
  const { cases, variables } = Object.fromEntries(golden("constructs"))
  const rows = list(cases)

  it("the goldens cover more than 180 constructs", () => {
    expect(rows.length).toBeGreaterThan(180)
  })

  it.effect.each(rows.map((row) => [text(row.get("group")), text(row.get("source")), row] as const))(
    "renders like transformers: %s: %s",
    ([, source, row]) =>
      Effect.gen(function* () {
        const result = yield* render(source, { messages: [], variables: Object.fromEntries(object(variables)) })
        expect(outcome(result)).toEqual(expectation(row))
      }),
  )
})

describe("template families", () => {
  const { cases, conversations, options, special, templates } = Object.fromEntries(golden("families"))

  it.effect.each(
    list(cases).map(
      (row) => [text(row.get("family")), text(row.get("conversation")), Number(row.get("options")), row] as const,
    ),
  )("renders like transformers: %s, %s, options %d", ([family, conversation, option, row]) =>
    Effect.gen(function* () {
      const given = list(options)[option] ?? new Map()
      const thinking = given.get("enable_thinking")
      const messages = object(conversations).get(conversation)
      const result = yield* render(
        text(object(templates).get(family)),
        {
          messages: list(messages),
          tools: given.has("tools") ? list(given.get("tools")) : undefined,
          addGenerationPrompt: given.get("add_generation_prompt") === true,
          continueFinalMessage: given.get("continue_final_message") === true,
          variables: thinking === undefined ? {} : { enable_thinking: thinking },
        },
        {
          specialTokens: {
            bos_token: text(object(special).get("bos_token")),
            eos_token: text(object(special).get("eos_token")),
          },
        },
      )
      expect(outcome(result)).toEqual(expectation(row))
    }),
  )
})
