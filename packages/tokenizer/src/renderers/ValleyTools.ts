/**
 * The model with tools that ships with `@effect-tinker/engine`.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Family from "../internal/renderer/Family.ts"
import * as PythonJson from "../internal/renderer/PythonJson.ts"
import * as Scanner from "../internal/renderer/Scanner.ts"
import * as Tagged from "../internal/renderer/Tagged.ts"
import { type Message, parts, type ToolSpec } from "../Message.ts"
import type { Renderer } from "../Renderer.ts"
import type { RendererError } from "../RendererError.ts"
import type * as Tokenizer from "../Tokenizer.ts"

const name = "valley_tools"

const style = Tagged.qwen3(true)

/** Writes a tool in one line; the model knows parameters by name only. */
const lineOf = ({ description, name, parameters }: ToolSpec): string => {
  const { properties } = parameters
  const names = typeof properties === "object" && properties !== null ? Object.keys(properties) : []
  return `${name}(${names.join(", ")}): ${description}`
}

const toolPrefix: Family.Family["toolPrefix"] = (tools, systemPrompt) => {
  const declared = tools.length === 0 ? [] : [["Tools:", ...tools.map(lineOf)].join("\n")]
  const content = [...(systemPrompt === "" ? [] : [systemPrompt]), ...declared].join("\n\n")
  return Either.right(content === "" ? [] : [{ role: "system", content }])
}

const callsOf = ({ toolCalls = [] }: Message, path: string): Family.Result<ReadonlyArray<string>> =>
  Either.all(
    toolCalls.map((call, index) =>
      Either.match(PythonJson.reprint(call.arguments), {
        onLeft: ({ message }) => Family.invalid(`${path}.toolCalls[${index}].arguments`, `invalid JSON: ${message}`),
        onRight: (args) => Either.right(Tagged.callText(call.name, args)),
      }),
    ),
  )

const textOf = (message: Message, path: string): Family.Result<string> =>
  Either.gen(function* () {
    yield* Family.withoutImages(name, message, path)
    let thought = ""
    let said = ""
    for (const part of parts(message)) {
      if (part.type === "thinking") thought += Tagged.framed(part.thinking)
      else if (part.type === "text") said += part.text
    }
    const calls = yield* callsOf(message, path)
    const answer = [...(said === "" ? [] : [said]), ...calls].join("\n")
    return message.role === "tool" ? `<tool_response>\n${said}\n</tool_response>` : thought + answer
  })

/**
 * Creates a renderer for the local model with tools, equal to its chat template. The model reasons if the system message
 * begins with "Think first."; the history keeps the reasoning.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (tokenizer: Tokenizer.Service): Effect.Effect<Renderer, RendererError> =>
  Effect.gen(function* () {
    yield* Family.tokenOf(name, tokenizer, "<|turn|>")
    yield* Family.tokenOf(name, tokenizer, "<tool_call>")
    const stop = yield* Family.tokenOf(name, tokenizer, "<|end|>")
    const headerOf = (role: string, { index }: Family.Place) => `${index > 0 ? "\n" : ""}<|turn|>${role}\n`

    return Family.make(
      {
        name,
        hasExtensionProperty: true,
        stopSequences: [stop],
        stopTokens: new Set([stop]),
        bos: "",
        disablesThinking: false,
        render: (message, place) =>
          Either.map(textOf(message, place.path), (text) => ({
            header: headerOf(message.role, place),
            output: [{ text: `${text}<|end|>` }],
          })),
        suffix: (role, place) => Either.right(headerOf(role, place)),
        parse: Family.parseWith(name, tokenizer, new Map([[stop, "stop_sequence"]]), (text) =>
          Tagged.parse(text, style),
        ),
        scanner: () => Scanner.blocks(Scanner.qwen3(true)),
        toolPrefix,
      },
      tokenizer,
    )
  })
