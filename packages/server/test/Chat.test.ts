import { describe, expect, it } from "@effect/vitest"
import { Chunk, Effect, Stream } from "effect"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import { ModelHost, NodeTinkerServer, TinkerServer } from "@effect-tinker/server"
import * as Raw from "./support/Raw.ts"
import * as StandInModel from "./support/StandInModel.ts"

const model = StandInModel.name
const messages = [{ role: "user", content: "hello" }]
const run = <A, E>(program: (raw: Raw.Raw) => Effect.Effect<A, E>) =>
  Effect.flatMap(Raw.make(), program).pipe(Effect.scoped, VirtualTime.run)

type Json = ReturnType<typeof JSON.parse>

/** Collects the records of a streamed response. */
const recordsOf = (body: Stream.Stream<Uint8Array>): Effect.Effect<Array<Json>> =>
  Effect.map(Stream.runCollect(body), (parts) =>
    Buffer.concat(Chunk.toReadonlyArray(parts))
      .toString()
      .split("\n\n")
      .flatMap((record) => (record.startsWith("data: {") ? [JSON.parse(record.slice("data: ".length))] : [])),
  )

const chatPath = "/oai/api/v1/chat/completions"
const textPath = "/oai/api/v1/completions"

describe("chat log probabilities", () => {
  it.effect("chat completions return log probabilities per token, both complete and streamed", () =>
    run(({ post }) =>
      Effect.gen(function* () {
        const request = { model, messages, max_tokens: 12, seed: 3, n: 2, logprobs: true, top_logprobs: 4, stop: ["q"] }
        const { body } = yield* post(chatPath, request)
        for (const { logprobs, message } of body.choices) {
          const text = logprobs.content.map(({ token }: Json) => token).join("")
          expect(text.startsWith(message.content)).toBe(true)
          for (const { bytes, logprob, token, top_logprobs } of logprobs.content) {
            expect(bytes).toEqual([...Buffer.from(token)])
            expect(top_logprobs.length).toBe(4)
            expect(top_logprobs[0].logprob).toBeGreaterThanOrEqual(logprob)
            const own = top_logprobs.find((one: Json) => one.token === token)
            if (own !== undefined) expect(own.logprob).toBeCloseTo(logprob, 5)
          }
        }
        const records = yield* recordsOf((yield* post(chatPath, { ...request, stream: true })).body)
        const of = (index: number) =>
          records.flatMap((one) => one.choices.filter((choice: Json) => choice.index === index))
        for (const { finish_reason, index, logprobs, message } of body.choices) {
          expect(
            of(index)
              .map(({ delta }) => delta.content ?? "")
              .join(""),
          ).toBe(message.content)
          expect(of(index).flatMap((choice) => choice.logprobs?.content ?? [])).toEqual(
            logprobs.content.map((one: Json) => ({
              ...one,
              logprob: expect.closeTo(one.logprob, 5),
              top_logprobs: one.top_logprobs.map((top: Json) => ({ ...top, logprob: expect.closeTo(top.logprob, 5) })),
            })),
          )
          expect(of(index).at(-1).finish_reason).toBe(finish_reason)
        }
        // Null if not requested.
        const plain = yield* post(chatPath, { ...request, logprobs: false, top_logprobs: undefined })
        expect(plain.body.choices[0].logprobs).toBeNull()
      }),
    ),
  )

  it.effect("text completions return log probabilities as four lists, both complete and streamed", () =>
    run(({ post }) =>
      Effect.gen(function* () {
        const request = { model, prompt: "ab", max_tokens: 9, seed: 5, logprobs: 2 }
        const { body } = yield* post(textPath, request)
        const { logprobs, text } = body.choices[0]
        expect(logprobs.tokens.join("")).toBe(text)
        expect(logprobs.text_offset).toEqual([...text].map((_, i) => i))
        expect(logprobs.token_logprobs.length).toBe(text.length)
        for (const top of logprobs.top_logprobs) expect(Object.keys(top).length).toBe(2)
        const records = yield* recordsOf((yield* post(textPath, { ...request, stream: true })).body)
        const pieces = records.flatMap(({ choices }) => choices[0].logprobs ?? [])
        expect(pieces.flatMap(({ tokens }) => tokens)).toEqual(logprobs.tokens)
        expect(pieces.flatMap(({ text_offset }) => text_offset)).toEqual(logprobs.text_offset)
        // 0 requests only the log probabilities of the sampled tokens.
        const own = yield* post(textPath, { ...request, logprobs: 0 })
        expect(own.body.choices[0].logprobs.token_logprobs).toEqual(logprobs.token_logprobs)
      }),
    ),
  )
})

describe("unsupported chat parameters", () => {
  it.effect("chat endpoints refuse unsupported parameters by name", () =>
    run(({ post }) =>
      Effect.gen(function* () {
        const refused: ReadonlyArray<readonly [string, object, string]> = [
          [chatPath, { messages, top_logprobs: 2 }, "top_logprobs: requires logprobs"],
          [chatPath, { messages, logprobs: true, top_logprobs: 21 }, "top_logprobs: expected at most 20"],
          [chatPath, { messages, tool_choice: "required" }, "tool_choice"],
          [chatPath, { messages, response_format: { type: "json_object" } }, "response_format"],
          [chatPath, { messages, reasoning_effort: "low" }, "reasoning_effort"],
          [chatPath, { messages, presence_penalty: 1 }, "presence_penalty"],
          [chatPath, { messages: [{ role: "user", content: [{ type: "image_url" }] }] }, "messages[0].content[0]"],
          [textPath, { prompt: "a", frequency_penalty: 1 }, "frequency_penalty"],
          [textPath, { prompt: "a", echo: true }, "echo"],
          [textPath, { prompt: "a", logprobs: 21 }, "logprobs: expected at most 20"],
        ]
        for (const [path, body, words] of refused) {
          const reply = yield* post(path, { model, ...body })
          expect([reply.status, reply.body.error.message]).toEqual([400, expect.stringContaining(words)])
        }
        // These values request nothing unsupported.
        const fine = {
          messages,
          presence_penalty: 0,
          tool_choice: "none",
          response_format: { type: "text" },
          max_tokens: 1,
        }
        expect((yield* post(chatPath, { model, ...fine })).status).toBe(200)
      }),
    ),
  )
})

describe("chat over a socket", () => {
  it.live("a streamed chat sends each record as soon as its text is known", () =>
    Effect.gen(function* () {
      // Samples the next token only after the client has read the previous one.
      const text = "Hello!"
      let next = () => {}
      const backend: ModelHost.Backend = {
        ...StandInModel.make(),
        sample: async (_, __, onToken) => {
          const tokens = Int32Array.from(text, (char) => char.charCodeAt(0))
          for (const token of tokens) {
            const read = new Promise<void>((resume) => {
              next = resume
            })
            onToken?.(0, { token, logprob: -0.5, top: undefined })
            await read
          }
          return {
            sequences: [{ tokens, logprobs: new Float32Array(tokens.length), stopReason: "length", topk: undefined }],
            promptLogprobs: undefined,
            topkPrompt: undefined,
            targets: undefined,
            promptDraws: undefined,
          }
        },
      }
      const server = yield* Effect.provideService(TinkerServer.make(), ModelHost.ModelHost, ModelHost.inline(backend))
      const { url } = yield* NodeTinkerServer.listen(server, { port: 0 })
      const answer = yield* Effect.promise(() =>
        fetch(`${url}${chatPath}`, {
          method: "POST",
          headers: { authorization: "Bearer tml-a", "content-type": "application/json" },
          body: JSON.stringify({ model, messages, stream: true, stream_options: { include_usage: true } }),
        }),
      )
      expect([answer.status, answer.headers.get("content-type")]).toEqual([200, "text/event-stream; charset=utf-8"])
      let rest = ""
      const records = yield* Stream.fromReadableStream(
        () => answer.body!,
        (cause) => cause,
      ).pipe(
        Stream.mapConcat((bytes) => {
          const all = (rest + Buffer.from(bytes).toString()).split("\n\n")
          rest = all.pop() ?? ""
          return all
        }),
        Stream.tap((record) => Effect.sync(() => /"content":"[^"]/.test(record) && next())),
        Stream.runCollect,
        Effect.map((all) => [...all]),
      )
      expect(rest).toBe("")
      expect(records.every((record) => record.startsWith("data: "))).toBe(true)
      expect(records.at(-1)).toBe("data: [DONE]")
      const chunks: Array<Json> = records.slice(0, -1).map((record) => JSON.parse(record.slice("data: ".length)))
      expect(new Set(chunks.map(({ id, object }) => `${id} ${object}`)).size).toBe(1)
      expect(chunks[0].choices[0].delta).toEqual({ role: "assistant", content: "" })
      expect(chunks.slice(1, -2).map(({ choices }) => choices[0].delta.content)).toEqual([...text])
      expect(chunks.at(-2).choices[0]).toMatchObject({ delta: {}, finish_reason: "length" })
      expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: text.length } })
    }).pipe(Effect.scoped),
  )
})
