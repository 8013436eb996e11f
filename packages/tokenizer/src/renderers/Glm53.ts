/**
 * GLM-5.3: a role token ends the message before it, and the reasoning effort is stated at the start.
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
import * as XmlCalls from "../internal/renderer/XmlCalls.ts"
import { spaces, strip } from "../internal/template/Text.ts"
import { type Message, textOf, thinkingOf, type ToolCall, type UnparsedToolCall } from "../Message.ts"
import type { Renderer } from "../Renderer.ts"
import type { RendererError } from "../RendererError.ts"
import type * as Tokenizer from "../Tokenizer.ts"

/**
 * How much the model reasons.
 *
 * @since 0.1.0
 * @category models
 */
export type Effort = "low" | "high" | "max"

/**
 * Options of {@link make}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Default: `max`. */
  readonly effort?: Effort | undefined
}

const efforts = { low: "Low", high: "High", max: "Max" } as const

const roles: Readonly<Record<string, string>> = {
  system: "<|system|>",
  user: "<|user|>",
  assistant: "<|assistant|>",
  tool: "<|observation|>",
}

const style: Tagged.Style = { frame: "none", gaps: [], after: "", call: (text) => parseCall(text), dangling: false }

const s = `[${spaces}]*`
const block = new RegExp(`^${s}<tool_call>${s}([\\p{L}\\p{N}_\\-.]+)${s}([^]*?)${s}</tool_call>${s}$`, "u")
const pair = new RegExp(`<arg_key>([^]*?)</arg_key>${s}<arg_value>([^]*?)</arg_value>`, "g")

const parseCall = (text: string): ToolCall | UnparsedToolCall => {
  const found = block.exec(text)
  if (found === null) return { text, problem: "Malformed GLM tool call" }
  const body = found[2] ?? ""
  const given = new Map<string, ExactJson.ExactJson>()
  let at = 0
  for (const match of body.matchAll(pair)) {
    if (strip(body.slice(at, match.index), "both") !== "") {
      return { text, problem: "Unexpected content between tool call arguments" }
    }
    const key = strip(match[1] ?? "", "both")
    if (key === "") return { text, problem: "Empty tool call argument key" }
    const value = match[2] ?? ""
    given.set(
      key,
      Either.getOrElse(ExactJson.parse(value), () => value),
    )
    at = match.index + match[0].length
  }
  return strip(body.slice(at), "both") === ""
    ? { name: found[1] ?? "", arguments: PythonJson.print(given) }
    : { text, problem: "Unexpected trailing content inside tool call" }
}

const callsText = (calls: ReadonlyArray<ToolCall>, path: string): Family.Result<string> =>
  Either.map(
    Either.all(
      calls.map((call, index) =>
        Either.map(XmlCalls.argumentsOf(call, `${path}.toolCalls[${index}].arguments`), (given) => {
          const pairs = [...given].map(([key, value]) => {
            const text = typeof value === "string" ? value : PythonJson.print(value, PythonJson.readable)
            return `<arg_key>${key}</arg_key><arg_value>${text}</arg_value>`
          })
          return `<tool_call>${call.name}${pairs.join("")}</tool_call>`
        }),
      ),
    ),
    (all) => all.join(""),
  )

/** Splits an answer into reasoning and text; reasoning may also be inside a text. */
const partsOf = (message: Message): readonly [thought: string, said: string] => {
  if (typeof message.content !== "string") return [thinkingOf(message), textOf(message)]
  const pieces = message.content.split("</think>")
  return pieces.length === 1 ? ["", message.content] : [pieces[0]?.split("<think>").at(-1) ?? "", pieces.at(-1) ?? ""]
}

const isUnique = (ids: ReadonlyArray<string | undefined>): ids is ReadonlyArray<string> =>
  ids.every((id) => id !== undefined && id !== "") && new Set(ids).size === ids.length

/** Puts consecutive results in the order of the calls if their ids are unambiguous. */
const sorted = (results: ReadonlyArray<Family.Entry>, caller: Message | undefined): ReadonlyArray<Family.Entry> => {
  const calls = caller?.role === "assistant" ? (caller.toolCalls ?? []).map(({ id }) => id) : []
  const ids = results.map(({ message }) => message.toolCallId)
  if (calls.length === 0 || !isUnique(calls) || !isUnique(ids) || !ids.every((id) => calls.includes(id))) return results
  return calls.flatMap((id) => results.filter(({ message }) => message.toolCallId === id))
}

const arrange = (entries: ReadonlyArray<Family.Entry>): ReadonlyArray<Family.Entry> => {
  const all: Array<Family.Entry> = []
  for (let at = 0; at < entries.length;) {
    const end = entries.findIndex(({ message }, index) => index >= at && message.role !== "tool")
    const results = entries.slice(at, end === -1 ? entries.length : end)
    all.push(...sorted(results, entries[at - 1]?.message))
    at += results.length
    const next = entries[at]
    if (next !== undefined) all.push(next)
    at++
  }
  return all
}

/** Returns the token that ends an answer, or undefined if the next message does not start with it. */
const endOf = (message: Message, next: Message | undefined): string | undefined => {
  const expected = (message.toolCalls ?? []).length > 0 ? "<|observation|>" : "<|user|>"
  const isNext = next === undefined || (next.role !== "system" && roles[next.role] === expected)
  return isNext ? expected : undefined
}

const toolsText = (declared: string) => `
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
${declared}</tools>

For each function call, output the function name and arguments within the following XML format:
<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>{arg-value-1}</arg_value><arg_key>{arg-key-2}</arg_key><arg_value>{arg-value-2}</arg_value>...</tool_call>`

const toolPrefix: Family.Family["toolPrefix"] = (tools, systemPrompt) => {
  const declared = tools.map((tool) => {
    const { defer_loading: _, strict: __, ...rest }: Readonly<Record<string, unknown>> = { ...tool }
    return `${PythonJson.print(rest, PythonJson.readable)}\n`
  })
  return Either.right([
    ...(tools.length === 0 ? [] : [{ role: "system", content: toolsText(declared.join("")) }]),
    ...(systemPrompt === "" ? [] : [{ role: "system", content: systemPrompt }]),
  ])
}

/**
 * Creates a renderer for GLM-5.3. White space at the ends of answers is removed, as the template does.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (tokenizer: Tokenizer.Service, options: Options = {}): Effect.Effect<Renderer, RendererError> =>
  Effect.gen(function* () {
    const effort = options.effort ?? "max"
    const name = `glm5_3_${effort}_reasoning`
    for (const token of ["[gMASK]", "<sop>", "<|system|>", "<|assistant|>", "<think>"]) {
      yield* Family.tokenOf(name, tokenizer, token)
    }
    const user = yield* Family.tokenOf(name, tokenizer, "<|user|>")
    const observation = yield* Family.tokenOf(name, tokenizer, "<|observation|>")
    const endOfText = yield* Family.tokenOf(name, tokenizer, "<|endoftext|>")
    const close = yield* Family.tokenOf(name, tokenizer, "</think>")

    const answer = (message: Message, { isLast, next, path }: Family.Place): Family.Result<Family.Rendered> =>
      Either.gen(function* () {
        yield* Family.withoutImages(name, message, path)
        const [thought, said] = partsOf(message)
        const calls = yield* callsText(message.toolCalls ?? [], path)
        const end = endOf(message, next)
        return {
          header: "<|assistant|><think>",
          output: [
            { text: `${thought}</think>${strip(said, "both")}${calls}` },
            ...(isLast || end === undefined ? [] : [{ text: end, fixed: true }]),
          ],
          stopOverlap: end,
        }
      })

    /** Renders a message of another role; its role token may already be the end of the answer before. */
    const other = (message: Message, { path, previous }: Family.Place): Family.Result<Family.Rendered> => {
      const role = roles[message.role]
      if (role === undefined) return Family.reject(name, "Unsupported", `${path}.role: unknown role ${message.role}`)
      const isWritten =
        (message.role === "tool" && previous?.role === "tool") ||
        (message.role !== "system" && previous?.role === "assistant" && endOf(previous, message) !== undefined)
      return Either.map(Family.onlyTexts(name, message, path), (text) => ({
        header: isWritten ? "" : role,
        output: [{ text: message.role === "tool" ? `<tool_response>${text}</tool_response>` : text }],
      }))
    }

    return Family.make(
      {
        name,
        hasExtensionProperty: true,
        stopSequences: [user, observation, endOfText],
        stopTokens: new Set([user, observation, endOfText]),
        bos: `[gMASK]<sop><|system|>Reasoning Effort: ${efforts[effort]}`,
        disablesThinking: false,
        arrange: (entries) => Either.right(arrange(entries)),
        render: (message, place) => (message.role === "assistant" ? answer(message, place) : other(message, place)),
        suffix: (role) => {
          const token = roles[role]
          return token === undefined
            ? Family.reject(name, "Unsupported", `the role ${role} is unknown`)
            : Either.right(role === "assistant" ? `${token}<think>` : token)
        },
        parse: Family.parseWith(
          name,
          tokenizer,
          new Map([
            [user, "stop_sequence"],
            [observation, "stop_sequence"],
            [endOfText, "eos"],
          ]),
          (text) => Tagged.parse(text, style),
          Family.restoring(tokenizer, "<think>", close),
        ),
        scanner: () => Scanner.blocks({ frame: "none", opened: true, call: Scanner.toolCall, gaps: [], after: "" }),
        toolPrefix,
      },
      tokenizer,
    )
  })
