/**
 * Parses answers with channels: `<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…`.
 */
import * as Either from "effect/Either"
import * as ExactJson from "../../ExactJson.ts"
import { type Message, type Part, text, thinking, type ToolCall, type UnparsedToolCall } from "../../Message.ts"
import { strip } from "../template/Text.ts"

const recipientOf = (header: string) => /to=([^\s<]+)/.exec(header)?.[1]
const channelOf = (header: string) => /<\|channel\|>([^<\s]+)/.exec(header)?.[1]

const tools = "functions."

/** Returns the kind of body that follows a header, or undefined if the body is ignored. */
export const kindOf = (
  header: string,
): { readonly type: "text" | "thinking" | "tool_call"; readonly name?: string } | undefined => {
  const recipient = recipientOf(header)
  if (recipient?.startsWith(tools) === true) return { type: "tool_call", name: recipient.slice(tools.length) }
  const channel = channelOf(header)
  if (channel === "analysis") return { type: "thinking" }
  return channel === "final" || channel === "commentary" ? { type: "text" } : undefined
}

interface Block {
  readonly header: string
  readonly body: string
  readonly whole: string
}

const block = /((?:(?!<\|message\|>)[^])*)<\|message\|>([^]*?)(<\|end\|>|<\|call\|>|<\|return\|>|$)/g

const blocksOf = (content: string): ReadonlyArray<Block> =>
  [...content.matchAll(block)].map(([whole, before = "", body = ""]) => {
    const start = Math.max(0, before.lastIndexOf("<|start|>"))
    return { header: before.slice(start), body, whole: whole.slice(start) }
  })

/** Parses a whole answer, given without the token that ended it. */
export const parse = (content: string): Message => {
  const found: Array<Part> = []
  const calls: Array<ToolCall> = []
  const failed: Array<UnparsedToolCall> = []
  for (const { body, header, whole } of blocksOf(content)) {
    const kind = kindOf(header)
    if (strip(body, "both") === "" || kind === undefined) continue
    switch (kind.type) {
      case "tool_call": {
        const json = ExactJson.parse(body)
        if (Either.isLeft(json)) failed.push({ text: whole, problem: `Invalid JSON: ${json.left.message}` })
        else calls.push({ name: kind.name ?? "", arguments: strip(body, "both") })
        break
      }
      case "thinking":
        found.push(thinking(body))
        break
      case "text":
        found.push(text(body))
    }
  }
  // A tool call with only a header would otherwise be taken for text.
  if (content.split(`to=${tools}`).length - 1 > calls.length + failed.length) {
    failed.push({
      text: content.slice(Math.max(0, content.lastIndexOf("<|start|>"))),
      problem: "unterminated tool block: a call of a tool without arguments",
    })
  }
  return {
    role: "assistant",
    content: found.length > 0 ? found : content,
    ...(calls.length > 0 && { toolCalls: calls }),
    ...(failed.length > 0 && { unparsedToolCalls: failed }),
  }
}
