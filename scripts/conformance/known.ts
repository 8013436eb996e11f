/** The known differences from the references, by renderer. docs/renderers.md explains them. */
import type { Failure } from "@effect-tinker/tokenizer/RendererError"
import type { Row } from "./compare.ts"

type Said = Row["messages"][number]

/** Renderers that add a message to some conversations. */
const addsMessage = /^(nemotron3|kimi|gpt_oss_.*_reasoning|qwen3_8_(xhigh|low)_reasoning)/

/** Returns the name of the known difference from the cookbook, or undefined. */
export const cookbook = (
  name: string,
  { messages }: Row,
  mode: string,
  ours: Failure | undefined,
  theirs: string | undefined,
): string | undefined => {
  const isBase = name === "role_colon" || name === "llama3"
  if (isBase && ours?.message.includes(".toolCalls") === true) return "rejects tool calls, which the cookbook drops"
  if (name === "role_colon" && mode !== "prompt" && messages.at(-1)?.role !== "assistant" && ours === undefined) {
    return "writes no placeholder after a last message of others"
  }
  if (mode === "customized" && theirs === "AssertionError" && addsMessage.test(name)) {
    return "does not train on the message that the format adds"
  }
  if (name === "tml_v0" && mode === "last_assistant_turn" && theirs === "NotImplementedError") {
    return "can train on the last turn"
  }
  return undefined
}

const textsOf = ({ content }: Said): ReadonlyArray<string> =>
  typeof content === "string" ? [content] : content.flatMap(({ text, thinking }) => text ?? thinking ?? [])

const isTagged = (text: string) => /<|>|\[gMASK\]|｜|User:/.test(text)

/** Features of conversations that the references treat differently. */
export const features: Readonly<Record<string, (row: Row) => boolean>> = {
  "no messages": ({ messages }) => messages.length === 0,
  "declared tools": ({ tools }) => tools !== null,
  "neighbors of one role": ({ messages }) =>
    messages.some(({ role }, index) => index > 0 && role !== "tool" && role === messages[index - 1]?.role),
  "starts with the assistant": ({ messages }) =>
    (messages[0]?.role === "system" ? messages[1] : messages[0])?.role === "assistant",
  "ends with the assistant": ({ messages }) => messages.at(-1)?.role === "assistant",
  "only a system message": ({ messages }) => messages.every(({ role }) => role === "system"),
  "a later system message": ({ messages }) => messages.some(({ role }, index) => index > 0 && role === "system"),
  "white space at the ends": ({ messages }) =>
    messages.some((one) => textsOf(one).some((text) => text !== text.trim())),
  "empty texts": ({ messages }) => messages.some((one) => textsOf(one).length === 0 || textsOf(one).includes("")),
  "marks in texts": ({ messages }) => messages.some((one) => textsOf(one).some(isTagged)),
  "several texts": ({ messages }) =>
    messages.some(
      ({ content }) => typeof content !== "string" && content.filter(({ type }) => type === "text").length > 1,
    ),
  "texts before reasoning": ({ messages }) =>
    messages.some(
      ({ content }) => typeof content !== "string" && content.findIndex(({ type }) => type === "thinking") > 0,
    ),
  images: ({ messages }) =>
    messages.some(({ content }) => typeof content !== "string" && content.some(({ type }) => type === "image")),
  "images in results": ({ messages }) =>
    messages.some(
      ({ content, role }) =>
        role === "tool" && typeof content !== "string" && content.some(({ type }) => type === "image"),
    ),
  calls: ({ messages }) => messages.some(({ tool_calls = [] }) => tool_calls.length > 0),
  "reasoning before calls": ({ messages }) =>
    messages.some(
      ({ content, tool_calls = [] }) =>
        tool_calls.length > 0 && typeof content !== "string" && content.some(({ type }) => type === "thinking"),
    ),
  "odd arguments": ({ messages }) =>
    messages.some(({ tool_calls = [] }) =>
      tool_calls.some(({ function: { arguments: given } }) =>
        /\\u|[:,][^ ]|e[-+]|\d{17}|true|false|null|\.\d/.test(given),
      ),
    ),
  reasoning: ({ messages }) =>
    messages.some(({ content }) => typeof content !== "string" && content.some(({ type }) => type === "thinking")),
}

/** Odd conversations, which the Rust library merges, trims or fills in other ways than the cookbook. */
const odd = [
  "no messages",
  "neighbors of one role",
  "starts with the assistant",
  "ends with the assistant",
  "only a system message",
  "a later system message",
  "white space at the ends",
  "empty texts",
  "several texts",
  "texts before reasoning",
]

/** The features of ordinary conversations that make a difference, by the prefix of the renderer's name. */
const rules: ReadonlyArray<readonly [prefix: string, features: ReadonlyArray<string>]> = [
  ["deepseekv3", ["calls", "declared tools"]],
  ["deepseekv4_1", []],
  ["glm5_3", ["declared tools"]],
  ["gpt_oss", ["calls", "reasoning", "declared tools"]],
  ["kimi_k2", ["declared tools", "odd arguments", "images in results"]],
  ["nemotron3_ultra", ["calls", "declared tools", "images"]],
  ["nemotron3", ["calls", "declared tools"]],
  ["qwen3_5_preserve_thinking", ["calls", "declared tools", "reasoning"]],
  ["qwen3", ["calls", "declared tools"]],
  ["tml_v0", ["declared tools"]],
]

/** Rewrites the text of the Rust library where it differs from the cookbook's in the same way every time. */
const adjusted = (name: string, { messages, tools }: Row, text: string): readonly [text: string, reason: string] => {
  if (name === "qwen3_vl") return [text.replace(/<think>\n$/, ""), "the prompt does not open the reasoning"]
  if (/^kimi_k2[56]/.test(name)) {
    const framed = text.replaceAll("<|media_end|>", "<|media_end|>\n")
    const needsSystem = tools === null && messages[0]?.role !== "system"
    const system = "<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>"
    return [needsSystem ? system + framed : framed, "a default system message, and a newline after images"]
  }
  return [text, ""]
}

/** Returns the name of the known difference from the Rust library, or undefined. */
export const rust = (name: string, row: Row, ours: string, text: string | undefined): string | undefined => {
  const [rewritten, reason] = text === undefined ? ["", ""] : adjusted(name, row, text)
  if (reason !== "" && rewritten === ours) return `Rust: ${reason}`
  const own = rules.find(([prefix]) => name.startsWith(prefix))?.[1] ?? []
  const found = [...own, ...odd].find((feature) => features[feature]?.(row) === true)
  return found === undefined ? undefined : `Rust: ${found}`
}
