/** `continue_final_message`, as transformers does it: a mark is put behind the final message and looked for after. */
import { Failure } from "./Failure.ts"
import { strip } from "./Text.ts"
import type { Key, Value } from "./Value.ts"
import { Dict, equal, isList, textOf } from "./Value.ts"

const tag = "CONTINUE_FINAL_MESSAGE_TAG "
const bareTag = tag.trimEnd()
const reasoningFields = ["reasoning_content", "thinking", "reasoning"]

const refuse = (problem: string): never => {
  throw new Failure("Input", `continueFinalMessage: ${problem}`, { exception: "ValueError" })
}

const marked = (dict: Dict, fields: ReadonlyArray<string>, change: (value: Value) => Value): Dict => {
  const entries = new Map<Key, Value>(dict.entries)
  for (const field of fields) entries.set(field, change(entries.get(field) ?? null))
  return new Dict(entries)
}

const withTag = (value: Value): Value => `${textOf(value) ?? refuse("the final message is no text")}${tag}`

/** The last part that has text, marked. */
const markParts = (parts: ReadonlyArray<Value>): readonly [ReadonlyArray<Value>, string] => {
  const at = parts.findLastIndex((part) => part instanceof Dict && part.entries.has("text"))
  const part = parts[at]
  if (!(part instanceof Dict)) return refuse("the final message has no text to go on with")
  const text = textOf(part.entries.get("text") ?? null) ?? refuse("the text of the final message is no text")
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
  if (input.addGenerationPrompt === true) return refuse("it can't be asked for together with a generation prompt")
  const field = which === true ? "content" : which
  const last = messages.at(-1)
  const value = last?.entries.get(field) ?? null
  if (last === undefined || value === null) return refuse(`the final message has no "${field}" to go on with`)
  const fields = reasoningFields.includes(field)
    ? reasoningFields.filter((name) => equal(last.entries.get(name) ?? null, value))
    : [field]
  if (!fields.some((name) => source.includes(name))) return refuse(`the template does not use "${field}"`)
  const before = messages.slice(0, -1)
  if (isList(value)) {
    const [parts, final] = markParts(value)
    return { messages: [...before, marked(last, [field], () => parts)], final }
  }
  const final = textOf(value) ?? refuse("the final message is no text")
  return { messages: [...before, marked(last, fields, withTag)], final }
}

/** The text up to where the mark is. */
export const withoutTag = (text: string, final: string): string => {
  const at = text.lastIndexOf(bareTag)
  if (at === -1 || !text.includes(strip(final, "both"))) {
    return refuse(
      "the final message is not in the rendered text as it is; the template changes or leaves out parts of it",
    )
  }
  const before = text.slice(0, at)
  // Without the space of the mark the template has trimmed the message, so what was trimmed before it goes too.
  return text.startsWith(tag, at) ? before : strip(before, "right")
}
