import type { Effect, Layer, Stream } from "effect"
import * as ChatClient from "effect-tinker/ChatClient"
import type { RequestFailed, TinkerError } from "effect-tinker/TinkerError"
import type { Transport } from "effect-tinker/Transport"
import { describe, expect, it } from "tstyche"

declare const client: ChatClient.Service
declare const parts: Stream.Stream<ChatClient.Part, "cut", "service">

const messages = [{ role: "user", content: "Hi" }] as const
const request = { model: "m", messages }

describe("ChatClient", () => {
  it("ChatClient.make requires a transport, and its methods require nothing", () => {
    expect(ChatClient.make).type.toBe<Effect.Effect<ChatClient.Service, never, Transport>>()
    expect(ChatClient.layer).type.toBe<Layer.Layer<ChatClient.ChatClient, never, Transport>>()
    expect(client.chat(request)).type.toBe<Effect.Effect<ChatClient.Answer, TinkerError>>()
    expect(client.streamChat(request)).type.toBe<Stream.Stream<ChatClient.Part, TinkerError | RequestFailed>>()
    expect(client.complete({ model: "m", prompt: "p" })).type.toBe<Effect.Effect<ChatClient.Answer, TinkerError>>()
    expect(client.models).type.toBe<Effect.Effect<ReadonlyArray<ChatClient.Model>, TinkerError>>()
  })

  it("ChatClient.collect keeps the errors and requirements of the stream", () => {
    expect(parts.pipe(ChatClient.collect)).type.toBe<Effect.Effect<ChatClient.Answer, "cut", "service">>()
    expect(parts.pipe(ChatClient.text())).type.toBe<Stream.Stream<string, "cut", "service">>()
  })

  it("chat takes our option names, and other server options as extra", () => {
    expect(client.chat).type.toBeCallableWith({ ...request, maxTokens: 1, extra: { top_k: 1 } })
    expect(client.chat).type.not.toBeCallableWith({ ...request, max_tokens: 1 })
    expect(client.chat).type.not.toBeCallableWith({ ...request, stream: true })
    expect(client.chat).type.not.toBeCallableWith({ ...request, extra: { when: new Date() } })
  })

  it("chat and complete reject invalid messages", () => {
    expect(client.chat).type.not.toBeCallableWith({ model: "m" })
    expect(client.chat).type.not.toBeCallableWith({ model: "m", messages: [{ role: "user" }] })
    expect(client.chat).type.not.toBeCallableWith({ model: "m", messages: [{ role: "tool", content: "42" }] })
    expect(client.chat).type.not.toBeCallableWith({ model: "m", messages: [{ role: "judge", content: "no" }] })
    expect(client.complete).type.not.toBeCallableWith({ model: "m", messages })
  })
})
