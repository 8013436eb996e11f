/**
 * Implements `continue_final_message` as transformers does: appends a tag to the final message and finds it in the
 * text.
 */
import { Failure } from "./Failure.ts"
import { strip } from "./Text.ts"
import type { Key, Value } from "./Value.ts"
import { Dict, equal, isList, textOf } from "./Value.ts"

const tag = "CONTINUE_FINAL_MESSAGE_TAG "
const bareTag = tag.trimEnd()
const reasoningFields = ["reasoning_content", "thinking", "reasoning"]

const reject = (problem: string): never => {
  throw new Failure("Input", `continueFinalMessage: ${problem}`, { exception: "ValueError" })
}

const marked = (dict: Dict, fields: ReadonlyArray<string>, change: (value: Value) => Value): Dict => {
  const entries = new Map<Key, Value>(dict.entries)
  for (const field of fields) entries.set(field, change(entries.get(field) ?? null))
  return new Dict(entries)
}

const withTag = (value: Value): Value => `${textOf(value) ?? reject("the final message is not a string")}${tag}`

/** Tags the last part that has text. */
const markParts = (parts: ReadonlyArray<Value>): readonly [ReadonlyArray<Value>, string] => {
  const at = parts.findLastIndex((part) => part instanceof Dict && part.entries.has("text"))
  const part = parts[at]
  if (!(part instanceof Dict)) return reject("the final message has no text to continue")
  const text = textOf(part.entries.get("text") ?? null) ?? reject("the text of the final message is not a string")
  return [parts.with(at, marked(part, ["text"], withTag)), text]
}

export const continueFinal = (
  source: string,
  messages: ReadonlyArray<Dict>,
  input: {
    readonly addGenerationPrompt?: boolean | undefined
    readonly continueFinalMessage?: boolean | string | undefined
  },
): { readonly messages: ReadonlyArray<Dict>; readonly final: string } | undefined => {
  const which = input.continueFinalMessage ?? false
  if (which === false || which === "") return undefined
  if (input.addGenerationPrompt === true) return reject("can't be combined with addGenerationPrompt")
  const field = which === true ? "content" : which
  const last = messages.at(-1)
  const value = last?.entries.get(field) ?? null
  if (last === undefined || value === null) return reject(`the final message has no "${field}" to continue`)
  const fields = reasoningFields.includes(field)
    ? reasoningFields.filter((name) => equal(last.entries.get(name) ?? null, value))
    : [field]
  if (!fields.some((name) => source.includes(name))) return reject(`the template does not use "${field}"`)
  const before = messages.slice(0, -1)
  if (isList(value)) {
    const [parts, final] = markParts(value)
    return { messages: [...before, marked(last, [field], () => parts)], final }
  }
  const final = textOf(value) ?? reject("the final message is not a string")
  return { messages: [...before, marked(last, fields, withTag)], final }
}

/** Cuts the text off at the tag. */
export const withoutTag = (text: string, final: string): string => {
  const at = text.lastIndexOf(bareTag)
  if (at === -1 || !text.includes(strip(final, "both"))) {
    return reject(
      "the final message does not appear unchanged in the rendered text; the template changes or omits parts of it",
    )
  }
  const before = text.slice(0, at)
  // If the space of the tag is gone, the template trims messages, so white space before the tag is trimmed as well.
  return text.startsWith(tag, at) ? before : strip(before, "right")
}
