/**
 * The messages of a conversation as plain objects. {@link FromJson} reads them from files.
 *
 * @since 0.1.0
 */
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import type * as ModelInput from "effect-tinker/ModelInput"
import * as PythonJson from "./internal/renderer/PythonJson.ts"

/**
 * Visible text of a message.
 *
 * @since 0.1.0
 * @category models
 */
export interface TextPart {
  readonly type: "text"
  readonly text: string
}

/**
 * Reasoning that the model writes before its answer.
 *
 * @since 0.1.0
 * @category models
 */
export interface ThinkingPart {
  readonly type: "thinking"
  readonly thinking: string
}

/**
 * An image, in a form that the server accepts.
 *
 * @since 0.1.0
 * @category models
 */
export interface ImagePart {
  readonly type: "image"
  readonly image: ModelInput.Image | ModelInput.ImageAsset
}

/**
 * One part of the content of a message.
 *
 * @since 0.1.0
 * @category models
 */
export type Part = TextPart | ThinkingPart | ImagePart

/**
 * A call to a tool, as requested by the model.
 *
 * @since 0.1.0
 * @category models
 */
export interface ToolCall {
  readonly id?: string | undefined
  readonly name: string
  /** JSON, exactly as the model wrote it. */
  readonly arguments: string
}

/**
 * Text that looks like a tool call but could not be parsed.
 *
 * @since 0.1.0
 * @category models
 */
export interface UnparsedToolCall {
  readonly text: string
  readonly problem: string
}

/**
 * One message of a conversation.
 *
 * @since 0.1.0
 * @category models
 */
export interface Message {
  /** `system`, `user`, `assistant`, `tool`, or any other role that the renderer supports. */
  readonly role: string
  readonly content: string | ReadonlyArray<Part>
  readonly toolCalls?: ReadonlyArray<ToolCall> | undefined
  readonly unparsedToolCalls?: ReadonlyArray<UnparsedToolCall> | undefined
  /** In a tool result: the id of the call that it answers. */
  readonly toolCallId?: string | undefined
  /** In a tool result: the name of the tool. */
  readonly name?: string | undefined
  /** Whether the message is trained on; used with `customized` only. */
  readonly trainable?: boolean | undefined
}

/**
 * A tool that the model may call. `parameters` is a JSON Schema.
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
 * Creates a text part.
 *
 * @since 0.1.0
 * @category constructors
 */
export const text = (text: string): TextPart => ({ type: "text", text })

/**
 * Creates a reasoning part.
 *
 * @since 0.1.0
 * @category constructors
 */
export const thinking = (thinking: string): ThinkingPart => ({ type: "thinking", thinking })

/**
 * Creates a system message.
 *
 * @since 0.1.0
 * @category constructors
 */
export const system = (content: Message["content"]): Message => ({ role: "system", content })

/**
 * Creates a user message.
 *
 * @since 0.1.0
 * @category constructors
 */
export const user = (content: Message["content"]): Message => ({ role: "user", content })

/**
 * Creates an assistant message, optionally with tool calls and other fields.
 *
 * @since 0.1.0
 * @category constructors
 */
export const assistant = (content: Message["content"], more?: Omit<Message, "role" | "content">): Message => ({
  role: "assistant",
  content,
  ...more,
})

/**
 * Returns the parts of a message; content that is a string is one text part.
 *
 * @since 0.1.0
 * @category getters
 */
export const parts = ({ content }: Pick<Message, "content">): ReadonlyArray<Part> =>
  typeof content === "string" ? [text(content)] : content

/**
 * Returns the visible text of a message, without its reasoning.
 *
 * @since 0.1.0
 * @category getters
 */
export const textOf = (message: Pick<Message, "content">): string =>
  parts(message).reduce((all, part) => (part.type === "text" ? all + part.text : all), "")

/**
 * Returns the reasoning of a message, without its visible text.
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

/** The form used in files, with the names of chat endpoints and public data sets. */
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
 * The keys that a message in a file may have.
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
 * Checks whether a value is a message, as far as renderers rely on it.
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
 * The schema of a message in a file: `tool_calls` with a `function` in each, `tool_call_id`, and so on. Missing or null
 * content is read as empty, `reasoning_content` becomes a thinking part, and arguments given as an object become JSON.
 * Unknown keys are ignored; `DataLint` reports them. Images have no such form.
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
        ? ParseResult.fail(new ParseResult.Type(ast, message, "a message with an image can't be written as JSON"))
        : ParseResult.succeed(toJson(message)),
  },
)

/**
 * The schema of one row in a file of conversations: `{"messages": […]}`.
 *
 * @since 0.1.0
 * @category schemas
 */
export const Conversation = Schema.Struct({ messages: Schema.Array(FromJson) })

/**
 * One row in a file of conversations.
 *
 * @since 0.1.0
 * @category schemas
 */
export type Conversation = typeof Conversation.Type
