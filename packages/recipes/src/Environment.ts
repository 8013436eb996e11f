/**
 * The world that a policy acts in: it shows the model something to respond to, rates what the model did, and shows it
 * what follows. An environment is used for one rollout, inside a scope that cleans up whatever it started.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as JSONSchema from "effect/JSONSchema"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Message from "@effect-tinker/tokenizer/Message"
import type { Renderer } from "@effect-tinker/tokenizer/Renderer"
import type { Failure as RendererFailure } from "@effect-tinker/tokenizer/RendererError"
import type * as ModelInput from "effect-tinker/ModelInput"
import type { SamplingParams } from "effect-tinker/SamplingParams"
import { textOf } from "./internal/Conversations.ts"

/**
 * The prompt that the model sees before it acts, and where its action ends.
 *
 * @since 0.1.0
 * @category models
 */
export interface Observation {
  readonly prompt: ModelInput.Input
  readonly stop: NonNullable<SamplingParams["stop"]>
}

/**
 * The action of the model.
 *
 * @since 0.1.0
 * @category models
 */
export interface Action {
  readonly tokens: Int32Array
  /** Whether the model stopped by itself or reached the limit of tokens. */
  readonly stopReason: "stop" | "length"
}

/**
 * The result of an action. The rollout ends when there is no next observation.
 *
 * @since 0.1.0
 * @category models
 */
export interface Outcome {
  readonly reward: number
  readonly next?: Observation | undefined
  /** Numbers to average over all rollouts, e.g. `correct`. */
  readonly metrics?: Readonly<Record<string, number>> | undefined
  /** Leaves the action out of training, e.g. because it could not be parsed. */
  readonly masked?: boolean | undefined
}

/**
 * An environment of one rollout.
 *
 * @since 0.1.0
 * @category models
 */
export interface Environment<out E = never, out R = never> {
  readonly start: Effect.Effect<Observation, E, R>
  readonly act: (action: Action) => Effect.Effect<Outcome, E, R>
}

/**
 * A task: every rollout of its group gets a new environment, in a scope of its own.
 *
 * @since 0.1.0
 * @category models
 */
export interface Task<out E = never, out R = never> {
  /** Shows the task to people. */
  readonly name: string
  readonly make: Effect.Effect<Environment<E, R>, E, R | Scope.Scope>
  /** Kinds of tasks that this one belongs to, for metrics. */
  readonly tags?: ReadonlyArray<string> | undefined
}

/**
 * Creates a task in which the model answers once and the answer is rated.
 *
 * @since 0.1.0
 * @category constructors
 */
export const question = <E = never, R = never>(options: {
  readonly renderer: Renderer
  readonly messages: ReadonlyArray<Message.Message>
  /** Rates the text of the answer. */
  readonly reward: (answer: string, message: Message.Message) => Effect.Effect<number, E, R> | number
  readonly tags?: ReadonlyArray<string> | undefined
}): Task<E | RendererFailure, R> =>
  conversation({
    ...options,
    reply: (message) =>
      Effect.suspend(() => {
        const reward = options.reward(Message.textOf(message).trim(), message)
        return Effect.map(Effect.isEffect(reward) ? reward : Effect.succeed(reward), (reward) => ({ reward }))
      }),
  })

/**
 * Creates a task in which the model talks to the environment: `reply` rates a message of the model and returns the
 * messages that follow it, or none at the end of the conversation. It also sees the conversation so far.
 *
 * @since 0.1.0
 * @category constructors
 */
export const conversation = <E = never, R = never>(options: {
  readonly renderer: Renderer
  readonly messages: ReadonlyArray<Message.Message>
  readonly reply: (
    message: Message.Message,
    history: ReadonlyArray<Message.Message>,
  ) => Effect.Effect<
    Omit<Outcome, "next"> & { readonly next?: ReadonlyArray<Message.Message> | undefined },
    E,
    R | Scope.Scope
  >
  readonly tags?: ReadonlyArray<string> | undefined
}): Task<E | RendererFailure, R> => {
  const { messages, renderer, reply, tags } = options
  const observe = (history: ReadonlyArray<Message.Message>): Effect.Effect<Observation, RendererFailure> =>
    Effect.map(renderer.generationPrompt(history), (prompt) => ({ prompt, stop: renderer.stopSequences }))
  return {
    name: textOf(messages),
    tags,
    make: Effect.map(Effect.context<R | Scope.Scope>(), (context) => {
      let history = messages
      return {
        start: observe(history),
        act: ({ tokens }) =>
          Effect.gen(function* () {
            const { message } = yield* renderer.parse(tokens)
            const { next, ...outcome } = yield* Effect.provide(reply(message, history), context)
            if (next === undefined) return outcome
            history = [...history, message, ...next]
            return { ...outcome, next: yield* observe(history) }
          }),
      }
    }),
  }
}

/**
 * A tool that the model may call. It gets the decoded JSON of the call; its result is shown to the model.
 *
 * @since 0.1.0
 * @category tools
 */
export interface Tool<out E = never, out R = never> extends Message.ToolSpec {
  readonly run: (args: unknown) => Effect.Effect<string, E, R>
}

/**
 * Creates a tool whose parameters are a schema. Calls whose arguments do not fit are answered with the reason.
 *
 * @example
 * ```ts
 * import { Environment } from "@effect-tinker/recipes"
 * import { Effect, Schema } from "effect"
 *
 * const add = Environment.tool({
 *   name: "add",
 *   description: "Adds two numbers.",
 *   parameters: Schema.Struct({ a: Schema.Number, b: Schema.Number }),
 *   run: ({ a, b }) => Effect.succeed(a + b),
 * })
 *
 * console.log(await Effect.runPromise(add.run({ a: 2, b: 3 }))) // → 5
 * ```
 *
 * @since 0.1.0
 * @category tools
 */
export const tool = <A, I, R0, E = never, R = never>(options: {
  readonly name: string
  readonly description: string
  /** Usually a `Schema.Struct`. */
  readonly parameters: Schema.Schema<A, I, R0>
  /** A result that is not a string is shown to the model as JSON. */
  readonly run: (args: A) => Effect.Effect<unknown, E, R>
}): Tool<E | InvalidArguments, R0 | R> => {
  const { $schema: _, ...parameters } = JSONSchema.make(options.parameters)
  const decode = Schema.decodeUnknown(options.parameters)
  return {
    name: options.name,
    description: options.description,
    parameters: { ...parameters },
    run: (args) =>
      decode(args).pipe(
        Effect.mapError(({ message }) => new InvalidArguments({ message })),
        Effect.flatMap(options.run),
        Effect.map((result) => (typeof result === "string" ? result : (JSON.stringify(result) ?? "null"))),
      ),
  }
}

/**
 * Reports arguments of a call that do not fit the parameters of its tool.
 *
 * @since 0.1.0
 * @category errors
 */
export class InvalidArguments extends Schema.TaggedError<InvalidArguments>("@effect-tinker/recipes/InvalidArguments")(
  "InvalidArguments",
  { message: Schema.String },
) {}

/**
 * Creates a task in which the model may call tools before it answers. The answer without a call ends the rollout and is
 * rated; a rollout that reaches the limit of turns first has no reward. A tool that fails, does not exist or gets invalid
 * arguments is answered with the reason, so that the model can try again; a tool that dies ends the rollout.
 *
 * `tools/calls` and `tools/failed` count the calls of an action in the metrics.
 *
 * @since 0.1.0
 * @category constructors
 */
export const tools = <E = never, R = never, E2 = never, R2 = never, E3 = never, R3 = never>(options: {
  readonly renderer: Renderer
  /** The conversation so far. A system message at its start is shown together with the tools. */
  readonly messages: ReadonlyArray<Message.Message>
  /** The tools, or an effect that makes them anew for each rollout, e.g. with a sandbox of its own. */
  readonly tools: ReadonlyArray<Tool<E, R>> | Effect.Effect<ReadonlyArray<Tool<E, R>>, E3, R3 | Scope.Scope>
  /** Rates the text of the answer, given the whole conversation before it. */
  readonly reward: (
    answer: string,
    conversation: ReadonlyArray<Message.Message>,
  ) => Effect.Effect<number, E2, R2> | number
  readonly tags?: ReadonlyArray<string> | undefined
}): Task<E2 | E3 | RendererFailure, R | R2 | R3> => {
  const { messages, renderer, reward, tags } = options
  const [first, ...rest] = messages
  const [instructions, others] = first?.role === "system" ? [Message.textOf(first), rest] : ["", messages]
  const made = Effect.isEffect(options.tools) ? options.tools : Effect.succeed(options.tools)
  const task = (prefix: ReadonlyArray<Message.Message>, own: ReadonlyArray<Tool<E, R>>) =>
    conversation<E2, R | R2>({
      renderer,
      messages: [...prefix, ...others],
      reply: (message, history) =>
        Effect.gen(function* () {
          const { toolCalls = [], unparsedToolCalls = [] } = message
          const count = toolCalls.length + unparsedToolCalls.length
          if (count === 0) {
            const rated = reward(Message.textOf(message).trim(), history)
            return { reward: Effect.isEffect(rated) ? yield* rated : rated }
          }
          const results = yield* Effect.forEach(toolCalls, (call) => Effect.either(runCall(own, call)))
          const next = [
            ...toolCalls.map(({ id, name }, at) => resultOf(results[at] ?? Either.left("no result"), name, id)),
            ...unparsedToolCalls.map(({ problem }) => resultOf(Either.left(problem), "unknown", undefined)),
          ]
          const failed = unparsedToolCalls.length + results.filter(Either.isLeft).length
          return { reward: 0, metrics: { "tools/calls": count, "tools/failed": failed }, next }
        }),
    })
  return {
    name: task([], []).name,
    tags,
    make: Effect.gen(function* () {
      const own = yield* made
      return yield* task(yield* renderer.toolPrefix(own, instructions), own).make
    }),
  }
}

/** Runs a call of the model. What it did wrong, and what went wrong in the tool, is a text for the model. */
const runCall = <E, R>(
  tools: ReadonlyArray<Tool<E, R>>,
  { arguments: given, name }: Message.ToolCall,
): Effect.Effect<string, string, R> =>
  Effect.gen(function* () {
    const found = tools.find((tool) => tool.name === name)
    if (found === undefined) return yield* Effect.fail(`there is no tool ${name}`)
    const args = yield* Effect.mapError(decodeJson(given), () => "the arguments are not valid JSON")
    return yield* Effect.mapError(found.run(args), reasonOf)
  })

const decodeJson = Schema.decode(Schema.parseJson())

const reasonOf = (error: unknown): string =>
  typeof error === "object" && error !== null && "message" in error && typeof error.message === "string"
    ? error.message
    : String(error)

const resultOf = (result: Either.Either<string, string>, name: string, id: string | undefined): Message.Message => ({
  role: "tool",
  content: Either.isRight(result) ? result.right : JSON.stringify({ error: result.left }),
  name,
  ...(id !== undefined && { toolCallId: id }),
})
