/**
 * Between messages and tokens: the prompt that a model is given, the example that it learns from, and the message that
 * it answered with.
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
 * Which tokens of an example are learnt:
 *
 * - `last_assistant_message`: the last message, if it is the assistant's
 * - `last_assistant_turn`: what the assistant says after the last message of the user, between tool results too
 * - `all_assistant_messages`, `all_messages`, `all_user_and_system_messages`: without what introduces a message
 * - `all_tokens`: with it
 * - `customized`: the messages that are `trainable`, which each of them has to say; otherwise none may
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
 * @since 0.1.0
 * @category models
 */
export type TrainOn = typeof TrainOn.Type

/**
 * Tokens to learn from, and how much each of them counts.
 *
 * @since 0.1.0
 * @category models
 */
export interface Example {
  readonly modelInput: ModelInput
  /** One for each token, images counted as many as they take. */
  readonly weights: Float32Array
}

/**
 * How an answer ended: as this format ends its messages, with the model's end of all text, or not properly: cut off, or
 * ended more than once.
 *
 * @since 0.1.0
 * @category models
 */
export type Termination = "stop_sequence" | "eos" | "malformed"

/**
 * @since 0.1.0
 * @category models
 */
export interface Parsed {
  /** As much as could be understood. What is malformed is one text, as it came. */
  readonly message: Message
  readonly termination: Termination
}

/**
 * What is new, as tokens come. `index` counts the parts of the message: it grows where another part begins.
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
 * A piece of a tool call as the model writes it: of the arguments where the format names the tool outside of them,
 * else of the whole call.
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
 * @since 0.1.0
 * @category models
 */
export interface Parser {
  /** What became certain. */
  readonly push: (tokens: Tokens) => Effect.Effect<ReadonlyArray<Delta>, Failure>
  /** The rest, and the whole message as the last delta. The parser is then as new. */
  readonly finish: Effect.Effect<ReadonlyArray<Delta>, Failure>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface PromptOptions {
  /** Who is to speak. Default: `assistant`. */
  readonly role?: string | undefined
  /** How the answer begins. */
  readonly prefill?: string | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Renderer {
  readonly name: string
  /**
   * Whether the prompt of each turn begins with the prompt and the answer of the turn before. Then a conversation is one
   * example, and its tokens are read once; otherwise each turn is an example of its own.
   */
  readonly hasExtensionProperty: boolean
  /** For `SamplingParams`: texts or tokens, never both. */
  readonly stopSequences: ReadonlyArray<string> | ReadonlyArray<number>
  readonly generationPrompt: (
    messages: ReadonlyArray<Message>,
    options?: PromptOptions,
  ) => Effect.Effect<ModelInput, Failure>
  /** Default: `last_assistant_message`. What the generation prompt supplies is never learnt. */
  readonly supervisedExample: (messages: ReadonlyArray<Message>, trainOn?: TrainOn) => Effect.Effect<Example, Failure>
  /**
   * One for each message of the assistant that is learnt, as it was when the model had to say it; one for all where the
   * extension property holds. Default: `last_assistant_turn`.
   */
  readonly supervisedExamples: (
    messages: ReadonlyArray<Message>,
    trainOn?: TrainOn,
  ) => Effect.Effect<ReadonlyArray<Example>, Failure>
  /** What the model answered, without its prompt. */
  readonly parse: (tokens: Tokens) => Effect.Effect<Parsed, Failure>
  readonly parser: () => Parser
  /** The messages with which a conversation with tools begins, instead of its system message. */
  readonly toolPrefix: (
    tools: ReadonlyArray<ToolSpec>,
    systemPrompt?: string,
  ) => Effect.Effect<ReadonlyArray<Message>, Failure>
}

/**
 * An answer as it comes. The last delta is the whole message.
 *
 * @since 0.1.0
 * @category combinators
 */
export const parseStream =
  (renderer: Pick<Renderer, "parser">) =>
  <E, R>(tokens: Stream.Stream<number | Tokens, E, R>): Stream.Stream<Delta, E | Failure, R> =>
    Stream.suspend(() => {
      // One for each run of the stream.
      const parser = renderer.parser()
      return tokens.pipe(
        Stream.mapEffect((some) => parser.push(typeof some === "number" ? [some] : some)),
        Stream.concat(Stream.fromEffect(parser.finish)),
        Stream.mapConcat((deltas) => deltas),
      )
    })

/**
 * Whether a message could be graded: it ended properly.
 *
 * @since 0.1.0
 * @category getters
 */
export const isClean = ({ termination }: Pick<Parsed, "termination">): boolean => termination !== "malformed"

/**
 * What is wrong with an answer: `structural` if it did not end properly, so that the conversation can't go on;
 * `content` if tool calls in it could not be understood, so that the model could be asked again.
 *
 * @since 0.1.0
 * @category getters
 */
export const failureOf = ({ message, termination }: Parsed): "structural" | "content" | undefined =>
  termination === "malformed" ? "structural" : (message.unparsedToolCalls?.length ?? 0) > 0 ? "content" : undefined
