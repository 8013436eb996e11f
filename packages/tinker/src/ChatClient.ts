/**
 * Calls the OpenAI-compatible endpoints of a Tinker server: chat and text completions from a base model or saved
 * weights, either complete or streamed. They work with text; for tokens and log probabilities use `SamplingClient`.
 *
 * @since 0.1.0
 */
import * as Chunk from "effect/Chunk"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Api from "./protocol/Api.ts"
import * as Chat from "./protocol/schemas/Chat.ts"
import type { Endpoint, RawAnswer } from "./protocol/Endpoint.ts"
import * as AnswerWords from "./internal/request/Refusal.ts"
import { shorten } from "./internal/util/Text.ts"
import { Assembler, Folder } from "./internal/chat/ChatAssembler.ts"
import { redactJson } from "./internal/util/Redact.ts"
import { type Reader, transduce } from "./internal/util/Transduce.ts"
import type * as Wire from "./internal/codec/Wire.ts"
import * as Sse from "./http/Sse.ts"
import {
  InvalidInput,
  RequestFailed,
  RequestRejected,
  type TinkerError,
  Unavailable,
  UnexpectedResponse,
} from "./TinkerError.ts"
import { type CallOptions, type RawResponse, Transport } from "./Transport.ts"

/**
 * A message of a conversation.
 *
 * @since 0.1.0
 * @category requests
 */
export type Message = typeof Chat.Message.Type

/**
 * A tool that the model may call.
 *
 * @since 0.1.0
 * @category requests
 */
export type Tool = typeof Chat.Tool.Type

/**
 * The request of a chat completion.
 *
 * @since 0.1.0
 * @category requests
 */
export type ChatRequest = typeof Chat.ChatRequest.Type

/**
 * The request of a text completion.
 *
 * @since 0.1.0
 * @category requests
 */
export type CompletionRequest = typeof Chat.CompletionRequest.Type

/**
 * Options of the streaming calls.
 *
 * @since 0.1.0
 * @category requests
 */
export interface StreamOptions extends CallOptions {
  /**
   * The maximum time between two chunks of data. `null` disables the timeout.
   *
   * @default "5 minutes"
   */
  readonly idleTimeout?: Duration.DurationInput | null | undefined
  /**
   * The maximum size of one event in bytes.
   *
   * @default 8 MiB
   */
  readonly maxEventBytes?: number | undefined
}

/**
 * A function call requested by the model. `arguments` is the text written by the model, normally JSON.
 *
 * @since 0.1.0
 * @category answers
 */
export interface ToolCall {
  readonly index: number
  readonly id: string
  readonly name: string
  readonly arguments: string
}

/**
 * The token counts of an answer.
 *
 * @since 0.1.0
 * @category answers
 */
export type Usage = typeof Chat.Usage.Type

/**
 * The reason why generation ended. Servers may use additional values.
 *
 * @since 0.1.0
 * @category answers
 */
export type FinishReason = "stop" | "length" | "tool_calls" | "content_filter" | (string & {})

/**
 * A part of a streamed answer. Text is never empty. The pieces of a tool call are emitted as they arrive, and the
 * complete call when its choice is finished. `Logprobs` holds the server's value unchanged.
 *
 * @since 0.1.0
 * @category answers
 */
export type Part =
  | { readonly _tag: "Started"; readonly id: string; readonly model: string }
  | { readonly _tag: "Text" | "Reasoning" | "Refusal"; readonly choice: number; readonly text: string }
  | {
      readonly _tag: "ToolCallDelta"
      readonly choice: number
      readonly index: number
      /** The call id, or an empty string if it has not arrived yet. */
      readonly id: string
      /** The function name, or an empty string if it has not arrived yet. */
      readonly name: string
      /** The newly received part of the arguments. */
      readonly arguments: string
    }
  | { readonly _tag: "ToolCall"; readonly choice: number; readonly call: ToolCall }
  | { readonly _tag: "Logprobs"; readonly choice: number; readonly value: Wire.Json }
  | { readonly _tag: "Finished"; readonly choice: number; readonly reason: FinishReason }
  | { readonly _tag: "Usage"; readonly usage: Usage }

/**
 * One of the alternatives in an answer.
 *
 * @since 0.1.0
 * @category answers
 */
export interface Choice {
  readonly index: number
  readonly text: string
  /** The reasoning text, if the server reports it separately. */
  readonly reasoning: string
  readonly refusal: string
  readonly toolCalls: ReadonlyArray<ToolCall>
  readonly logprobs: Option.Option<Wire.Json>
  readonly finishReason: Option.Option<FinishReason>
}

/**
 * A complete answer.
 *
 * @since 0.1.0
 * @category answers
 */
export interface Answer {
  readonly id: string
  readonly model: string
  readonly choices: ReadonlyArray<Choice>
  readonly usage: Option.Option<Usage>
}

/**
 * A model listed by the server.
 *
 * @since 0.1.0
 * @category answers
 */
export type Model = (typeof Chat.Models.Type)["data"][number]

/**
 * The errors of a stream. `RequestFailed` means the server reported a failure while streaming. `Unavailable` after the
 * first part means the answer was cut off.
 *
 * @since 0.1.0
 * @category errors
 */
export type StreamError = TinkerError | RequestFailed

/**
 * The operations of `ChatClient`. A stream represents the answer to one request, which is sent when the stream is run;
 * running the same stream twice fails with `InvalidInput`. Requests are retried as configured until the server starts
 * to answer, and never after that. Closing the stream closes the connection.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  readonly chat: (request: ChatRequest, options?: CallOptions) => Effect.Effect<Answer, TinkerError>
  readonly streamChat: (request: ChatRequest, options?: StreamOptions) => Stream.Stream<Part, StreamError>
  readonly complete: (request: CompletionRequest, options?: CallOptions) => Effect.Effect<Answer, TinkerError>
  readonly streamComplete: (request: CompletionRequest, options?: StreamOptions) => Stream.Stream<Part, StreamError>
  readonly models: Effect.Effect<ReadonlyArray<Model>, TinkerError>
}

/**
 * The service tag of the chat client.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { ChatClient } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const program = Effect.gen(function* () {
 *   const chat = yield* ChatClient.ChatClient
 *   const { choices } = yield* chat.chat({
 *     model: "effect-tinker/valley-1.5m",
 *     messages: [{ role: "user", content: "What is 2 + 3?" }],
 *     temperature: 0,
 *     maxTokens: 20,
 *   })
 *   yield* Console.log(choices[0]?.text) // → 5
 * })
 *
 * await Effect.runPromise(Effect.provide(program, NodeTinker.layerConfig()))
 * ```
 *
 * @since 0.1.0
 * @category tags
 */
export class ChatClient extends Context.Tag("effect-tinker/ChatClient")<ChatClient, Service>() {}

/**
 * Creates the client on top of a `Transport`.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make: Effect.Effect<Service, never, Transport> = Effect.map(Transport, (transport) => {
  const whole =
    <I>(endpoint: Endpoint<I, typeof Chat.Reply.Type>) =>
    (request: I, options?: CallOptions) =>
      Effect.map(transport.call(endpoint, request, options), (reply) => {
        const folder = new Folder()
        const assembler = new Assembler()
        for (const part of [...assembler.read(reply), ...assembler.rest()]) folder.add(part)
        return folder.answer
      })

  const streamed =
    <I extends { readonly n?: number | undefined }>(endpoint: Endpoint<I, RawAnswer>) =>
    (request: I, options: StreamOptions = {}): Stream.Stream<Part, StreamError> => {
      let isUsed = false
      return Stream.suspend(() => {
        const problem = isUsed ? "already consumed: create a new stream for each request" : problemWith(options)
        isUsed = true
        if (problem !== undefined) {
          return Stream.fail(new InvalidInput({ path: `${endpoint.operation}.stream`, problem }))
        }
        return Stream.unwrapScoped(
          Effect.map(transport.raw(endpoint, request, options), (response) =>
            partsOf(endpoint.operation, response, request.n ?? 1, options),
          ),
        )
      })
    }

  return {
    chat: whole(Api.chatCompletions),
    streamChat: streamed(Api.streamChatCompletions),
    complete: whole(Api.completions),
    streamComplete: streamed(Api.streamCompletions),
    models: Effect.map(transport.call(Api.listModels, {}), ({ data }) => data),
  }
})

/**
 * Provides `ChatClient`. The layer is fresh: a layer memoized by reference would hand one tenant's credential to
 * another.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<ChatClient, never, Transport> = Layer.fresh(Layer.effect(ChatClient, make))

/**
 * Collects a stream of parts into a complete answer.
 *
 * @since 0.1.0
 * @category answers
 */
export const collect = <E, R>(parts: Stream.Stream<Part, E, R>): Effect.Effect<Answer, E, R> =>
  Effect.suspend(() => {
    const folder = new Folder()
    return Effect.map(
      Stream.runForEachChunk(parts, (chunk) => Effect.sync(() => Chunk.forEach(chunk, (part) => folder.add(part)))),
      () => folder.answer,
    )
  })

/**
 * Emits only the text of one choice.
 *
 * @since 0.1.0
 * @category answers
 */
export const text =
  (choice = 0) =>
  <E, R>(parts: Stream.Stream<Part, E, R>): Stream.Stream<string, E, R> =>
    Stream.filterMap(parts, (part) =>
      part._tag === "Text" && part.choice === choice ? Option.some(part.text) : Option.none(),
    )

/**
 * Converts a choice to a message, to continue the conversation.
 *
 * @since 0.1.0
 * @category requests
 */
export const toMessage = ({ reasoning, text, toolCalls }: Choice): Message => ({
  role: "assistant",
  content: text === "" && toolCalls.length > 0 ? null : text,
  ...(reasoning === "" ? {} : { reasoningContent: reasoning }),
  ...(toolCalls.length === 0
    ? {}
    : { toolCalls: toolCalls.map(({ arguments: args, id, name }) => ({ id, function: { name, arguments: args } })) }),
})

const problemWith = ({ idleTimeout }: StreamOptions): string | undefined =>
  idleTimeout === undefined || idleTimeout === null || Option.isSome(Duration.decodeUnknown(idleTimeout))
    ? undefined
    : "idleTimeout: expected a duration"

const decodeReply = (value: unknown) => Schema.decodeUnknownEither(Chat.ReplyPiece)(value)

/** Reads a streamed answer: `data: {…}` for each piece and `data: [DONE]` at the end. */
const partsOf = (
  operation: string,
  { headers, redact, status, stream }: RawResponse,
  choices: number,
  { idleTimeout = "5 minutes", maxEventBytes }: StreamOptions,
): Stream.Stream<Part, StreamError> => {
  const fields = { operation, requestId: AnswerWords.requestId(headers, redact) }
  const unexpected = (reason: UnexpectedResponse["reason"], detail: string) =>
    new UnexpectedResponse({ ...fields, status: Option.some(status), reason, detail })

  const contentType = headers["content-type"]?.toLowerCase() ?? "text/event-stream"
  if (!contentType.includes("text/event-stream")) {
    return Stream.fail(unexpected("Schema", `${shorten(redact(contentType))} instead of an event stream`))
  }

  const failed = (event: unknown): RequestFailed | RequestRejected => {
    const body = redactJson(event, redact)
    const told = { ...fields, body: Option.some(body), detail: shorten(AnswerWords.describeBody(body)) }
    const code = codeOf(event)
    if (code >= 400 && code < 500 && code !== 408 && code !== 429) {
      return new RequestRejected({ ...told, reason: "UserCategory" })
    }
    return new RequestFailed({ ...told, reason: code >= 500 ? "Server" : "Unknown" })
  }

  const read = (assembler: Assembler, { data, event }: Sse.Event): Either.Either<ReadonlyArray<Part>, StreamError> => {
    let value: unknown
    try {
      value = JSON.parse(data)
    } catch {
      return Either.left(event === "error" ? failed(data) : unexpected("NotJson", shorten(redact(data.slice(0, 2000)))))
    }
    if (event === "error" || isError(value)) return Either.left(failed(value))
    return Either.mapBoth(decodeReply(value), {
      onLeft: ({ issue }) => unexpected("Schema", shorten(redact(ParseResult.TreeFormatter.formatIssueSync(issue)))),
      onRight: (reply) => assembler.read(reply),
    })
  }

  const reader = (): Reader<Sse.Event, Part, StreamError> => {
    const assembler = new Assembler()
    return {
      feed: (events) => {
        const values: Array<Part> = []
        for (const event of events) {
          if (event.data === "[DONE]") return { values: [...values, ...assembler.rest()], ended: Either.void }
          const parts = read(assembler, event)
          if (Either.isLeft(parts)) return { values, ended: Either.left(parts.left) }
          values.push(...parts.right)
        }
        return { values }
      },
      end: () => ({
        values: [],
        // Some servers omit `[DONE]`; an answer with a finish reason for every choice is complete.
        ended: assembler.hasFinished(choices)
          ? Either.void
          : Either.left(
              new Unavailable({
                ...fields,
                reason: "Disconnected",
                detail: "the stream ended before the answer was complete",
              }),
            ),
      }),
    }
  }

  const silent = () =>
    new Unavailable({
      ...fields,
      reason: "Timeout",
      detail: `no data for ${Duration.format(idleTimeout ?? Duration.infinity)}`,
    })

  return (idleTimeout === null ? stream : Stream.timeoutFail(stream, silent, idleTimeout)).pipe(
    Sse.decode({ maxEventBytes }),
    Stream.catchTag("SseError", ({ message }) => Stream.fail(unexpected("TooLarge", message))),
    transduce(reader),
  )
}

const isError = (value: unknown): boolean =>
  Predicate.isRecord(value) &&
  ((value["error"] !== undefined && value["error"] !== null) || value["object"] === "error")

/** Returns the HTTP status that a server reports inside an answer that started with 200, or 0 if there is none. */
const codeOf = (event: unknown): number => {
  if (!Predicate.isRecord(event)) return 0
  const error = Predicate.isRecord(event["error"]) ? event["error"] : event
  const code = [error["code"], error["status"], error["status_code"]].find(
    (code) => typeof code === "number" || (typeof code === "string" && /^\d{3}$/.test(code)),
  )
  return Number(code ?? 0)
}
