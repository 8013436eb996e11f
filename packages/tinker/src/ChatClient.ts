/**
 * The OpenAI-compatible endpoints of a Tinker server: chats and completions of a base model or of saved weights, whole
 * or as a stream of parts. They take and give text; for tokens and log probabilities in training there is
 * `SamplingClient`.
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
 * One thing that was said in a conversation.
 *
 * @since 0.1.0
 * @category requests
 */
export type Message = typeof Chat.Message.Type

/**
 * @since 0.1.0
 * @category requests
 */
export type Tool = typeof Chat.Tool.Type

/**
 * @since 0.1.0
 * @category requests
 */
export type ChatRequest = typeof Chat.ChatRequest.Type

/**
 * @since 0.1.0
 * @category requests
 */
export type CompletionRequest = typeof Chat.CompletionRequest.Type

/**
 * @since 0.1.0
 * @category requests
 */
export interface StreamOptions extends CallOptions {
  /** How long the server may be silent while it answers. Default: 5 minutes; `null` means without end. */
  readonly idleTimeout?: Duration.DurationInput | null | undefined
  /** The biggest event that is read. Default: 8 MiB. */
  readonly maxEventBytes?: number | undefined
}

/**
 * A function that the model wants to be called. `arguments` is what the model wrote: JSON, if it did well.
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
 * @since 0.1.0
 * @category answers
 */
export type Usage = typeof Chat.Usage.Type

/**
 * Why an answer ended; servers may have words of their own.
 *
 * @since 0.1.0
 * @category answers
 */
export type FinishReason = "stop" | "length" | "tool_calls" | "content_filter" | (string & {})

/**
 * A part of an answer as it comes. Texts are never empty. The pieces of a tool call are told as they come, and the
 * whole of it when its choice is finished. `Logprobs` are as the server gave them.
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
      /** As far as it is known. */
      readonly id: string
      /** As far as it is known. */
      readonly name: string
      /** Only what is new. */
      readonly arguments: string
    }
  | { readonly _tag: "ToolCall"; readonly choice: number; readonly call: ToolCall }
  | { readonly _tag: "Logprobs"; readonly choice: number; readonly value: Wire.Json }
  | { readonly _tag: "Finished"; readonly choice: number; readonly reason: FinishReason }
  | { readonly _tag: "Usage"; readonly usage: Usage }

/**
 * @since 0.1.0
 * @category answers
 */
export interface Choice {
  readonly index: number
  readonly text: string
  /** What the model thought aloud, where the server tells it apart. */
  readonly reasoning: string
  readonly refusal: string
  readonly toolCalls: ReadonlyArray<ToolCall>
  readonly logprobs: Option.Option<Wire.Json>
  readonly finishReason: Option.Option<FinishReason>
}

/**
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
 * @since 0.1.0
 * @category answers
 */
export type Model = (typeof Chat.Models.Type)["data"][number]

/**
 * What a stream can end with. `RequestFailed`: the server gave up in the middle, and says why. `Unavailable` after the
 * first part: the answer was cut off.
 *
 * @since 0.1.0
 * @category errors
 */
export type StreamError = TinkerError | RequestFailed

/**
 * A stream is the answer to one request: it is sent when the stream is run, and running the same stream again is
 * `InvalidInput`, not another request. It is retried as configured until the server begins to answer, and never after
 * that. Leaving the stream closes the connection.
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
 * @since 0.1.0
 * @category tags
 */
export class ChatClient extends Context.Tag("effect-tinker/ChatClient")<ChatClient, Service>() {}

/**
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
        const problem = isUsed ? "was run already: ask for another answer with another call" : problemWith(options)
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
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<ChatClient, never, Transport> = Layer.effect(ChatClient, make)

/**
 * A stream of parts as the answer that it is.
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
 * Only the text of one choice, as it comes.
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
 * An answer as a message, to go on with the conversation.
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
    : "has an idleTimeout that is not a duration"

const decodeReply = (value: unknown) => Schema.decodeUnknownEither(Chat.ReplyPiece)(value)

/** One answer as it is streamed: `data: {…}` for each piece, `data: [DONE]` at the end. */
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
    return Stream.fail(unexpected("Schema", `${shorten(redact(contentType))} in place of an event stream`))
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
        // Some servers leave the last event out; an answer that says why it ended is there as a whole.
        ended: assembler.hasFinished(choices)
          ? Either.void
          : Either.left(
              new Unavailable({ ...fields, reason: "Disconnected", detail: "the stream ended before the answer did" }),
            ),
      }),
    }
  }

  const silent = () =>
    new Unavailable({
      ...fields,
      reason: "Timeout",
      detail: `nothing came for ${Duration.format(idleTimeout ?? Duration.infinity)}`,
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

/** The status that a server puts into the error of an answer that has begun with 200; 0 if there is none. */
const codeOf = (event: unknown): number => {
  if (!Predicate.isRecord(event)) return 0
  const error = Predicate.isRecord(event["error"]) ? event["error"] : event
  const code = [error["code"], error["status"], error["status_code"]].find(
    (code) => typeof code === "number" || (typeof code === "string" && /^\d{3}$/.test(code)),
  )
  return Number(code ?? 0)
}
