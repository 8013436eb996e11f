/**
 * DeepSeek V4.1: a reasoning effort at the start, tool calls in blocks of their own markup.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Predicate from "effect/Predicate"
import * as ExactJson from "../ExactJson.ts"
import * as Encoder from "../internal/renderer/Encoder.ts"
import * as Family from "../internal/renderer/Family.ts"
import * as PythonJson from "../internal/renderer/PythonJson.ts"
import * as Scanner from "../internal/renderer/Scanner.ts"
import * as Tagged from "../internal/renderer/Tagged.ts"
import { strip } from "../internal/template/Text.ts"
import { type Message, textOf, thinkingOf, type ToolCall, type UnparsedToolCall } from "../Message.ts"
import type { Renderer } from "../Renderer.ts"
import type { RendererError } from "../RendererError.ts"
import type * as Tokenizer from "../Tokenizer.ts"

/**
 * How a renderer handles reasoning:
 *
 * - `low`, `high`, `max`: the effort; reasoning before the last user turn is left out, unless tools are declared
 * - `preserved`: as `high`, but the history keeps the reasoning
 * - `disabled`: the model does not reason
 *
 * @since 0.1.0
 * @category models
 */
export type Mode = "low" | "high" | "max" | "preserved" | "disabled"

/**
 * Options of {@link make}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Default: `high`. */
  readonly mode?: Mode | undefined
}

const names = {
  low: "deepseekv4_1_low_reasoning",
  high: "deepseekv4_1",
  max: "deepseekv4_1_max_reasoning",
  preserved: "deepseekv4_1_preserve_thinking",
  disabled: "deepseekv4_1_disable_thinking",
} as const

const budgets = { low: 50, high: 75, max: 100, preserved: 75, disabled: undefined } as const

const section = { open: "<｜DSML｜ calls>", close: "</｜DSML｜ calls>" }
const invoke = { open: "<｜DSML｜ invoke ", close: "</｜DSML｜ invoke>" }

const system = "<｜System｜>"

/** The role of a message that declares tools as JSON. */
const declaring = "tool_declare"

/** Reads arguments; texts that are no objects become one argument. */
const argumentsOf = (given: string): ReadonlyMap<string, ExactJson.ExactJson> => {
  let value: ExactJson.ExactJson = given
  // Arguments may be encoded twice.
  for (let times = 0; times < 2 && typeof value === "string"; times++) {
    const parsed: Either.Either<ExactJson.ExactJson, unknown> = ExactJson.parse(value)
    if (Either.isLeft(parsed)) break
    value = parsed.right
  }
  return value instanceof Map ? value : new Map([["arguments", given]])
}

const callsText = (calls: ReadonlyArray<ToolCall>): string => {
  if (calls.length === 0) return ""
  const invokes = calls.map(({ arguments: given, name }) => {
    const parameters = [...argumentsOf(given)].map(([key, value]) => {
      const text = typeof value === "string" ? value : PythonJson.print(value, PythonJson.readable)
      return `<｜DSML｜ parameter name="${key}" string="${String(typeof value === "string")}">${text}</｜DSML｜ parameter>`
    })
    return `${invoke.open}name="${name}">\n${parameters.join("\n")}\n${invoke.close}`
  })
  return `\n\n${section.open}\n${invokes.join("\n")}\n${section.close}`
}

const calls = /(?:\n\n)?<｜DSML｜ calls>([^]*?)<\/｜DSML｜ calls>/
const invokes = /<｜DSML｜ invoke name="([^]*?)">\n([^]*?)<\/｜DSML｜ invoke>/g
const parameters = /<｜DSML｜ parameter name="([^]*?)" string="(true|false)">([^]*?)<\/｜DSML｜ parameter>/g

const isBlank = (text: string) => strip(text, "both") === ""

const parseInvoke = (whole: string, name: string, body: string): ToolCall | UnparsedToolCall => {
  const unparsed = (problem: string) => ({ text: whole, problem: `Invalid DSML: ${problem}` })
  if (isBlank(name)) return unparsed("empty function name")
  if (!isBlank(body.replace(parameters, ""))) return unparsed("text outside parameters")
  const given = new Map<string, ExactJson.ExactJson>()
  for (const [, key = "", isText, text = ""] of body.matchAll(parameters)) {
    if (isBlank(key)) return unparsed("empty parameter name")
    if (given.has(key)) return unparsed(`duplicate parameter ${key}`)
    const value = isText === "true" ? Either.right(text) : ExactJson.parse(text)
    if (Either.isLeft(value)) return unparsed(value.left.message)
    given.set(key, value.right)
  }
  return { name, arguments: PythonJson.print(given) }
}

const parse = (content: string): Message => {
  const block = calls.exec(content)
  const found: Array<ToolCall> = []
  const failed: Array<UnparsedToolCall> = []
  if (block !== null) {
    const [whole, body = ""] = block
    const all = [...body.matchAll(invokes)]
    if (all.length === 0 || !isBlank(body.replace(invokes, ""))) {
      failed.push({ text: whole, problem: "Invalid DSML: malformed invoke" })
    } else {
      for (const [text, name = "", inner = ""] of all) {
        const parsed = parseInvoke(text, name, inner)
        if ("name" in parsed) found.push(parsed)
        else failed.push(parsed)
      }
    }
    const after = content.slice(block.index + whole.length)
    if (!isBlank(after)) failed.push({ text: after, problem: "Invalid DSML: output after calls block" })
  }
  const said = block === null ? content : content.slice(0, block.index)
  const dangling = Tagged.unterminated(said, section.open, section.close)
  failed.push(...dangling)
  if (dangling.length === 0 && said.includes("｜DSML｜")) {
    failed.push({ text: said, problem: "Invalid DSML: marker outside a calls block" })
  }
  return Tagged.withCalls(Tagged.parseThoughts(said), found, failed)
}

const toolsText = (schemas: ReadonlyArray<string>): string => `## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜ calls>" block like the following:

<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>

String parameters should be specified as is and set \`string="true"\`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set \`string="false"\`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

${schemas.join("\n")}

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
`

const isUserTurn = (message: Message | undefined) => message?.role === "user" || message?.role === "tool"

/**
 * Creates a renderer for DeepSeek V4.1. Consecutive results and user messages are one turn; results are put in the order
 * of the calls.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (tokenizer: Tokenizer.Service, options: Options = {}): Effect.Effect<Renderer, RendererError> =>
  Effect.gen(function* () {
    const mode = options.mode ?? "high"
    const name = names[mode]
    const budget = budgets[mode]
    const thinking = budget !== undefined
    const strips = mode !== "preserved"
    const bos = "<｜begin▁of▁sentence｜>"
    for (const token of [bos, "<｜User｜>", "<｜Assistant｜>", system, "<think>"]) {
      yield* Family.tokenOf(name, tokenizer, token)
    }
    const stop = yield* Family.tokenOf(name, tokenizer, "<｜end▁of▁sentence｜>")
    const close = yield* Family.tokenOf(name, tokenizer, "</think>")

    const textIn = ({ message, path }: Family.Entry) =>
      Family.onlyText(name, { role: message.role, content: message.content }, path)

    /** Reads the tools that a message declares. */
    const toolsIn = (entry: Family.Entry): Family.Result<string> =>
      Either.flatMap(textIn(entry), (text) =>
        Either.flatMap(
          Either.mapLeft(ExactJson.parse(text), ({ message }) => message),
          (value) => {
            const specs = Array.isArray(value)
              ? value.map((one) => (one instanceof Map ? one.get("function") : undefined))
              : []
            return Array.isArray(value) && specs.every(Predicate.isNotUndefined)
              ? Either.right(toolsText(specs.map((spec) => PythonJson.print(spec, PythonJson.readable))))
              : Either.left("expected an array of functions")
          },
        ).pipe(Either.orElse((problem) => Family.invalid(`${entry.path}.content`, String(problem)))),
      )

    /** Moves declared tools into the system message at the start. */
    const withTools = (entries: ReadonlyArray<Family.Entry>): Family.Result<ReadonlyArray<Family.Entry>> =>
      Either.gen(function* () {
        const all = [...entries]
        for (const [index, entry] of entries.entries()) {
          if (entry.message.role !== declaring) continue
          const text = yield* toolsIn(entry)
          const [first] = all
          if (index === 0) all[0] = { ...entry, message: { ...entry.message, role: "system", content: `\n\n${text}` } }
          else if (index === 1 && first?.message.role === "system") {
            const content = `${yield* textIn(first)}\n\n${text}`
            all[0] = { ...first, message: { ...first.message, content } }
            all[1] = { ...entry, message: { ...entry.message, content: "" } }
          } else {
            return yield* Family.reject(
              name,
              "Unsupported",
              `${entry.path}: tools must be declared at the start or right after the first system message; use toolPrefix`,
            )
          }
        }
        return all
      })

    /** Joins consecutive user messages and results into one text, which the first of them carries. */
    const withTurns = (entries: ReadonlyArray<Family.Entry>): Family.Result<ReadonlyArray<Family.Entry>> =>
      Either.gen(function* () {
        const all = [...entries]
        let order = new Map<string, number>()
        for (let at = 0; at < all.length; at++) {
          const first = all[at]
          const given = first?.message.toolCalls ?? []
          if (given.length > 0)
            order = new Map(given.flatMap(({ id }, index) => (id === undefined || id === "" ? [] : [[id, index]])))
          if (first === undefined || !isUserTurn(first.message)) continue
          const end = all.findIndex(({ message }, index) => index > at && !isUserTurn(message))
          const turn = all.slice(at, end === -1 ? all.length : end)
          const results = turn
            .filter(({ message }) => message.role === "tool")
            .toSorted(
              (one, other) =>
                (order.get(one.message.toolCallId ?? "") ?? 0) - (order.get(other.message.toolCallId ?? "") ?? 0),
            )
          const texts: Array<string> = []
          for (const entry of turn) {
            const isResult = entry.message.role === "tool"
            const text = yield* textIn(isResult ? (results.shift() ?? entry) : entry)
            texts.push(isResult ? `<tool_result>${text}</tool_result>` : text)
          }
          for (const [index, entry] of turn.entries()) {
            const content = index === 0 ? texts.join("\n\n") : ""
            all[at + index] = { ...entry, message: { ...entry.message, content } }
          }
          at += turn.length - 1
        }
        return all
      })

    const arrange = (entries: ReadonlyArray<Family.Entry>): Family.Result<ReadonlyArray<Family.Entry>> =>
      Either.map(Either.flatMap(withTools(entries), withTurns), (all) => {
        const hasTools = entries.some(({ message }) => message.role === declaring)
        const last = all.findLastIndex(
          ({ message }, index) => isUserTurn(message) || (message.role === "system" && index > 0),
        )
        return all.map((entry, index) => ({ ...entry, dropsReasoning: strips && !hasTools && index <= last }))
      })

    const opening = (role: string) =>
      thinking
        ? `${system}Reasoning Effort: ${budget} (range 1-100, the higher the value, the more thorough the reasoning)\n\n`
        : role === "system"
          ? system
          : ""

    /** Returns the header of an answer; the assistant is named only after a turn of the user. */
    const answerHeader = ({ dropsReasoning, index, previous }: Family.Place): string => {
      const follows = isUserTurn(previous) || (previous?.role === "system" && index > 1)
      const marker = `<｜Assistant｜>${thinking && !dropsReasoning ? "<think>" : "</think>"}`
      return (index === 0 ? opening("assistant") : "") + (follows ? marker : "")
    }

    const render = (message: Message, place: Family.Place): Family.Result<Family.Rendered> => {
      const { index, path, previous } = place
      switch (message.role) {
        case "system":
          return Either.map(textIn({ message, path }), (text) => {
            const [header, output] = Encoder.joint(index === 0 ? opening("system") : system, text)
            return { header, output: [output] }
          })
        case declaring:
          return Either.right({ header: "", output: [] })
        case "user":
        case "tool":
          return isUserTurn(previous)
            ? Either.right({ header: "", output: [] })
            : Either.map(textIn({ message, path }), (text) => ({
                header: `${index === 0 ? opening(message.role) : ""}<｜User｜>`,
                output: [{ text }],
              }))
        case "assistant": {
          const thought = thinking && !place.dropsReasoning ? `${thinkingOf(message)}</think>` : ""
          return Either.map(Family.withoutImages(name, message, path), () => ({
            header: answerHeader(place),
            output: [{ text: thought + textOf(message) + callsText(message.toolCalls ?? []) }, { token: stop }],
          }))
        }
        default:
          return Family.reject(name, "Unsupported", `${path}.role: unknown role ${message.role}`)
      }
    }

    return Family.make(
      {
        name,
        hasExtensionProperty: !(thinking && strips),
        stopSequences: [stop],
        stopTokens: new Set([stop]),
        bos,
        disablesThinking: false,
        arrange,
        turnStart: (messages) =>
          messages.findLastIndex(({ role }, index) => role === "user" || (role === "system" && index > 0)) + 1,
        render,
        suffix: (role, place) => {
          if (role === "assistant") return Either.right(answerHeader(place))
          if (role === declaring) return Either.right("")
          const first = place.index === 0 ? opening(role) : ""
          if (role === "system") return Either.right(place.index === 0 ? first : system)
          if (role !== "user" && role !== "tool") {
            return Family.reject(name, "Unsupported", `the role ${role} is unknown`)
          }
          return Either.right(isUserTurn(place.previous) ? "" : `${first}<｜User｜>`)
        },
        parse: Family.parseWith(
          name,
          tokenizer,
          new Map([[stop, "stop_sequence"]]),
          parse,
          thinking ? Family.restoring(tokenizer, "<think>", close) : undefined,
        ),
        scanner: () =>
          Scanner.blocks({
            frame: "none",
            opened: thinking,
            call: invoke,
            section: { ...section, ends: true },
            gaps: ["\n\n"],
            after: "",
          }),
        toolPrefix: (tools, systemPrompt) =>
          Either.right([
            ...(systemPrompt === "" ? [] : [{ role: "system", content: systemPrompt }]),
            ...(tools.length === 0
              ? []
              : [
                  {
                    role: declaring,
                    content: PythonJson.print(tools.map((tool) => ({ type: "function", function: tool }))),
                  },
                ]),
          ]),
      },
      tokenizer,
    )
  })
