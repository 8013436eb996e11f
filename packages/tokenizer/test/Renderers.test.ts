import { describe, expect, it } from "@effect/vitest"
import {
  ChatTemplate,
  Message,
  Models,
  Renderer,
  Renderers,
  TokenizerBackend,
  TokenizerFiles,
} from "@effect-tinker/tokenizer"
import { Effect, Option } from "effect"
import { readFileSync } from "node:fs"
import * as RendererGoldens from "./support/RendererGoldens.ts"

describe("Renderers", () => {
  it("Renderers.table recommends the same renderers as the reference", () => {
    expect(Renderers.table.models).toEqual({
      ...RendererGoldens.models,
      [Models.local]: ["valley"],
      [Models.localTools]: ["valley_tools"],
    })
    expect(Object.keys(RendererGoldens.models).length).toBe(44)
    expect(Renderers.table.version).toBe("0.5.8")
  })

  it.effect("Renderers.byName creates every recommended renderer or fails with NotYet", () =>
    Effect.gen(function* () {
      for (const [model, names] of Object.entries(RendererGoldens.models)) {
        for (const name of names) {
          const tokenizer = yield* RendererGoldens.tokenizer(RendererGoldens.tokenizerOf(name))
          const made = yield* Effect.either(Renderers.byName(name, tokenizer))
          if ((Renderers.names as ReadonlyArray<string>).includes(name)) {
            expect(made).toMatchObject({ right: { name } })
          } else expect(made, `${model}: ${name}`).toMatchObject({ left: { reason: "NotYet" } })
        }
      }
      const tokenizer = yield* RendererGoldens.tokenizer("qwen3")
      const renderer = yield* Renderers.forModel("Qwen/Qwen3-8B:tail", tokenizer)
      expect(renderer.name).toBe("qwen3")
    }),
  )

  it("Renderers.names has every name of the reference", () => {
    const named = Object.values(RendererGoldens.models).flat()
    expect(named.filter((name) => !(Renderers.names as ReadonlyArray<string>).includes(name))).toEqual([])
    expect(Renderers.names.filter((name) => !name.startsWith("valley")).length).toBe(44)
  })

  it("Models.find knows the facts of every model", () => {
    for (const name of Object.keys(RendererGoldens.models)) {
      const model = Option.getOrThrow(Models.find(name))
      expect(model.isChat).toBe(!model.renderers.includes("role_colon"))
      expect(model.hiddenSize).toBeGreaterThan(1000)
      expect(Option.isSome(model.rate)).toBe(/llama|qwen/i.test(name))
      expect(Option.getOrNull(Option.getOrThrow(Models.find(`${name}:peft:262144`)).context)).toBe(262_144)
    }
    expect(Option.getOrThrow(Models.find(Models.local))).toMatchObject({ contextLength: 1024, isChat: true })
    expect(Option.isNone(Models.find("constructor"))).toBe(true)
  })

  it.effect("Renderers.local equals the chat template of the local model and parses its answers", () =>
    Effect.gen(function* () {
      const { renderer, tokenizer } = yield* Renderers.local
      const template = yield* ChatTemplate.fromTokenizer(tokenizer)
      const messages = [Message.system("Be kind."), Message.user("What is 2 + 3?\n"), Message.assistant("5")]
      const given = messages.map(({ content, role }) => ({ role, content: String(content) }))
      const tokens = (input: { readonly chunks: ReadonlyArray<unknown> }) =>
        input.chunks.flatMap((chunk) => [...(chunk as { readonly tokens: Int32Array }).tokens])
      const prompt = tokens(yield* renderer.generationPrompt(messages.slice(0, 2)))
      const text = yield* template.render({ messages: given.slice(0, 2), addGenerationPrompt: true })
      expect(yield* tokenizer.decode(prompt)).toBe(text)
      expect(prompt).toEqual([...(yield* tokenizer.encode(text, { addSpecialTokens: false }))])
      const example = yield* renderer.supervisedExample(messages)
      const whole = tokens(example.modelInput)
      expect(`${yield* tokenizer.decode(whole)}\n`).toBe(
        yield* template.render({ messages: given, addGenerationPrompt: false }),
      )
      const parsed = yield* renderer.parse(whole.slice(prompt.length))
      expect(parsed).toEqual({ message: Message.assistant("5"), termination: "stop_sequence" })
      expect(Renderer.isClean(parsed)).toBe(true)
    }).pipe(Effect.provide(TokenizerBackend.layer)),
  )

  it.effect("Renderers.localTools equals the chat template of the local model with tools", () =>
    Effect.gen(function* () {
      const { model, renderer, tokenizer } = yield* Renderers.localTools
      expect(model).toMatchObject({ name: Models.localTools, contextLength: 1024, isChat: true })
      const template = yield* ChatTemplate.fromTokenizer(tokenizer)
      const tools = [
        {
          name: "weather",
          description: "Returns the temperature in a town.",
          parameters: { type: "object", properties: { town: { type: "string" } } },
        },
        {
          name: "add",
          description: "Adds two numbers.",
          parameters: { type: "object", properties: { a: { type: "number" }, b: { type: "number" } } },
        },
        { name: "now", description: "Returns the time.", parameters: {} },
      ]
      const calls = [
        { name: "weather", arguments: '{"town": "Arlen"}' },
        { name: "add", arguments: '{"a": 1, "b": 2}' },
      ]
      const said = [
        Message.user("How warm is it in Arlen?"),
        Message.assistant([Message.thinking("I use weather for Arlen."), Message.text("")], { toolCalls: calls }),
        { role: "tool", content: '{"degrees":21}' },
        { role: "tool", content: "3" },
        Message.assistant("It is 21 degrees in Arlen."),
      ]
      const json = said.map(({ content, role, toolCalls }: Message.Message) => ({
        role,
        content: Message.textOf({ content }),
        ...(Message.thinkingOf({ content }) !== "" && { reasoning_content: Message.thinkingOf({ content }) }),
        ...(toolCalls !== undefined && {
          tool_calls: toolCalls.map((call) => ({
            type: "function",
            function: { name: call.name, arguments: JSON.parse(call.arguments) },
          })),
        }),
      }))
      const declared = tools.map((tool) => ({ type: "function", function: tool }))
      for (const instructions of ["", "Think first."]) {
        const system = instructions === "" ? [] : [{ role: "system", content: instructions }]
        const whole = yield* renderer.supervisedExample([...(yield* renderer.toolPrefix(tools, instructions)), ...said])
        const tokens = whole.modelInput.chunks.flatMap((chunk) =>
          chunk.type === "encoded_text" ? [...chunk.tokens] : [],
        )
        const text = yield* template.render({ messages: [...system, ...json], tools: declared })
        expect(`${yield* tokenizer.decode(tokens)}\n`).toBe(text)
        expect(tokens).toEqual([...(yield* tokenizer.encode(text.slice(0, -1), { addSpecialTokens: false }))])
      }
      const answer =
        '<think>\nI add.\n</think>\n\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call><|end|>'
      const parsed = yield* renderer.parse(yield* tokenizer.encode(answer, { addSpecialTokens: false }))
      expect(parsed).toEqual({
        message: Message.assistant([Message.thinking("I add.")], { toolCalls: [calls[1]!] }),
        termination: "stop_sequence",
      })
      expect(yield* renderer.toolPrefix([], "")).toEqual([])
      expect(
        yield* Effect.flip(renderer.generationPrompt([{ ...said[1]!, toolCalls: [{ name: "add", arguments: "{" }] }])),
      ).toMatchObject({ path: "messages[0].toolCalls[0].arguments" })
    }).pipe(Effect.provide(TokenizerBackend.layer)),
  )

  it.each([
    ["model", TokenizerFiles.local],
    ["model-tools", TokenizerFiles.localTools],
  ])("the tokenizer of the engine's %s equals its files", (directory, files) => {
    const file = (name: string): unknown =>
      JSON.parse(readFileSync(new URL(`../../engine/${directory}/${name}`, import.meta.url), "utf8"))
    expect(JSON.parse(files.tokenizer)).toEqual(file("tokenizer.json"))
    expect(JSON.parse(files.config ?? "")).toEqual(file("tokenizer_config.json"))
  })

  it.effect("Renderers reports unknown renderers and unknown models", () =>
    Effect.gen(function* () {
      const tokenizer = yield* RendererGoldens.tokenizer("qwen3")
      const unknown = yield* Effect.flip(Renderers.byName("chatml", tokenizer))
      expect(unknown.message).toContain("available renderers: role_colon, llama3")
      expect(yield* Effect.flip(Renderers.forModel("org/new", tokenizer))).toMatchObject({ reason: "Unknown" })
      expect(yield* Effect.flip(Renderers.forModel("constructor", tokenizer))).toMatchObject({ reason: "Unknown" })
      const newer = { version: "9", models: { "org/new": ["next_thinking"] }, later: { next: "Next" } }
      const later = yield* Effect.flip(Renderers.forModel("org/new", tokenizer, newer))
      expect(later).toMatchObject({ reason: "NotYet", problem: expect.stringContaining("renderers for Next") })
    }),
  )

  it("Renderers.fits returns whether a renderer suits a model", () => {
    expect(Renderers.fits("Qwen/Qwen3-8B", "qwen3_disable_thinking")).toBe(true)
    expect(Renderers.fits("Qwen/Qwen3-8B", "llama3")).toBe(false)
    expect(Renderers.fits("openai/gpt-oss-20b", "gpt_oss_high_reasoning")).toBe(true)
    expect(Renderers.fits("org/new", "llama3")).toBeUndefined()
  })
})
