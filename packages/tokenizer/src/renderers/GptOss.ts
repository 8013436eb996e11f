/**
 * gpt-oss: the Harmony format, with channels for reasoning, tool calls and answers.
 *
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Family from "../internal/renderer/Family.ts"
import * as Harmony from "../internal/renderer/Harmony.ts"
import * as Scanner from "../internal/renderer/Scanner.ts"
import * as ToolTypes from "../internal/renderer/ToolTypes.ts"
import { type Message, textOf, thinkingOf, type ToolCall, type ToolSpec } from "../Message.ts"
import type { Renderer } from "../Renderer.ts"
import type { RendererError } from "../RendererError.ts"
import type * as Tokenizer from "../Tokenizer.ts"

/**
 * How much the model reasons.
 *
 * @since 0.1.0
 * @category models
 */
export type Effort = "low" | "medium" | "high"

/**
 * Options of {@link make}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** The reasoning effort, stated in a system message at the start of every conversation. Default: no such message. */
  readonly reasoningEffort?: Effort | undefined
  /** The date in that system message, as `YYYY-MM-DD`. Default: the UTC date when the renderer is created. */
  readonly currentDate?: string | undefined
}

/** The role of a true system message. The `system` role of a conversation becomes a developer message. */
const system = "_system"

const preludeOf = (effort: Effort, date: string): Message => ({
  role: system,
  content: `You are ChatGPT, a large language model trained by OpenAI.
Knowledge cutoff: 2024-06
Current date: ${date}

Reasoning: ${effort}

# Valid channels: analysis, commentary, final. Channel must be included for every message.`,
})

const calls = (toolCalls: ReadonlyArray<ToolCall>): string =>
  toolCalls
    .map(
      (call) => ` to=functions.${call.name}<|channel|>commentary <|constrain|>json<|message|>${call.arguments}<|call|>`,
    )
    .join("<|start|>assistant")

const answer = (message: Message, isLast: boolean): string => {
  const { toolCalls = [] } = message
  const said = textOf(message)
  const thought = thinkingOf(message)
  const inChannel = (channel: string, text: string) =>
    text === "" ? "" : `<|channel|>${channel}<|message|>${text}<|end|><|start|>assistant`
  const rest =
    toolCalls.length > 0
      ? inChannel("commentary", said) + calls(toolCalls)
      : `<|channel|>final<|message|>${said}${isLast ? "<|return|>" : "<|end|>"}`
  return inChannel("analysis", thought) + rest
}

const roleOf = (role: string): string => (role === system ? "system" : role === "system" ? "developer" : role)

const toolPrefix = (tools: ReadonlyArray<ToolSpec>, systemPrompt: string): ReadonlyArray<Message> => {
  const instructions = systemPrompt === "" ? [] : [`# Instructions\n\n${systemPrompt}`]
  const declared =
    tools.length === 0
      ? []
      : [
          `# Tools\n\n## functions\n\nnamespace functions {\n\n${tools.map(ToolTypes.declarationOf).join("\n\n")}\n\n} // namespace functions`,
        ]
  const content = [...instructions, ...declared].join("\n\n")
  return [
    ...(tools.length === 0
      ? []
      : [{ role: system, content: "Calls to these tools must go to the commentary channel: 'functions'." }]),
    ...(content === "" ? [] : [{ role: "developer", content }]),
  ]
}

/**
 * Creates a renderer for gpt-oss. Tool results need the `name` of the tool.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (tokenizer: Tokenizer.Service, options: Options = {}): Effect.Effect<Renderer, RendererError> =>
  Effect.gen(function* () {
    const { currentDate, reasoningEffort } = options
    const name = reasoningEffort === undefined ? "gpt_oss_no_sysprompt" : `gpt_oss_${reasoningEffort}_reasoning`
    for (const token of ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"]) {
      yield* Family.tokenOf(name, tokenizer, token)
    }
    const returned = yield* Family.tokenOf(name, tokenizer, "<|return|>")
    const called = yield* Family.tokenOf(name, tokenizer, "<|call|>")
    // Read once, so that the prompt does not change when a run continues past midnight.
    const date = currentDate ?? new Date(yield* Clock.currentTimeMillis).toISOString().slice(0, 10)

    const render = (message: Message, { isLast, path }: Family.Place): Family.Result<Family.Rendered> => {
      if (message.role === "assistant") {
        return Either.map(Family.withoutImages(name, message, path), () => ({
          header: "<|start|>assistant",
          output: [{ text: answer(message, isLast) }],
        }))
      }
      return Either.flatMap(Family.onlyText(name, message, path), (text) => {
        if (message.role !== "tool") {
          const content = message.role === "system" ? `# Instructions\n\n${text}\n\n` : text
          return Either.right({
            header: `<|start|>${roleOf(message.role)}`,
            output: [{ text: `<|message|>${content}<|end|>` }],
          })
        }
        const tool = message.name ?? ""
        if (tool === "") return Family.invalid(`${path}.name`, `missing; ${name} needs the name of the tool`)
        return Either.right({
          header: `<|start|>${tool.startsWith("functions.") ? tool : `functions.${tool}`} to=assistant`,
          output: [{ text: `<|channel|>commentary<|message|>${text}<|end|>` }],
        })
      })
    }

    return Family.make(
      {
        name,
        hasExtensionProperty: false,
        stopSequences: [returned, called],
        stopTokens: new Set([returned, called]),
        bos: "",
        disablesThinking: false,
        arrange: (entries) =>
          Either.right(
            reasoningEffort === undefined ? entries : Family.prepended(preludeOf(reasoningEffort, date), entries),
          ),
        render,
        suffix: (role) => Either.right(`<|start|>${roleOf(role)}`),
        parse: (tokens) =>
          Effect.gen(function* () {
            const first = yield* Family.beforeStop(name, tokens, returned)
            const second = yield* Family.beforeStop(name, tokens, called)
            const { before, stopped } = second.before.length < first.before.length ? second : first
            const text = yield* tokenizer.decode(before)
            return stopped
              ? { message: Harmony.parse(text), termination: "stop_sequence" }
              : { message: { role: "assistant", content: text }, termination: "malformed" }
          }),
        scanner: () => Scanner.harmony(Harmony.kindOf),
        toolPrefix: (tools, systemPrompt) => Either.right(toolPrefix(tools, systemPrompt)),
      },
      tokenizer,
    )
  })
