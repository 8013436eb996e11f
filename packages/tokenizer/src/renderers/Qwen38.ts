/**
 * Qwen3.8: as Qwen3.5, with a reasoning effort in the system message and reasoning that stays in the history.
 *
 * @since 0.1.0
 */
import type * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Chatml from "../internal/renderer/Chatml.ts"
import * as Family from "../internal/renderer/Family.ts"
import * as XmlCalls from "../internal/renderer/XmlCalls.ts"
import { strip } from "../internal/template/Text.ts"
import { type Message, parts, text, textOf } from "../Message.ts"
import type { Renderer } from "../Renderer.ts"
import type { RendererError } from "../RendererError.ts"
import type * as Tokenizer from "../Tokenizer.ts"
import * as Qwen35 from "./Qwen35.ts"

/**
 * How much the model reasons; `disabled` closes the reasoning in the prompt.
 *
 * @since 0.1.0
 * @category models
 */
export type Effort = "xhigh" | "medium" | "low" | "disabled"

/**
 * Options of {@link make}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Default: `xhigh`. */
  readonly effort?: Effort | undefined
}

const instructions = {
  xhigh:
    "Reasoning effort is set to xhigh. Please think carefully through the task, validate key assumptions, consider plausible alternatives, and prioritize correctness, consistency, and clarity in the final answer.",
  medium: "",
  low: "Reasoning effort is set to low. Keep your thinking brief and focused, moving directly to the conclusion without unnecessary elaboration.",
  disabled: "",
} as const

/** Puts the instruction in front of the system message; without either, there is no such message. */
const arrange =
  (instruction: string) =>
  (entries: ReadonlyArray<Family.Entry>): ReadonlyArray<Family.Entry> => {
    const [first, ...rest] = entries
    if (first?.message.role !== "system") {
      return instruction === "" ? entries : Family.prepended({ role: "system", content: instruction }, entries)
    }
    const { message } = first
    const withContent = (content: Message["content"]) => [{ ...first, message: { ...message, content } }, ...rest]
    const all = parts(message)
    if (all.some(({ type }) => type !== "text")) {
      const [begin] = all
      return instruction === "" || (begin?.type === "text" && begin.text.startsWith(instruction))
        ? entries
        : withContent([text(`${instruction}\n\n`), ...all])
    }
    const said = strip(textOf(message), "both")
    if (said === "" && instruction === "") return rest
    const isBegun = instruction === "" || said === instruction || said.startsWith(`${instruction}\n\n`)
    return withContent(isBegun ? said : said === "" ? instruction : `${instruction}\n\n${said}`)
  }

/**
 * Creates a renderer for Qwen3.8.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (tokenizer: Tokenizer.Service, options: Options = {}): Effect.Effect<Renderer, RendererError> => {
  const effort = options.effort ?? "xhigh"
  const arranged = arrange(instructions[effort])
  return Chatml.make(
    {
      ...Qwen35.common(effort === "disabled", XmlCalls.asJson),
      name: effort === "disabled" ? "qwen3_8_disable_thinking" : `qwen3_8_${effort}_reasoning`,
      arrange: (entries) => Either.right(arranged(entries)),
      // Only parts count as reasoning; tags inside a text are text.
      lead: (message) => Qwen35.closed(!parts(message).some(({ type }) => type === "thinking")),
      strips: () => false,
    },
    tokenizer,
  )
}
