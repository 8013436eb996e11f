/**
 * Nemotron 3 and 3.5: reasoning that the prompt opens, tool calls and declarations as XML, images for the VL model.
 *
 * @since 0.1.0
 */
import type * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Predicate from "effect/Predicate"
import * as Chatml from "../internal/renderer/Chatml.ts"
import * as Family from "../internal/renderer/Family.ts"
import * as PythonJson from "../internal/renderer/PythonJson.ts"
import * as Tagged from "../internal/renderer/Tagged.ts"
import * as XmlCalls from "../internal/renderer/XmlCalls.ts"
import { strip } from "../internal/template/Text.ts"
import { type Message, parts, text, type ToolSpec } from "../Message.ts"
import type { Renderer } from "../Renderer.ts"
import type { RendererError } from "../RendererError.ts"
import type * as Tokenizer from "../Tokenizer.ts"

/**
 * How a renderer handles reasoning:
 *
 * - `thinking`: the prompt opens the reasoning; the history has none
 * - `disabled`: the prompt closes the reasoning, so that the model does not reason
 * - `preserved`: as `thinking`, but the history keeps the reasoning
 * - `reduced`: as `thinking`, and the last user message asks for a lower effort
 *
 * @since 0.1.0
 * @category models
 */
export type Mode = "thinking" | "disabled" | "preserved" | "reduced"

/**
 * Options of {@link make}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Whether to use the format of Ultra and of all 3.5 models instead of that of Nano and Super. Default: false. */
  readonly ultra?: boolean | undefined
  /** Default: `thinking`. */
  readonly mode?: Mode | undefined
}

const suffixes = {
  thinking: "",
  disabled: "_disable_thinking",
  preserved: "_preserve_thinking",
  reduced: "_low_thinking",
} as const

const hasText = ({ content }: Message): boolean =>
  typeof content !== "string" && content.some((part) => part.type === "text" && part.text !== "")

const hasThinkingPart = (message: Message): boolean => parts(message).some(({ type }) => type === "thinking")

/** Labels images if there are several, and starts each on its own line. */
const wrapImages: Chatml.Format["wrapImages"] = (pieces) => {
  const several = pieces.filter((piece) => typeof piece !== "string").length > 1
  const all: Array<Chatml.Piece> = []
  let count = 0
  let before = ""
  for (const piece of pieces) {
    if (typeof piece === "string") {
      all.push(piece)
      if (piece !== "") before = piece
      continue
    }
    count++
    const newline = before === "" || before.endsWith("\n") ? "" : "\n"
    all.push(`${newline}${several ? `<image ${count}>` : ""}<img>`, piece, "</img>")
    before = ""
  }
  return all
}

type Json = Readonly<Record<string, unknown>>

/** Writes the keys that have no tags of their own. */
const others = (value: Json, known: ReadonlyArray<string>): ReadonlyArray<string> =>
  Object.entries(value).flatMap(([key, one]) =>
    known.includes(key) || one === undefined
      ? []
      : [`<${key}>${PythonJson.isNested(one) ? PythonJson.print(one) : PythonJson.str(one)}</${key}>`],
  )

const tag = (name: string, value: Json, key: string, print: (one: unknown) => string): ReadonlyArray<string> =>
  value[key] === undefined ? [] : [`<${name}>${print(value[key])}</${name}>`]

const trimmed = (value: unknown) => strip(PythonJson.str(value), "both")

const declarationOf = (tool: ToolSpec): string => {
  const { description, name, parameters } = tool
  const properties = parameters["properties"]
  const own = Predicate.isRecord(properties)
    ? Object.entries(properties).flatMap(([key, value]) => {
        const property: Json = Predicate.isRecord(value) ? value : {}
        return [
          "<parameter>",
          `<name>${key}</name>`,
          ...tag("type", property, "type", PythonJson.str),
          ...tag("description", property, "description", trimmed),
          ...tag("enum", property, "enum", (one) => PythonJson.print(one)),
          ...others(property, ["name", "type", "description", "enum"]),
          "</parameter>",
        ]
      })
    : []
  return [
    "<function>",
    `<name>${name}</name>`,
    ...(trimmed(description) === "" ? [] : [`<description>${trimmed(description)}</description>`]),
    "<parameters>",
    ...own,
    ...others(parameters, ["type", "properties", "required"]),
    ...tag("required", parameters, "required", (one) => PythonJson.print(one)),
    "</parameters>",
    ...others({ ...tool }, ["type", "name", "description", "parameters"]),
    "</function>",
  ].join("\n")
}

const toolPrefix: Family.Family["toolPrefix"] = (tools, systemPrompt) => {
  const declared = tools.length === 0 ? [] : [XmlCalls.declare(tools.map(declarationOf))]
  return Either.right([
    { role: "system", content: [...(systemPrompt === "" ? [] : [systemPrompt]), ...declared].join("\n\n") },
  ])
}

/**
 * Creates a renderer for Nemotron 3 and 3.5. Every conversation starts with a system message, which may be empty.
 * Images need `expectedTokens`.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (tokenizer: Tokenizer.Service, options: Options = {}): Effect.Effect<Renderer, RendererError> => {
  const ultra = options.ultra ?? false
  const mode = options.mode ?? "thinking"
  const strips = mode !== "preserved"
  const name = ultra
    ? `nemotron3_ultra${mode === "reduced" ? "_medium_thinking" : suffixes[mode]}`
    : `nemotron3${suffixes[mode]}`
  const request = `\n\n{reasoning effort: ${ultra ? "efficient" : "low"}}`

  /** Asks for a lower effort in the last user message. */
  const asking = (message: Message, { index, lastUserIndex, path }: Family.Place): Family.Result<Message> => {
    if (mode !== "reduced" || message.role !== "user" || index !== lastUserIndex) return Either.right(message)
    const { content } = message
    if (typeof content === "string") return Either.right({ ...message, content: content + request })
    return ultra
      ? Either.right({ ...message, content: [...content, text(request)] })
      : Family.invalid(`${path}.content`, `expected a string, because ${name} appends the effort to it`)
  }

  const adjust: Chatml.Format["adjust"] = (given, place) =>
    Either.map(asking(given, place), (message) =>
      typeof message.content === "string" ? { ...message, content: strip(message.content, "both") } : message,
    )

  const lead: Chatml.Format["lead"] = (message, { index, lastUserIndex }) => {
    const isHistory = index < lastUserIndex
    const has = Tagged.hasThought(message)
    if (has && (!isHistory || !strips)) return ""
    const separates = !ultra && isHistory && has && hasText(message) && (message.toolCalls ?? []).length === 0
    return separates ? "<think></think>\n" : "<think></think>"
  }

  return Chatml.make(
    {
      name,
      hasExtensionProperty: !strips,
      disablesThinking: mode === "disabled",
      opening: mode === "disabled" ? "<think></think>" : "<think>\n",
      opensThinking: mode !== "disabled",
      arrange: (entries) =>
        Either.right(
          entries[0]?.message.role === "system" ? entries : Family.prepended({ role: "system", content: "" }, entries),
        ),
      adjust,
      lead,
      strips: ({ index, isLast, lastUserIndex }) => strips && !isLast && index < lastUserIndex,
      thought: (thinking) => (ultra ? `<think>\n${thinking}</think>` : `<think>\n${thinking}\n</think>\n`),
      calls: (message, path) =>
        Either.map(XmlCalls.write(message.toolCalls ?? [], path, XmlCalls.asPython), (calls) => {
          // The frame of reasoning already ends with a newline.
          const separates = ultra || !hasThinkingPart(message) || hasText(message)
          return (separates ? "\n" : "") + calls.map((call) => `${call}\n`).join("")
        }),
      result: { open: "<tool_response>\n", close: "\n</tool_response>\n", between: "" },
      wrapImages,
      countImage: undefined,
      style: { frame: "spaces", gaps: ["\n"], after: "\n", call: XmlCalls.parse, dangling: true },
      toolPrefix,
    },
    tokenizer,
  )
}
