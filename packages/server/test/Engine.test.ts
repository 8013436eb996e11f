/** Tests the server with the embedded engine on a worker thread. */
import { cpSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { describe, expect, it } from "@effect/vitest"
import { ChatClient, Loss, Optimizer, RateLimiter, RestClient, ServiceClient, TinkerConfig } from "effect-tinker"
import * as Transport from "effect-tinker/Transport"
import { ModelFiles } from "@effect-tinker/engine"
import { EngineBackend, LocalTinker } from "@effect-tinker/server"
import { Effect, Layer, Option, Redacted, Stream } from "effect"
import { HttpClient } from "@effect/platform"

const clients = Layer.mergeAll(ServiceClient.layer(), RestClient.layer, ChatClient.layer).pipe(
  Layer.provideMerge(Transport.layer),
  Layer.provideMerge(RateLimiter.layer),
  Layer.provide(TinkerConfig.layer({ baseUrl: "http://local", apiKey: Redacted.make("tml-a") })),
  Layer.provideMerge(LocalTinker.layer()),
)

const data = Array.from({ length: 4 }, (_, i) => ({
  modelInput: [10, 20 + i, 30 + i],
  inputs: { targetTokens: [20 + i, 30 + i, 40 + i], weights: [1, 1, 1] },
}))

/** Returns name, type and shape of every tensor of a safetensors file. */
const header = (
  bytes: Uint8Array,
): Record<string, { readonly dtype: string; readonly shape: ReadonlyArray<number> }> => {
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true))
  return JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)))
}

describe("EngineHost", () => {
  it.live(
    "LocalTinker trains, samples, chats, and exports an adapter in PEFT format",
    () =>
      Effect.gen(function* () {
        const service = yield* ServiceClient.ServiceClient
        const [model] = (yield* service.getServerCapabilities).supportedModels
        const baseModel = model?.modelName._tag === "Some" ? model.modelName.value : ""
        const training = yield* service.createLoraTrainingClient({ baseModel, rank: 4, seed: 1 })
        const losses = yield* Stream.range(0, 9).pipe(
          Stream.map(() => data),
          training.trainSteps(Loss.crossEntropy, () => Optimizer.adam({ learningRate: 1e-2 })),
          Stream.runCollect,
          Effect.map((all) => [...all].map(({ metrics }) => metrics["loss:sum"] ?? 0)),
        )
        expect(losses.at(-1)).toBeLessThan((losses[0] ?? 0) / 2)
        const { metrics, outputs } = yield* training.forward(data, Loss.crossEntropy)
        const each = outputs.flatMap(({ elementwise_loss }) => [...(elementwise_loss?.data ?? [])].map(Number))
        expect(each.length).toBe(12)
        expect(each.reduce((sum, one) => sum + one, 0)).toBeCloseTo(metrics["loss:sum"] ?? 0, 3)
        const sampler = yield* training.saveWeightsAndGetSamplingClient()
        const { sequences } = yield* sampler.sample({ prompt: [10, 21], params: { maxTokens: 5, seed: 1, stop: [] } })
        expect(sequences[0]?.tokens.length).toBe(5)

        // A complete and a streamed chat give the same text for the same seed.
        const chat = yield* ChatClient.ChatClient
        const { path } = yield* training.saveWeightsForSampler("talker")
        const request = { model: path, messages: [{ role: "user" as const, content: "hello" }], seed: 3, maxTokens: 12 }
        const whole = yield* chat.chat(request)
        const parts = [...(yield* Stream.runCollect(chat.streamChat(request)))]
        const text = parts.flatMap((part) => (part._tag === "Text" ? [part.text] : []))
        expect(text.join("")).toBe(whole.choices[0]?.text)
        expect(parts.at(-1)?._tag).toBe("Usage")
        const completed = yield* chat.complete({ model: baseModel, prompt: "the", maxTokens: 4, seed: 1 })
        expect(completed.choices[0]?.text.length).toBeGreaterThan(0)
        expect((yield* chat.models).map(({ id }) => id)).toEqual([baseModel, ModelFiles.shippedToolsName, path])
        expect((yield* Effect.flip(chat.chat({ ...request, model: "no/such" })))._tag).toBe("NotFound")

        // Downloads the archive from its URL.
        const rest = yield* RestClient.RestClient
        const http = yield* HttpClient.HttpClient
        const { url } = yield* rest.getCheckpointArchiveUrl(path)
        const bytes = new Uint8Array(yield* Effect.flatMap(http.get(url), (answer) => answer.arrayBuffer))
        const files = new Map<string, Uint8Array>()
        for (let at = 0; at + 512 <= bytes.length;) {
          const name = new TextDecoder().decode(bytes.subarray(at, at + 100)).replaceAll("\0", "")
          if (name === "") break
          const size = Number.parseInt(new TextDecoder().decode(bytes.subarray(at + 124, at + 135)), 8)
          files.set(name, bytes.slice(at + 512, at + 512 + size))
          at += 512 + Math.ceil(size / 512) * 512
        }
        expect([...files.keys()]).toEqual(["adapter_config.json", "adapter_model.safetensors"])
        const config = JSON.parse(new TextDecoder().decode(files.get("adapter_config.json")))
        expect(config).toMatchObject({ peft_type: "LORA", r: 4, base_model_name_or_path: baseModel })
        const { __metadata__: _, ...tensors } = header(files.get("adapter_model.safetensors") ?? new Uint8Array(0))
        const names = Object.keys(tensors)
        expect(names.every((name) => /^base_model\.model\..+\.lora_(A|B)\.weight$/.test(name))).toBe(true)
        for (const [name, { shape }] of Object.entries(tensors)) expect(shape[name.includes("lora_A") ? 0 : 1]).toBe(4)
        const forged = yield* http.get(url.replace(/.\/talker/, "x/talker"))
        expect(forged.status).toBe(403)
      }).pipe(Effect.scoped, Effect.provide(clients)),
    120_000,
  )

  it.live("the model with tools trains by gspo and dimuon, answers with a call, and scores without sampling", () =>
    Effect.gen(function* () {
      const service = yield* ServiceClient.ServiceClient
      const baseModel = ModelFiles.shippedToolsName
      const optimizer = Optimizer.dimuon({ learningRate: 1e-3 })
      const training = yield* service.createLoraTrainingClient({ baseModel, rank: 4, seed: 1, optimizer })
      const policy = data.map(({ inputs: { targetTokens }, modelInput }) => ({
        modelInput,
        inputs: { targetTokens, logprobs: [-2, -2, -2], advantages: [1, -1, 1], sequenceRatioMask: [0, 1, 1] },
      }))
      const { metrics } = yield* training.forwardBackward(policy, Loss.gspo())
      expect(Number.isFinite(metrics["loss:sum"])).toBe(true)
      expect((yield* training.optimStep(optimizer)).metrics).toMatchObject({ "step:unique": 1 })

      const chat = yield* ChatClient.ChatClient
      const answer = yield* chat.chat({
        model: baseModel,
        messages: [{ role: "user", content: "What is the price of a lamp?" }],
        tools: [
          {
            function: {
              name: "price",
              description: "Returns the price of an item.",
              parameters: { type: "object", properties: { item: { type: "string" } } },
            },
          },
        ],
        temperature: 0,
        maxTokens: 48,
      })
      expect(answer.choices[0]?.toolCalls.map(({ name }) => name)).toEqual(["price"])

      const sampler = yield* service.createSamplingClient({ baseModel })
      const scored = yield* sampler.sample({ prompt: [5, 6, 7], params: { maxTokens: 0 }, promptLogprobs: true })
      expect(scored.sequences.map(({ stopReason, tokens }) => [stopReason, tokens.length])).toEqual([["length", 0]])
      expect(Option.map(scored.promptLogprobs, ({ length }) => length)).toEqual(Option.some(3))
    }).pipe(Effect.scoped, Effect.provide(clients)),
  )

  it.effect("a lazy model has its facts at once and is read when it is first used", () =>
    Effect.gen(function* () {
      const directory = yield* Effect.acquireRelease(
        Effect.sync(() => {
          const path = mkdtempSync(join(tmpdir(), "tinker-lazy-"))
          cpSync(fileURLToPath(new URL("../../engine/model/config.json", import.meta.url)), join(path, "config.json"))
          return path
        }),
        (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true })),
      )
      const name = "no weights"
      const { create, models } = yield* Effect.promise(() =>
        EngineBackend.backend({ models: [{ name, directory, isLazy: true }] }),
      )
      expect(models).toMatchObject([{ name, vocabSize: 1024, maxContextLength: 1024, endTokens: [3] }])
      const trained = { trainAttn: true, trainMlp: true, trainUnembed: true }
      const config = { baseModel: name, rank: 1, seed: 1, ...trained, optimizer: "adamw" }
      const lazy = yield* Effect.flip(Effect.tryPromise(async () => create("a", config)))
      expect(String(lazy.error)).toMatch(/model.safetensors/)
      const eager = yield* Effect.flip(
        Effect.tryPromise(() => EngineBackend.backend({ models: [{ name, directory }] })),
      )
      expect(String(eager.error)).toMatch(/model.safetensors/)
    }).pipe(Effect.scoped),
  )
})
