/**
 * Converts between messages and tokens: the prompt for a model, the example to train on, and the parsed answer.
 *
 * @since 0.1.0
 */
import type * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type { ModelInput } from "effect-tinker/ModelInput"
import type { Message, ToolSpec } from "./Message.ts"
import type { Failure } from "./RendererError.ts"
import type { Tokens } from "./Tokenizer.ts"

/**
 * Which tokens of an example are trained on:
 *
 * - `last_assistant_message`: the last message, if it is the assistant's
 * - `last_assistant_turn`: all assistant messages after the last user message, including those between tool results
 * - `all_assistant_messages`, `all_messages`, `all_user_and_system_messages`: these messages without their headers
 * - `all_tokens`: everything, including headers
 * - `customized`: the messages marked `trainable`; every message must set it, and in other modes none may
 *
 * @since 0.1.0
 * @category models
 */
export const TrainOn = Schema.Literal(
  "last_assistant_message",
  "last_assistant_turn",
  "all_assistant_messages",
  "all_messages",
  "all_tokens",
  "all_user_and_system_messages",
  "customized",
)

/**
 * Which tokens of an example are trained on.
 *
 * @since 0.1.0
 * @category models
 */
export type TrainOn = typeof TrainOn.Type

/**
 * Tokens to train on, with a weight for each.
 *
 * @since 0.1.0
 * @category models
 */
export interface Example {
  readonly modelInput: ModelInput
  /** One weight per token; an image has one for each token it takes. */
  readonly weights: Float32Array
}

/**
 * How an answer ended: with the format's own end of message (`stop_sequence`), with the model's end of text (`eos`), or
 * not properly, because it was cut off or ended more than once (`malformed`).
 *
 * @since 0.1.0
 * @category models
 */
export type Termination = "stop_sequence" | "eos" | "malformed"

/**
 * A parsed answer.
 *
 * @since 0.1.0
 * @category models
 */
export interface Parsed {
  /** As much as could be parsed. A malformed answer is a single text with everything in it. */
  readonly message: Message
  readonly termination: Termination
}

/**
 * A piece of an answer parsed from a token stream. `index` counts the parts of the message; it increases when a new
 * part starts.
 *
 * @since 0.1.0
 * @category models
 */
export type Delta =
  | { readonly type: "text"; readonly index: number; readonly text: string }
  | { readonly type: "thinking"; readonly index: number; readonly thinking: string }
  | ToolCallDelta
  | ({ readonly type: "end" } & Parsed)

/**
 * A piece of a tool call as the model writes it: a piece of the arguments if the format names the tool outside of them,
 * otherwise of the whole call.
 *
 * @since 0.1.0
 * @category models
 */
export interface ToolCallDelta {
  readonly type: "tool_call"
  readonly index: number
  readonly name?: string | undefined
  readonly text: string
}

/**
 * Parses an answer incrementally.
 *
 * @since 0.1.0
 * @category models
 */
export interface Parser {
  /** Returns the deltas that can no longer change. */
  readonly push: (tokens: Tokens) => Effect.Effect<ReadonlyArray<Delta>, Failure>
  /** Returns the remaining deltas, the whole message last, and resets the parser. */
  readonly finish: Effect.Effect<ReadonlyArray<Delta>, Failure>
}

/**
 * Options of a generation prompt.
 *
 * @since 0.1.0
 * @category models
 */
export interface PromptOptions {
  /** The role that speaks next. Default: `assistant`. */
  readonly role?: string | undefined
  /** The start of the answer. */
  readonly prefill?: string | undefined
}

/**
 * Renders messages as tokens and parses answers, in the format of one model family.
 *
 * @since 0.1.0
 * @category models
 */
export interface Renderer {
  readonly name: string
  /**
   * Whether the prompt of each turn starts with the prompt and the answer of the previous turn. If so, a conversation
   * is one example whose tokens are processed once; otherwise each turn is a separate example.
   */
  readonly hasExtensionProperty: boolean
  /** Stop sequences for `SamplingParams`: either strings or tokens, never both. */
  readonly stopSequences: ReadonlyArray<string> | ReadonlyArray<number>
  readonly generationPrompt: (
    messages: ReadonlyArray<Message>,
    options?: PromptOptions,
  ) => Effect.Effect<ModelInput, Failure>
  /** Renders one example. Tokens of the generation prompt are never trained on. Default: `last_assistant_message`. */
  readonly supervisedExample: (messages: ReadonlyArray<Message>, trainOn?: TrainOn) => Effect.Effect<Example, Failure>
  /**
   * Renders one example for each trained assistant message, with the history that the model saw at that point, or a
   * single example if the extension property holds. Default: `last_assistant_turn`.
   */
  readonly supervisedExamples: (
    messages: ReadonlyArray<Message>,
    trainOn?: TrainOn,
  ) => Effect.Effect<ReadonlyArray<Example>, Failure>
  /** Parses the answer of a model; the tokens must not include the prompt. */
  readonly parse: (tokens: Tokens) => Effect.Effect<Parsed, Failure>
  readonly parser: () => Parser
  /** Returns the messages that replace the system message at the start of a conversation with tools. */
  readonly toolPrefix: (
    tools: ReadonlyArray<ToolSpec>,
    systemPrompt?: string,
  ) => Effect.Effect<ReadonlyArray<Message>, Failure>
}

/**
 * Parses a stream of tokens. The last delta holds the whole message.
 *
 * @since 0.1.0
 * @category combinators
 */
export const parseStream =
  (renderer: Pick<Renderer, "parser">) =>
  <E, R>(tokens: Stream.Stream<number | Tokens, E, R>): Stream.Stream<Delta, E | Failure, R> =>
    Stream.suspend(() => {
      // Every run of the stream needs its own parser.
      const parser = renderer.parser()
      return tokens.pipe(
        Stream.mapEffect((some) => parser.push(typeof some === "number" ? [some] : some)),
        Stream.concat(Stream.fromEffect(parser.finish)),
        Stream.mapConcat((deltas) => deltas),
      )
    })

/**
 * Returns whether an answer ended properly and can be graded.
 *
 * @since 0.1.0
 * @category getters
 */
export const isClean = ({ termination }: Pick<Parsed, "termination">): boolean => termination !== "malformed"

/**
 * Classifies what is wrong with an answer: `structural` if it did not end properly and the conversation can't continue;
 * `content` if some of its tool calls could not be parsed, in which case the model can be asked again.
 *
 * @since 0.1.0
 * @category getters
 */
export const failureOf = ({ message, termination }: Parsed): "structural" | "content" | undefined =>
  termination === "malformed" ? "structural" : (message.unparsedToolCalls?.length ?? 0) > 0 ? "content" : undefined
