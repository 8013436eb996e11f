/**
 * A renderer built from any chat template, for models without a renderer of their own. A template says nothing about
 * weights: they are found by rendering the conversation up to each answer. If that is not a prefix of the whole, the
 * example is rejected.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as ChatTemplate from "../ChatTemplate.ts"
import * as ExactJson from "../ExactJson.ts"
import * as Family from "../internal/renderer/Family.ts"
import * as PythonJson from "../internal/renderer/PythonJson.ts"
import * as Scanner from "../internal/renderer/Scanner.ts"
import * as Tagged from "../internal/renderer/Tagged.ts"
import { isMessage, type Message, textOf, thinkingOf, type ToolSpec } from "../Message.ts"
import type { Example, Renderer, TrainOn } from "../Renderer.ts"
import { type Failure, RendererError } from "../RendererError.ts"
import type { TemplateError } from "../TemplateError.ts"
import type * as Tokenizer from "../Tokenizer.ts"

/**
 * Options of {@link make}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** The name used in errors. Default: the tokenizer's name. */
  readonly name?: string | undefined
  /** Default: the template of the tokenizer. */
  readonly template?: ChatTemplate.ChatTemplate | undefined
  /** Tools passed to the template in every conversation. */
  readonly tools?: ReadonlyArray<ToolSpec> | undefined
  /** Variables passed to the template, such as `enable_thinking`. */
  readonly variables?: ChatTemplate.RenderInput["variables"]
  /** The token that ends an answer. Default: the special token that the template writes after an answer. */
  readonly stop?: string | undefined
}

/** Converts a message to the form that templates expect. */
const toTemplate = (message: Message, path: string): Family.Result<ChatTemplate.TemplateObject> =>
  Either.gen(function* () {
    const { name, role, toolCallId, toolCalls = [] } = message
    const thought = thinkingOf(message)
    const calls = yield* Either.all(
      toolCalls.map(({ arguments: given, id, name }, index) =>
        Either.match(ExactJson.parse(given), {
          onLeft: ({ message }) => Family.invalid(`${path}.toolCalls[${index}].arguments`, `invalid JSON: ${message}`),
          onRight: (args) =>
            Either.right({ type: "function", ...(id !== undefined && { id }), function: { name, arguments: args } }),
        }),
      ),
    )
    return {
      role,
      content: textOf(message),
      ...(thought !== "" && { reasoning_content: thought }),
      ...(calls.length > 0 && { tool_calls: calls }),
      ...(name !== undefined && { name }),
      ...(toolCallId !== undefined && { tool_call_id: toolCallId }),
    }
  })

/**
 * Converts a tool to the form that templates expect; numbers keep their notation if the schema was read by `ExactJson`.
 */
const toolData = (tool: ToolSpec): Either.Either<ChatTemplate.TemplateObject, never> => {
  const { description, name, parameters } = tool
  const schema = Either.getOrElse(ExactJson.parse(PythonJson.print(parameters)), () => null)
  return Either.right({ type: "function", function: { name, description, parameters: schema } })
}

const probe = "\u2603 answer \u2603"

/**
 * Creates a renderer from a chat template. Rejects images. Does not claim the extension property, so
 * `supervisedExamples` returns one example per answer.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  tokenizer: Tokenizer.Service,
  options: Options = {},
): Effect.Effect<Renderer, RendererError | TemplateError> =>
  Effect.gen(function* () {
    const name = options.name ?? tokenizer.name
    const template = options.template ?? (yield* ChatTemplate.fromTokenizer(tokenizer))
    const tools = options.tools === undefined ? undefined : yield* Either.all(options.tools.map(toolData))

    const render = (messages: ReadonlyArray<Message>, addGenerationPrompt: boolean): Effect.Effect<string, Failure> =>
      Effect.gen(function* () {
        const given = yield* Either.all(
          messages.map((message, index) =>
            Either.flatMap(Family.withoutImages(name, message, `messages[${index}]`), () =>
              toTemplate(message, `messages[${index}]`),
            ),
          ),
        )
        return yield* template.render({ messages: given, tools, addGenerationPrompt, variables: options.variables })
      })

    const reject = (reason: RendererError["reason"], problem: string) =>
      new RendererError({ reason, renderer: name, problem })

    const user: Message = { role: "user", content: "?" }
    const probed = yield* Effect.either(render([user, { role: "assistant", content: probe }], false))
    const opening = yield* Effect.either(render([user], true))
    const after = Either.isRight(probed) ? probed.right.split(probe)[1] : undefined
    const ending = tokenizer.specialTokens.all
      .map(({ content }) => ({ content, place: after?.indexOf(content) ?? -1 }))
      .filter(({ place }) => place !== -1)
      .toSorted((one, other) => one.place - other.place)[0]?.content
    const stopText = options.stop ?? ending
    if (stopText === undefined) {
      return yield* reject("Unsupported", "the template writes no special token after an answer; set the option `stop`")
    }
    const stop = yield* Family.tokenOf(name, tokenizer, stopText)
    const frames = template.source.includes("<think>")
    const isTagged = frames || template.source.includes("<tool_call>")
    // Some prompts already open the reasoning block, so that the answer contains only its end.
    const begun = Either.isRight(opening) && /<think>\s*$/.test(opening.right) ? "<think>" : ""

    const encode = (text: string) => tokenizer.encode(text, { addSpecialTokens: false })

    const check = (messages: ReadonlyArray<Message>): Family.Result<void> => {
      const bad = messages.findIndex((message) => !isMessage(message))
      return bad === -1 ? Either.void : Family.invalid(`messages[${bad}]`, "expected a message: { role, content }")
    }

    const trainedIndices = (
      messages: ReadonlyArray<Message>,
      trainOn: TrainOn,
    ): Family.Result<ReadonlyArray<number>> => {
      if (trainOn !== "customized") {
        const marked = messages.findIndex(({ trainable }) => trainable !== undefined)
        if (marked !== -1) {
          return Family.invalid(`messages[${marked}].trainable`, `not allowed with ${trainOn}; use customized`)
        }
        return trainOn === "last_assistant_message" ||
          trainOn === "last_assistant_turn" ||
          trainOn === "all_assistant_messages"
          ? Family.turnsOf(name, messages, trainOn)
          : Family.reject(name, "Unsupported", `${trainOn}: a template does not show where messages begin and end`)
      }
      const silent = messages.findIndex(({ trainable }) => trainable === undefined)
      if (silent !== -1) return Family.invalid(`messages[${silent}].trainable`, "missing; required with customized")
      const other = messages.findIndex(({ role, trainable }) => trainable === true && role !== "assistant")
      return other === -1
        ? Either.right(messages.flatMap(({ trainable }, index) => (trainable === true ? [index] : [])))
        : Family.reject(
            name,
            "Unsupported",
            `messages[${other}] is not the assistant's: a template does not show where it begins`,
          )
    }

    const noPrefix = (index: number) =>
      reject(
        "NoPrefix",
        `messages[${index}]: the prompt for this answer is not a prefix of the example, so the model would be trained on a history that it never sees; use supervisedExamples`,
      )

    const example = (messages: ReadonlyArray<Message>, trainOn: TrainOn): Effect.Effect<Example, Failure> =>
      Effect.gen(function* () {
        const whole = yield* render(messages, false)
        if (trainOn === "all_tokens") {
          const tokens = yield* encode(whole)
          return { modelInput: Family.toInput(tokens), weights: new Float32Array(tokens.length).fill(1) }
        }
        const tokens: Array<number> = []
        const spans: Array<readonly [from: number, to: number]> = []
        let at = 0
        for (const index of yield* trainedIndices(messages, trainOn)) {
          const prompt = yield* render(messages.slice(0, index), true)
          if (!whole.startsWith(prompt) || prompt.length < at) return yield* noPrefix(index)
          for (const token of yield* encode(whole.slice(at, prompt.length))) tokens.push(token)
          // Compares tokens as well: a text split at another place may be encoded differently.
          const given = yield* encode(prompt)
          if (given.length !== tokens.length || given.some((token, place) => token !== tokens[place])) {
            return yield* noPrefix(index)
          }
          // Uses the last stop, because the text of the answer may contain others.
          const own = yield* render(messages.slice(0, index + 1), false)
          const end = own.lastIndexOf(stopText)
          if (end < prompt.length) {
            return yield* reject(
              "Unsupported",
              `messages[${index}]: the template does not end this answer with ${stopText}, so its end is unknown`,
            )
          }
          if (!whole.startsWith(own.slice(0, end + stopText.length))) return yield* noPrefix(index)
          at = end + stopText.length
          const from = tokens.length
          for (const token of yield* encode(whole.slice(prompt.length, at))) tokens.push(token)
          spans.push([from, tokens.length])
        }
        for (const token of yield* encode(whole.slice(at))) tokens.push(token)
        const weights = new Float32Array(tokens.length)
        for (const [from, to] of spans) weights.fill(1, from, to)
        return { modelInput: Family.toInput(Int32Array.from(tokens)), weights }
      })

    const parse = (tokens: ReadonlyArray<number>) =>
      Effect.gen(function* () {
        const { before, stopped } = yield* Family.beforeStop(name, tokens, stop)
        const text = yield* tokenizer.decode(before)
        if (!stopped) return { message: { role: "assistant", content: text }, termination: "malformed" as const }
        const message = isTagged
          ? Tagged.parse(begun + text, Tagged.qwen3(frames))
          : { role: "assistant", content: text }
        return { message, termination: "stop_sequence" as const }
      })

    const scanner = () => {
      return isTagged ? Scanner.blocks({ ...Scanner.qwen3(frames), opened: begun !== "" }) : Scanner.plain()
    }

    return {
      name,
      hasExtensionProperty: false,
      stopSequences: [stop],
      generationPrompt: Effect.fn("Renderer.generationPrompt")(function* (messages, prompt) {
        yield* check(messages)
        if (prompt?.role !== undefined && prompt.role !== "assistant") {
          return yield* reject("Unsupported", "a template can only start answers of the assistant")
        }
        const tokens = yield* encode(yield* render(messages, true))
        const prefill = yield* encode(prompt?.prefill ?? "")
        return Family.toInput(Int32Array.from([...tokens, ...prefill]))
      }),
      supervisedExample: Effect.fn("Renderer.supervisedExample")(function* (messages, trainOn) {
        yield* check(messages)
        return yield* example(messages, trainOn ?? "last_assistant_message")
      }),
      supervisedExamples: Effect.fn("Renderer.supervisedExamples")(function* (messages, trainOn) {
        yield* check(messages)
        const turns = yield* Family.turnsOf(name, messages, trainOn ?? "last_assistant_turn")
        return yield* Effect.forEach(turns, (index) => example(messages.slice(0, index + 1), "last_assistant_message"))
      }),
      parse: (tokens) => Effect.suspend(() => parse(Family.numbersOf(tokens))),
      parser: () => Family.parserOf(tokenizer, { parse, scanner, stopTokens: new Set([stop]) }),
      toolPrefix: () => reject("Unsupported", "the template renders the tools; pass them to Generic.make"),
    } satisfies Renderer
  })
