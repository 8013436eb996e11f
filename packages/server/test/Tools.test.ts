/** Tests tool calls with the shipped model under a chat template that supports tools, trained to call one. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { describe, expect, it } from "@effect/vitest"
import { Generic, Message, TokenizerBackend } from "@effect-tinker/tokenizer"
import { LocalTinker } from "@effect-tinker/server"
import { Effect, Layer, Option, Redacted, Stream } from "effect"
import { ChatClient, Loss, Optimizer, RateLimiter, ServiceClient, TinkerConfig } from "effect-tinker"
import * as Transport from "effect-tinker/Transport"

const shipped = fileURLToPath(new URL("../../engine/model", import.meta.url))
const template =
  "{% if tools %}<|turn|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|end|>\n{% endif %}" +
  "{% for message in messages %}<|turn|>{{ message['role'] }}\n{{ message['content'] }}" +
  "{% for call in message['tool_calls'] or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>{% endfor %}<|end|>\n" +
  "{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"

const directory = Effect.acquireRelease(
  Effect.sync(() => {
    const path = mkdtempSync(join(tmpdir(), "tinker-tools-"))
    cpSync(shipped, path, { recursive: true })
    const file = join(path, "tokenizer_config.json")
    writeFileSync(file, JSON.stringify({ ...JSON.parse(readFileSync(file, "utf8")), chat_template: template }))
    return path
  }),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true })),
)

const baseModel = "test/tools"
const parameters = { type: "object", properties: { city: { type: "string" } } }
const tools = [{ function: { name: "weather", description: "Returns the weather.", parameters } }]
const question = "How is the weather in Bern?"

const clients = (path: string) =>
  Layer.mergeAll(ServiceClient.layer(), ChatClient.layer).pipe(
    Layer.provideMerge(Transport.layer),
    Layer.provideMerge(RateLimiter.layer),
    Layer.provide(TinkerConfig.layer({ baseUrl: "http://local", apiKey: Redacted.make("tml-a") })),
    Layer.provide(LocalTinker.layer({ models: [{ name: baseModel, directory: path }, { name: "test/plain" }] })),
  )

/** Returns a training example in which the model calls the tool. */
const example = (path: string) =>
  Effect.gen(function* () {
    const backend = yield* TokenizerBackend.TokenizerBackend
    const read = (name: string) => readFileSync(join(path, name), "utf8")
    const tokenizer = yield* backend.make({
      name: baseModel,
      tokenizer: read("tokenizer.json"),
      config: read("tokenizer_config.json"),
    })
    const renderer = yield* Generic.make(tokenizer, { tools: tools.map(({ function: tool }) => tool) })
    return yield* renderer.supervisedExample([
      Message.user(question),
      Message.assistant("Let me see.", { toolCalls: [{ name: "weather", arguments: '{"city": "Bern"}' }] }),
    ])
  }).pipe(Effect.provide(TokenizerBackend.layerPortable))

describe("tools", () => {
  it.live(
    "chat renders tools into the template and parses tool calls, both complete and streamed",
    () =>
      Effect.gen(function* () {
        const path = yield* directory
        const { modelInput, weights } = yield* example(path)
        const tokens = modelInput.chunks.flatMap((chunk) => (chunk.type === "encoded_text" ? [...chunk.tokens] : []))
        yield* Effect.gen(function* () {
          const service = yield* ServiceClient.ServiceClient
          const training = yield* service.createLoraTrainingClient({ baseModel, rank: 16, seed: 1 })
          const datum = {
            modelInput: tokens.slice(0, -1),
            inputs: { targetTokens: tokens.slice(1), weights: [...weights.subarray(1)] },
          }
          yield* Stream.range(1, 30).pipe(
            Stream.map(() => [datum]),
            training.trainSteps(Loss.crossEntropy, () => Optimizer.adam({ learningRate: 5e-3 })),
            Stream.runDrain,
          )
          const { path: model } = yield* training.saveWeightsForSampler("caller")

          const chat = yield* ChatClient.ChatClient
          const messages = [{ role: "user" as const, content: question }]
          const request = { model, messages, tools, temperature: 0, maxTokens: 100 }
          const { choices } = yield* chat.chat(request)
          const expected = {
            index: 0,
            id: expect.stringMatching(/^call_/),
            name: "weather",
            arguments: '{"city": "Bern"}',
          }
          expect(choices[0]).toMatchObject({ text: "Let me see.", toolCalls: [expected] })
          expect(choices[0]?.finishReason).toEqual(Option.some("tool_calls"))
          const streamed = yield* ChatClient.collect(chat.streamChat(request))
          expect(streamed.choices[0]).toMatchObject({ text: "Let me see.", toolCalls: [expected] })
          expect(streamed.choices[0]?.finishReason).toEqual(Option.some("tool_calls"))

          // Continues the conversation with the tool result; the call in the history is part of the prompt.
          const answer = ChatClient.toMessage(choices[0]!)
          const after = yield* chat.chat({
            ...request,
            messages: [...messages, answer, { role: "tool", content: "Sunny.", toolCallId: "call_1" }],
          })
          const without = yield* chat.chat({ ...request, toolChoice: "none" })
          const count = (one: typeof after) => Option.getOrThrow(one.usage).promptTokens
          const first = yield* chat.chat(request)
          expect(count(after)).toBeGreaterThan(count(first) + 10)
          expect(count(without)).toBeLessThan(count(first))
          const refused = yield* Effect.flip(chat.chat({ ...request, model: "test/plain" }))
          expect(refused.message).toContain("tools: the chat template of test/plain does not support tools")
        }).pipe(Effect.scoped, Effect.provide(clients(path)))
      }).pipe(Effect.scoped),
    120_000,
  )
})
