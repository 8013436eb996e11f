/**
 * Kimi K2, K2.5 and K2.6: a default system message, tool calls with ids, images since K2.5.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as ExactJson from "../ExactJson.ts"
import type * as Encoder from "../internal/renderer/Encoder.ts"
import * as Family from "../internal/renderer/Family.ts"
import * as Images from "../internal/renderer/Images.ts"
import * as KimiTools from "../internal/renderer/KimiTools.ts"
import * as PythonJson from "../internal/renderer/PythonJson.ts"
import * as Scanner from "../internal/renderer/Scanner.ts"
import * as Tagged from "../internal/renderer/Tagged.ts"
import { spaces, strip } from "../internal/template/Text.ts"
import { type Message, type Part, textOf, thinkingOf, type ToolCall, type UnparsedToolCall } from "../Message.ts"
import type { Renderer } from "../Renderer.ts"
import type { RendererError } from "../RendererError.ts"
import type * as Tokenizer from "../Tokenizer.ts"

/**
 * How a renderer handles reasoning:
 *
 * - `thinking`: the prompt of K2.5 and K2.6 opens the reasoning; the history has none
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
  readonly version: "k2" | "k25" | "k26"
  /** Default: `thinking`. */
  readonly mode?: Mode | undefined
}

const suffixes = { thinking: "", disabled: "_disable_thinking", preserved: "_preserve_thinking" } as const

const defaultSystem: Message = { role: "system", content: "You are Kimi, an AI assistant created by Moonshot AI." }

/** The role of a message that declares tools. */
const declaring = "tool_declare"

const section = { open: "<|tool_calls_section_begin|>", close: "<|tool_calls_section_end|>" }
const otherSection = { open: "<|tool_call_section_begin|>", close: "<|tool_call_section_end|>" }
const call = { open: "<|tool_call_begin|>", close: "<|tool_call_end|>" }
const separator = "<|tool_call_argument_begin|>"

const callsText = (calls: ReadonlyArray<ToolCall>): string => {
  if (calls.length === 0) return ""
  const all = calls.map(({ arguments: given, id, name }, index) => {
    const own = id === undefined || id === "" ? `functions.${name}:${index}` : id
    return call.open + own + separator + given + call.close
  })
  return section.open + all.join("") + section.close
}

const escaped = (text: string) => text.replaceAll("|", "\\|")
const between = ({ close, open }: typeof call) => `${escaped(open)}([^]*?)${escaped(close)}`
const anySection = new RegExp(`${between(section)}|${between(otherSection)}`)
const s = `[${spaces}]*`
const oneCall = new RegExp(
  `${escaped(call.open)}${s}([^<]+:\\p{Nd}+)${s}${escaped(separator)}${s}([^]*?)${s}${escaped(call.close)}`,
  "gu",
)

/** Returns the name in an id such as `functions.get_weather:0`. */
const nameIn = (id: string): string => {
  const [first = ""] = id.split(":", 1)
  return first.includes(".") ? first.slice(first.indexOf(".") + 1) : first
}

const parse = (content: string): Message => {
  const found = anySection.exec(content)
  const calls: Array<ToolCall> = []
  const failed: Array<UnparsedToolCall> = []
  for (const [whole, first = "", given = ""] of (found?.[1] ?? found?.[2] ?? "").matchAll(oneCall)) {
    const id = strip(first, "both")
    const text = strip(given, "both")
    Either.match(ExactJson.parse(text), {
      onLeft: ({ message }) => failed.push({ text: whole, problem: `Invalid JSON: ${message}` }),
      onRight: () => calls.push({ ...(id !== "" && { id }), name: nameIn(id), arguments: text }),
    })
  }
  for (const { close, open } of [section, otherSection, call]) {
    const dangling = Tagged.unterminated(content, open, close)
    failed.push(...dangling)
    if (dangling.length > 0) break
  }
  return Tagged.withCalls(Tagged.parseThoughts(found === null ? content : content.slice(0, found.index)), calls, failed)
}

/** Adds the default system message, after declared tools. */
const arrange = (entries: ReadonlyArray<Family.Entry>): ReadonlyArray<Family.Entry> => {
  const [first, second] = entries
  if (first?.message.role === "system") return entries
  if (first?.message.role !== declaring) return Family.prepended(defaultSystem, entries)
  return second?.message.role === "system" ? entries : [first, ...Family.prepended(defaultSystem, entries.slice(1))]
}

/** Returns one example per turn of the user; each shows the turn as the model saw it. */
const split: Family.Family["split"] = (messages, trainOn) => {
  if (trainOn === "last_assistant_message" || trainOn === "last_assistant_turn") return [[messages.length, trainOn]]
  const users = messages.flatMap(({ role }, index) => (role === "user" ? [index] : []))
  const mode = trainOn === "all_assistant_messages" ? "last_assistant_turn" : trainOn
  return [...users.slice(1), messages.length].map((count) => [count, mode])
}

const headerOf = (message: Pick<Message, "role" | "name" | "toolCallId">): string => {
  switch (message.role) {
    case "user":
      return "<|im_user|>user<|im_middle|>"
    case "assistant":
      return "<|im_assistant|>assistant<|im_middle|>"
    case "tool": {
      const name = message.name === undefined || message.name === "" ? "tool" : message.name
      return `<|im_system|>${name}<|im_middle|>## Return of ${message.toolCallId ?? ""}\n`
    }
    default:
      return `<|im_system|>${message.role}<|im_middle|>`
  }
}

/** The vendor's tokenizer cuts longer texts into pieces before it encodes them. */
const longestText = 400_000
const longestRun = 25_000
const run = new RegExp(`[${spaces}]{${longestRun + 1}}|[^${spaces}]{${longestRun + 1}}`)

const isCut = (text: string) => text.length > longestText || (text.length > longestRun && run.test(text))

/**
 * Creates a renderer for Kimi. Tool results need the `name` of the tool and the id of the call.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (tokenizer: Tokenizer.Service, options: Options): Effect.Effect<Renderer, RendererError> =>
  Effect.gen(function* () {
    const { version } = options
    const mode = options.mode ?? "thinking"
    const name = `kimi_${version}${suffixes[mode]}`
    const isFirst = version === "k2"
    for (const token of ["<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<think>"]) {
      yield* Family.tokenOf(name, tokenizer, token)
    }
    const stop = yield* Family.tokenOf(name, tokenizer, "<|im_end|>")
    const close = yield* Family.tokenOf(name, tokenizer, "</think>")
    const opening = isFirst ? "" : mode === "disabled" ? "<think></think>" : "<think>"

    const answer = (message: Message, { inLastTurn, path }: Family.Place): Family.Result<string> =>
      Either.map(Family.withoutImages(name, message, path), () => {
        const keeps = inLastTurn || mode === "preserved"
        const thought = keeps ? thinkingOf(message) : ""
        return `<think>${thought}</think>${textOf(message)}${callsText(message.toolCalls ?? [])}<|im_end|>`
      })

    /** Parts are encoded separately. */
    const segmentsOf = (part: Part, path: string): Family.Result<ReadonlyArray<Encoder.Segment>> => {
      if (part.type === "text") return Either.right([{ text: part.text }])
      if (part.type === "thinking") {
        return Family.reject(name, "Unsupported", `${path}.content: only the assistant reasons`)
      }
      return Either.map(Images.segment(name, part, Images.kimi, path), (image) => [
        { text: "<|media_begin|>image<|media_content|>", fixed: true },
        image,
        { text: "<|media_end|>\n", fixed: true },
      ])
    }

    const outputOf = (message: Message, place: Family.Place): Family.Result<ReadonlyArray<Encoder.Segment>> => {
      const { content } = message
      if (message.role === "assistant") return Either.map(answer(message, place), (text) => [{ text }])
      if (typeof content === "string") return Either.right([{ text: `${content}<|im_end|>` }])
      const [first, ...more] = content
      if (first?.type === "text" && more.length === 0) return Either.right([{ text: `${first.text}<|im_end|>` }])
      if (isFirst) return Family.reject(name, "Unsupported", `${place.path}.content: expected one text`)
      return Either.map(Either.all(content.map((part) => segmentsOf(part, place.path))), (all) => [
        ...all.flat(),
        { text: "<|im_end|>", fixed: true },
      ])
    }

    return Family.make(
      {
        name,
        hasExtensionProperty: false,
        stopSequences: [stop],
        stopTokens: new Set([stop]),
        bos: "",
        disablesThinking: mode === "disabled",
        arrange: (entries) => Either.right(arrange(entries)),
        turnStart: (messages) =>
          messages.findLastIndex(({ role, toolCalls = [] }) => role === "assistant" && toolCalls.length === 0) + 1,
        split,
        render: (message, place) =>
          Either.flatMap(outputOf(message, place), (output) =>
            output.some((segment) => "text" in segment && isCut(segment.text))
              ? Family.reject(
                  name,
                  "Unsupported",
                  `${place.path}: texts of more than ${longestText} characters, or ${longestRun} without a change between spaces and others, are cut by the vendor's tokenizer`,
                )
              : Either.right({ header: headerOf(message), output }),
          ),
        suffix: (role) => Either.right(headerOf({ role }) + opening),
        parse: Family.parseWith(
          name,
          tokenizer,
          new Map([[stop, "stop_sequence"]]),
          parse,
          isFirst ? undefined : Family.restoring(tokenizer, "<think>", close),
        ),
        scanner: () =>
          Scanner.blocks({
            frame: "none",
            opened: opening === "<think>",
            call,
            section: { ...section, ends: true },
            gaps: [],
            after: "",
          }),
        toolPrefix: (tools, systemPrompt) => {
          const payload = tools.map((tool) => ({ type: "function", function: tool }))
          const declared: Either.Either<string, string> =
            tools.length === 0
              ? Either.right("")
              : isFirst
                ? Either.right(PythonJson.print(payload, PythonJson.compact))
                : KimiTools.declare(tools)
          return Either.match(declared, {
            onLeft: (problem) => Family.reject(name, "Unsupported", `tools: ${problem}`),
            onRight: (content) =>
              Either.right([
                ...(content === "" ? [] : [{ role: declaring, content }]),
                systemPrompt === "" ? defaultSystem : { role: "system", content: systemPrompt },
              ]),
          })
        },
      },
      tokenizer,
    )
  })
