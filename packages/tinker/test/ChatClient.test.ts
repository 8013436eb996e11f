import { HttpClient, HttpClientResponse } from "@effect/platform"
import { describe, expect, it } from "@effect/vitest"
import {
  Chunk,
  Context,
  type Duration,
  Effect,
  Either,
  Layer,
  Logger,
  Option,
  Redacted,
  Schedule,
  Stream,
} from "effect"
import { ChatClient, TinkerConfig } from "effect-tinker"
import * as Transport from "effect-tinker/Transport"
import * as HttpScript from "./support/HttpScript.ts"
import * as VirtualTime from "./support/VirtualTime.ts"

const model = "tinker://run:train:0/sampler_weights/000080"
const request: ChatClient.ChatRequest = { model, messages: [{ role: "user", content: "Hi" }] }

const config = TinkerConfig.layer({
  baseUrl: "http://server/prefix",
  apiKey: Redacted.make("tml-secret-key"),
  headers: { "x-proxy": Redacted.make("hunter2-and-more") },
  retryPolicy: Schedule.recurs(2),
})

const client = ChatClient.layer.pipe(Layer.provide(Transport.layer), Layer.provide(config))

const run = <A, E>(
  replies: Readonly<Record<string, ReadonlyArray<HttpScript.Reply>>>,
  program: Effect.Effect<A, E, ChatClient.ChatClient | HttpScript.HttpScript>,
) =>
  program.pipe(
    Effect.provide(
      Layer.merge(
        Layer.provideMerge(client, HttpScript.layer({ "client/config": [{ body: {}, forever: true }], ...replies })),
        Logger.remove(Logger.defaultLogger),
      ),
    ),
    VirtualTime.run,
  )

const chat = (replies: ReadonlyArray<HttpScript.Reply>) => ({ "chat/completions": replies })

const sse = (...events: ReadonlyArray<unknown>): HttpScript.Reply => ({
  headers: { "content-type": "text/event-stream; charset=utf-8" },
  body: events.map((event) => `data: ${typeof event === "string" ? event : JSON.stringify(event)}\n\n`).join(""),
})

const piece = (delta: unknown, more: object = {}) => ({
  id: "chat-1",
  object: "chat.completion.chunk",
  model,
  choices: [{ index: 0, delta, finish_reason: null, ...more }],
})

/** The parts received before the end, and the error if there was one. */
const outcome = <E>(parts: Stream.Stream<ChatClient.Part, E>) =>
  Effect.gen(function* () {
    const given: Array<ChatClient.Part> = []
    const ended = yield* parts.pipe(
      Stream.runForEach((part) => Effect.sync(() => given.push(part))),
      Effect.either,
    )
    return { given, error: Either.isLeft(ended) ? ended.left : undefined }
  })

const texts = (parts: ReadonlyArray<ChatClient.Part>) =>
  parts.flatMap((part) => (part._tag === "Text" ? [part.text] : []))

const usage = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 }

const whole = {
  id: "chat-1",
  object: "chat.completion",
  created: 1,
  model,
  choices: [
    {
      index: 0,
      message: {
        role: "assistant",
        content: "Hello there",
        reasoning_content: "A greeting.",
        tool_calls: [
          { id: "call-a", type: "function", function: { name: "look", arguments: '{"at":"sky"}' } },
          { id: "call-b", type: "function", function: { name: "wait", arguments: "{}" } },
        ],
      },
      finish_reason: "tool_calls",
      logprobs: {
        content: [
          { token: "Hello", logprob: -0.5 },
          { token: " there", logprob: -1 },
        ],
      },
    },
  ],
  usage: { ...usage, prompt_tokens_details: { cached_tokens: 1 } },
}

const pieces = [
  piece({ role: "assistant", content: "" }),
  piece({ reasoning_content: "A gree" }),
  piece({ reasoning: "ting." }),
  piece({ content: "Hello" }, { logprobs: { content: [{ token: "Hello", logprob: -0.5 }] } }),
  piece({ content: " there" }, { logprobs: { content: [{ token: " there", logprob: -1 }] } }),
  piece({ tool_calls: [{ index: 0, id: "call-a", type: "function", function: { name: "look", arguments: "" } }] }),
  piece({ tool_calls: [{ index: 0, function: { arguments: '{"at"' } }] }),
  piece({ tool_calls: [{ index: 1, id: "call-b", type: "function", function: { name: "wait", arguments: "{" } }] }),
  piece({
    tool_calls: [
      { index: 0, id: "call-a", function: { name: "look", arguments: ':"sky"}' } },
      { index: 1, function: { arguments: "}" } },
    ],
  }),
  piece({}, { finish_reason: "tool_calls" }),
  { id: "chat-1", model, choices: [], usage: whole.usage },
  "[DONE]",
]

class First extends Context.Tag("test/First")<First, ChatClient.Service>() {}
class Second extends Context.Tag("test/Second")<Second, ChatClient.Service>() {}

describe("ChatClient", () => {
  it.effect("two configurations in one layer graph have two clients, each with its own key", () =>
    Effect.gen(function* () {
      const clientFor = <I>(tag: Context.Tag<I, ChatClient.Service>, key: string) =>
        Layer.effect(tag, ChatClient.ChatClient).pipe(
          Layer.provide(ChatClient.layer),
          Layer.provide(Transport.layer),
          Layer.provide(TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make(key) })),
        )
      const keys = yield* Effect.gen(function* () {
        yield* Effect.zip((yield* First).models, (yield* Second).models)
        return (yield* HttpScript.HttpScript).to("models").map(({ headers }) => headers["authorization"])
      }).pipe(
        Effect.provide(
          Layer.provideMerge(
            Layer.merge(clientFor(First, "tml-first"), clientFor(Second, "tml-second")),
            HttpScript.layer({
              "client/config": [{ body: {}, forever: true }],
              models: [{ body: { data: [] }, forever: true }],
            }),
          ),
        ),
      )
      expect(keys).toEqual(["Bearer tml-first", "Bearer tml-second"])
    }).pipe(VirtualTime.run),
  )

  it.effect("streamed tool calls without an index are distinguished by id", () =>
    run(
      chat([
        sse(
          piece({ tool_calls: [{ id: "a", function: { name: "look", arguments: '{"x"' } }] }),
          piece({ tool_calls: [{ function: { arguments: ":1}" } }] }),
          piece({ tool_calls: [{ id: "b", function: { name: "wait", arguments: '{"y":2}' } }] }),
          piece({}, { finish_reason: "tool_calls" }),
          "[DONE]",
        ),
      ]),
      Effect.gen(function* () {
        const { streamChat } = yield* ChatClient.ChatClient
        const { error, given } = yield* outcome(streamChat(request))
        expect(error).toBe(undefined)
        expect(given.flatMap((part) => (part._tag === "ToolCall" ? [part.call] : []))).toEqual([
          { index: 0, id: "a", name: "look", arguments: '{"x":1}' },
          { index: 1, id: "b", name: "wait", arguments: '{"y":2}' },
        ])
      }),
    ),
  )

  it.effect("events without choices do not affect the answer", () =>
    run(
      chat([
        {
          ...sse(
            { id: "chat-1", model },
            piece({ content: "Hello" }, { finish_reason: "stop" }),
            { id: "chat-1", model, choices: null, usage },
            "[DONE]",
          ),
          headers: { "content-type": "Text/Event-Stream" },
        },
      ]),
      Effect.gen(function* () {
        const { streamChat } = yield* ChatClient.ChatClient
        const { error, given } = yield* outcome(streamChat(request))
        expect(error).toBe(undefined)
        expect(texts(given)).toEqual(["Hello"])
        expect(given.filter(({ _tag }) => _tag === "Usage").length).toBe(1)
      }),
    ),
  )

  it.effect("chat sends an OpenAI-compatible request with a bearer token to oai/api/v1", () =>
    run(
      chat([{ body: whole }]),
      Effect.gen(function* () {
        const { chat } = yield* ChatClient.ChatClient
        const answer = yield* chat({
          model,
          messages: [
            { role: "system", content: "Be brief." },
            { role: "user", content: [{ type: "text", text: "Hi" }] },
            { role: "assistant", content: null, toolCalls: [{ id: "c", function: { name: "f", arguments: "{}" } }] },
            { role: "tool", content: "42", toolCallId: "c" },
          ],
          maxTokens: 16,
          topP: 0.9,
          tools: [{ function: { name: "look", parameters: { type: "object" } } }],
          toolChoice: "auto",
          extra: { top_k: 5, chat_template_kwargs: { enable_thinking: false } },
        })
        expect(answer).toEqual({
          id: "chat-1",
          model,
          choices: [
            {
              index: 0,
              text: "Hello there",
              reasoning: "A greeting.",
              refusal: "",
              toolCalls: [
                { index: 0, id: "call-a", name: "look", arguments: '{"at":"sky"}' },
                { index: 1, id: "call-b", name: "wait", arguments: "{}" },
              ],
              logprobs: Option.some(whole.choices[0]?.logprobs),
              finishReason: Option.some("tool_calls"),
            },
          ],
          usage: Option.some({
            promptTokens: 3,
            completionTokens: 2,
            totalTokens: 5,
            promptTokensDetails: Option.some({ cachedTokens: Option.some(1), reasoningTokens: Option.none() }),
            completionTokensDetails: Option.none(),
          }),
        })
        const [sent] = (yield* HttpScript.HttpScript).to("chat/completions")
        expect(sent?.path).toBe("/prefix/oai/api/v1/chat/completions")
        expect(sent?.purpose).toBe("sample")
        expect(sent?.headers["authorization"]).toBe("Bearer tml-secret-key")
        expect(sent?.headers).not.toHaveProperty("x-api-key")
        expect(JSON.parse(sent?.body ?? "")).toEqual({
          model,
          messages: [
            { role: "system", content: "Be brief." },
            { role: "user", content: [{ type: "text", text: "Hi" }] },
            {
              role: "assistant",
              content: null,
              tool_calls: [{ id: "c", type: "function", function: { name: "f", arguments: "{}" } }],
            },
            { role: "tool", content: "42", tool_call_id: "c" },
          ],
          max_tokens: 16,
          top_p: 0.9,
          tools: [{ type: "function", function: { name: "look", parameters: { type: "object" } } }],
          tool_choice: "auto",
          top_k: 5,
          chat_template_kwargs: { enable_thinking: false },
        })
      }),
    ),
  )

  it.effect("streamChat gives the same answer as chat, in parts", () =>
    run(
      chat([{ body: whole }, sse(...pieces), sse(...pieces)]),
      Effect.gen(function* () {
        const { chat, streamChat } = yield* ChatClient.ChatClient
        const answer = yield* chat(request)
        expect(yield* ChatClient.collect(streamChat(request))).toEqual(answer)

        const { error, given } = yield* outcome(streamChat({ ...request, extra: { stream_options: {} } }))
        expect(error).toBeUndefined()
        expect(given.filter(({ _tag }) => _tag !== "Logprobs" && _tag !== "Usage")).toEqual([
          { _tag: "Started", id: "chat-1", model },
          { _tag: "Reasoning", choice: 0, text: "A gree" },
          { _tag: "Reasoning", choice: 0, text: "ting." },
          { _tag: "Text", choice: 0, text: "Hello" },
          { _tag: "Text", choice: 0, text: " there" },
          { _tag: "ToolCallDelta", choice: 0, index: 0, id: "call-a", name: "look", arguments: "" },
          { _tag: "ToolCallDelta", choice: 0, index: 0, id: "call-a", name: "look", arguments: '{"at"' },
          { _tag: "ToolCallDelta", choice: 0, index: 1, id: "call-b", name: "wait", arguments: "{" },
          { _tag: "ToolCallDelta", choice: 0, index: 0, id: "call-a", name: "look", arguments: ':"sky"}' },
          { _tag: "ToolCallDelta", choice: 0, index: 1, id: "call-b", name: "wait", arguments: "}" },
          { _tag: "ToolCall", choice: 0, call: answer.choices[0]?.toolCalls[0] },
          { _tag: "ToolCall", choice: 0, call: answer.choices[0]?.toolCalls[1] },
          { _tag: "Finished", choice: 0, reason: "tool_calls" },
        ])

        const [, first, second] = (yield* HttpScript.HttpScript).to("chat/completions")
        expect(first?.headers["accept"]).toBe("text/event-stream")
        expect(JSON.parse(first?.body ?? "")).toEqual({
          model,
          messages: [{ role: "user", content: "Hi" }],
          stream: true,
          stream_options: { include_usage: true },
        })
        expect(JSON.parse(second?.body ?? "").stream_options).toEqual({})
      }),
    ),
  )

  it.effect("complete, its stream and the list of models work", () =>
    run(
      {
        "v1/completions": [
          {
            body: { id: "c", model, choices: [{ index: 0, text: "one two", finish_reason: "length", logprobs: null }] },
          },
          sse(
            { id: "c", model, choices: [{ index: 0, text: "one ", finish_reason: null }] },
            { id: "c", model, choices: [{ index: 0, text: "two", finish_reason: "length" }] },
            "[DONE]",
          ),
        ],
        models: [
          {
            body: {
              object: "list",
              data: [
                { id: "base", created: 7, owned_by: "system" },
                { id: model, parent: "base" },
              ],
            },
          },
        ],
      },
      Effect.gen(function* () {
        const { complete, models, streamComplete } = yield* ChatClient.ChatClient
        const answer = yield* complete({ model, prompt: [1, 2, 3] })
        expect(answer.choices[0]).toMatchObject({ text: "one two", finishReason: Option.some("length") })
        expect(yield* ChatClient.collect(streamComplete({ model, prompt: "zero" }))).toEqual(answer)
        expect((yield* models).map(({ id, parent }) => [id, Option.getOrNull(parent)])).toEqual([
          ["base", null],
          [model, "base"],
        ])
      }),
    ),
  )

  it.effect("several streamed choices are kept apart by index", () =>
    run(
      chat([
        sse(
          {
            choices: [
              { index: 1, delta: { content: "b" } },
              { index: 0, delta: { content: "a" } },
            ],
          },
          { choices: [{ index: 0, delta: {}, finish_reason: "stop" }] },
          { choices: [{ index: 1, delta: { content: "B" }, finish_reason: "length" }] },
          "[DONE]",
        ),
        sse({ choices: [{ index: 1, delta: { content: "b" } }] }, "[DONE]"),
      ]),
      Effect.gen(function* () {
        const { streamChat } = yield* ChatClient.ChatClient
        const { choices } = yield* ChatClient.collect(streamChat({ ...request, n: 2 }))
        expect(choices.map(({ finishReason, index, text }) => [index, text, Option.getOrNull(finishReason)])).toEqual([
          [0, "a", "stop"],
          [1, "bB", "length"],
        ])
        const second = yield* streamChat(request).pipe(ChatClient.text(1), Stream.runCollect)
        expect(Chunk.toReadonlyArray(second)).toEqual(["b"])
      }),
    ),
  )

  it.effect("a choice of an answer can be sent back as a message", () =>
    run(
      chat([{ body: whole }, { body: whole }]),
      Effect.gen(function* () {
        const { chat } = yield* ChatClient.ChatClient
        const [choice] = (yield* chat(request)).choices
        if (choice === undefined) return expect.fail("no choice")
        yield* chat({
          model,
          messages: [
            ChatClient.toMessage({ ...choice, text: "" }),
            { role: "tool", toolCallId: "call-a", content: "blue" },
          ],
        })
        const [, sent] = (yield* HttpScript.HttpScript).to("chat/completions")
        expect(JSON.parse(sent?.body ?? "").messages[0]).toEqual({
          role: "assistant",
          content: null,
          reasoning_content: "A greeting.",
          tool_calls: whole.choices[0]?.message.tool_calls,
        })
        expect(ChatClient.toMessage({ ...choice, reasoning: "", toolCalls: [] })).toEqual({
          role: "assistant",
          content: "Hello there",
        })
      }),
    ),
  )

  it.effect("invalid input is rejected with its path, and nothing is sent", () =>
    run(
      {},
      Effect.gen(function* () {
        const { chat, complete, streamChat } = yield* ChatClient.ChatClient
        const refused = (effect: Effect.Effect<unknown, ChatClient.StreamError>) =>
          Effect.map(Effect.flip(effect), (error) => (error._tag === "InvalidInput" ? error.path : error._tag))
        expect(yield* refused(chat({ ...request, model: "" }))).toBe("chat/completions.model")
        expect(yield* refused(chat({ ...request, messages: [] }))).toBe("chat/completions.messages")
        expect(yield* refused(chat({ ...request, temperature: Number.NaN }))).toBe("chat/completions.temperature")
        expect(yield* refused(complete({ model, prompt: [1.5] }))).toContain("completions.prompt")
        expect(yield* refused(chat({ ...request, extra: { model: "other" } }))).toBe("chat/completions.extra.model")
        expect(yield* refused(chat({ ...request, extra: { stream: true } }))).toBe("chat/completions.extra.stream")
        expect(yield* refused(Stream.runDrain(streamChat({ ...request, maxTokens: 0 })))).toBe(
          "chat/completions.maxTokens",
        )
        const extra: Record<string, never> = {}
        Object.assign(extra, { itself: extra })
        expect(yield* refused(chat({ ...request, extra }))).toBe("chat/completions")
        const idleTimeout = "soon" as unknown as Duration.Duration
        expect(yield* refused(Stream.runDrain(streamChat(request, { idleTimeout })))).toBe("chat/completions.stream")
        expect((yield* HttpScript.HttpScript).to("chat/completions")).toEqual([])
      }),
    ),
  )

  it.effect("running a stream a second time fails instead of sending a second request", () =>
    run(
      chat([sse(...pieces)]),
      Effect.gen(function* () {
        const stream = (yield* ChatClient.ChatClient).streamChat(request)
        yield* Stream.runDrain(stream)
        expect(yield* outcome(stream)).toMatchObject({ given: [], error: { _tag: "InvalidInput" } })
        expect((yield* HttpScript.HttpScript).to("chat/completions").length).toBe(1)
      }),
    ),
  )

  it.effect("a stream is retried with the same idempotency key until the first byte arrives", () =>
    run(
      chat([{ status: 503 }, { drop: "after" }, sse(...pieces)]),
      Effect.gen(function* () {
        const { given } = yield* outcome((yield* ChatClient.ChatClient).streamChat(request))
        expect(texts(given)).toEqual(["Hello", " there"])
        const seen = (yield* HttpScript.HttpScript).to("chat/completions")
        expect(seen.length).toBe(3)
        expect(new Set(seen.map(({ headers }) => headers["x-idempotency-key"])).size).toBe(1)
      }),
    ),
  )

  const first = piece({ content: "Hello" })
  const broken: ReadonlyArray<readonly [string, HttpScript.Reply, object]> = [
    [
      "a server error",
      sse(
        first,
        { error: { message: "out of memory tml-secret-key hunter2-and-more", type: "InternalServerError", code: 500 } },
        first,
      ),
      { _tag: "RequestFailed", reason: "Server", detail: "out of memory <redacted> <redacted>" },
    ],
    [
      "a user error",
      sse(first, { error: { message: "too long", code: "400" } }),
      { _tag: "RequestRejected", reason: "UserCategory", detail: "too long" },
    ],
    [
      "an error that is a plain string",
      sse(first, { error: "no" }),
      { _tag: "RequestFailed", reason: "Unknown", detail: "no" },
    ],
    [
      "an error object of another shape",
      sse(first, { object: "error", message: "busy", code: 429 }),
      { _tag: "RequestFailed", reason: "Unknown", detail: "busy" },
    ],
    [
      "an event named error",
      { ...sse(), body: `data: ${JSON.stringify(first)}\n\nevent: error\ndata: gone\n\n` },
      { _tag: "RequestFailed", detail: "gone" },
    ],
    ["the stream ends before the answer does", sse(first), { _tag: "Unavailable", reason: "Disconnected" }],
    [
      "the stream ends within an event",
      { ...sse(), body: `data: ${JSON.stringify(first)}\n\ndata: [DONE]\n` },
      { _tag: "Unavailable", reason: "Disconnected" },
    ],
    [
      "an event that is not JSON",
      sse(first, "{tml-secret-key"),
      { _tag: "UnexpectedResponse", reason: "NotJson", detail: "{<redacted>" },
    ],
    ["an event that is not a chunk", sse(first, { choices: 3 }), { _tag: "UnexpectedResponse", reason: "Schema" }],
    [
      "an event that is too large",
      sse(first, piece({ content: "x".repeat(2000) })),
      { _tag: "UnexpectedResponse", reason: "TooLarge" },
    ],
  ]

  it.effect.each(broken)(
    "a stream that breaks fails after the parts received so far, and is not retried: %s",
    ([, reply, error]) =>
      run(
        chat([reply]),
        Effect.gen(function* () {
          const { streamChat } = yield* ChatClient.ChatClient
          const ended = yield* outcome(streamChat(request, { maxEventBytes: 1000 }))
          expect(texts(ended.given)).toEqual(["Hello"])
          expect(ended.error).toMatchObject({ operation: "chat/completions", ...error })
          expect((yield* HttpScript.HttpScript).to("chat/completions").length).toBe(1)
        }),
      ),
  )

  it.effect("a finish reason completes a stream without [DONE], and events after [DONE] are ignored", () =>
    run(
      chat([
        sse(first, piece({}, { finish_reason: "stop" })),
        sse(first, "[DONE]", "{"),
        sse(piece({}, { finish_reason: "stop" })),
      ]),
      Effect.gen(function* () {
        const { streamChat } = yield* ChatClient.ChatClient
        expect(yield* outcome(streamChat(request))).toMatchObject({ error: undefined })
        expect(yield* outcome(streamChat(request))).toMatchObject({ error: undefined })
        expect(yield* outcome(streamChat({ ...request, n: 2 }))).toMatchObject({ error: { _tag: "Unavailable" } })
      }),
    ),
  )

  it.effect("a response that is not a stream is UnexpectedResponse, and an HTTP error keeps its own type", () =>
    run(
      chat([{ body: whole }, { status: 404, body: { detail: "no such model" } }]),
      Effect.gen(function* () {
        const { streamChat } = yield* ChatClient.ChatClient
        expect((yield* outcome(streamChat(request))).error).toMatchObject({
          _tag: "UnexpectedResponse",
          reason: "Schema",
        })
        expect((yield* outcome(streamChat(request))).error).toMatchObject({ _tag: "NotFound", detail: "no such model" })
      }),
    ),
  )

  /** A server with a hand-made response. */
  const answering = (body: ReadableStream<Uint8Array>) =>
    Layer.provide(
      client,
      Layer.succeed(
        HttpClient.HttpClient,
        HttpClient.make((request, url) =>
          Effect.succeed(
            HttpClientResponse.fromWeb(
              request,
              url.pathname.endsWith("client/config")
                ? new Response("{}")
                : new Response(body, { headers: { "content-type": "text/event-stream" } }),
            ),
          ),
        ),
      ),
    )

  const bytes = (...events: ReadonlyArray<unknown>) =>
    new TextEncoder().encode(events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join(""))

  it.effect("a stream that is silent for too long fails after the parts received so far", () =>
    Effect.gen(function* () {
      const { streamChat } = yield* ChatClient.ChatClient
      const { error, given } = yield* outcome(streamChat(request, { idleTimeout: "3 minutes" }))
      expect(texts(given)).toEqual(["Hello"])
      expect(error).toMatchObject({ _tag: "Unavailable", reason: "Timeout", detail: "no data for 3m" })
    }).pipe(
      Effect.provide(answering(new ReadableStream({ start: (controller) => controller.enqueue(bytes(first)) }))),
      VirtualTime.run,
    ),
  )
})
