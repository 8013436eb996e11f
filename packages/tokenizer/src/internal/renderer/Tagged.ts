/** Writes and parses answers with `<think>` and `<tool_call>` blocks. */
import * as Either from "effect/Either"
import * as ExactJson from "../../ExactJson.ts"
import { type Message, type Part, text, thinking, type ToolCall, type UnparsedToolCall } from "../../Message.ts"
import { strip } from "../template/Text.ts"
import * as PythonJson from "./PythonJson.ts"

/** Frames reasoning as the template of Qwen3 does. */
export const framed = (thought: string): string => `<think>\n${strip(thought, "both", "\n")}\n</think>\n\n`

/** Removes leading newlines, which the frame has already written. */
export const unindented = (text: string): string => strip(text, "left", "\n")

export const callText = (name: string, args: string): string =>
  `<tool_call>\n{"name": ${PythonJson.print(name)}, "arguments": ${args}}\n</tool_call>`

/** Returns whether a message has reasoning: a part, or an opening tag in a text. */
export const hasThought = ({ content }: Pick<Message, "content">): boolean =>
  typeof content === "string" ? content.includes("<think>") : content.some(({ type }) => type === "thinking")

/** How an answer is written. */
export interface Style {
  /** The white space at the ends of reasoning that belongs to its frame; newlines after a frame belong to it, too. */
  readonly frame: "none" | "newlines" | "spaces"
  /** Separators before a call, the longest first; they are not part of the text. */
  readonly gaps: ReadonlyArray<string>
  /** A separator after a call. */
  readonly after: string
  /** Parses a call that is not JSON. Returns undefined if it is not in the format either. */
  readonly call?: ((block: string) => ToolCall | UnparsedToolCall | undefined) | undefined
  /** Whether to report a call without an end, which would otherwise be taken for text. */
  readonly dangling: boolean
}

/** The style of Qwen3, with or without frames around reasoning. */
export const qwen3 = (frames: boolean): Style => ({
  frame: frames ? "newlines" : "none",
  gaps: ["\n"],
  after: "",
  dangling: true,
})

/** Removes the first separator that the text ends with. */
export const withoutGap = (text: string, gaps: ReadonlyArray<string>): string => {
  const gap = gaps.find((one) => text.endsWith(one))
  return gap === undefined ? text : text.slice(0, text.length - gap.length)
}

const jsonCall = (inner: string, whole: string): ToolCall | UnparsedToolCall => {
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

/** Returns a call that has a start but no end. */
export const unterminated = (content: string, open: string, close: string): ReadonlyArray<UnparsedToolCall> =>
  count(content, open) > count(content, close)
    ? [
        {
          text: content.slice(content.lastIndexOf(open)),
          problem: `unterminated tool block: ${open} without ${close}`,
        },
      ]
    : []

/** Adds calls to a parsed message. */
export const withCalls = (
  content: Message["content"],
  calls: ReadonlyArray<ToolCall>,
  unparsed: ReadonlyArray<UnparsedToolCall>,
): Message => ({
  role: "assistant",
  content,
  ...(calls.length > 0 && { toolCalls: calls }),
  ...(unparsed.length > 0 && { unparsedToolCalls: unparsed }),
})

/** Parses reasoning in a text without calls. */
export const parseThoughts = (content: string): Message["content"] => {
  if (!content.includes("<think>")) return content
  const found: Array<Part> = []
  let at = 0
  const say = (said: string) => {
    if (said !== "") found.push(text(said))
  }
  for (const match of content.matchAll(/<think>([^]*?)<\/think>/g)) {
    say(content.slice(at, match.index))
    at = match.index + match[0].length
    if (match[1] !== undefined && match[1] !== "") found.push(thinking(match[1]))
  }
  say(content.slice(at))
  return found
}

/** Parses a whole answer. */
export const parse = (content: string, style: Style): Message => {
  const found: Array<Part> = []
  const calls: Array<ToolCall> = []
  const others: Array<ToolCall> = []
  const failed: Array<UnparsedToolCall> = []
  const frames = style.frame !== "none"
  let at = 0
  let last: "text" | "thought" | "call" = "text"
  /** Only reasoning up to the first text after it loses spaces; later reasoning loses newlines. */
  let spaces = style.frame === "spaces"
  const say = (said: string) => {
    const rest = frames && last === "thought" ? unindented(said) : said
    if (said !== "" && last === "thought") {
      last = "text"
      if (rest !== "") spaces = false
    }
    if (rest !== "") found.push(text(rest))
  }
  const think = (thought: string) => {
    const inside = frames ? strip(thought, "both", "\n") : thought
    const trimmed = spaces ? strip(inside, "both") : inside
    if (trimmed !== "") found.push(thinking(trimmed))
  }
  for (const match of content.matchAll(blocks)) {
    const [whole, thought, call = ""] = match
    const between = content.slice(at, match.index)
    const before = last === "call" && between.startsWith(style.after) ? between.slice(style.after.length) : between
    say(thought === undefined ? withoutGap(before, style.gaps) : before)
    at = match.index + whole.length
    if (thought !== undefined) {
      think(thought)
      last = "thought"
      continue
    }
    const json = jsonCall(call, whole)
    const parsed = "name" in json ? json : (style.call?.(whole) ?? json)
    if (!("name" in parsed)) failed.push(parsed)
    else if (parsed === json) calls.push(parsed)
    else others.push(parsed)
    last = "call"
  }
  const isPlain = at === 0 && !content.includes("<think>") && !content.includes("<tool_call>")
  const rest = content.slice(at)
  if (!isPlain) say(last === "call" && rest.startsWith(style.after) ? rest.slice(style.after.length) : rest)
  const dangling = style.dangling ? unterminated(content, "<tool_call>", "</tool_call>") : []
  return withCalls(isPlain ? content : found, [...calls, ...others], [...failed, ...dangling])
}
