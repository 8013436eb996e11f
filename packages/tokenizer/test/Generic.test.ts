import { describe, expect, it } from "@effect/vitest"
import { ChatTemplate, ExactJson, Generic, Message } from "@effect-tinker/tokenizer"
import { Effect, Either, FastCheck } from "effect"
import type { ModelInput } from "effect-tinker"
import * as RendererGoldens from "./support/RendererGoldens.ts"

const tokensOf = (input: ModelInput.ModelInput): ReadonlyArray<number> =>
  input.chunks.flatMap((chunk) => (chunk.type === "encoded_text" ? [...chunk.tokens] : [-1]))

const llama3 = `{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>

{{ message.content }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}`

/** Removes reasoning from the history. */
const forgetful = `{% for message in messages %}<|im_start|>{{ message.role }}
{% if loop.last and message.reasoning_content is defined %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

const make = (name: RendererGoldens.TokenizerName, source: string, options: Generic.Options = {}) =>
  Effect.gen(function* () {
    const tokenizer = yield* RendererGoldens.tokenizer(name)
    const template = Either.getOrThrow(ChatTemplate.make(source, { specialTokens: { bos_token: "<|begin_of_text|>" } }))
    return { tokenizer, template, renderer: yield* Generic.make(tokenizer, { ...options, template }) }
  })

const question = Message.user("What is 2 + 3?")
const two = [question, Message.assistant("5"), Message.user("And 4?"), Message.assistant("9, I think.")]

describe("Generic", () => {
  it.effect("a generic renderer with the Llama 3 template equals the Llama 3 renderer", () =>
    Effect.gen(function* () {
      const { renderer } = yield* make("llama3", llama3)
      const { renderer: own } = yield* RendererGoldens.load("llama3")
      expect(renderer.stopSequences).toEqual(own.stopSequences)
      const text = FastCheck.string({ unit: "grapheme", minLength: 1, maxLength: 12 }).filter(
        (text) => text.trim() === text && !text.includes("<"),
      )
      const talk = FastCheck.array(FastCheck.tuple(text, text), { minLength: 1, maxLength: 3 })
      for (const turns of FastCheck.sample(talk, { seed: 3, numRuns: 40 })) {
        const messages = turns.flatMap(([one, other]) => [Message.user(one), Message.assistant(other)])
        const asked = messages.slice(0, -1)
        expect(tokensOf(yield* renderer.generationPrompt(asked))).toEqual(tokensOf(yield* own.generationPrompt(asked)))
        for (const mode of ["last_assistant_message", "last_assistant_turn", "all_assistant_messages"] as const) {
          const example = yield* renderer.supervisedExample(messages, mode)
          expect(example, mode).toEqual(yield* own.supervisedExample(messages, mode))
        }
      }
    }),
  )

  it.effect("a generic renderer with a Qwen3 template writes the same prompts as the Qwen3 renderers", () =>
    Effect.gen(function* () {
      const { renderer } = yield* make("qwen3", forgetful)
      const text = FastCheck.string({ unit: "grapheme", maxLength: 12 }).filter((text) => !/^\s|</.test(text))
      const talk = FastCheck.array(FastCheck.tuple(text, text), { minLength: 1, maxLength: 3 })
      for (const name of ["qwen3", "qwen3_instruct"] as const) {
        const { renderer: own } = yield* RendererGoldens.load(name)
        for (const turns of FastCheck.sample(talk, { seed: 4, numRuns: 40 })) {
          const asked = turns.flatMap(([one, other]) => [Message.user(one), Message.assistant(other)])
          const messages = [Message.system("Be kind."), ...asked, question]
          expect(yield* renderer.generationPrompt(messages)).toEqual(yield* own.generationPrompt(messages))
        }
      }
    }),
  )

  it.effect("a generic renderer trains on the answer up to and including its stop token", () =>
    Effect.gen(function* () {
      const { renderer, tokenizer } = yield* make("qwen3", forgetful)
      const trained = (example: { readonly modelInput: ModelInput.ModelInput; readonly weights: Float32Array }) =>
        tokenizer.decode(tokensOf(example.modelInput).filter((_, index) => example.weights[index] === 1))
      expect(yield* trained(yield* renderer.supervisedExample(two))).toBe("9, I think.<|im_end|>")
      const all = yield* renderer.supervisedExample(two, "all_assistant_messages")
      expect(yield* trained(all)).toBe("5<|im_end|>9, I think.<|im_end|>")
      const custom = two.map((message, index) => ({ ...message, trainable: index === 1 }))
      expect(yield* trained(yield* renderer.supervisedExample(custom, "customized"))).toBe("5<|im_end|>")
      const reasoned = [question, Message.assistant([Message.thinking("2+3"), Message.text("5")])]
      const thought = yield* renderer.supervisedExample(reasoned)
      expect(yield* trained(thought)).toBe("<think>\n2+3\n</think>\n\n5<|im_end|>")
      const parsed = yield* renderer.parse(tokensOf(thought.modelInput).filter((_, i) => thought.weights[i] === 1))
      expect(parsed).toEqual({ message: reasoned[1], termination: "stop_sequence" })
    }),
  )

  it.effect("a generic renderer rejects examples whose weights would be wrong and offers one example per answer", () =>
    Effect.gen(function* () {
      const early = `${forgetful}{{ messages | length }}`
      const { renderer: counting } = yield* make("qwen3", early)
      expect(yield* Effect.flip(counting.supervisedExample(two))).toMatchObject({ reason: "NoPrefix" })

      // The prompt ends within a word: two tokens when the model continues it, one when the text is encoded again.
      const within = `{% for m in messages %}<|im_start|>{{ m.role }}
th{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
th{% endif %}`
      const { renderer: cutting } = yield* make("qwen3", within)
      const merged = [question, Message.assistant("e answer"), question, Message.assistant("e end")]
      const cut = yield* Effect.either(cutting.supervisedExample(merged, "all_assistant_messages"))
      expect(Either.isLeft(cut) ? cut.left.message : "no error").toContain("messages[3]: the prompt for this answer")
      expect(yield* cutting.supervisedExamples(merged, "last_assistant_turn")).toHaveLength(1)

      const reasoned = Message.assistant([Message.thinking("2+3"), Message.text("5")])
      const { renderer } = yield* make("qwen3", forgetful)
      const messages = [question, reasoned, Message.user("And 4?"), reasoned]
      // In the history the first answer has no reasoning, so it differs from what the model wrote.
      const failed = yield* Effect.flip(renderer.supervisedExample(messages, "all_assistant_messages"))
      expect(failed).toMatchObject({ reason: "NoPrefix" })
      expect(yield* renderer.supervisedExamples(messages, "all_assistant_messages")).toHaveLength(2)
    }),
  )

  it.effect("a generic renderer rejects what a template can't express", () =>
    Effect.gen(function* () {
      const { renderer, tokenizer } = yield* make("qwen3", forgetful)
      for (const mode of ["all_messages", "all_user_and_system_messages"] as const) {
        expect(yield* Effect.flip(renderer.supervisedExample(two, mode))).toMatchObject({ reason: "Unsupported" })
      }
      expect(yield* Effect.flip(renderer.toolPrefix([]))).toMatchObject({ reason: "Unsupported" })
      expect(yield* Effect.flip(renderer.generationPrompt([], { role: "user" }))).toMatchObject({
        reason: "Unsupported",
      })
      const endless = Either.getOrThrow(ChatTemplate.make("{% for m in messages %}{{ m.content }}{% endfor %}"))
      expect(yield* Effect.flip(Generic.make(tokenizer, { template: endless }))).toMatchObject({
        reason: "Unsupported",
      })
      const stopped = yield* Generic.make(tokenizer, { template: endless, stop: "<|im_end|>" })
      expect(stopped.stopSequences).toHaveLength(1)
      expect(yield* Effect.flip(Generic.make(tokenizer))).toMatchObject({ _tag: "TemplateError", reason: "NoTemplate" })
    }),
  )

  it.effect("a generic renderer finds the end of an answer that contains the stop token", () =>
    Effect.gen(function* () {
      const source = `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}{{ '' if m.cut else '<|im_end|>' }}
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`
      const { renderer, tokenizer } = yield* make("qwen3", source)
      const stops = JSON.stringify({ a: "<|im_end|> and on" })
      const called = Message.assistant("<|im_end|>", { toolCalls: [{ name: "f", arguments: stops }] })
      const { modelInput, weights } = yield* renderer.supervisedExample([question, called, question, called])
      const trained = tokensOf(modelInput).filter((_, index) => weights[index] === 1)
      expect(yield* tokenizer.decode(trained)).toBe(`<|im_end|>{"a": "<|im_end|> and on"}<|im_end|>`)

      const { renderer: endless } = yield* make("qwen3", source.replace("m.cut", "m.tool_calls"))
      const plain = Message.assistant("", { toolCalls: [{ name: "f", arguments: "{}" }] })
      const outcome = yield* Effect.either(endless.supervisedExample([question, plain]))
      expect(Either.isLeft(outcome) ? outcome.left : undefined).toMatchObject({ reason: "Unsupported" })
    }),
  )

  it.effect("a generic renderer passes the numbers of a tool schema as they were written", () =>
    Effect.gen(function* () {
      const exact = Either.getOrThrow(
        ExactJson.parse('{"default": 1.0, "maximum": 1e20, "minimum": -9007199254740993}'),
      )
      const tools = [{ name: "f", description: "", parameters: { properties: exact, multipleOf: 2n } }]
      const { renderer, tokenizer } = yield* make("qwen3", `{{ tools | tojson }}${forgetful}`, { tools })
      const text = yield* tokenizer.decode(tokensOf(yield* renderer.generationPrompt([question])))
      expect(text).toContain('{"default": 1.0, "maximum": 1e+20, "minimum": -9007199254740993}, "multipleOf": 2}')
    }),
  )

  it.effect("a generic renderer passes tools to the template and parses reasoning opened by the prompt", () =>
    Effect.gen(function* () {
      const source = `{{ tools | tojson }}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}`
      const { renderer, tokenizer } = yield* make("qwen3", source, { tools: RendererGoldens.tools })
      const called = Message.assistant("x", { toolCalls: [{ name: "f", arguments: '{"a": 1.0}' }] })
      const text = yield* tokenizer.decode(tokensOf(yield* renderer.generationPrompt([question, called])))
      expect(text).toContain('"name": "get_weather"')
      expect(text).toContain('{"a": 1.0}')
      const parsed = yield* renderer.parse(yield* tokenizer.encode("hm\n</think>\n\n5<|im_end|>"))
      expect(parsed.message.content).toEqual([Message.thinking("hm"), Message.text("5")])
    }),
  )
})
