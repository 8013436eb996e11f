/** Tool calls as XML: `<function=name><parameter=key>value</parameter></function>`. */
import * as Either from "effect/Either"
import * as ExactJson from "../../ExactJson.ts"
import type { ToolCall, UnparsedToolCall } from "../../Message.ts"
import { spaces, strip } from "../template/Text.ts"
import * as Family from "./Family.ts"
import * as PythonJson from "./PythonJson.ts"

/** Reads the arguments of a call as an object; an empty text is an empty object. */
export const argumentsOf = (
  { arguments: given }: ToolCall,
  path: string,
): Family.Result<ReadonlyMap<string, ExactJson.ExactJson>> => {
  if (given === "") return Either.right(new Map())
  return Either.match(ExactJson.parse(given), {
    onLeft: ({ message }) => Family.invalid(path, `invalid JSON: ${message}`),
    onRight: (value) => (value instanceof Map ? Either.right(value) : Family.invalid(path, "expected a JSON object")),
  })
}

/** Writes calls; `print` writes one value. */
export const write = (
  calls: ReadonlyArray<ToolCall>,
  path: string,
  print: (value: ExactJson.ExactJson) => string,
): Family.Result<ReadonlyArray<string>> =>
  Either.all(
    calls.map((call, index) =>
      Either.map(argumentsOf(call, `${path}.toolCalls[${index}].arguments`), (given) => {
        const parameters = [...given].map(([key, value]) => `<parameter=${key}>\n${print(value)}\n</parameter>`)
        return [`<tool_call>\n<function=${call.name}>`, ...parameters, "</function>\n</tool_call>"].join("\n")
      }),
    ),
  )

/** Writes lists and objects as JSON, and everything else as Python's `str` does. */
export const asPython = (value: ExactJson.ExactJson): string =>
  PythonJson.isNested(value) ? PythonJson.print(value) : PythonJson.str(value)

/** Writes texts as they are, and everything else as JSON. */
export const asJson = (value: ExactJson.ExactJson): string =>
  typeof value === "string" ? value : PythonJson.print(value)

const s = `[${spaces}]*`
const block = new RegExp(`^${s}<tool_call>${s}<function=([^>\\n]+)>${s}([^]*?)${s}</function>${s}</tool_call>${s}$`)
const parameter = new RegExp(`<parameter=([^>\\n]+)>${s}([^]*?)${s}</parameter>`, "g")

/** Parses the blocks of a call; returns undefined for blocks in another format. */
export const parse = (text: string): ToolCall | UnparsedToolCall | undefined => {
  if (!text.includes("<function=")) return undefined
  const found = block.exec(text)
  if (found === null) return { text, problem: "Malformed Qwen3.5 tool call XML" }
  const name = strip(found[1] ?? "", "both")
  if (name === "") return { text, problem: "Missing function name" }
  const body = found[2] ?? ""
  const given = new Map<string, ExactJson.ExactJson>()
  let at = 0
  for (const match of body.matchAll(parameter)) {
    if (strip(body.slice(at, match.index), "both") !== "") {
      return { text, problem: "Unexpected non-parameter content inside <function> block" }
    }
    const key = strip(match[1] ?? "", "both")
    if (key === "") return { text, problem: "Empty parameter name" }
    const value = strip(match[2] ?? "", "both", "\n")
    given.set(
      key,
      Either.getOrElse(ExactJson.parse(value), () => value),
    )
    at = match.index + match[0].length
  }
  return strip(body.slice(at), "both") === ""
    ? { name, arguments: PythonJson.print(given) }
    : { text, problem: "Unexpected trailing content inside <function> block" }
}

/** The instructions that follow the declarations of tools. */
export const instructions = `If you choose to call a function ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
This is the value for the second parameter
that can span
multiple lines
</parameter>
</function>
</tool_call>

<IMPORTANT>
Reminder:
- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within <tool_call></tool_call> XML tags
- Required parameters MUST be specified
- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after
- If there is no function call available, answer the question like normal with your current knowledge and do not tell the user about function calls
</IMPORTANT>`

/** Declares tools, given as one text each. */
export const declare = (tools: ReadonlyArray<string>): string =>
  `# Tools\n\nYou have access to the following functions:\n\n<tools>\n${tools.join("\n")}\n</tools>\n\n${instructions}`
