/**
 * Qwen3: hybrid models with optional reasoning, and the 2507 instruct models without reasoning.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Family from "../internal/renderer/Family.ts"
import * as PythonJson from "../internal/renderer/PythonJson.ts"
import * as Scanner from "../internal/renderer/Scanner.ts"
import * as Tagged from "../internal/renderer/Tagged.ts"
import { type Message, parts, type ToolSpec } from "../Message.ts"
import type { Renderer } from "../Renderer.ts"
import type { RendererError } from "../RendererError.ts"
import type * as Tokenizer from "../Tokenizer.ts"

/**
 * How a renderer handles reasoning:
 *
 * - `thinking`: the model may reason
 * - `disabled`: the prompt ends with an empty reasoning block, so that the model does not reason
 * - `instruct`: the model has no reasoning blocks
 *
 * @since 0.1.0
 * @category models
 */
export type Mode = "thinking" | "disabled" | "instruct"

/**
 * Options of {@link make}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Default: `thinking`. */
  readonly mode?: Mode | undefined
  /**
   * Whether to remove reasoning from earlier turns, as the model's template does. If false, the extension property
   * holds and a conversation is one example. Default: true.
   */
  readonly stripThinkingFromHistory?: boolean | undefined
}

const names = { thinking: "qwen3", disabled: "qwen3_disable_thinking", instruct: "qwen3_instruct" } as const

const emptyThought = Tagged.framed("")

/** Joins the parts. Drops newlines after a framed reasoning block, because the frame already ends with newlines. */
const joined = (message: Message, frames: boolean): string => {
  let all = ""
  let afterFrame = false
  for (const part of parts(message)) {
    if (part.type === "thinking") {
      all += frames ? Tagged.framed(part.thinking) : `<think>${part.thinking}</think>`
      afterFrame = frames
    } else if (part.type === "text") {
      all += afterFrame ? Tagged.unindented(part.text) : part.text
      afterFrame = false
    }
  }
  return all
}

/** Frames reasoning that is written inside the text. */
const reframed = (content: string): string => {
  const end = content.indexOf("</think>")
  const before = content.slice(0, end)
  const begin = before.lastIndexOf("<think>")
  const thought = begin === -1 ? before : before.slice(begin + "<think>".length)
  return Tagged.framed(thought) + Tagged.unindented(content.slice(end + "</think>".length))
}

const toolsText = (tools: ReadonlyArray<ToolSpec>): string => `# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
${tools.map((tool) => PythonJson.print({ type: "function", function: tool })).join("\n")}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>`

/** Declares tools in a system message. @internal */
export const toolPrefix = (tools: ReadonlyArray<ToolSpec>, systemPrompt: string): Message => {
  const text = tools.length === 0 ? "" : toolsText(tools)
  return { role: "system", content: systemPrompt === "" ? text : `${systemPrompt}\n\n${text}` }
}

/**
 * Creates a renderer for Qwen3. Special tokens spelled out in a message are encoded as text, so a message can't end its
 * own turn.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (tokenizer: Tokenizer.Service, options: Options = {}): Effect.Effect<Renderer, RendererError> =>
  Effect.gen(function* () {
    const mode = options.mode ?? "thinking"
    const strips = options.stripThinkingFromHistory ?? true
    const name = names[mode]
    yield* Family.tokenOf(name, tokenizer, "<|im_start|>")
    const stop = yield* Family.tokenOf(name, tokenizer, "<|im_end|>")
    const hasReasoning = mode !== "instruct"

    const headerOf = (role: string, { index }: Family.Place) =>
      `${index > 0 ? "\n" : ""}<|im_start|>${role === "tool" ? "user" : role}\n`

    /** Whether the answer gets a reasoning block; the template adds one only after the last user message. */
    const isFramed = (message: Message, { isLast, lastUserIndex }: Family.Place) =>
      hasReasoning && message.role === "assistant" && lastUserIndex >= 0 && (isLast || !strips)

    const textOf = (message: Message, place: Family.Place): Family.Result<string> => {
      const frames = isFramed(message, place)
      const { content, role, toolCalls = [] } = message
      const isHistory = strips && role === "assistant" && !place.isLast
      const said =
        typeof content === "string"
          ? frames && content.includes("</think>")
            ? reframed(content)
            : content
          : joined({ role, content: isHistory ? content.filter(({ type }) => type !== "thinking") : content }, frames)
      const answer = frames && !Tagged.hasThought(message) ? emptyThought + Tagged.unindented(said) : said
      const whole = role === "tool" ? `<tool_response>\n${answer}\n</tool_response>` : answer
      if (toolCalls.length === 0) return Either.right(whole)
      return Either.map(
        Either.all(
          toolCalls.map((call, index) =>
            Either.match(PythonJson.reprint(call.arguments), {
              onLeft: ({ message }) =>
                Family.invalid(`${place.path}.toolCalls[${index}].arguments`, `invalid JSON: ${message}`),
              onRight: (args) => Either.right(Tagged.callText(call.name, args)),
            }),
          ),
        ),
        (calls) => `${whole}${said === "" ? "" : "\n"}${calls.join("\n")}`,
      )
    }

    const checkQuestion = (message: Message, place: Family.Place): Family.Result<void> =>
      mode === "disabled" &&
      message.role === "assistant" &&
      place.isLast &&
      message.content.length > 0 &&
      place.lastUserIndex < 0
        ? Family.reject(
            name,
            "Contradiction",
            "without a user message the template omits the empty reasoning block that the prompt always has; add a user message, or use the renderer with thinking",
          )
        : Either.void

    return Family.make(
      {
        name,
        hasExtensionProperty: !strips || !hasReasoning,
        stopSequences: [stop],
        stopTokens: new Set([stop]),
        bos: "",
        disablesThinking: mode === "disabled",
        render: (message, place) =>
          Either.gen(function* () {
            yield* checkQuestion(message, place)
            yield* Family.withoutImages(name, message, place.path)
            return {
              header: headerOf(message.role, place),
              output: [{ text: yield* textOf(message, place), plain: true }, { token: stop }],
            }
          }),
        suffix: (role, place) => Either.right(headerOf(role, place) + (mode === "disabled" ? emptyThought : "")),
        parse: (tokens) =>
          Effect.gen(function* () {
            const { before, stopped } = yield* Family.beforeStop(name, tokens, stop)
            const text = yield* tokenizer.decode(before)
            return stopped
              ? { message: Tagged.parse(text, Tagged.qwen3(hasReasoning)), termination: "stop_sequence" }
              : { message: { role: "assistant", content: text }, termination: "malformed" }
          }),
        scanner: () => Scanner.blocks(Scanner.qwen3(hasReasoning)),
        toolPrefix: (tools, systemPrompt) => Either.right([toolPrefix(tools, systemPrompt)]),
      },
      tokenizer,
    )
  })
