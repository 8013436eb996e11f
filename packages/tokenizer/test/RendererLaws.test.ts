import { describe, expect, it } from "@effect/vitest"
import { Message, Renderer } from "@effect-tinker/tokenizer"
import { Chunk, Effect, FastCheck, Stream } from "effect"
import type { ModelInput } from "effect-tinker"
import * as RendererGoldens from "./support/RendererGoldens.ts"
import type { Name } from "./support/RendererGoldens.ts"

const tokensOf = (input: ModelInput.ModelInput): ReadonlyArray<number> =>
  input.chunks.flatMap((chunk) => (chunk.type === "encoded_text" ? [...chunk.tokens] : [-1]))

const hasParts = (name: Name) => !/^(role_colon|llama3)/.test(name)
const hasReasoning = (name: Name) => hasParts(name) && !/_disable_thinking$|^deepseekv3$/.test(name)
/** Formats whose prompt opens reasoning although their history writes an answer without reasoning differently. */
const needsReasoning = (name: Name) => name.startsWith("nemotron3") && hasReasoning(name)
/** Formats that write each argument of a call as a text. */
const hasTextArguments = (name: Name) => /^(qwen3_5|qwen3_8|nemotron3|glm|deepseekv4_1)/.test(name)
/** Renderers for which the reference does not claim the extension property, although these conversations have it. */
const cautious =
  /^(kimi_k2[56]_disable_thinking|kimi_k26_preserve_thinking|nemotron3_(ultra_)?disable_thinking|qwen3_8_.*|qwen3_5_disable_thinking)$/

const letters = FastCheck.constantFrom(..."abcxyz .,:!?\n\t0123456789<>/|{}\"'üé語😀👩‍👧", "think", "User", "tool")

/** Texts that may contain parts of a format's marks. */
const words = FastCheck.array(letters, { maxLength: 12 }).map((some) => some.join(""))
/** Texts without the marks of a format. */
const free = words.filter((text) => !/<|User:/.test(text))
/** Texts that framing leaves unchanged. */
const inner = free.filter((text) => text !== "" && text.trim() === text)

const isJson = (text: string) => {
  try {
    return JSON.parse(text) !== undefined
  } catch {
    return false
  }
}

const flatJson = FastCheck.dictionary(
  FastCheck.constantFrom("a", "b_c", "key"),
  FastCheck.oneof(
    inner.filter((text) => !isJson(text)),
    FastCheck.integer(),
  ),
  { maxKeys: 3 },
).map((value) => JSON.stringify(value))

const json = FastCheck.dictionary(
  FastCheck.string({ minLength: 1, maxLength: 4 }),
  FastCheck.oneof(free, FastCheck.integer(), FastCheck.boolean()),
  {
    maxKeys: 3,
  },
).map((value) => JSON.stringify(value))

const toolCallOf = (name: Name) =>
  FastCheck.record({
    name: FastCheck.constantFrom("f", "get_weather"),
    arguments: hasTextArguments(name) ? flatJson : json,
  })

/** An answer that the format can express, as it would be parsed. */
const answerOf = (name: Name, withCalls: boolean): FastCheck.Arbitrary<Message.Message> => {
  const text = inner.map((text) => Message.assistant(text))
  if (!hasParts(name)) return text
  const thought = FastCheck.tuple(inner, inner).map(([thought, text]) =>
    Message.assistant([Message.thinking(thought), Message.text(text)]),
  )
  const calls = FastCheck.tuple(
    inner,
    FastCheck.array(toolCallOf(name), { minLength: 1, maxLength: name.startsWith("gpt") ? 1 : 3 }),
  ).map(([text, toolCalls]) => Message.assistant([Message.text(text)], { toolCalls }))
  if (needsReasoning(name)) return thought
  return FastCheck.oneof(text, ...(hasReasoning(name) ? [thought] : []), ...(withCalls ? [calls] : []))
}

interface Turns {
  readonly system: boolean
  readonly turns: ReadonlyArray<readonly [question: string, answer: Message.Message]>
}

const turnsOf = (name: Name, max: number): FastCheck.Arbitrary<Turns> =>
  FastCheck.record({
    system: FastCheck.boolean(),
    turns: FastCheck.array(FastCheck.tuple(words, answerOf(name, false)), { minLength: 1, maxLength: max }),
  })

const messagesOf = ({ system, turns }: Turns, count = turns.length): ReadonlyArray<Message.Message> => [
  ...(system ? [Message.system("Be kind.")] : []),
  ...turns.slice(0, count).flatMap(([question, answer]) => [Message.user(question), answer]),
]

/** A fifth of them, but for `test:all`. */
const share = process.env["TINKER_TESTS"] === "all" ? 1 : 5

const sample = <A>(arbitrary: FastCheck.Arbitrary<A>, numRuns: number) =>
  FastCheck.sample(arbitrary, { seed: 7, numRuns: numRuns / share })

/** Normalizes a message, so that it can be compared with a parsed one. */
const normal = (message: Message.Message) => ({
  text: Message.textOf(message),
  thinking: Message.thinkingOf(message),
  calls: (message.toolCalls ?? []).map(({ arguments: given, name }) => [name, JSON.parse(given)]),
})

const isPrefix = (one: ReadonlyArray<number>, other: ReadonlyArray<number>) =>
  one.length <= other.length && one.every((token, index) => token === other[index])

for (const name of RendererGoldens.names) {
  describe(name, () => {
    it.effect(`${name}: an example starts with the generation prompt, which has weight 0`, () =>
      Effect.gen(function* () {
        const { renderer } = yield* RendererGoldens.load(name)
        for (const turns of sample(turnsOf(name, 3), 60)) {
          const messages = messagesOf(turns)
          const example = yield* renderer.supervisedExample(messages)
          const prompt = tokensOf(yield* renderer.generationPrompt(messages.slice(0, -1)))
          const tokens = tokensOf(example.modelInput)
          expect(tokens.slice(0, prompt.length)).toEqual(prompt)
          expect(example.weights.length).toBe(tokens.length)
          expect([...example.weights]).toEqual(tokens.map((_, index) => (index < prompt.length ? 0 : 1)))
        }
      }),
    )

    it.effect(`${name}: a rendered answer parses back to the same message`, () =>
      Effect.gen(function* () {
        const { renderer } = yield* RendererGoldens.load(name)
        for (const answer of sample(answerOf(name, true), 120)) {
          const messages = [Message.user("?"), answer]
          const prompt = tokensOf(yield* renderer.generationPrompt([Message.user("?")]))
          const { modelInput } = yield* renderer.supervisedExample(messages)
          const parsed = yield* renderer.parse(tokensOf(modelInput).slice(prompt.length))
          expect(parsed.termination).toBe("stop_sequence")
          expect(normal(parsed.message)).toEqual(normal(answer))
          expect(parsed.message.unparsedToolCalls).toBeUndefined()
        }
      }),
    )

    it.effect(`${name}: parsing a stream gives the same answer as parsing all tokens`, () =>
      Effect.gen(function* () {
        const { renderer } = yield* RendererGoldens.load(name)
        const cuts = FastCheck.array(FastCheck.integer({ min: 1, max: 7 }), { minLength: 1, maxLength: 5 })
        for (const [answer, sizes] of sample(FastCheck.tuple(answerOf(name, true), cuts), 80)) {
          const prompt = tokensOf(yield* renderer.generationPrompt([Message.user("?")]))
          const { modelInput } = yield* renderer.supervisedExample([Message.user("?"), answer])
          const tokens = tokensOf(modelInput).slice(prompt.length)
          const pieces: Array<ReadonlyArray<number>> = []
          for (let at = 0, i = 0; at < tokens.length; i++) {
            const size = sizes[i % sizes.length] ?? 1
            pieces.push(tokens.slice(at, at + size))
            at += size
          }
          const deltas = yield* Stream.fromIterable(pieces).pipe(
            Renderer.parseStream(renderer),
            Stream.runCollect,
            Effect.map(Chunk.toReadonlyArray),
          )
          const whole = yield* renderer.parse(tokens)
          expect(deltas.at(-1)).toEqual({ type: "end", ...whole })
          const joined = (type: "text" | "thinking") =>
            deltas.map((delta) => (delta.type === type ? ("text" in delta ? delta.text : delta.thinking) : "")).join("")
          expect(joined("text")).toBe(Message.textOf(whole.message))
          expect(joined("thinking")).toBe(Message.thinkingOf(whole.message))
          const calls = new Set(deltas.flatMap((delta) => (delta.type === "tool_call" ? [delta.index] : [])))
          expect(calls.size).toBe(whole.message.toolCalls?.length ?? 0)
          const indices = deltas.flatMap((delta) => ("index" in delta ? [delta.index] : []))
          expect(indices).toEqual(indices.toSorted((a, b) => a - b))
        }
      }),
    )

    it.effect(`${name}: prompts extend the previous turn if and only if hasExtensionProperty is true`, () =>
      Effect.gen(function* () {
        const { renderer } = yield* RendererGoldens.load(name)
        let broken = 0
        for (const turns of sample(turnsOf(name, 4), 60)) {
          // The instruct models have no reasoning; their history leaves out reasoning from elsewhere.
          if (name === "qwen3_instruct" && turns.turns.some(([, answer]) => Message.thinkingOf(answer) !== "")) continue
          let last: ReadonlyArray<number> = []
          for (let count = 0; count <= turns.turns.length; count++) {
            const question = turns.turns[count]
            if (question === undefined) break
            const prompt = yield* renderer.generationPrompt([...messagesOf(turns, count), Message.user(question[0])])
            if (!isPrefix(last, tokensOf(prompt))) broken++
            const answered = yield* renderer.supervisedExample(messagesOf(turns, count + 1))
            // In one format the stop sequence is the start of the next message.
            last = tokensOf(answered.modelInput)
          }
        }
        if (renderer.hasExtensionProperty) expect(broken).toBe(0)
        else if (!cautious.test(name)) expect(broken).toBeGreaterThan(0)
      }),
    )
  })
}

describe("Renderer", () => {
  it.effect("qwen3_disable_thinking rejects an answer with reasoning", () =>
    Effect.gen(function* () {
      const { renderer } = yield* RendererGoldens.load("qwen3_disable_thinking")
      const reasoned = Message.assistant([Message.thinking("hm"), Message.text("yes")])
      const error = yield* Effect.flip(renderer.supervisedExample([Message.user("?"), reasoned]))
      expect(error).toMatchObject({ _tag: "RendererError", reason: "Contradiction" })
    }),
  )

  it.effect("customized requires trainable on every message, and other modes forbid it", () =>
    Effect.gen(function* () {
      const { renderer } = yield* RendererGoldens.load("gpt_oss_high_reasoning")
      const answer = Message.assistant("yes")
      const missing = yield* Effect.flip(renderer.supervisedExample([Message.user("?"), answer], "customized"))
      expect(missing).toMatchObject({ _tag: "InvalidInput", path: "messages[0].trainable" })
      const given = yield* Effect.flip(renderer.supervisedExample([{ ...answer, trainable: true }]))
      expect(given).toMatchObject({ _tag: "InvalidInput", path: "messages[0].trainable" })
      const marked = [
        { ...Message.user("?"), trainable: false },
        { ...answer, trainable: true },
      ]
      const own = yield* renderer.supervisedExample(marked, "customized")
      expect(own).toEqual(yield* renderer.supervisedExample([Message.user("?"), answer]))
    }),
  )

  it.effect("unsupported content, missing names and wrong tokenizers are reported", () =>
    Effect.gen(function* () {
      const { renderer: llama } = yield* RendererGoldens.load("llama3")
      const image = { type: "image", image: { type: "image", data: new Uint8Array(), format: "png" } } as const
      const calls = Message.assistant("", { toolCalls: [{ name: "f", arguments: "{}" }] })
      for (const message of [Message.user([image]), calls, Message.assistant([Message.thinking("a")])]) {
        const error = yield* Effect.flip(llama.generationPrompt([message]))
        expect(error).toMatchObject({ _tag: "RendererError", reason: "Unsupported" })
      }
      const { renderer: harmony, tokenizer } = yield* RendererGoldens.load("gpt_oss_no_sysprompt")
      const nameless = yield* Effect.flip(harmony.generationPrompt([{ role: "tool", content: "1" }]))
      expect(nameless).toMatchObject({ _tag: "InvalidInput", path: "messages[0].name" })
      const wrong = yield* Effect.flip(RendererGoldens.make("qwen3", tokenizer))
      expect(wrong).toMatchObject({ reason: "WrongTokenizer", problem: expect.stringContaining("<|im_end|>") })
      const half = yield* Effect.flip(llama.generationPrompt([{ role: "user" } as never]))
      expect(half).toMatchObject({ _tag: "InvalidInput", path: "messages[0]" })
    }),
  )

  it.effect("GptOss uses the date on which the renderer was created", () =>
    Effect.gen(function* () {
      const tokenizer = yield* RendererGoldens.tokenizer("gpt_oss")
      const { GptOss } = yield* Effect.promise(() => import("@effect-tinker/tokenizer"))
      const renderer = yield* GptOss.make(tokenizer, { reasoningEffort: "low" })
      const text = yield* tokenizer.decode(tokensOf(yield* renderer.generationPrompt([])))
      expect(text).toContain("Current date: 1970-01-01")
    }),
  )
})
