/**
 * Qwen3.5 and Qwen3.6: texts and images, reasoning that the prompt opens, tool calls as XML.
 *
 * @since 0.1.0
 */
import type * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Chatml from "../internal/renderer/Chatml.ts"
import type * as Family from "../internal/renderer/Family.ts"
import * as Images from "../internal/renderer/Images.ts"
import * as PythonJson from "../internal/renderer/PythonJson.ts"
import * as Tagged from "../internal/renderer/Tagged.ts"
import * as XmlCalls from "../internal/renderer/XmlCalls.ts"
import { strip } from "../internal/template/Text.ts"
import type * as ExactJson from "../ExactJson.ts"
import { type Message, text } from "../Message.ts"
import type { Renderer } from "../Renderer.ts"
import type { RendererError } from "../RendererError.ts"
import type * as Tokenizer from "../Tokenizer.ts"

/**
 * How a renderer handles reasoning:
 *
 * - `thinking`: the prompt opens the reasoning; the history has none
 * - `disabled`: the prompt closes the reasoning, so that the model does not reason
 * - `preserved`: as `thinking`, but the history keeps the reasoning
 *
 * @since 0.1.0
 * @category models
 */
export type Mode = "thinking" | "disabled" | "preserved"

/**
 * Options of {@link make}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Default: `thinking`. */
  readonly mode?: Mode | undefined
}

const names = {
  thinking: "qwen3_5",
  disabled: "qwen3_5_disable_thinking",
  preserved: "qwen3_5_preserve_thinking",
} as const

const emptyThought = "<think>\n\n</think>\n\n"

/** Removes white space from the ends of the content, across texts and around reasoning, up to an image. */
const trimmed = (message: Message): Message => {
  if (typeof message.content === "string") return { ...message, content: strip(message.content, "both") }
  const all = [...message.content]
  const visible = [...all.keys()].filter((index) => all[index]?.type !== "thinking")
  for (const side of ["left", "right"] as const) {
    for (const index of side === "left" ? visible : visible.toReversed()) {
      const part = all[index]
      if (part?.type !== "text") break
      const rest = strip(part.text, side)
      all[index] = text(rest)
      if (rest !== "") break
    }
  }
  return { ...message, content: all }
}

const isVisible = ({ content }: Message): boolean =>
  typeof content === "string"
    ? strip(content, "both") !== ""
    : content.some((part) => part.type === "image" || (part.type === "text" && strip(part.text, "both") !== ""))

/** Writes calls as XML, after an empty line if there is content before them. */
const callsWith =
  (print: (value: ExactJson.ExactJson) => string): Chatml.Format["calls"] =>
  (message, path) =>
    Either.map(
      XmlCalls.write(message.toolCalls ?? [], path, print),
      (calls) => `${isVisible(message) ? "\n\n" : ""}${calls.join("\n")}`,
    )

const toolPrefix: Family.Family["toolPrefix"] = (tools, systemPrompt) => {
  const declared = tools.length === 0 ? [] : [XmlCalls.declare(tools.map((tool) => PythonJson.print(tool)))]
  return Either.right([
    { role: "system", content: [...declared, ...(systemPrompt === "" ? [] : [systemPrompt])].join("\n\n") },
  ])
}

/** The part that Qwen3.5 and Qwen3.8 have in common. @internal */
export const common = (
  disabled: boolean,
  print: (value: ExactJson.ExactJson) => string,
): Omit<Chatml.Format, "name" | "lead" | "strips"> => ({
  // An answer without reasoning continues an open block, but the history writes a closed one with other tokens.
  hasExtensionProperty: false,
  disablesThinking: disabled,
  opening: disabled ? emptyThought : "<think>\n",
  opensThinking: !disabled,
  adjust: (message) => Either.right(trimmed(message)),
  thought: (thinking) => `<think>\n${thinking}\n</think>\n\n`,
  calls: callsWith(print),
  result: { open: "<tool_response>\n", close: "\n</tool_response>", between: "\n" },
  wrapImages: Chatml.wrapped("<|vision_start|>", "<|vision_end|>"),
  countImage: Images.qwen,
  style: { frame: "spaces", gaps: ["\n\n", "\n"], after: "", call: XmlCalls.parse, dangling: true },
  toolPrefix,
})

/** Returns an empty reasoning block. @internal */
export const closed = (isNeeded: boolean): string => (isNeeded ? emptyThought : "")

/**
 * Creates a renderer for Qwen3.5 and Qwen3.6. White space at the ends of messages is removed, as the template does.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (tokenizer: Tokenizer.Service, options: Options = {}): Effect.Effect<Renderer, RendererError> => {
  const mode = options.mode ?? "thinking"
  return Chatml.make(
    {
      ...common(mode === "disabled", XmlCalls.asPython),
      name: names[mode],
      lead: (message, { index, lastUserIndex }) => closed(index > lastUserIndex && !Tagged.hasThought(message)),
      strips: ({ isLast }) => mode !== "preserved" && !isLast,
    },
    tokenizer,
  )
}
