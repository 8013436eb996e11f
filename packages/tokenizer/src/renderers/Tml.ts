/**
 * Inkling (TML): every part is a message of its own, framed by special tokens only.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as ExactJson from "../ExactJson.ts"
import type * as Encoder from "../internal/renderer/Encoder.ts"
import * as Family from "../internal/renderer/Family.ts"
import * as Images from "../internal/renderer/Images.ts"
import * as PythonJson from "../internal/renderer/PythonJson.ts"
import * as Scanner from "../internal/renderer/Scanner.ts"
import * as SerdeJson from "../internal/renderer/SerdeJson.ts"
import { type Message, type Part, parts, text, thinking, type ToolCall } from "../Message.ts"
import type { Delta, Parsed, Parser, Renderer, TrainOn } from "../Renderer.ts"
import type { Failure, RendererError } from "../RendererError.ts"
import type * as Tokenizer from "../Tokenizer.ts"

/**
 * Options of {@link make}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** The reasoning effort, from 0 to 0.99 with at most two decimals. Default: 0.9. */
  readonly effort?: number | undefined
}

const name = "tml_v0"

const authors: Readonly<Record<string, string>> = {
  system: "<|message_system|>",
  tool_declare: "<|message_system|>",
  user: "<|message_user|>",
  assistant: "<|message_model|>",
  tool: "<|message_tool|>",
}

/** The special tokens of the format. */
const tokens = [
  ...new Set(Object.values(authors)),
  "<|content_text|>",
  "<|content_thinking|>",
  "<|content_image|>",
  "<|content_xml|>",
  "<|content_invoke_tool_json|>",
  "<|content_tool_error|>",
  "<|content_model_end_sampling|>",
  "<|end_message|>",
] as const

const modes: ReadonlyArray<TrainOn> = [
  "all_assistant_messages",
  "last_assistant_message",
  "last_assistant_turn",
  "customized",
]

/** The kinds of content that an answer may have. */
const kinds: Readonly<Record<string, "text" | "thinking" | "tool_call">> = {
  "<|content_text|>": "text",
  "<|content_tool_error|>": "text",
  "<|content_thinking|>": "thinking",
  "<|content_invoke_tool_json|>": "tool_call",
}

/** One message of an answer. */
interface Block {
  readonly author: string
  readonly kind: string
  readonly content: string
}

/** Reads a call; returns undefined if it is not in the format. */
const callOf = ({ author, content }: Block, index: number): ToolCall | undefined => {
  const value = Either.getOrUndefined(Either.flatMap(ExactJson.parse(content), SerdeJson.normal))
  if (!(value instanceof Map)) return undefined
  const called: unknown = value.get("name")
  const given: unknown = value.get("args")
  const isKnown = [...value.keys()].every((key) => key === "name" || key === "args")
  if (typeof called !== "string" || !(given instanceof Map) || !isKnown) return undefined
  if (author !== "" && author !== called) return undefined
  return { id: `functions.${called}:${index}`, name: called, arguments: PythonJson.print(given) }
}

const messageOf = (blocks: ReadonlyArray<Block>): Message | undefined => {
  const found: Array<Part> = []
  const calls: Array<ToolCall> = []
  for (const block of blocks) {
    const kind = kinds[block.kind]
    if (kind === "text") found.push(text(block.content))
    else if (kind === "thinking") found.push(thinking(block.content))
    else {
      const call = kind === undefined ? undefined : callOf(block, calls.length)
      if (call === undefined) return undefined
      calls.push(call)
    }
  }
  const [first, ...more] = found
  return {
    role: "assistant",
    content: first?.type === "text" && more.length === 0 ? first.text : found,
    ...(calls.length > 0 && { toolCalls: calls }),
  }
}

/** Declares tools as JSON with sorted keys; a missing description is empty. */
const declared = (content: string, path: string): Family.Result<string> => {
  const wrong = (problem: string) => Family.invalid(`${path}.content`, problem)
  return Either.match(ExactJson.parse(content), {
    onLeft: ({ message }) => wrong(`invalid JSON: ${message}`),
    onRight: (value) => {
      if (!Array.isArray(value)) return wrong("expected an array of tools")
      const tools = value.map((tool: ExactJson.ExactJson) => {
        const own = tool instanceof Map ? tool.get("function") : undefined
        return own instanceof Map
          ? new Map<string, ExactJson.ExactJson>([
              ["description", own.get("description") ?? ""],
              ["name", own.get("name") ?? ""],
              ["parameters", own.get("parameters") ?? new Map()],
              ["type", "function"],
            ])
          : undefined
      })
      return tools.includes(undefined)
        ? wrong("expected a function in every tool")
        : Either.match(
            SerdeJson.print(
              tools.flatMap((tool) => (tool === undefined ? [] : [tool])),
              "all",
            ),
            { onLeft: wrong, onRight: (text) => Either.right(text) },
          )
    },
  })
}

const callText = ({ arguments: given, name: called }: ToolCall, path: string): Family.Result<string> =>
  Either.match(ExactJson.parse(given), {
    onLeft: ({ message }) => Family.invalid(path, `invalid JSON: ${message}`),
    onRight: (value) =>
      value instanceof Map
        ? Either.match(SerdeJson.print(value, "outermost"), {
            onLeft: (problem) => Family.invalid(path, problem),
            onRight: (args) => Either.right(`{"name":${SerdeJson.text(called)},"args":${args}}`),
          })
        : Family.invalid(path, "expected a JSON object"),
  })

/**
 * Creates a renderer for Inkling. Special tokens spelled out in a message are encoded as text. Examples end with the last
 * answer that is trained on, whose tokens are all trained on, including those that frame it.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (tokenizer: Tokenizer.Service, options: Options = {}): Effect.Effect<Renderer, RendererError> =>
  Effect.gen(function* () {
    const effort = options.effort ?? 0.9
    if (!(effort >= 0 && effort < 1 && Math.abs(effort * 100 - Math.round(effort * 100)) < 1e-9)) {
      return yield* Family.reject(name, "Unsupported", `effort ${effort}: expected 0 to 0.99 with at most two decimals`)
    }
    const ids = new Map<string, number>()
    for (const token of tokens) ids.set(token, yield* Family.tokenOf(name, tokenizer, token))
    const names = new Map([...ids].map(([token, id]) => [id, token]))
    const stop = yield* Family.tokenOf(name, tokenizer, "<|content_model_end_sampling|>")
    const special = (token: string): Encoder.Segment => ({ token: ids.get(token) ?? -1 })
    const plain = (text: string): Encoder.Segment => ({ text, plain: true })

    const frame = (author: string, as: string, kind: string, content: Encoder.Segment): Array<Encoder.Segment> => [
      special(author),
      plain(as),
      special(kind),
      content,
      special("<|end_message|>"),
    ]

    const partSegments = (
      message: Message,
      author: string,
      part: Part,
      path: string,
    ): Family.Result<ReadonlyArray<Encoder.Segment>> => {
      const as = message.role === "tool" ? (message.name ?? "") : ""
      if (part.type === "text") return Either.right(frame(author, as, "<|content_text|>", plain(part.text)))
      if (part.type === "thinking") {
        return Either.right(frame(author, as, "<|content_thinking|>", plain(part.thinking)))
      }
      return Either.map(Images.segment(name, part, Images.tml, path), (image) =>
        frame(author, as, "<|content_image|>", image),
      )
    }

    const render = (message: Message, { path }: Family.Place): Family.Result<Family.Rendered> =>
      Either.gen(function* () {
        const { role, toolCalls = [] } = message
        const author = authors[role]
        if (author === undefined) {
          return yield* Family.reject(name, "Unsupported", `${path}.role: unknown role ${role}`)
        }
        if (toolCalls.length > 0 && role !== "assistant") {
          return yield* Family.reject(name, "Unsupported", `${path}.toolCalls: only the assistant calls tools`)
        }
        if (role === "tool_declare") {
          const content = yield* declared(yield* Family.onlyText(name, message, path), path)
          return { header: "", output: frame(author, role, "<|content_xml|>", plain(content)) }
        }
        // An answer with calls has no empty texts.
        const said = parts(message).filter((part) => toolCalls.length === 0 || part.type !== "text" || part.text !== "")
        const output = (yield* Either.all(said.map((part) => partSegments(message, author, part, path)))).flat()
        for (const [index, call] of toolCalls.entries()) {
          const content = yield* callText(call, `${path}.toolCalls[${index}].arguments`)
          output.push(...frame(author, call.name, "<|content_invoke_tool_json|>", plain(content)))
        }
        if (role === "assistant" && output.length > 0) output.push({ token: stop })
        return { header: "", output }
      })

    /** Splits an answer into messages; returns undefined if it is not in the format. */
    const blocksOf = (answer: ReadonlyArray<number>): Effect.Effect<ReadonlyArray<Block> | undefined, Failure> =>
      Effect.gen(function* () {
        const blocks: Array<Block> = []
        let at = 0
        while (at < answer.length) {
          if (names.get(answer[at] ?? -1) === authors["assistant"]) at++
          const start = answer.findIndex((id, index) => index >= at && names.get(id)?.startsWith("<|content_") === true)
          const end = answer.findIndex((id, index) => index > start && names.get(id) === "<|end_message|>")
          const before = answer.slice(at, start)
          if (start === -1 || end === -1 || before.some((id) => names.has(id))) return undefined
          if (before.length > 0 && names.get(answer[at - 1] ?? -1) !== authors["assistant"]) return undefined
          blocks.push({
            author: yield* tokenizer.decode(before),
            kind: names.get(answer[start] ?? -1) ?? "",
            content: yield* tokenizer.decode(answer.slice(start + 1, end)),
          })
          at = end + 1
        }
        return blocks
      })

    const parse = (answer: ReadonlyArray<number>): Effect.Effect<Parsed, Failure> =>
      Effect.gen(function* () {
        const place = answer.indexOf(stop)
        const blocks = place < 1 ? undefined : yield* blocksOf(answer.slice(0, place))
        const message = blocks === undefined ? undefined : messageOf(blocks)
        return message === undefined
          ? { message: { role: "assistant", content: yield* tokenizer.decode(answer) }, termination: "malformed" }
          : { message, termination: "stop_sequence" }
      })

    const parser = (): Parser => {
      const decoder = tokenizer.decoder()
      let all: Array<number> = []
      let state: "before" | "content" | "done" = "before"
      let kind: (typeof kinds)[string] | undefined
      let author: Array<number> = []
      let called = ""
      let index = -1
      const delta = (said: string): ReadonlyArray<Delta> => {
        if (said === "" || kind === undefined) return []
        return kind === "thinking"
          ? [{ type: kind, index, thinking: said }]
          : kind === "text"
            ? [{ type: kind, index, text: said }]
            : [{ type: kind, index, ...(called !== "" && { name: called }), text: said }]
      }
      const step = (id: number): Effect.Effect<ReadonlyArray<Delta>, Failure> =>
        Effect.gen(function* () {
          const token = names.get(id)
          if (state === "done") return []
          if (state === "before") {
            if (token?.startsWith("<|content_") === true) {
              called = yield* tokenizer.decode(author)
              kind = kinds[token]
              state = id === stop ? "done" : "content"
              index++
            } else if (token === undefined) author.push(id)
            return []
          }
          if (token === "<|end_message|>" || id === stop) {
            const last = delta(yield* decoder.finish)
            state = id === stop ? "done" : "before"
            author = []
            return last
          }
          return delta(yield* decoder.push([id]))
        })
      return {
        push: (given) =>
          Effect.map(
            Effect.forEach(Family.numbersOf(given), (id) => {
              all.push(id)
              return step(id)
            }),
            (deltas) => deltas.flat(),
          ),
        finish: Effect.gen(function* () {
          const rest = state === "content" ? delta(yield* decoder.finish) : []
          const answer = all
          all = []
          state = "before"
          author = []
          index = -1
          return [...rest, { type: "end", ...(yield* parse(answer)) }] satisfies ReadonlyArray<Delta>
        }),
      }
    }

    const prelude: Family.Entry = {
      message: { role: "system", content: `Thinking effort level: ${Math.round(effort * 100) / 100}` },
      path: "the effort",
    }

    return Family.make(
      {
        name,
        hasExtensionProperty: true,
        stopSequences: [stop],
        stopTokens: new Set([stop]),
        bos: "",
        disablesThinking: false,
        modes,
        split: (messages, trainOn) => {
          const isTarget = (message: Message) =>
            message.role === "assistant" && (message.trainable ?? true) && !Family.hasNoParts(message)
          return modes.includes(trainOn) && !messages.some(isTarget) ? [] : [[messages.length, trainOn]]
        },
        prefills: false,
        arrange: (entries) => {
          const first = entries.findIndex(({ message }) => authors[message.role] !== authors["system"])
          const at = first === -1 ? entries.length : first
          return Either.right([...entries.slice(0, at), prelude, ...entries.slice(at)])
        },
        render,
        suffix: (role) =>
          role === "assistant"
            ? Either.right("")
            : Family.reject(name, "Unsupported", `the role ${role}: only the assistant answers`),
        parse,
        scanner: Scanner.plain,
        parser,
        toolPrefix: (tools, systemPrompt) =>
          Either.right([
            ...(systemPrompt === "" ? [] : [{ role: "system", content: systemPrompt }]),
            ...(tools.length === 0
              ? []
              : [
                  {
                    role: "tool_declare",
                    content: PythonJson.print(
                      tools.map((tool) => ({ type: "function", function: tool })),
                      { ...PythonJson.compact, sorts: false },
                    ),
                  },
                ]),
          ]),
      },
      tokenizer,
    )
  })
