/** Writes and parses answers with `<think>` and `<tool_call>` blocks. */
import * as Either from "effect/Either"
import * as ExactJson from "../../ExactJson.ts"
import { type Message, type Part, text, thinking, type ToolCall, type UnparsedToolCall } from "../../Message.ts"
import { strip } from "../template/Text.ts"
import * as PythonJson from "./PythonJson.ts"

/** Frames reasoning as the model's template does. */
export const framed = (thought: string): string => `<think>\n${strip(thought, "both", "\n")}\n</think>\n\n`

/** Removes leading newlines, which the frame has already written. */
export const unindented = (text: string): string => strip(text, "left", "\n")

export const callText = (name: string, args: string): string =>
  `<tool_call>\n{"name": ${PythonJson.print(name)}, "arguments": ${args}}\n</tool_call>`

const callOf = (inner: string, whole: string): ToolCall | UnparsedToolCall => {
  const unparsed = (problem: string) => ({ text: whole, problem })
  const json = ExactJson.parse(strip(inner, "both"))
  if (Either.isLeft(json)) return unparsed(`Invalid JSON: ${json.left.message}`)
  const value = json.right
  if (!(value instanceof Map)) return unparsed("Tool call is not a JSON object")
  const name: unknown = value.get("name")
  const given: unknown = value.get("arguments")
  const id: unknown = value.get("id")
  if (typeof name !== "string") return unparsed("Missing or invalid 'name' field")
  if (!(given instanceof Map)) return unparsed("Missing or invalid 'arguments' field")
  return { ...(typeof id === "string" && { id }), name, arguments: PythonJson.print(given) }
}

const blocks = /<think>([^]*?)<\/think>|<tool_call>([^]*?)<\/tool_call>/g

const count = (text: string, part: string) => text.split(part).length - 1

/** Reports a call without an end, which would otherwise be taken for text. */
const dangling = (content: string): ReadonlyArray<UnparsedToolCall> =>
  count(content, "<tool_call>") > count(content, "</tool_call>")
    ? [
        {
          text: content.slice(content.lastIndexOf("<tool_call>")),
          problem: "unterminated tool block: <tool_call> without </tool_call>",
        },
      ]
    : []

/** Parses a whole answer. See `Scanner` for the meaning of `frames`. */
export const parse = (content: string, frames: boolean): Message => {
  const found: Array<Part> = []
  const calls: Array<ToolCall> = []
  const failed: Array<UnparsedToolCall> = []
  let at = 0
  let afterThought = false
  const say = (said: string) => {
    const rest = frames && afterThought ? unindented(said) : said
    if (said !== "") afterThought = false
    if (rest !== "") found.push(text(rest))
  }
  for (const match of content.matchAll(blocks)) {
    const [whole, thought, call = ""] = match
    const before = content.slice(at, match.index)
    // The newline before a call is a separator and not part of the text.
    say(thought === undefined ? before.replace(/\n$/, "") : before)
    at = match.index + whole.length
    if (thought === undefined) {
      const parsed = callOf(call, whole)
      if ("name" in parsed) calls.push(parsed)
      else failed.push(parsed)
      afterThought = false
    } else {
      const inside = frames ? strip(thought, "both", "\n") : thought
      if (inside !== "") found.push(thinking(inside))
      afterThought = true
    }
  }
  const isPlain = at === 0 && !content.includes("<think>") && !content.includes("<tool_call>")
  if (!isPlain) say(content.slice(at))
  const unparsed = [...failed, ...dangling(content)]
  return {
    role: "assistant",
    content: isPlain ? content : found,
    ...(calls.length > 0 && { toolCalls: calls }),
    ...(unparsed.length > 0 && { unparsedToolCalls: unparsed }),
  }
}
