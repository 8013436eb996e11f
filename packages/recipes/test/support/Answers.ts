/** Samplers that answer as a test says, and a renderer whose tokens are characters. */
import { Effect, Option } from "effect"
import { ModelInput, type SamplingClient } from "effect-tinker"
import { Message, type Renderer } from "@effect-tinker/tokenizer"

const tokensOf = (text: string) => Int32Array.from(text, (letter) => letter.codePointAt(0) ?? 0)
const textOf = (tokens: ArrayLike<number>) => String.fromCodePoint(...Array.from(tokens))

/** Returns the text of a prompt of {@link renderer}. */
export const promptOf = (prompt: ModelInput.Input): string =>
  "chunks" in prompt
    ? prompt.chunks.map((chunk) => (chunk.type === "encoded_text" ? textOf(chunk.tokens) : "")).join("")
    : textOf(prompt)

const end = 10

const unused = Effect.dieMessage("not used by this test")

/** `user: question\n` and so on; an answer ends with a line feed. */
export const renderer: Renderer.Renderer = {
  name: "letters",
  hasExtensionProperty: true,
  stopSequences: [end],
  generationPrompt: (messages) =>
    Effect.succeed(
      ModelInput.make({
        type: "encoded_text",
        tokens: tokensOf(messages.map((message) => `${message.role}:${Message.textOf(message)}\n`).join("") + "a:"),
      }),
    ),
  supervisedExample: (messages) =>
    Effect.sync(() => {
      const answer = Message.textOf(messages.at(-1) ?? Message.user(""))
      const before = messages
        .slice(0, -1)
        .map((message) => `${message.role}:${Message.textOf(message)}\n`)
        .join("")
      const tokens = tokensOf(`${before}a:${answer}\n`)
      const weights = Float32Array.from(tokens, (_, at) => (at >= tokens.length - answer.length - 1 ? 1 : 0))
      return { modelInput: ModelInput.make({ type: "encoded_text", tokens }), weights }
    }),
  supervisedExamples: (messages, trainOn) =>
    Effect.map(renderer.supervisedExample(messages, trainOn), (example) => [example]),
  parse: (tokens) =>
    Effect.succeed({ message: Message.assistant(textOf(tokens).replace(/\n$/, "")), termination: "stop_sequence" }),
  parser: () => ({ push: () => unused, finish: unused }),
  toolPrefix: () => unused,
}

/** A sampler that gives these answers. */
export const sampler = (
  sample: SamplingClient.Service["sample"],
  computeLogprobs: SamplingClient.Service["computeLogprobs"] = () => unused,
): SamplingClient.Service => ({
  samplingSessionId: "s",
  sample,
  computeLogprobs,
  submit: { sample: () => unused },
  getBaseModel: Effect.succeed("m"),
  queueState: unused as never,
  handle: Effect.succeed(""),
})

/** A sampler whose answers are made from the prompt, the seed and the number of the attempt. */
export const answering = (
  answer: (question: string, seed: number, attempt: number) => string,
): SamplingClient.Service =>
  sampler(({ numSamples = 1, params, prompt }) =>
    Effect.sync(() => ({
      sequences: Array.from({ length: numSamples }, (_, attempt) => ({
        tokens: tokensOf(answer(promptOf(prompt), params?.seed ?? 0, attempt)),
        logprobs: Option.none(),
        stopReason: "stop" as const,
        topkLogprobs: Option.none(),
        sequenceId: Option.none(),
      })),
      promptLogprobs: Option.none(),
      topkPromptLogprobs: Option.none(),
      promptCacheHitTokens: 0,
      targetPromptLogprobs: Option.none(),
      promptAltTokens: Option.none(),
    })),
  )
