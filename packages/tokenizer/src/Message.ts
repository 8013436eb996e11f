/**
 * Messages of a conversation, as programs build them: plain objects. {@link FromJson} reads them from files.
 *
 * @since 0.1.0
 */
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import type * as ModelInput from "effect-tinker/ModelInput"
import * as PythonJson from "./internal/renderer/PythonJson.ts"

/**
 * What is said.
 *
 * @since 0.1.0
 * @category models
 */
export interface TextPart {
  readonly type: "text"
  readonly text: string
}

/**
 * What the model thinks before it says something.
 *
 * @since 0.1.0
 * @category models
 */
export interface ThinkingPart {
  readonly type: "thinking"
  readonly thinking: string
}

/**
 * An image, as the server takes it.
 *
 * @since 0.1.0
 * @category models
 */
export interface ImagePart {
  readonly type: "image"
  readonly image: ModelInput.Image | ModelInput.ImageAsset
}

/**
 * @since 0.1.0
 * @category models
 */
export type Part = TextPart | ThinkingPart | ImagePart

/**
 * @since 0.1.0
 * @category models
 */
export interface ToolCall {
  readonly id?: string | undefined
  readonly name: string
  /** JSON, as it was written. */
  readonly arguments: string
}

/**
 * What looks like a tool call and is none.
 *
 * @since 0.1.0
 * @category models
 */
export interface UnparsedToolCall {
  readonly text: string
  readonly problem: string
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Message {
  /** `system`, `user`, `assistant`, `tool`, or whatever the renderer knows. */
  readonly role: string
  readonly content: string | ReadonlyArray<Part>
  readonly toolCalls?: ReadonlyArray<ToolCall> | undefined
  readonly unparsedToolCalls?: ReadonlyArray<UnparsedToolCall> | undefined
  /** Of a result: which call it answers. */
  readonly toolCallId?: string | undefined
  /** Of a result: which tool it comes from. */
  readonly name?: string | undefined
  /** Whether it is learnt, where each message says so itself (`customized`). */
  readonly trainable?: boolean | undefined
}

/**
 * A tool that the model may call. `parameters` is a JSON schema.
 *
 * @since 0.1.0
 * @category models
 */
export interface ToolSpec {
  readonly name: string
  readonly description: string
  readonly parameters: Readonly<Record<string, unknown>>
}

/**
 * @since 0.1.0
 * @category constructors
 */
export const text = (text: string): TextPart => ({ type: "text", text })

/**
 * @since 0.1.0
 * @category constructors
 */
export const thinking = (thinking: string): ThinkingPart => ({ type: "thinking", thinking })

/**
 * @since 0.1.0
 * @category constructors
 */
export const system = (content: Message["content"]): Message => ({ role: "system", content })

/**
 * @since 0.1.0
 * @category constructors
 */
export const user = (content: Message["content"]): Message => ({ role: "user", content })

/**
 * @since 0.1.0
 * @category constructors
 */
export const assistant = (content: Message["content"], more?: Omit<Message, "role" | "content">): Message => ({
  role: "assistant",
  content,
  ...more,
})

/**
 * The parts, also of a content that is one text.
 *
 * @since 0.1.0
 * @category getters
 */
export const parts = ({ content }: Pick<Message, "content">): ReadonlyArray<Part> =>
  typeof content === "string" ? [text(content)] : content

/**
 * All that is said, without what is thought.
 *
 * @since 0.1.0
 * @category getters
 */
export const textOf = (message: Pick<Message, "content">): string =>
  parts(message).reduce((all, part) => (part.type === "text" ? all + part.text : all), "")

/**
 * All that is thought.
 *
 * @since 0.1.0
 * @category getters
 */
export const thinkingOf = (message: Pick<Message, "content">): string =>
  parts(message).reduce((all, part) => (part.type === "thinking" ? all + part.thinking : all), "")

const Parts = Schema.Array(
  Schema.Union(
    Schema.Struct({ type: Schema.Literal("text"), text: Schema.String }),
    Schema.Struct({ type: Schema.Literal("thinking"), thinking: Schema.String }),
  ),
)

const Arguments = Schema.Union(Schema.String, Schema.Record({ key: Schema.String, value: Schema.Unknown }))

const maybe = <A, I>(schema: Schema.Schema<A, I>) => Schema.optional(Schema.NullOr(schema))

/** As in files: the names that chat endpoints and data sets use. */
const Json = Schema.Struct({
  role: Schema.String,
  content: maybe(Schema.Union(Schema.String, Parts)),
  reasoning_content: maybe(Schema.String),
  tool_calls: maybe(
    Schema.Array(
      Schema.Struct({
        id: maybe(Schema.String),
        type: maybe(Schema.Literal("function")),
        function: Schema.Struct({ name: Schema.String, arguments: Arguments }),
      }),
    ),
  ),
  unparsed_tool_calls: maybe(Schema.Array(Schema.Struct({ raw_text: Schema.String, error: Schema.String }))),
  tool_call_id: maybe(Schema.String),
  name: maybe(Schema.String),
  trainable: maybe(Schema.Boolean),
})

/**
 * The names that a message in a file may have.
 *
 * @since 0.1.0
 * @category schemas
 */
export const jsonKeys: ReadonlyArray<string> = Object.keys(Json.fields)

const contentOf = ({ content, reasoning_content: reasoning }: typeof Json.Type): Message["content"] =>
  typeof reasoning === "string" && reasoning !== ""
    ? [thinking(reasoning), ...parts({ content: content ?? "" }).filter((part) => part.type !== "text" || part.text)]
    : (content ?? "")

const fromJson = (json: typeof Json.Type): Message => ({
  role: json.role,
  content: contentOf(json),
  ...(json.tool_calls && {
    toolCalls: json.tool_calls.map(({ function: { arguments: given, name }, id }) => ({
      ...(typeof id === "string" && { id }),
      name,
      arguments: typeof given === "string" ? given : PythonJson.print(given),
    })),
  }),
  ...(json.unparsed_tool_calls && {
    unparsedToolCalls: json.unparsed_tool_calls.map(({ error, raw_text }) => ({ text: raw_text, problem: error })),
  }),
  ...(typeof json.tool_call_id === "string" && { toolCallId: json.tool_call_id }),
  ...(typeof json.name === "string" && { name: json.name }),
  ...(typeof json.trainable === "boolean" && { trainable: json.trainable }),
})

const toJson = (message: Message): Schema.Schema.Encoded<typeof Json> => ({
  role: message.role,
  content:
    typeof message.content === "string"
      ? message.content
      : message.content.filter((part): part is TextPart | ThinkingPart => part.type !== "image"),
  ...(message.toolCalls && {
    tool_calls: message.toolCalls.map(({ arguments: given, id, name }) => ({
      type: "function" as const,
      ...(id !== undefined && { id }),
      function: { name, arguments: given },
    })),
  }),
  ...(message.unparsedToolCalls && {
    unparsed_tool_calls: message.unparsedToolCalls.map(({ problem, text }) => ({ raw_text: text, error: problem })),
  }),
  ...(message.toolCallId !== undefined && { tool_call_id: message.toolCallId }),
  ...(message.name !== undefined && { name: message.name }),
  ...(message.trainable !== undefined && { trainable: message.trainable }),
})

const isPart = (value: unknown): boolean => {
  if (typeof value !== "object" || value === null) return false
  const part: { readonly type?: unknown; readonly text?: unknown; readonly thinking?: unknown } = value
  return (
    (part.type === "text" && typeof part.text === "string") ||
    (part.type === "thinking" && typeof part.thinking === "string") ||
    (part.type === "image" && "image" in part)
  )
}

/**
 * Whether a value is a message, as far as renderers rely on it.
 *
 * @since 0.1.0
 * @category guards
 */
export const isMessage = (value: unknown): value is Message => {
  if (typeof value !== "object" || value === null) return false
  const message: { readonly role?: unknown; readonly content?: unknown } = value
  return (
    typeof message.role === "string" &&
    (typeof message.content === "string" || (Array.isArray(message.content) && message.content.every(isPart)))
  )
}

/**
 * A message as files have it: `tool_calls` with a `function` in each, `tool_call_id`, and so on. Content that is
 * missing or null is empty, `reasoning_content` becomes a part, and arguments that are an object become JSON. Keys that
 * are not known are ignored here, and found by `DataLint`. Images can't be written in this form.
 *
 * @since 0.1.0
 * @category schemas
 */
export const FromJson: Schema.Schema<Message, Schema.Schema.Encoded<typeof Json>> = Schema.transformOrFail(
  Json,
  Schema.declare(isMessage, { identifier: "Message" }),
  {
    strict: true,
    decode: (json) => ParseResult.succeed(fromJson(json)),
    encode: (message, _, ast) =>
      parts(message).some(({ type }) => type === "image")
        ? ParseResult.fail(new ParseResult.Type(ast, message, "a message with an image has no such form"))
        : ParseResult.succeed(toJson(message)),
  },
)

/**
 * One row of a file of conversations: `{"messages": […], "tools": […]}`.
 *
 * @since 0.1.0
 * @category schemas
 */
export const Conversation = Schema.Struct({ messages: Schema.Array(FromJson) })

/**
 * @since 0.1.0
 * @category schemas
 */
export type Conversation = typeof Conversation.Type
