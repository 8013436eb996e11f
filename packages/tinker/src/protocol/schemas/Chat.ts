/**
 * The wire format of the OpenAI-compatible endpoints: requests and responses, complete or streamed.
 *
 * @since 0.1.0
 */
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import { lazy } from "../../internal/util/Lazy.ts"
import * as Wire from "../../internal/codec/Wire.ts"

const Count = lazy(() => Schema.Int.pipe(Schema.positive()))
const Penalty = lazy(() => Schema.Number.pipe(Schema.between(-2, 2)))

/** A string, or content parts in the server's format, e.g. `{ type: "image_url", image_url: { url } }`. */
const Content = lazy(() => Schema.Union(Schema.String, Schema.Array(Wire.JsonObject)))

/**
 * A function call requested by the model. `arguments` is the JSON text written by the model.
 *
 * @since 0.1.0
 * @category requests
 */
export const MessageToolCall = lazy(() =>
  Wire.struct({
    id: Schema.String,
    type: Wire.constant("function"),
    function: Wire.struct({ name: Schema.String, arguments: Schema.String }),
  }),
)

/**
 * A message of a conversation.
 *
 * @since 0.1.0
 * @category requests
 */
export const Message = lazy(() =>
  Schema.Union(
    Wire.struct({
      role: Schema.Literal("system", "developer", "user"),
      content: Content,
      name: Wire.omitted(Schema.String),
    }),
    Wire.struct({
      role: Schema.Literal("assistant"),
      /** `null` if there are only tool calls. */
      content: Schema.optional(Schema.NullOr(Content)),
      reasoningContent: Wire.omitted(Schema.String),
      toolCalls: Wire.omitted(Schema.Array(MessageToolCall)),
      name: Wire.omitted(Schema.String),
    }),
    Wire.struct({ role: Schema.Literal("tool"), content: Content, toolCallId: Schema.String }),
  ),
)

/**
 * A function that the model may call. `parameters` is a JSON schema.
 *
 * @since 0.1.0
 * @category requests
 */
export const Tool = lazy(() =>
  Wire.struct({
    type: Wire.constant("function"),
    function: Wire.struct({
      name: Schema.NonEmptyString,
      description: Wire.omitted(Schema.String),
      parameters: Wire.omitted(Wire.JsonObject),
      strict: Wire.omitted(Schema.Boolean),
    }),
  }),
)

const common = () => ({
  /** A base model, weights saved for sampling (`tinker://…`), or `<base model>;<weights>`. */
  model: Schema.NonEmptyString,
  maxTokens: Wire.omitted(Count),
  temperature: Wire.omitted(Schema.Finite.pipe(Schema.nonNegative())),
  topP: Wire.omitted(Schema.Number.pipe(Schema.between(0, 1))),
  /** The number of answers. */
  n: Wire.omitted(Count),
  seed: Wire.omitted(Schema.Int),
  stop: Wire.omitted(Schema.Union(Schema.String, Schema.Array(Schema.String))),
  presencePenalty: Wire.omitted(Penalty),
  frequencyPenalty: Wire.omitted(Penalty),
  user: Wire.omitted(Schema.String),
})

const chat = () => ({
  ...common(),
  messages: Schema.Array(Message).pipe(Schema.minItems(1)),
  maxCompletionTokens: Wire.omitted(Count),
  logprobs: Wire.omitted(Schema.Boolean),
  topLogprobs: Wire.omitted(Schema.NonNegativeInt),
  tools: Wire.omitted(Schema.Array(Tool)),
  /** `none`, `auto`, `required`, or a specific function in the server's format. */
  toolChoice: Wire.omitted(Schema.Union(Wire.open("none", "auto", "required"), Wire.JsonObject)),
  parallelToolCalls: Wire.omitted(Schema.Boolean),
  responseFormat: Wire.omitted(Wire.JsonObject),
  reasoningEffort: Wire.omitted(Wire.open("none", "minimal", "low", "medium", "high")),
})

const completion = () => ({
  ...common(),
  /** A string or token ids. */
  prompt: Schema.Union(Schema.String, Schema.Array(Schema.NonNegativeInt)),
  /** The number of most likely tokens to return for each position. */
  logprobs: Wire.omitted(Schema.NonNegativeInt),
  echo: Wire.omitted(Schema.Boolean),
})

/** Adds `extra` fields to a body. They must not repeat fields of the request. */
const extensible = <const Fields extends Schema.Struct.Fields>(fields: Fields, defaults: Wire.JsonObject) => {
  const names = new Set([...Object.keys(fields).map(Wire.snakeCase), "stream"])
  const Extra = Wire.JsonObject.pipe(
    Schema.filter((extra) =>
      Object.keys(extra)
        .filter((name) => names.has(name))
        .map((name) => ({ path: [name], message: "already defined by the request" })),
    ),
  )
  /** `extra` contains additional body fields in the server's format. */
  const struct = Wire.struct({ ...fields, extra: Wire.local(Extra) })
  return Schema.transformOrFail(Wire.JsonObject, Schema.typeSchema(struct), {
    strict: false,
    decode: (body) =>
      ParseResult.map(ParseResult.decodeUnknown(struct)(body), (request) => {
        const isExtra = ([name, value]: readonly [string, unknown]) =>
          !names.has(name) && JSON.stringify(value) !== JSON.stringify(defaults[name])
        return { ...request, extra: Object.fromEntries(Object.entries(body).filter(isExtra)) }
      }),
    encode: (request: { readonly extra?: Wire.JsonObject | undefined }) =>
      ParseResult.map(ParseResult.encodeUnknown(struct)(request), (body) => ({
        ...defaults,
        ...request.extra,
        ...body,
      })),
  })
}

// Servers report the usage of a stream only on request.
const streamed = { stream: true, stream_options: { include_usage: true } }

/**
 * A chat request.
 *
 * @since 0.1.0
 * @category requests
 */
export const ChatRequest = lazy(() => extensible(chat(), {}))

/**
 * A chat request with a streamed response.
 *
 * @since 0.1.0
 * @category requests
 */
export const StreamedChatRequest = lazy(() => extensible(chat(), streamed))

/**
 * A completion request.
 *
 * @since 0.1.0
 * @category requests
 */
export const CompletionRequest = lazy(() => extensible(completion(), {}))

/**
 * A completion request with a streamed response.
 *
 * @since 0.1.0
 * @category requests
 */
export const StreamedCompletionRequest = lazy(() => extensible(completion(), streamed))

const Details = lazy(() =>
  Wire.struct({ cachedTokens: Wire.maybe(Schema.Finite), reasoningTokens: Wire.maybe(Schema.Finite) }),
)

/**
 * Token counts.
 *
 * @since 0.1.0
 * @category answers
 */
export const Usage = lazy(() =>
  Wire.struct({
    promptTokens: Wire.orElse(Schema.Finite, 0),
    completionTokens: Wire.orElse(Schema.Finite, 0),
    totalTokens: Wire.orElse(Schema.Finite, 0),
    promptTokensDetails: Wire.maybe(Details),
    completionTokensDetails: Wire.maybe(Details),
  }),
)

// Decoded for every token: keeping the wire names without a transformation is five times faster.
const nullish = <A, I>(schema: Schema.Schema<A, I>) => Schema.optional(Schema.NullOr(schema))

/** A message or a piece of one. Servers use two names for the reasoning text. */
const Piece = lazy(() =>
  Schema.Struct({
    content: nullish(Schema.String),
    reasoning_content: nullish(Schema.String),
    reasoning: nullish(Schema.String),
    refusal: nullish(Schema.String),
    tool_calls: nullish(
      Schema.Array(
        Schema.Struct({
          index: nullish(Schema.NonNegativeInt),
          id: nullish(Schema.String),
          function: nullish(Schema.Struct({ name: nullish(Schema.String), arguments: nullish(Schema.String) })),
        }),
      ),
    ),
  }),
)

const WireChoice = lazy(() =>
  Schema.Struct({
    index: nullish(Schema.NonNegativeInt),
    message: nullish(Piece),
    delta: nullish(Piece),
    text: nullish(Schema.String),
    finish_reason: nullish(Wire.open("stop", "length", "tool_calls", "content_filter")),
    logprobs: nullish(Wire.Json),
  }),
)

const about = () => ({ id: nullish(Schema.String), model: nullish(Schema.String), usage: nullish(Usage) })

/**
 * A complete response of either endpoint: a choice has a `message` or a `text`.
 *
 * @since 0.1.0
 * @category answers
 */
export const Reply = lazy(() => Schema.Struct({ ...about(), choices: Schema.Array(WireChoice) }))

/**
 * A piece of a streamed response: a choice has a `delta` or a `text`. Pieces that report usage or keep the connection
 * alive may have no choices.
 *
 * @since 0.1.0
 * @category answers
 */
export const ReplyPiece = lazy(() => Schema.Struct({ ...about(), choices: nullish(Schema.Array(WireChoice)) }))

/**
 * The available models.
 *
 * @since 0.1.0
 * @category answers
 */
export const Models = lazy(() =>
  Wire.struct({
    data: Schema.Array(
      Wire.struct({
        id: Schema.String,
        created: Wire.maybe(Schema.Finite),
        ownedBy: Wire.maybe(Schema.String),
        /** The base model of saved weights. */
        parent: Wire.maybe(Schema.String),
      }),
    ),
  }),
)
