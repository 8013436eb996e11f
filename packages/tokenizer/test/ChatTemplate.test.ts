import { describe, expect, it } from "@effect/vitest"
import type { TemplateError, Tokenizer } from "@effect-tinker/tokenizer"
import { ChatTemplate, ExactJson } from "@effect-tinker/tokenizer"
import { DateTime, Effect, Either, FastCheck, Option, TestClock } from "effect"

const empty: ChatTemplate.RenderInput = { messages: [] }

const render = (source: string, input: Partial<ChatTemplate.RenderInput> = {}, options?: ChatTemplate.Options) => {
  const template = ChatTemplate.make(source, options)
  return Either.isLeft(template) ? Effect.fail(template.left) : template.right.render({ ...empty, ...input })
}

const failure = (source: string, input?: Partial<ChatTemplate.RenderInput>, options?: ChatTemplate.Options) =>
  Effect.flip(render(source, input, options))

const rejection = (source: string): TemplateError.TemplateError | undefined =>
  Option.getOrUndefined(Either.getLeft(ChatTemplate.make(source)))

describe("input values", () => {
  it.effect("values of ExactJson print as they were written", () =>
    Effect.gen(function* () {
      const written = '{"b": 1, "a": 1.0, "10": 1e20, "9": 1152921504606846976, "z": -0.0, "n": null}'
      const data = Either.getOrThrow(ExactJson.parse(written))
      expect(yield* render("{{ data|tojson }}", { variables: { data } })).toBe(
        '{"b": 1, "a": 1.0, "10": 1e+20, "9": 1152921504606846976, "z": -0.0, "n": null}',
      )
    }),
  )

  it.effect("a JavaScript number prints as an integer if it is one", () =>
    Effect.gen(function* () {
      expect(yield* render("{{ x }} {{ y }} {{ z }}", { variables: { x: 1, y: 0.5, z: 2n ** 64n } })).toBe(
        "1 0.5 18446744073709551616",
      )
      expect(yield* render("{{ x }}", { variables: { x: new ExactJson.Float(1) } })).toBe("1.0")
    }),
  )

  it.effect("an integer above 2^53 is rejected with its path", () =>
    Effect.gen(function* () {
      const error = yield* failure("{{ messages }}", { messages: [{ role: "user", tool_calls: [{ n: 2 ** 60 }] }] })
      expect(error.reason).toBe("Input")
      expect(error.problem).toContain("messages[0].tool_calls[0].n")
    }),
  )

  it.effect("values that are not plain data are rejected", () =>
    Effect.gen(function* () {
      const odd: ReadonlyArray<unknown> = [() => 1, Symbol("x"), new Date(0), new Map([[1, 2]]), [undefined]]
      for (const x of odd) {
        const error = yield* failure("{{ x }}", { variables: { x: x as ChatTemplate.TemplateData } })
        expect(error.reason).toBe("Input")
      }
      expect(yield* render("{{ x }}", { variables: { x: { a: undefined, b: 1 } } })).toBe("{'b': 1}")
    }),
  )
})

describe("preparation of the input", () => {
  it.effect("reasoning is available under the names that templates use", () =>
    Effect.gen(function* () {
      const source = "{{ messages[0].reasoning_content }}|{{ messages[0].thinking }}|{{ messages[0]|list }}"
      const messages = [{ role: "assistant", reasoning: "why" }]
      expect(yield* render(source, { messages })).toBe("why|why|['thinking', 'role', 'reasoning', 'reasoning_content']")
    }),
  )

  it.effect("tools and documents default to None, add_generation_prompt to False", () =>
    Effect.gen(function* () {
      const source = "{{ tools }} {{ documents }} {{ add_generation_prompt }}"
      expect(yield* render(source)).toBe("None None False")
      expect(yield* render(source, { tools: [{ a: 1 }], documents: [], addGenerationPrompt: true })).toBe(
        "[{'a': 1}] [] True",
      )
    }),
  )

  it.effect("continueFinalMessage ends the text where the final message ends", () =>
    Effect.gen(function* () {
      const source = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
      const messages = [{ content: "a" }, { content: "b " }]
      expect(yield* render(source, { messages, continueFinalMessage: true })).toBe("<a><b ")
      const trimmed = "{% for m in messages %}<{{ m.content|trim }}>{% endfor %}"
      expect(yield* render(trimmed, { messages, continueFinalMessage: true })).toBe("<a><b")
      expect((yield* failure("{{ messages[0].content }}", { messages, continueFinalMessage: true })).exception).toBe(
        "ValueError",
      )
      expect((yield* failure(source, { messages, continueFinalMessage: true, addGenerationPrompt: true })).reason).toBe(
        "Input",
      )
    }),
  )
})

describe("strftime_now", () => {
  it.effect("strftime_now uses Effect's clock in UTC or the given time zone", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(Date.UTC(2024, 11, 31, 23, 30, 5))
      const source = "{{ strftime_now('%A %d %B %Y %H:%M:%S') }}"
      expect(yield* render(source)).toBe("Tuesday 31 December 2024 23:30:05")
      const timeZone = DateTime.zoneUnsafeMakeNamed("Europe/Berlin")
      expect(yield* render(source, {}, { timeZone })).toBe("Wednesday 01 January 2025 00:30:05")
      expect((yield* failure("{{ strftime_now('%U') }}")).construct).toContain("%U")
    }),
  )
})

describe("rejected templates", () => {
  it.each([
    ["{{ x|random }}", "the filter random"],
    ["{{ x|urlize }}", "the filter urlize"],
    ["{{ x is loud }}", "the test loud"],
    ["{{ lipsum() }}", "lipsum"],
    ["{{ x.encode('utf-8') }}", "the method encode"],
    ["{% include 'x' %}", "the tag include"],
    ["{% block x %}{% endblock %}", "the tag block"],
    ["{% for x in y recursive %}{% endfor %}", "a recursive loop"],
    ["{{ '\\N{DASH}' }}", "the escape \\N"],
  ])("the unsupported construct of %s is named", (source, construct) => {
    expect(rejection(source)).toMatchObject({ reason: "Unsupported", construct, line: 1 })
  })

  it.effect("constructs found to be unsupported during rendering are named", () =>
    Effect.gen(function* () {
      expect((yield* failure("{{ ''.encode }}")).construct).toBe("encode of str")
      expect((yield* failure("{{ [1]|map('string') }}")).construct).toBe("printing a generator")
      expect((yield* failure("{{ {1.5: 1} }}")).construct).toBe("a dict with a key of type float")
      expect((yield* failure("{{ [1]|map('random')|list }}")).construct).toBe("the filter random")
    }),
  )

  it("syntax errors have a line", () => {
    expect(rejection("a\nb\n{{ 1 + }}")).toMatchObject({ reason: "Syntax", line: 3 })
    expect(rejection("{% if x %}\n\n{{ y }}")).toMatchObject({ reason: "Syntax" })
  })

  it.effect("raise_exception reports the template's own message", () =>
    Effect.gen(function* () {
      const error = yield* failure("\n{{ raise_exception('No ' ~ 1) }}")
      expect(error).toMatchObject({ _tag: "TemplateError", reason: "Raised", problem: "No 1", line: 2 })
    }),
  )
})

describe("hostile templates", () => {
  /** Work is counted, so the outcome does not depend on the speed of the machine. */
  const cases: ReadonlyArray<readonly [string, string]> = [
    ["loops in loops", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"],
    ["loops that write", "{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxx{% endfor %}{% endfor %}"],
    ["a long text", "{{ 'a' * 1000000000 }}"],
    ["a long list", "{{ [0] * 1000000000 }}"],
    [
      "doubling",
      "{% set ns = namespace(t='ab') %}{% for i in range(99) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}{{ ns.t|length }}",
    ],
    [
      "doubling a list",
      "{% set ns = namespace(t=[1]) %}{% for i in range(99) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
    ],
    [
      "a growing replace",
      "{% set ns = namespace(t='a') %}{% for i in range(99) %}{% set ns.t = ns.t|replace('a', 'aaaa') %}{% endfor %}",
    ],
    [
      "a growing join",
      "{% set ns = namespace(t='a') %}{% for i in range(99) %}{% set ns.t = [ns.t, ns.t, ns.t]|join(ns.t) %}{% endfor %}",
    ],
    ["a wide format", "{{ '%999999999s' % 'a' }}"],
    ["a wide brace format", "{{ '{:>999999999}'.format('a') }}"],
    ["centering", "{{ 'a'.center(999999999) }}"],
    ["filling with zeros", "{{ 'a'.zfill(999999999) }}"],
    ["indenting", "{{ 'a\nb'|indent(999999999) }}"],
    ["batches", "{{ [1]|batch(999999999, 0)|list }}"],
    ["slices", "{{ [1]|slice(999999999)|list }}"],
    ["large powers", "{{ 10 ** (10 ** 10) }}"],
    [
      "a tower of powers",
      "{% set ns = namespace(n=10) %}{% for i in range(50) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
    ],
    ["endless recursion", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"],
    ["mutual recursion", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}"],
    ["a recursive caller", "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}"],
    [
      "exponential macros",
      `${Array.from({ length: 60 }, (_, i) => `{% macro m${i}() %}${i === 0 ? "x" : `{{ m${i - 1}() }}{{ m${i - 1}() }}`}{% endmacro %}`).join("")}{{ m59() }}`,
    ],
    ["searching long texts", "{% set t = 'a' * 9999999 %}{% for i in range(99999) %}{{ 'b' in t }}{% endfor %}"],
    [
      "comparing long texts",
      "{% set t = 'a' * 9999999 %}{% set u = 'a' * 9999999 %}{% for i in range(99999) %}{{ t == u }}{% endfor %}",
    ],
    [
      "lists of everything",
      "{% set ns = namespace(t=[]) %}{% for i in range(99999) %}{% set ns.t = ns.t + [i] %}{% endfor %}",
    ],
    [
      "deep data",
      "{% set ns = namespace(t=[]) %}{% for i in range(9999) %}{% set ns.t = [ns.t] %}{% endfor %}{{ ns.t }}",
    ],
    [
      "deep data as JSON",
      "{% set ns = namespace(t={}) %}{% for i in range(9999) %}{% set ns.t = {'a': ns.t} %}{% endfor %}{{ ns.t|tojson }}",
    ],
    ["deep brackets", `{{ ${"(".repeat(100_000)}1${")".repeat(100_000)} }}`],
    ["deep lists", `{{ ${"[".repeat(100_000)}${"]".repeat(100_000)} }}`],
    ["deep conditions", `${"{% if 1 %}".repeat(50_000)}${"{% endif %}".repeat(50_000)}`],
    ["long sums", `{{ 1${" + 1".repeat(100_000)} }}`],
    ["long negations", `{{ ${"not ".repeat(100_000)}1 }}`],
    ["long signs", `{{ ${"-".repeat(100_000)}1 }}`],
    ["long paths", `{{ a${".b".repeat(100_000)} }}`],
    ["long filters", `{{ 1${"|string".repeat(100_000)} }}`],
  ]

  it.effect.each(cases)("a hostile template hits a limit: %s", ([, source]) =>
    Effect.gen(function* () {
      expect((yield* failure(source)).reason).toBe("Limit")
    }),
  )

  it.effect("cyclic data hits a limit", () =>
    Effect.gen(function* () {
      const cyclic: Record<string, ChatTemplate.TemplateData> = {}
      cyclic["self"] = cyclic
      expect((yield* failure("{{ x }}", { variables: { x: cyclic } })).reason).toBe("Limit")
    }),
  )

  it.effect("sources with very long runs of one character are handled", () =>
    Effect.gen(function* () {
      const spaces = " ".repeat(1_000_000)
      expect(yield* render(`${spaces}{{- 'a' -}}${spaces}`)).toBe("a")
      expect((yield* render(`${"{".repeat(200_001)}`).pipe(Effect.flip)).reason).toBe("Syntax")
      expect((yield* failure(`{{ '${"\\".repeat(100_001)}`)).reason).toBe("Syntax")
      expect((yield* failure(`{{ ${"9".repeat(100_000)} }}`)).reason).toBe("Syntax")
    }),
  )

  it.effect("the step limit is exact", () =>
    Effect.gen(function* () {
      const source = "{% for i in range(10) %}{{ i }}{% endfor %}"
      const fits = (steps: number) => Effect.isSuccess(render(source, {}, { limits: { steps } }))
      let least = 1
      while (!(yield* fits(least))) least++
      expect(least).toBeLessThan(100)
      expect(yield* fits(least)).toBe(true)
      expect(yield* fits(least - 1)).toBe(false)
      expect((yield* failure("{{ 'abcdef' }}", {}, { limits: { length: 5 } })).reason).toBe("Limit")
      expect(yield* render("{{ 'abcde' }}", {}, { limits: { length: 15 } })).toBe("abcde")
    }),
  )
})

describe("ChatTemplate.fromTokenizer", () => {
  const tokenizer = (templates: ReadonlyArray<readonly [string, string]>) =>
    ({
      name: "mine",
      chat: { templates: new Map(templates), specialTokens: { bos_token: "<s>" } },
    }) as unknown as Tokenizer.Service

  it.effect("ChatTemplate.fromTokenizer uses the named template and the special tokens", () =>
    Effect.gen(function* () {
      const both = tokenizer([
        ["default", "{{ bos_token }}a"],
        ["tool_use", "{{ bos_token }}b"],
      ])
      expect(yield* Either.getOrThrow(ChatTemplate.fromTokenizer(both)).render(empty)).toBe("<s>a")
      expect(yield* Either.getOrThrow(ChatTemplate.fromTokenizer(both, "tool_use")).render(empty)).toBe("<s>b")
      expect(Either.getLeft(ChatTemplate.fromTokenizer(both, "other"))).toMatchObject(
        Option.some({
          reason: "NoTemplate",
          problem: 'mine has no chat template named "other"; available templates: "default", "tool_use"',
        }),
      )
      expect(Either.isLeft(ChatTemplate.fromTokenizer(tokenizer([])))).toBe(true)
    }),
  )
})

describe("properties", () => {
  const json = FastCheck.jsonValue({ noUnicodeString: false })

  it.effect.prop("tojson round-trips through JSON.parse", { value: json }, ({ value }) =>
    Effect.gen(function* () {
      const exact = Either.getOrThrow(ExactJson.parse(JSON.stringify(value)))
      const text = yield* render("{{ x|tojson }}", { variables: { x: exact } })
      expect(JSON.parse(text)).toEqual(JSON.parse(JSON.stringify(value)))
      const indented = yield* render("{{ x|tojson(indent=2, ensure_ascii=true) }}", { variables: { x: exact } })
      expect(JSON.parse(indented)).toEqual(JSON.parse(JSON.stringify(value)))
    }),
  )

  it.effect.prop("text without tags is unchanged", { text: FastCheck.string({ unit: "grapheme" }) }, ({ text }) =>
    Effect.gen(function* () {
      const plain = text.replace(/\{[{%#]/g, "").replace(/\r\n?/g, "\n")
      expect(yield* render(`${plain}\n`)).toBe(plain)
      expect(yield* render("{{ text }}", { variables: { text } })).toBe(text)
    }),
  )

  it.effect.prop(
    "any source yields a string or a TemplateError",
    {
      parts: FastCheck.array(
        FastCheck.constantFrom(
          "{{",
          "}}",
          "{%",
          "%}",
          "{#",
          "#}",
          "-",
          "if x",
          "endif",
          "for a in b",
          "endfor",
          "set x = ",
          "'",
          '"',
          "a",
          " ",
          "(",
          ")",
          "[",
          "]",
          "|",
          "upper",
          ".",
          "1",
          "is",
          "not",
          "\n",
          "=",
          ",",
          "~",
          "raw",
          "endraw",
          "macro m()",
          "endmacro",
        ),
      ),
    },
    ({ parts }) =>
      Effect.gen(function* () {
        const result = yield* Effect.either(render(parts.join(" "), { variables: { b: [1], x: "y" } }))
        expect(Either.isRight(result) || result.left._tag === "TemplateError").toBe(true)
      }),
  )
})
