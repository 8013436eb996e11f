/**
 * DeepSeek V3 and V3.1, with or without reasoning.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as ExactJson from "../ExactJson.ts"
import * as Family from "../internal/renderer/Family.ts"
import * as PythonJson from "../internal/renderer/PythonJson.ts"
import * as Scanner from "../internal/renderer/Scanner.ts"
import * as Tagged from "../internal/renderer/Tagged.ts"
import { spaces, strip } from "../internal/template/Text.ts"
import { type Message, parts, textOf, type ToolCall, type ToolSpec, type UnparsedToolCall } from "../Message.ts"
import type { Renderer } from "../Renderer.ts"
import type { RendererError } from "../RendererError.ts"
import type * as Tokenizer from "../Tokenizer.ts"

/**
 * Options of {@link make}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Whether the model reasons. Default: false. */
  readonly thinking?: boolean | undefined
  /** The name used in errors. Default: `deepseekv3` or `deepseekv3_thinking`. */
  readonly name?: string | undefined
}

const section = { open: "<｜tool▁calls▁begin｜>", close: "<｜tool▁calls▁end｜>" }
const call = { open: "<｜tool▁call▁begin｜>", close: "<｜tool▁call▁end｜>" }
const separator = "<｜tool▁sep｜>"

const callsText = (calls: ReadonlyArray<ToolCall>): string =>
  calls.length === 0
    ? ""
    : section.open +
      calls.map(({ arguments: given, name }) => call.open + name + separator + given + call.close).join("") +
      section.close

const sections = new RegExp(`[${spaces}]*${section.open}[^]*?${section.close}`, "g")
const firstSection = new RegExp(`${section.open}([^]*?)${section.close}`)
const oneCall = new RegExp(`${call.open}([\\p{L}\\p{N}_]+)${separator}([^]*?)${call.close}`, "gu")

const parse = (content: string): Message => {
  const calls: Array<ToolCall> = []
  const failed: Array<UnparsedToolCall> = []
  for (const [whole, name = "", given = ""] of (firstSection.exec(content)?.[1] ?? "").matchAll(oneCall)) {
    const text = strip(given, "both")
    Either.match(ExactJson.parse(text), {
      onLeft: ({ message }) => failed.push({ text: whole, problem: `Invalid JSON: ${message}` }),
      onRight: () => calls.push({ name, arguments: text }),
    })
  }
  const ofSection = Tagged.unterminated(content, section.open, section.close)
  failed.push(...(ofSection.length > 0 ? ofSection : Tagged.unterminated(content, call.open, call.close)))
  const hasCalls = calls.length + failed.length > 0
  const said = hasCalls ? strip(content.replace(sections, ""), "both") : content
  return Tagged.withCalls(Tagged.parseThoughts(said), calls, failed)
}

const toolsText = (tools: ReadonlyArray<ToolSpec>): string => `

## Tools
You have access to the following tools:

${tools
  .map(
    ({ description, name, parameters }) =>
      `### ${name}\nDescription: ${description}\n\nParameters: ${PythonJson.print(parameters)}`,
  )
  .join("\n")}

IMPORTANT: ALWAYS adhere to this exact format for tool use:
${section.open}${call.open}tool_call_name${separator}tool_call_arguments${call.close}${section.close}

Where:
- \`tool_call_name\` must be an exact match to one of the available tools
- \`tool_call_arguments\` must be valid JSON that strictly follows the tool's Parameters Schema
- For multiple tool calls, chain them directly without separators or spaces`

/**
 * Creates a renderer for DeepSeek V3 and V3.1. A system message is allowed only at the start.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (tokenizer: Tokenizer.Service, options: Options = {}): Effect.Effect<Renderer, RendererError> =>
  Effect.gen(function* () {
    const thinking = options.thinking ?? false
    const name = options.name ?? (thinking ? "deepseekv3_thinking" : "deepseekv3")
    const bos = "<｜begin▁of▁sentence｜>"
    for (const token of [bos, "<｜User｜>", "<｜Assistant｜>", "<think>"]) yield* Family.tokenOf(name, tokenizer, token)
    const stop = yield* Family.tokenOf(name, tokenizer, "<｜end▁of▁sentence｜>")
    const close = yield* Family.tokenOf(name, tokenizer, "</think>")

    /** Returns the header of a message. An answer after a result has none: it continues the turn. */
    const headerOf = (role: string, { index, path, previous }: Family.Place): Family.Result<string> => {
      switch (role) {
        case "system":
          return index === 0
            ? Either.right("")
            : Family.reject(name, "Unsupported", `${path}: DeepSeek has a system message only at the start`)
        case "user":
          return Either.right("<｜User｜>")
        case "assistant":
          return Either.right(previous?.role === "tool" ? "" : "<｜Assistant｜>")
        case "tool":
          return Either.right("<｜tool▁output▁begin｜>")
        default:
          return Family.reject(name, "Unsupported", `${path}.role: unknown role ${role}`)
      }
    }

    const answer = (message: Message, place: Family.Place): Family.Rendered["output"] => {
      const { content } = message
      const continues = place.previous?.role === "tool"
      const calls = message.toolCalls ?? []
      const ends = (text: string) => [{ text: text + callsText(calls) }, { token: stop }]
      if (!thinking && !continues) {
        const said = typeof content === "string" ? content.replace(/<think>[^]*?<\/think>/g, "") : textOf(message)
        // The reference ends an answer without text only by its calls.
        return said === "" ? [{ text: callsText(calls) }] : ends(said)
      }
      const strips = (thinking || continues) && calls.length === 0 && !place.isLast
      const said = parts(message)
        .map((part) =>
          part.type === "text"
            ? part.text
            : part.type === "thinking" && !strips
              ? `<think>${part.thinking}</think>`
              : "",
        )
        .join("")
      const isEmpty = content.length === 0
      const closes = thinking && !continues && place.isLast && !isEmpty && !Tagged.hasThought(message)
      const body = isEmpty ? [{ text: said + callsText(calls) }] : ends(said)
      return closes ? [{ text: "<think></think>", fixed: true }, ...body] : body
    }

    const render = (message: Message, place: Family.Place): Family.Result<Family.Rendered> =>
      Either.gen(function* () {
        const header = yield* headerOf(message.role, place)
        if (message.role !== "assistant") {
          const text = yield* Family.onlyText(name, { role: message.role, content: message.content }, place.path)
          const end = message.role === "tool" ? "<｜tool▁output▁end｜>" : ""
          return { header, output: [{ text: text + end + callsText(message.toolCalls ?? []) }] }
        }
        yield* Family.withoutImages(name, message, place.path)
        const isHistory = place.previous?.role !== "tool" && (thinking ? !place.isLast : true)
        return { header: isHistory ? `${header}</think>` : header, output: answer(message, place) }
      })

    return Family.make(
      {
        name,
        hasExtensionProperty: !thinking,
        stopSequences: [stop],
        stopTokens: new Set([stop]),
        bos,
        disablesThinking: false,
        render,
        suffix: (role, place) =>
          Either.map(headerOf(role, place), (header) => {
            const continues = place.previous?.role === "tool"
            if (thinking) return continues ? header : `${header}<think>`
            return role === "assistant" && !continues ? `${header}</think>` : header
          }),
        parse: Family.parseWith(
          name,
          tokenizer,
          new Map([[stop, "stop_sequence"]]),
          parse,
          thinking ? Family.restoring(tokenizer, "<think>", close) : undefined,
        ),
        scanner: () =>
          Scanner.blocks({
            frame: "none",
            opened: thinking,
            call,
            section: { ...section, ends: false },
            gaps: "spaces",
            after: "",
          }),
        toolPrefix: (tools, systemPrompt) =>
          Either.right([{ role: "system", content: systemPrompt + (tools.length === 0 ? "" : toolsText(tools)) }]),
      },
      tokenizer,
    )
  })
